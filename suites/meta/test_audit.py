"""narrowgauge audit as a user meets it: what is said, in which words, with which exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from narrowgauge.checkpoints import audit as stages
from narrowgauge.checkpoints import blocked
from narrowgauge.checkpoints.asked import Asked, destinations
from narrowgauge.checkpoints.audit import audit
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.kinds import KINDS
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.checkpoints.report import Found, Progress, Report, grouped, pattern_of
from narrowgauge.checkpoints.work import each
from narrowgauge.command.audit_words import where
from narrowgauge.contracts.errors import BadInput, Infrastructure
from narrowgauge.suites.meta.command_sets import as_json, ends, refused, said
from narrowgauge.suites.meta.small_bytes import Raw, bf16, f32, write_safetensors
from narrowgauge.suites.meta.small_checkpoints import write

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]
#: fields of --json, in docs/audit.md too
FIELDS = {
    "schema", "narrowgauge", "asked", "survives", "answers", "findings", "checkpoint", "quantization", "size",
    "passports", "tensors", "online", "left_as_they_are", "against",
}  # fmt: skip
#: an escape sequence that clears a screen, markup of rich, and a tag
HOSTILE = "model.layers.0.\x1b[2J[red]<b>x</b>.weight"


def with_tensors(folder: Path, tensors: dict[str, Raw], config: dict[str, Any] | None = None) -> str:
    folder.mkdir(exist_ok=True)
    write_safetensors(folder / "model.safetensors", tensors)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def kinds(data: Any, decides: bool | None = None) -> set[str]:
    return {f["kind"] for f in data["findings"] if decides is None or f["decides"] == decides}


# --- verdict and exit code -------------------------------------------------------------------------------------------


def test_a_clean_checkpoint_survives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write("ct_FP8", tmp_path / "m").folder)
    text = said(["audit", folder, "--to", "float16"], capsys)
    assert text.startswith("verdict survives: to float16 as it is nothing is wrong to float16 nothing is wrong")
    assert "quantized compressed-tensors, as config.json quantization_config says" in text
    assert "2 × model.layers.*.mlp.down_proj" in text, "one line for the layers of a kind"
    data = as_json(["audit", folder, "--to", "float16"], capsys)
    assert set(data) == FIELDS
    assert data["survives"]
    assert [a["about"] for a in data["answers"]] == ["as it is", "to float16"]
    assert kinds(data, decides=True) == set()


def test_one_wrong_finding_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write("ct_FP8_DYNAMIC", tmp_path / "m", flaw="scale negative").folder)
    data = as_json(["audit", folder], capsys, code=1)
    assert not data["survives"]
    found = next(f for f in data["findings"] if f["kind"] == "scale negative")
    assert found["decides"]
    assert (found["meaning"], found["level"]) == (KINDS["scale negative"].meaning, "wrong")
    assert found["remedy"]
    text = said(["audit", folder], capsys, code=1)
    assert text.startswith("verdict something is wrong: as it is as it is scale negative (1)")
    assert found["tensor"] in text
    assert KINDS["scale negative"].remedy in text


def test_what_is_said_of_headers_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No number of a weight is read, and the verdict says so: a NaN goes unseen."""
    folder = str(write("ct_FP8_DYNAMIC", tmp_path / "m", flaw="scale NaN").folder)
    assert "numbers were not read" in said(["audit", folder, "--headers-only"], capsys)
    data = as_json(["audit", folder, "--headers-only"], capsys)
    assert {t["numbers"] for t in data["tensors"]} == {None}
    assert kinds(as_json(["audit", folder], capsys, code=1), decides=True) == {"scale not finite"}


def test_only_some_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write("bf16", tmp_path / "m").folder)
    for pattern, wanted in (("layers.0.mlp", 3), ("model.layers.?.mlp.up*", 2)):
        data = as_json(["audit", folder, "--only", pattern], capsys)
        assert len([t for t in data["tensors"] if t["numbers"]]) == len(data["tensors"]) == wanted
    assert f"not looked at 19 of 21 tensors, by --only {pattern}" in said(["audit", folder, "--only", pattern], capsys)
    assert "matches none of 21 tensors" in refused(["audit", folder, "--only", "layers.7"], capsys)


def test_what_an_optimizer_keeps_does_not_decide() -> None:
    """The same finding, about a tensor of the model and about one of an optimizer."""
    finding = Finding("scale negative", "", "t")
    assert Found("as it is", finding).decides
    assert not Found("as it is", finding, "optimizer").decides
    assert not Found("as it is", finding, "other").decides
    assert not Found("as it is", Finding("scale in bfloat16", "", "t")).decides


# --- recipes ---------------------------------------------------------------------------------------------------------


def test_a_large_element_ruins_a_tensor_for_one_scale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One element of 448 * 2^11 makes the scale 2^11: up to half of 2^-9 of that becomes 0, which is all the others."""
    weight = np.full((64, 64), 0.5)
    weight[3, 5] = 448 * 2.0**11
    tensors = {"model.layers.0.mlp.up_proj.weight": bf16(weight), "model.embed_tokens.weight": bf16(weight)}
    folder = with_tensors(tmp_path / "m", tensors)
    name = "vllm.fp8_per_tensor_dynamic:float8_e4m3fn"
    data = as_json(["audit", folder, "--to", "vllm.fp8_per_tensor_dynamic"], capsys, code=1)
    (one,) = data["online"]
    assert (one["tensor"], one["to"]) == ("model.layers.0.mlp.up_proj.weight", name)
    counts = one["measured"]["counts"]
    assert {kind: n for kind, n in counts.items() if n} == {"exact": 1, "flushed": 4095}
    assert data["left_as_they_are"] == ["model.embed_tokens.weight"]
    assert [f["about"] for f in data["findings"] if f["kind"] == "quantizing ruins"] == [f"to {name}"]
    assert data["answers"][1] == {
        "about": f"to {name}",
        "survives": False,
        "said": "quantizing ruins (1; 4,095 elements)",
    }
    # a scale for each row: the other rows are as they were
    data = as_json(["audit", folder, "--to", "vllm.fp8_per_token_dynamic"], capsys)
    assert data["online"][0]["measured"]["counts"]["flushed"] == 63


def test_a_recipe_whose_blocks_do_not_divide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = with_tensors(tmp_path / "m", {"model.layers.0.mlp.up_proj.weight": bf16(np.ones((8, 100)))})
    data = as_json(["audit", folder, "--to", "vllm.fp8_group"], capsys, code=1)
    assert "a matrix of 100 columns has no whole number of blocks of 128" in data["online"][0]["refused"]
    assert kinds(data, decides=True) == {"does not fit the recipe"}


# --- the order of the work -------------------------------------------------------------------------------------------


def test_names_come_before_numbers(tmp_path: Path) -> None:
    """A finding of the headers is there before any byte of a tensor is read; progress ends at all bytes."""
    folder = write("deepseek", tmp_path / "m", flaw="block scales missing").folder
    events = list(audit(Asked(folder)))
    first = next(n for n, e in enumerate(events) if isinstance(e, Found) and e.finding.kind == "scale missing")
    steps = [n for n, e in enumerate(events) if isinstance(e, Progress) and e.total]
    assert first < min(steps)
    last = {e.step: (e.done, e.total) for e in events if isinstance(e, Progress) and e.total}
    assert all(done == total for done, total in last.values())
    report = events[-1]
    assert isinstance(report, Report)
    assert report.found == [e for e in events if isinstance(e, Found)]


def test_tensors_are_counted_in_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor in many runs has the census of one in one, and a place is that in the whole tensor."""
    weight = np.linspace(-3, 3, 3000).reshape(30, 100)
    weight[17, 40] = np.nan
    folder = Path(with_tensors(tmp_path / "m", {"a.weight": f32(weight)}))
    whole = list(audit(Asked(folder)))[-1]
    monkeypatch.setattr(stages, "RUN", 64)
    cut = list(audit(Asked(folder)))[-1]
    assert isinstance(whole, Report)
    assert isinstance(cut, Report)
    assert cut.to_json() == whole.to_json()
    assert cut.censuses["a.weight"].nan == 1
    assert cut.censuses["a.weight"].elements == 3000
    assert [p.index for p in cut.censuses["a.weight"].places("NaN")] == [(17, 40)]


def test_numbers_in_blocks_are_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GGUF's bytes are codes of no format: a half of 65504 over 32 int8 makes weights that float16 cannot hold."""
    folder = write("gguf", tmp_path / "m").folder
    stored = open_checkpoint(folder).tensors["blk.1.attn_q.weight"]
    assert stored.dtype == "Q8_0"
    columns = stored.shape[1]
    monkeypatch.setattr(blocked, "PIECE", columns)  # a row
    monkeypatch.setattr(blocked, "RUN", 24)
    with stored.path.open("r+b") as file:
        file.seek(stored.start + (3 * columns // 32 + 1) * 34)  # the second block of row 3
        file.write(b"\xff\x7b")
        codes = np.frombuffer(file.read(32), np.int8)
    data = as_json(["audit", str(folder), "--to", "float16"], capsys, code=1)
    found = next(f for f in data["findings"] if f["decides"])
    assert (found["kind"], found["tensor"]) == ("infinite in float16", "blk.1.attn_q.weight")
    beyond = np.flatnonzero(np.abs(codes.astype(int)) > 1)
    assert found["count"] == beyond.size
    assert [place["index"] for place in found["places"]] == [[3, 32 + int(n)] for n in beyond[:5]]


def test_several_processes_find_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "MUCH", 0)
    folder, original = str(write("ct_FP8", tmp_path / "m").folder), str(write("bf16", tmp_path / "o").folder)
    question = ["audit", folder, "--only", "layers.0.mlp", "--against", original]
    one, two = (as_json([*question, "--workers", n], capsys) for n in ("1", "2"))
    assert one == two
    assert len(one["against"]) == 3


def test_a_process_that_ends_is_told(tmp_path: Path) -> None:
    with pytest.raises(Infrastructure, match="one of 2 processes ended"):
        list(each(os._exit, [1, 1, 1], 2))


def test_an_interrupt_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(report: Report) -> Iterator[stages.Event]:
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "NUMBERS", (interrupted,))
    assert ends(["audit", str(write("bf16", tmp_path / "m").folder)]) == 2
    assert capsys.readouterr() == ("", "narrowgauge: interrupted\n")


# --- findings together -----------------------------------------------------------------------------------------------


def test_findings_of_one_kind_are_one_entry(tmp_path: Path) -> None:
    """The worst first; what is wrong before doubts and notes, then by question; an optimizer's apart."""
    report = list(audit(Asked(write("bf16", tmp_path / "m").folder, destinations(["float16"]))))[-1]
    assert isinstance(report, Report)
    layers = [Finding("scale zero", "", f"model.layers.{n}.x.scale", n) for n in (2, 7, 3)]
    report.found = [
        Found("as it is", Finding("scale in bfloat16", "", "a")),
        Found("to float16", layers[0]),
        *(Found("as it is", one) for one in layers),
        Found("as it is", layers[1], "optimizer"),
        *(Found("as it is", Finding("codes saturate", "", name, 1)) for name in ("a.x", "b.x")),
    ]
    groups = grouped(report)
    assert [(g.kind, g.about, g.first.role, where(g), g.count) for g in groups] == [
        ("scale zero", "as it is", "model", "3 × model.layers.*.x.scale", 12),
        ("scale zero", "to float16", "model", "model.layers.2.x.scale", 2),
        ("scale zero", "as it is", "optimizer", "model.layers.7.x.scale", 7),
        ("codes saturate", "as it is", "model", "2 tensors", 2),
        ("scale in bfloat16", "as it is", "model", "a", 0),
    ]
    assert [f.finding.count for f in groups[0].members] == [7, 3, 2]
    as_it_is, moved = (answer.said for answer in report.answers)
    assert as_it_is == "scale zero (3; 12 elements); in doubt: codes saturate (2)"
    assert moved == "scale zero (1; 2 elements)"


# --- names of strangers ----------------------------------------------------------------------------------------------


def test_a_terminal_is_not_told_what_a_name_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weight = np.full((64, 64), 0.5)
    weight[0, 0] = 2.0**30
    folder = with_tensors(tmp_path / "m", {HOSTILE: bf16(weight)})
    text = said(["audit", folder, "--to", "vllm.fp8_per_tensor_dynamic"], capsys, code=1)
    assert "\x1b" not in text
    assert r"model.layers.0.\x1b[2J[red]<b>x</b>.weight" in text


def test_a_terminal_sees_the_first_of_each_kind_as_it_comes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    large = bf16(np.full((4, 4), 2.0**20))
    folder = with_tensors(tmp_path / "m", {HOSTILE: large, "model.layers.1.x.weight": large})
    assert ends(["audit", folder, "--to", "float16"]) == 1
    err = capsys.readouterr().err
    assert err.count("to float16: infinite in float16 model.layers.") == 1
    assert "\x1b[2J" not in err


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("model.layers.12.experts.3.w1.weight", "model.layers.*.experts.*.w1.weight"), ("conv2_BN.x", "conv2_BN.x")],
)  # fmt: skip
def test_names_that_differ_by_numbers_are_one_pattern(name: str, pattern: str) -> None:
    assert pattern_of(name) == pattern


# --- bad questions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--to", "flaot16"], "did you mean float16"),
        (["--to", "vllm.fp8_grup"], "did you mean vllm.fp8_group"),
        (["--to", "int8"], "nothing is cast to int8 without a scale"),
        (["--to", "nvfp4"], "is not one format"),
        (["--to", "vllm.fp8_group:float8_e5m2"], "has no destination 'float8_e5m2'"),
        (
            ["--to", "fnuz", "--target", "sm_90"],
            "whose fp8 is not FNUZ; leave one out, or give gfx940",
        ),
        (["--to", "float16", "--headers-only"], "--to float16 needs the tensors; leave out --headers-only"),
        (["--against", "x", "--headers-only"], "--against x needs the tensors"),
        (["--kv-cache-dtype", "fp9"], "did you mean fp8"),
        (["--engine", "vllm", "--kv-cache-dtype", "fp9"], "did you mean fp8"),
        (["--engine", "tgi"], "unknown engine 'tgi'"),
        (["--target", "gfx94"], "did you mean gfx942"),
        (["--target", "MI300"], "did you mean gfx942"),
        (["--target", "h200"], "did you mean sm_90"),
        (["--bandwidth", "0"], "expected terabytes a second"),
        (["--workers", "0"], "expected 1 or more"),
        (["--top", "0"], "expected 1 or more"),
        (["--html", "page.pdf"], "ends in .html"),
    ],
)
def test_what_cannot_be_asked(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = with_tensors(tmp_path / "m", {"a.weight": bf16(np.ones((2, 2)))})
    assert words in refused(["audit", folder, *options], capsys)


def test_an_original_is_another_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = with_tensors(tmp_path / "m", {"a.weight": bf16(np.ones((2, 2)))})
    assert "is the checkpoint itself" in refused(["audit", folder, "--against", f"{folder}/../m"], capsys)


def test_a_check_that_did_not_run_is_no_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Against another model, and where nothing is quantized; one weight that is there is enough."""
    quantized, plain = (str(write(kind, tmp_path / kind).folder) for kind in ("ct_FP8", "bf16"))
    other = with_tensors(tmp_path / "other", {"a.weight": bf16(np.ones((2, 2)))})
    for folder, original, count in ((quantized, other, 14), (plain, other, 0)):
        data = as_json(["audit", folder, "--against", original], capsys, code=1)
        assert kinds(data, decides=True) == {"nothing compared"}
        assert f"of {count} quantized weights none has its original" in data["findings"][-1]["said"]
    assert as_json(["audit", quantized, "--against", plain, "--only", "layers.0.mlp.up"], capsys)["survives"]


def test_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert str(tmp_path) in refused(["audit", str(tmp_path)], capsys)
    assert "nowhere" in refused(["audit", str(tmp_path / "nowhere")], capsys)
    text = tmp_path / "config.json"
    text.write_text('{"architectures": []}')
    assert f"{text}, byte 0: neither name nor beginning" in refused(["audit", str(text)], capsys)
    assert ends(["audit"]) == 4


def test_processes_leave_ctrl_c_to_their_parent() -> None:
    """Else each of them ends in a traceback of its own."""
    assert all(blocked for _, blocked in each(_interrupt_blocked, [1, 2], 2))
    assert not _interrupt_blocked(0), "and here it is not"


def _interrupt_blocked(_: int) -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    """rich would end with 1, which says that something is wrong; 0 would say that nothing is."""
    folder = with_tensors(tmp_path / "m", {"a.weight": bf16(np.ones((2, 2)))})
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "narrowgauge", "audit", folder, "--headers-only"]
    try:
        assert subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False).returncode == 141
    finally:
        os.close(writing)


def test_where_numbers_are_to_go() -> None:
    """Aliases are one destination; a target of FNUZ gets a recipe's destination of FNUZ."""
    assert [d.name for d in destinations(["fp16", "half", "float16", "FNUZ"])] == ["float16", "fnuz"]
    recipe = "vllm.fp8_per_tensor_dynamic"
    assert destinations([recipe])[0].format == "float8_e4m3fn"
    assert destinations([recipe], "gfx942")[0].format == "float8_e4m3fnuz"
    assert destinations([f"{recipe}:e4m3fn"], "gfx942")[0].format == "float8_e4m3fn"
    assert destinations(["nvidia.nvfp4_divisor"], "gfx942")[0].name == "nvidia.nvfp4_divisor"
    with pytest.raises(BadInput, match="nothing is cast to float32"):
        destinations(["float32"])


def test_the_same_can_be_asked_again() -> None:
    """What the page prints as its command leads to the same question."""
    asked = Asked(
        Path("m"), destinations(["fnuz", "vllm.fp8_group"], "gfx942"), "gfx942", "vllm", "fp8", Path("o"), Path("l"),
        True, 8.0, 1, "mlp*",
    )  # fmt: skip
    import argparse

    from narrowgauge.command import audit as command

    parser = argparse.ArgumentParser()
    command.register(parser.add_subparsers())
    assert command.asked_of(parser.parse_args(["audit", "m", "--workers=1", *asked.words()])) == asked
    plain = Asked(Path("m"), headers_only=True)
    assert command.asked_of(parser.parse_args(["audit", "m", "--workers=1", *plain.words()])) == plain
