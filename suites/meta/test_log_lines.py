"""Known lines of engines' logs: found, counted, and the same as in the engines' sources."""

from __future__ import annotations

import ast
import os
import re
import tracemalloc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.kinds import KINDS
from narrowgauge.checkpoints.kinds.engines import ENGINES
from narrowgauge.checkpoints.log_lines import LINES
from narrowgauge.checkpoints.log_lines.line import Line
from narrowgauge.checkpoints.logs import LONGEST, PLACES, literal, log_findings
from narrowgauge.contracts.errors import BadInput
from narrowgauge.suites.meta.engines.loading import folder_of

pytestmark = pytest.mark.meta

#: what stands before a message: of vLLM, of one of its workers, of SGLang
V = "WARNING 11-30 09:12:01 [kv_cache.py:165] "
WORKER = "(EngineCore_DP0 pid=77) " + V
S = "[2026-11-30 09:12:01 TP0] "
#: first words of lines as the engines write them, and the kind of each
RECORDED: tuple[tuple[str, str], ...] = (
    (f"{V}Using KV cache scaling factor 1.0 for fp8_e4m3. If this is", "cache at 1.0"),
    (f"{WORKER}Using uncalibrated q_scale 1.0 and/or prob_scale 1.0 with fp8", "query or probabilities at 1.0"),
    (f"{V}Checkpoint does not provide a q scaling factor. Setting it", "query or probabilities at 1.0"),
    (f"{V}Casting torch.bfloat16 to torch.float16.", "cast between 16 bits"),
    (f"{V}Downcasting torch.float32 to torch.bfloat16.", "cast from 32 bits"),
    (
        f"{S}Found k_scale in the checkpoint (e.g. model.layers.0.k_scale), but not found the expected name in the "
        "model (e.g. model.layers.0.attn.k_scale). k_scale is not loaded.",
        "a scale is dropped",
    ),
    (
        f"{V}Found kv_scale in the checkpoint (e.g. a.kv_scale), but not found the expected name in the model (e.g. "
        "a.attn.k_scale). kv_scale is not loaded.",
        "a scale is dropped",
    ),
    (f"{S}Parameter model.layers.3.self_attn.k_scale not found in params_dict", "a tensor has no place"),
    (f"{S}model.layers.3.self_attn.k_scale not found in params_dict.", "a tensor has no place"),
    (f"{S}awq quantization is not fully optimized yet. The speed", "not the fast path"),
    (f"{S}Using FP8 KV cache but no scaling factors provided. Defaulting", "cache at 1.0"),
    (f"{V}In NVFP4 linear, the global weight scale differs across parallel", "shards differ"),
    (f"{V}In FP8 linear, the static input scale differs across", "activation scales merged"),
    (f"{V}NVFP4 Marlin assumes the scales to be >=0, but", "scale of the wrong sign"),
    (
        f"{V}Your GPU does not have native support for FP8 computation but FP8 quantization is being used.",
        "weights only",
    ),
    (
        "RuntimeError: CUDA error: HIPBLAS_STATUS_NOT_SUPPORTED when calling `hipblasLtMatmulAlgoGetHeuristic`",
        "formats do not go together",
    ),
    (f"{S}Requantizing from quant_method='fp8' to the requested", "requantized"),
)
#: lines of a start without trouble, and some that are near
FINE = (
    f"{V}Using KV cache scaling factor 0.5 for fp8_e4m3",
    f"{V}Using FP8 KV cache",
    "INFO 11-30 09:12:00 [model.py:1820] Using max model len 32768",
    "INFO 11-30 09:12:00 [weight_utils.py:392] Using model weights format ['*.safetensors']",
    "Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:02<00:00,  1.42it/s]",
    f"{S}Load weight end. elapsed=3.10 s, type=LlamaForCausalLM, dtype=torch.bfloat16",
    f"{S}server_args=ServerArgs(model_path='m', quantization='fp8', kv_cache_dtype='auto')",
    "Castings are made of iron.",
    "",
)


def found(tmp_path: Path, text: str | bytes) -> list[Finding]:
    path = tmp_path / "start.log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(log_findings(path))


@pytest.mark.parametrize(("line", "kind"), RECORDED, ids=[str(n) for n in range(len(RECORDED))])
def test_a_recorded_line(line: str, kind: str, tmp_path: Path) -> None:
    """Between others, its number is said, and it is one kind alone."""
    (finding,) = found(tmp_path, "\n".join([*FINE, line, *FINE]))
    assert finding.kind == f"log: {kind}" in KINDS
    assert finding.places[0].index == (len(FINE) + 1,)
    assert finding.said.startswith(f"line {len(FINE) + 1}: ")
    assert " times: " not in finding.said
    assert finding.places[0].value in line


def test_lines_without_trouble_and_an_empty_file(tmp_path: Path) -> None:
    assert found(tmp_path, "\n".join(FINE)) == []
    assert found(tmp_path, "") == []


def test_repeats_are_counted_and_the_first_places_kept(tmp_path: Path) -> None:
    """Of two kinds, the one whose first line comes first is said first."""
    lines = [RECORDED[7][0], "a", RECORDED[0][0], *[RECORDED[7][0]] * 7]
    first, second = found(tmp_path, "\r\n".join(lines) + "\r\n")
    assert first.kind == "log: a tensor has no place"
    assert [place.index for place in first.places] == [(1,), (4,), (5,)][:PLACES]
    assert "line 1, 8 times: " in first.said
    assert "says it once" not in first.said, "each name is said"
    assert len(second.places) == 1
    assert "says it once" in second.said


def test_a_line_of_both_engines_is_counted_once(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, "\n".join([RECORDED[5][0]] * 9))
    assert finding.said.startswith("line 1, 9 times: ")


def test_where_both_engines_say_it_both_sources_are_named(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, RECORDED[5][0])
    assert "vllm (vllm/model_executor/model_loader/weight_utils.py:" in finding.said
    assert "sglang (sglang/srt/model_loader/weight_utils.py:" in finding.said


def test_colours_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    text = f"\x1b[1;33m{V}\x1b[0mUsing KV cache scaling \x1b[31mfactor\x1b[0m 1.0 for fp8_e4m3\n".encode()
    (finding,) = found(tmp_path, b"\xff\xfe\x00\xc3\n\x80" + text)
    assert finding.places[0].index == (2,)


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    """A line of 40 MB without an end, then a known one: its number is 2, and what stands far inside is passed over."""
    known = RECORDED[0][0].encode()
    path = tmp_path / "long.log"
    with path.open("wb") as file:
        for _ in range(40):
            file.write(b"x" * (1 << 20))
        file.write(known + b"\n" + known + b"\n")
    tracemalloc.start()
    (finding,) = log_findings(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert finding.places[0].index == (2,)
    assert peak < 64 * LONGEST


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(BadInput, match="is no file; expected a text file"):
            list(log_findings(path))


@pytest.mark.parametrize("head", [b"\x1f\x8b\x08", b"BZh9", b"PK\x03\x04"])
def test_compressed_logs_are_refused(head: bytes, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is compressed; unpack it first"):
        found(tmp_path, head + bytes(50))


@pytest.mark.parametrize("whole", [RECORDED[3][0].encode("utf-16"), bytes(range(256)) * 8])
def test_what_is_no_text_is_refused(whole: bytes, tmp_path: Path) -> None:
    """Of a log that was sent to a file by PowerShell nothing would be found, and nothing would seem wrong."""
    with pytest.raises(BadInput, match="is no text in UTF-8"):
        found(tmp_path, whole)


def test_a_log_that_was_cut_while_it_was_written(tmp_path: Path) -> None:
    """It begins with zeros, and has escapes of colours."""
    assert found(tmp_path, bytes(3000) + b"\x1b[33m" + RECORDED[3][0].encode() + b"\x1b[0m\n")


def test_files_that_are_none(tmp_path: Path) -> None:
    for path in (tmp_path / "no.log", tmp_path):
        with pytest.raises(BadInput, match=r"--log .*expected a text file"):
            list(log_findings(path))


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"Casting \S+ to \S+\.", "Casting "),
        (r"a(bc )?defg", "defg"),
        (r"abc?d", "ab"),
        (r"1\.0 \(e\.g\.", "1.0 (e.g."),
        (r"(?<!Parameter )\b\S+\.\S+ not found", " not found"),
    ],
)
def test_the_longest_text_of_a_pattern(pattern: str, text: str) -> None:
    assert literal(pattern) == text


def test_kinds_and_patterns() -> None:
    assert min(len(literal(line.pattern)) for line in LINES) >= len("Casting ")
    kinds = {f"log: {line.kind}" for line in LINES}
    assert kinds == {name for name in ENGINES if name.startswith("log: ")}, "each kind has a line, each line a kind"
    assert len({(line.engine, line.source) for line in LINES}) == len(LINES)


# --- against the engines ---------------------------------------------------------------------------------------------


def _text(node: ast.AST) -> str | None:
    """The literal of a message, with something in each of its holes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%(\.\d+)?[a-z]", "x.y", node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "x.y" for v in node.values)
    return None


@cache
def _calls(path: Path) -> dict[int, list[tuple[str, str]]]:
    """Line -> name of what is called, and the text of its message."""
    calls: dict[int, list[tuple[str, str]]] = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            texts = [text for each in node.args[:2] if (text := _text(each))]
            calls.setdefault(node.lineno, []).extend((name, text) for text in texts)
    return calls


def _of(engine: str) -> Iterator[Line]:
    if folder_of(engine) is None:
        pytest.skip(f"{engine} is not in the path: its messages cannot be read")
    yield from (line for line in LINES if line.engine == engine)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_each_line_stands_in_the_engines_source(engine: str, tmp_path: Path) -> None:
    """Formatted from the literal at its place, each is found; and is said once where the call says so."""
    for line in _of(engine):
        file, _, number = line.source.rpartition(":")
        folder = folder_of(engine)
        assert folder is not None
        said = [(name, text) for name, text in _calls(folder.parent / file).get(int(number), []) if text]
        fitting = [(name, text) for name, text in said if re.search(line.pattern, text)]
        assert fitting, (line, said)
        assert line.once == any("once" in name for name, _ in fitting), line
        kinds = {finding.kind for finding in found(tmp_path, fitting[0][1].replace("\n", " "))}
        assert kinds == {f"log: {line.kind}"}, (line, kinds)
