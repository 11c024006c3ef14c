"""What targets compute of quantized weights: rows typed from the sources, and the sources themselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from narrowgauge.checkpoints.engines import of_sglang, of_vllm
from narrowgauge.checkpoints.engines.caches import TAKES
from narrowgauge.checkpoints.engines.fused import REQUANTIZES
from narrowgauge.checkpoints.engines.paths import (
    ALGORITHMS,
    FAMILIES,
    MINIMUM,
    ON_AMD,
    OWN_NAMES,
    RULES,
    SCHEME_MINIMUM,
    SOURCES,
    WHERE,
)
from narrowgauge.checkpoints.methods import METHODS
from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.passports import Passport
from narrowgauge.checkpoints.schemes import SCHEMES
from narrowgauge.checkpoints.sizes import NOT_IN_FLOAT16
from narrowgauge.checkpoints.targets import KINDS, STORED_FNUZ, family_of, gpu_named, own_name, path
from narrowgauge.contracts.errors import BadInput
from narrowgauge.devices.targets import E4, E4Z, TARGETS
from narrowgauge.suites.meta.engines.loading import folder_of

pytestmark = pytest.mark.meta

ENGINES = ("vllm", "sglang")
#: family, method, then for vLLM and SGLang what becomes of it on each of ON; "." units, w weights only, c converted, q
#: requantized, e emulated, R refused, ? not known
ON = ("sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120", "gfx90a", "gfx942", "gfx950")
LETTERS = {"units": ".", "weights only": "w", "converted": "c", "requantized": "q", "emulated": "e", "refused": "R",
           "not known": "?"}  # fmt: skip
TABLE = (
    ("fp8", "fp8", "ww....Rc.", "Rw....?c."),
    ("fp8", "modelopt", "Rw....Rc.", "RR....RRR"),
    ("fp8", "compressed-tensors", "ww....Rc.", "Rw....?c."),
    ("fp8", "quark", "RR....Rc.", "RR....?c."),
    ("fp8", "w8a8_fp8", "ww....RRR", "RR....?c."),
    ("fp8 block", "fp8", "ww.qqqec.", "Rw..q.?c."),
    ("fp8 weights", "compressed-tensors", "wwwwww???", "Rwwwww???"),
    ("mxfp8", "modelopt", "Rwww..ee.", "RRRR..Rc."),
    ("mxfp4", "mxfp4", "Rwww..ee.", "RwwwwwRR."),
    ("mxfp4", "quark", "wwww..ee.", "wwwwww??."),
    ("mxfp4", "compressed-tensors", "Rwww..ee.", "wwwwww??."),
    ("nvfp4", "modelopt", "wwww..eee", "Rwww..RRR"),
    ("nvfp4", "compressed-tensors", "wwww..eee", "Rwww..???"),
    ("int8", "compressed-tensors", ".........", "R.....???"),
    ("int8", "w8a8_int8", "......RRR", "......RRR"),
    ("int4", "compressed-tensors", "wwwwwwwww", "Rwwwwwwww"),
    ("int4", "gptq", "wwwwwwwww", "RwwwwwRRR"),
    ("int4", "awq", "wwwwwwwww", "wwwwwwwww"),
)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]} {row[1]}")
def test_a_row_typed_from_the_sources(row: tuple[str, str, str, str]) -> None:
    family, method, *expected = row
    for engine, letters in zip(ENGINES, expected, strict=True):
        got = "".join(LETTERS[path(family, method, engine, target).becomes] for target in ON)
        assert got == letters, engine


@pytest.mark.parametrize("target", TARGETS)
def test_no_unit_is_claimed_that_the_target_has_not(target: str) -> None:
    """Against devices.targets, which knows nothing of engines: OCP products, and conversions to FNUZ."""
    hardware = TARGETS[target].hardware
    for engine in ("", *ENGINES):
        for method in ("fp8", "quark", "modelopt"):
            for family in ("fp8", "fp8 block"):
                becomes = path(family, method, engine, target).becomes
                if becomes in ("units", "requantized"):
                    assert E4 in hardware, (engine, family, becomes)
                assert becomes != "converted" or E4Z in hardware
                if E4Z in hardware:
                    assert becomes in ("converted", "refused"), (engine, family, becomes)
    assert (path("fp8", "", "", target).becomes == "units") == (E4 in hardware)


def test_bytes_that_are_stored_as_fnuz() -> None:
    """They are native where FNUZ is, and nowhere else; what an engine makes of them is not known."""
    assert path(STORED_FNUZ, "", "", "gfx942").becomes == "units"
    assert path(STORED_FNUZ, "", "", "gfx950").becomes == path(STORED_FNUZ, "", "", "sm_90").becomes == "emulated"
    assert path(STORED_FNUZ, "fp8", "vllm", "gfx942").becomes == "not known"
    stored = Stored("a.weight", "F8_E4M3FNUZ", (4, 4), Path("m"), 0, 16, "float8_e4m3fnuz", "model")
    assert family_of(Passport("a", SCHEMES["fp8"], {"weight": stored}, (4, 4), None, "", "names alone")) == STORED_FNUZ


def test_models_that_are_refused_in_float16() -> None:
    """As vLLM 0.33.0 has them, and as its source says where it is at hand."""
    assert set(NOT_IN_FLOAT16) == {"gemma2", "gemma3", "gemma3_text", "glm4"}
    source = (_folder("vllm") / "vllm" / "config" / "model.py").read_text()
    table = source.partition("_FLOAT16_NOT_SUPPORTED_MODELS = {")[2].partition("}")[0]
    assert set(re.findall(r'^\s*"(\w+)":', table, re.MULTILINE)) == set(NOT_IN_FLOAT16)


def test_capabilities() -> None:
    """As torch says them: hipDeviceProp's major and minor, without the stepping."""
    expected = {"sm_75": 75, "sm_103": 103, "gfx90a": 90, "gfx942": 94, "gfx950": 95, "gfx1100": 110, "gfx1151": 115,
                "gfx1201": 120, "gfx1250": 125}  # fmt: skip
    assert {name: gpu_named(name).capability for name in expected} == expected
    assert gpu_named("cpu").backend == "cpu"
    assert path("fp8", "fp8", "vllm", "cpu").becomes == "not known"
    with pytest.raises(BadInput, match="unknown target 'sm_91'"):
        gpu_named("sm_91")


def test_own_names() -> None:
    assert own_name("vllm", "modelopt", "nvfp4") == "modelopt_fp4"
    assert own_name("vllm", "modelopt", "fp8") == "modelopt"
    assert own_name("sglang", "modelopt", "fp8") == "modelopt_fp8"
    assert own_name("sglang", "awq", "int4") == "awq"
    for (engine, method), names in OWN_NAMES.items():
        assert method == "compressed_tensors" or engine in METHODS[method].engines
        for name in names.values():
            assert engine in METHODS[name].engines, (engine, name)


def test_declarations_hang_together() -> None:
    assert {rule.where for rule in RULES} == set(WHERE)
    assert {rule.source for rule in RULES} == set(SOURCES)
    assert {family for rule in RULES for family in rule.families} == set(FAMILIES)
    assert {rule.becomes for rule in RULES} <= set(LETTERS)
    assert set(KINDS) == set(LETTERS) - {"units"}
    assert {family for *_, family in SCHEME_MINIMUM} <= set(FAMILIES)
    for engine, method in (*MINIMUM, *((engine, method) for engine, method, _ in SCHEME_MINIMUM)):
        assert engine in METHODS[method].engines, (engine, method)
    for number, rule in enumerate(RULES):  # a rule that others before it always precede would be dead
        gpus = [gpu_named(name) for name in (*TARGETS, "cpu") if WHERE[rule.where](gpu_named(name))]
        assert any(
            not any(
                other.engine == rule.engine
                and family in other.families
                and not other.methods
                and WHERE[other.where](gpu)
                for other in RULES[:number]
            )
            for gpu in gpus
            for family in rule.families
        ), rule


# --- against the engines ---------------------------------------------------------------------------------------------


def _folder(engine: str) -> Path:
    folder = folder_of(engine)
    if folder is None:
        pytest.skip(f"{engine} is not in the path: its sources cannot be read")
    return folder.parent


@pytest.mark.parametrize("engine", ENGINES)
def test_what_methods_ask_for_in_the_engines_source(engine: str) -> None:
    """The last number that ``get_min_capability`` returns, at the line that is named."""
    folder = _folder(engine)
    for (owner, method, *_), (capability, source) in (*MINIMUM.items(), *SCHEME_MINIMUM.items()):
        if owner != engine:
            continue
        file, _, line = source.rpartition(":")
        functions = [n for n in ast.walk(ast.parse((folder / file).read_text())) if isinstance(n, ast.FunctionDef)]
        (function,) = [f for f in functions if f.name == "get_min_capability" and f.lineno == int(line)]
        returns = [r.value for r in ast.walk(function) if isinstance(r, ast.Return)]
        numbers = [n.value for value in returns for n in ast.walk(value) if isinstance(n, ast.Constant)]  # type: ignore[arg-type]
        assert capability in numbers, (method, numbers)
        assert method == "fp8" or len(numbers) == 1 or capability == numbers[-1], (method, numbers)


@pytest.mark.parametrize("engine", ENGINES)
def test_lists_of_methods_on_amd_in_the_engines_source(engine: str) -> None:
    folder = _folder(engine)
    methods, source = ON_AMD[engine]
    file, _, lines = source.rpartition(":")
    first, last = map(int, lines.split("-"))
    text = (folder / file).read_text().splitlines()[first - 1 : last]
    assert re.match(r"\s*(rocm_)?supported_quantization", text[0])
    assert re.findall(r'^\s*"([^"]+)",', "\n".join(text), re.MULTILINE) == list(methods)


def test_algorithms_of_modelopt_in_vllms_source() -> None:
    tree = ast.parse((_folder("vllm") / "vllm/model_executor/layers/quantization/modelopt.py").read_text())
    tables = [n.value for n in tree.body if isinstance(n, ast.AnnAssign) and ast.unparse(n.target) == "LINEAR_ALGOS"]
    assert tables[0] is not None
    assert ALGORITHMS["vllm"][0] == (*ast.literal_eval(tables[0]), "MIXED_PRECISION")


def test_algorithms_of_modelopt_in_sglangs_source() -> None:
    text = (_folder("sglang") / "sglang/srt/layers/quantization/modelopt_quant.py").read_text()
    (listed,) = re.findall(r"if quant_method not in (\[[^]]*NVFP4_AWQ[^]]*\]):", text)
    assert ALGORITHMS["sglang"][0] == (*ast.literal_eval(listed), "MXFP8", "MIXED_PRECISION")


def _named() -> Iterator[str]:
    yield from SOURCES.values()
    yield from (source for *_, source in ALGORITHMS.values())
    yield from (source for _, source in TAKES.values())
    yield from (row.source for rows in REQUANTIZES.values() for row in rows)
    yield from (loader.source for of in (of_vllm, of_sglang) for loader in of.LOADERS.values())


@pytest.mark.parametrize("engine", ENGINES)
def test_every_place_that_is_named_is_there(engine: str) -> None:
    """Files, and lines that they have; a reader who looks there must not find another file."""
    folder = _folder(engine)
    for named in _named():
        for part in named.split("; "):
            file, _, lines = part.rpartition(":")
            if file.startswith(f"{engine}/"):
                there = len((folder / file).read_text().splitlines())
                assert all(int(number) <= there for number in re.findall(r"\d+", lines)), part
