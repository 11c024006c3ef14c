"""``narrowgauge probe`` on the host, and by files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.operations import Claim
from narrowgauge.golden.safetensors_file import read, write
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.suites.meta import probe_kernels
from narrowgauge.suites.meta.command_sets import as_json, refused, said
from narrowgauge.suites.probing import write_probes

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]

FILE = str(Path(probe_kernels.__file__))
HALF = "matmul/plain.matmul/float16/float16"


def test_a_kernel_on_the_host_has_its_portrait(capsys: pytest.CaptureFixture[str]) -> None:
    """And fails, since its contract claims another one."""
    asked = ["probe", f"--kernel={FILE}:promoted_although_it_says_not", "--device=host", "--k=256", "--repeats=1"]
    data = as_json(asked, capsys, code=1)
    found = {name: finding["value"] for name, finding in data["findings"].items()}
    assert (found["width"], found["promotion"], found["output"], found["repeats"]) == ("23", "64", "once", "same")
    assert data["summary"] == "23 bits, sums of 64 added up, chain of 1"
    assert "plain.fma (operands as float32)" in data["units"]["fits"]
    assert data["claim"] == HALF
    (wrong,) = data["not_as_claimed"]
    assert wrong.startswith("promotion is claimed to be none; found: 64")


def test_what_cannot_be_probed_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments, words in (
        (["probe"], "one of --kernel, --write and --read; given none"),
        (["probe", "--kernel=x", "--write=y"], "given kernel and write"),
        (["probe", "--write=y"], "--write needs --claim"),
        (["probe", "--write=y", "--claim=cast/ocp_saturate/float32/int8"], "probes ask products of matrices"),
        (["probe", "--write=y", f"--claim={HALF}", "--k=100"], "K of 100: probes need a multiple of 128"),
        (["probe", "--write=y", f"--claim={HALF}", "--rows=100"], "--rows 100; expected a multiple of 128"),
        (
            ["probe", f"--kernel={FILE}", "--device=host"],
            "promoted_although_it_says_not, refuses; give FILE:NAME",
        ),
        (["probe", f"--kernel={FILE}:refuses", "--device=host"], "raised: ValueError: K of 512 is not for me"),
        (["probe", "--kernel=nowhere.py"], "no such file"),
    ):
        assert words in refused(arguments, capsys), arguments


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def launched(tmp_path: Path) -> Path:
    path = tmp_path / "in.safetensors"
    write_probes(Claim.parse(HALF), path, 256)
    return path


def results(inputs: Path, left_out: str = "") -> dict[str, Coded]:
    """What a program that runs elsewhere makes of a file."""
    held = read(inputs).tensors
    found = {}
    for name in sorted({name.partition(".")[0] for name in held} - ({left_out} if left_out else set())):
        x, b = (held[f"{name}.{part}"].as_format("float16").codes.view(np.float16) for part in ("x", "b"))
        with np.errstate(over="ignore"):  # off the diagonal, where nobody looks
            product = probe_kernels.half(x, b, 64).astype(np.float16)
        found[f"{name}.codes"] = Coded("float16", product.view(np.uint16))
    return found


def test_files_tell_the_same(launched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.safetensors"
    made = results(launched)
    write(out, made, {}, typed=True)
    data = as_json(["probe", "--read", str(launched), str(out)], capsys, code=0)
    assert data["summary"] == "23 bits, sums of 64 added up, chain of 1"
    assert not data["notes"]
    text = said(["probe", "--read", str(launched), str(out)], capsys)
    assert "out on a file, matmul/plain.matmul/float16/float16 23 bits, sums of 64 added up, chain of 1" in text
    assert "promotion every 64 products the sum is added to another" in text
    assert "not to be seen" in text
    write(out, {name: each for name, each in made.items() if not name.startswith("b")}, {}, typed=False)
    data = as_json(["probe", "--read", str(launched), str(out)], capsys, code=0)
    assert data["findings"]["promotion"]["value"] == "64"
    assert "not asked at K = 128" in data["notes"][0]
    assert np.isfinite(decode_values(made["a0.codes"])).any()


def test_files_that_are_not_these_are_refused(
    launched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.safetensors"
    write(out, {"a0.codes": Coded("float16", np.zeros((2, 2), np.uint16))}, {}, typed=True)
    words = refused(["probe", "--read", str(launched), str(out)], capsys)
    assert "'a0.codes': it returned uint16 of float16 [2, 2]; expected codes of float16 [256, 256]" in words
    assert "expected 'narrowgauge.probes/1'" in refused(["probe", "--read", str(out), str(out)], capsys)
    write(out, {"b0.codes": Coded("float16", np.zeros((2, 2), np.uint16))}, {}, typed=True)
    assert "holds no tensor 'a0.codes'" in refused(["probe", "--read", str(launched), str(out)], capsys)
