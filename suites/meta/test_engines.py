"""The engines' part of the catalogue: every row of the facts, what a call of an engine is, and what was run."""

from __future__ import annotations

import itertools
import re
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.recipe import TENSOR, Blocks, Destination, Recipe, group
from narrowgauge.reference.fast_codec import to_float32
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.reference.recipes.dispatch import CALLS, FACTS, calls_of, dispatch, possible
from narrowgauge.suites.meta.against_engines import Count, _codes, _numbers, line_of
from narrowgauge.suites.meta.command_sets import as_json, refused, said
from narrowgauge.suites.meta.engine_rows import ELSEWHERE, ROWS
from narrowgauge.suites.meta.engines.loading import Engine, folder_of
from narrowgauge.suites.meta.engines.unrun import UNRUN, of_engines

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]

CHECKED = Path(__file__).resolve().parents[2] / "docs" / "recipes-checked.md"
#: facts that a line's own conditions do not fix, tried in every combination
TRIED = {
    "arch": ("cpu", "sm_90", "sm_100", "sm_120", "gfx942", "gfx950"),
    "dtype": ("float32", "bfloat16", "float16"),
    "to": ("float8_e4m3fn", "int8", "fp8", "fp4"),
    "per": ("tensor", "token", "channel", "group", "head"),
    "scale": ("given", "computed"),
    "group": ("64", "128"),
    "rows_per_multiprocessor": ("0.5", "15.9", "16", "40"),
    "layout": ("row_major", "column_major"),
    "scale_is": ("tensor", "number"),
    "rounding": ("up", "down"),
    "search": ("default", "4"),
} | dict.fromkeys(("upper_bound", "symmetric", "ue8m0", "contiguous", "aiter", "compiled"), ("yes", "no"))


# --- coverage --------------------------------------------------------------------------------------------------------


def covered(names: str) -> set[str]:
    return {recipe for pattern in names.split() for recipe in RECIPES if fnmatchcase(recipe, pattern)}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_names_recipes_that_exist(row: str) -> None:
    for pattern in ROWS[row].split():
        assert covered(pattern), pattern


def test_every_recipe_of_an_engine_is_in_a_row() -> None:
    assert set(of_engines(RECIPES)) - set().union(*(covered(names) for names in ROWS.values())) == set()
    assert not set(ROWS) & set(ELSEWHERE)


# --- what a call is --------------------------------------------------------------------------------------------------


def test_facts_are_all_used_and_tried() -> None:
    used = {name for lines in CALLS.values() for line in lines for name in line.where}
    assert used == set(FACTS)
    assert set(TRIED) == set(FACTS)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_one_recipe_at_most(call: str) -> None:
    """Whatever the facts; and each of its lines is the answer to some, and names a recipe that exists."""
    lines = CALLS[call]
    names = sorted({name for line in lines for name in line.where})
    answered = set()
    for values in itertools.product(*(TRIED[name] for name in names)):
        facts = dict(zip(names, values, strict=True))
        found = possible(call, facts)
        assert len(found) <= 1, (facts, found)
        if found:
            answered.add(id(found[0]))
            assert dispatch(call, **facts) == found[0].recipe
        else:
            with pytest.raises(BadInput, match="no recipe is known"):
                dispatch(call, **facts)
    assert answered == {id(line) for line in lines}
    assert {line.recipe for line in lines} <= set(RECIPES)


@pytest.mark.parametrize(
    ("call", "facts", "recipe"),
    [
        ("sglang.per_token_quant_fp8", {"rows_per_multiprocessor": 16}, "sglang.fp8_per_token_warp"),
        ("sglang.per_token_quant_fp8", {"rows_per_multiprocessor": 2111 / 132}, "sglang.fp8_per_token_cta"),
        ("vllm.per_block_cast_to_fp8", {"arch": "sm_90", "ue8m0": "no"}, "vllm.fp8_block_gpu"),
        ("vllm.per_block_cast_to_fp8", {"arch": "cpu", "ue8m0": "no"}, "vllm.fp8_block"),
        ("vllm.reshape_and_cache_flash", {"arch": "gfx942", "dtype": "float16", "per": "head"},
         "vllm.kv_fp8_head_rocm_float16"),
        ("vllm.scaled_fp8_quant", {"scale": "computed", "per": "tensor"}, "vllm.fp8_per_tensor_dynamic"),
        ("sglang.quantize_block_fp8_weight_to_mxfp4", {"arch": "gfx950"}, "sglang.mxfp4_rne"),
    ],
)  # fmt: skip
def test_known_calls(call: str, facts: dict[str, str], recipe: str) -> None:
    assert dispatch(call, **facts) == recipe


def test_what_is_missing_or_unknown_is_said() -> None:
    with pytest.raises(BadInput, match=r"depends on rows_per_multiprocessor \(rows of x over"):
        dispatch("sglang.per_token_quant_fp8")
    with pytest.raises(
        BadInput, match=r"unknown call of an engine 'vllm\.scaled_fp8_quent'; did you mean vllm\.scaled_fp8"
    ):
        dispatch("vllm.scaled_fp8_quent")
    with pytest.raises(BadInput, match=r"unknown fact of a call 'arh' in .*did you mean arch"):
        dispatch("sglang.per_token_quant_fp8", arh="sm_90")
    with pytest.raises(BadInput, match=r"'many'; expected a number \(>=16\)"):
        dispatch("sglang.per_token_quant_fp8", rows_per_multiprocessor="many")


def test_explain_a_call(capsys: pytest.CaptureFixture[str]) -> None:
    for call, lines in CALLS.items():
        text, data = said(["explain", call], capsys), as_json(["explain", call], capsys)
        assert text.startswith(f"{call}: a call of an engine")
        assert [r["recipe"] for r in data["recipes"]] == [line.recipe for line in lines]
        assert all(line.recipe in text for line in lines)
    narrowed = as_json(["explain", "sglang.per_token_quant_fp8 rows_per_multiprocessor=3"], capsys)
    assert [r["recipe"] for r in narrowed["recipes"]] == ["sglang.fp8_per_token_cta"]
    assert "expected NAME=VALUE" in refused(["explain", "sglang.per_token_quant_fp8 sm_90"], capsys)
    assert "no recipe is known for that" in refused(["explain", "vllm.per_token_group_quant_fp8 arch=cpu"], capsys)


def test_explain_a_recipe_says_its_calls(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(calls_of("sglang.fp8_per_token_cta")) == 2
    text = said(["explain", "sglang.fp8_per_token_cta"], capsys)
    assert "called as: sglang.per_token_quant_fp8, rows_per_multiprocessor <16" in text


# --- against the engines' sources ------------------------------------------------------------------------------------


def test_the_page_leaves_no_recipe_out() -> None:
    """Each is in the table of what was run, where nothing differs, or among what was not, with the reason."""
    run, _, not_run = CHECKED.read_text().partition("## Not run")
    rows = [line.split(" | ") for line in run.splitlines() if re.match(r"\| \w+\.", line)]
    names = {row[0].removeprefix("| ") for row in rows}
    assert len(rows) > 40
    assert [row for row in rows if (row[5], row[7]) != ("0", "0") or int(row[4]) < 10000] == []
    told = dict(re.findall(r"^\| (\w+\.\S+) \| (.+) \|$", not_run, re.M))
    assert told == UNRUN
    assert names & set(told) == set()
    assert names | set(told) == set(of_engines(RECIPES))


def test_what_the_program_counts_as_different() -> None:
    """NaN is one code, a wider container's upper bits are none, zeros have signs."""
    want = Coded("float8_e4m3fn", np.array([[0x7F, 0x80, 0x38]], np.uint8))
    assert _codes(np.array([[0xFF, 0x80, 0x38]], np.uint8), want).tolist() == [[False, False, False]]
    assert _codes(np.array([[0x7E, 0x00, 0x39]], np.uint8), want).tolist() == [[True, True, True]]
    assert _codes(np.array([[-1]], np.int8), Coded("int4", np.array([[0x0F]], np.uint8))).tolist() == [[False]]
    zeros = np.array([0.0, -0.0, np.nan], np.float32)
    assert _numbers(zeros, zeros[[1, 1, 2]]).tolist() == [True, False, False]
    count = Count("a.b", "int8", "float32", "cpu", 8, 1, 2, 0, example="rows: [0, 1] is 3, not 4")
    assert "1 of 8 codes and 0 of 2 others differ; rows: [0, 1] is 3, not 4" in line_of(count)


def test_an_engine_that_is_not_there_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of its own is read; what it imports besides stands in, with the answers that are given."""
    assert folder_of("no_such_engine") is None
    package = tmp_path / "an_engine"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('the whole engine')\n")
    source = "from an_engine.other import helper, decorate\n@decorate('name')\ndef f(x):\n    return x + helper()\n"
    (package / "deep" / "part.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("sys.meta_path", list(__import__("sys").meta_path))
    engine = Engine("an_engine", ("deep.part",), {"other": {"helper": lambda: 2}})
    assert engine.module("deep.part").f(3) == 5


# --- NaN alone -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [group(2), TENSOR], ids=str)
def test_a_maximum_without_a_seed_is_nan_where_all_are(blocks: Blocks, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bands of every size; a block without elements has 0."""
    nan = np.nan
    matrix = np.array([[nan, nan, 1, nan], [nan, nan, -3, 2], [nan, nan, nan, nan]], np.float32)
    recipe = Recipe(
        name="a", blocks=blocks, destinations=(Destination("float32", 1.0, "ieee"),), amax_nan="all",
        steps=(("scale", ("amax",)),), element=("x",), source="",
    )  # fmt: skip
    for band in (1, 4, 1 << 20):
        monkeypatch.setattr("narrowgauge.reference.quantize._BAND", band)
        for x, want in (
            (matrix, [[nan, 1], [nan, 3], [nan, nan]] if blocks == group(2) else [[3]]),
            (np.full((3, 2), nan, np.float32), [[nan]] * 3 if blocks == group(2) else [[nan]]),
            (np.zeros((0, 4), np.float32), np.zeros((0, 2)) if blocks == group(2) else [[0]]),
        ):
            got = quantize(Coded("float32", x.view(np.uint32)), recipe, "float32")["scale"]
            np.testing.assert_array_equal(to_float32(got), np.array(want, np.float32))
