"""narrowgauge identify: kernels in their processes, files, and the command."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from narrowgauge import Cast, CastPolicy, observe
from narrowgauge.command import identify as command_module
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.operations import Claim
from narrowgauge.golden.safetensors_file import write
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.policies import POLICIES
from narrowgauge.suites import run as runs
from narrowgauge.suites.identifying import Found, identify_kernel
from narrowgauge.suites.meta.command_sets import as_json, ends, refused, said
from narrowgauge.suites.offline import write_inputs
from narrowgauge.suites.run import Run

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]

E4 = "float8_e4m3fn"
#: to nearest even, 448 for all that lies beyond it, NaN for NaN: who says so
SATURATE = {name for name, named in POLICIES.items() if named.by_format.get(E4) == CastPolicy()}

# --- kernels ---------------------------------------------------------------------------------------------------------

KERNELS = """
    import os, time
    import numpy as np
    import ml_dtypes
    from narrowgauge import Cast, kernel, observe

    half = kernel(Cast("ocp_saturate"), ["float8_e4m3fn"], ["float16"], backend="numpy")

    def right(x):
        return np.clip(x.astype(np.float32), -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)

    @kernel(Cast("ocp_nonsaturate"), ["float8_e4m3fn"], ["float16", "bfloat16"], backend="numpy")
    def not_what_it_claims(x, format):
        return right(x)

    @half
    def all_but_one(x, format):
        codes = right(x)
        codes[x == 1] = 0x39
        return codes

    @half
    def nothing(x, format):
        return (x.view(np.uint16) * 7 >> 3).astype(np.uint8)

    @half
    def crashes(x, format):
        if x.size < 60000:
            os.abort()
        return right(x)

    @half
    def hangs(x, format):
        time.sleep(1000)

    @half
    def short(x, format):
        return right(x)[:-1]
"""


class Kept(Run):
    """A run whose children live from test to test."""

    def close(self) -> None:
        """Left to the fixture."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The kernels above, without the suite's own, which need torch."""
    path = tmp_path_factory.mktemp("kernels") / "my_kernels.py"
    path.write_text(textwrap.dedent(KERNELS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "MODULES", {})
        made = Kept([str(path)], ["host"], timeout=1.0)
        assert made.kernels
    yield made
    Run.close(made)


@pytest.fixture
def here(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command works with that run, whatever kernels and devices it is given."""
    monkeypatch.setattr(command_module, "Run", lambda *arguments, **options: run)


def test_what_a_kernel_claims_plays_no_part(run: Run) -> None:
    both = list(identify_kernel(run, "not_what_it_claims", [], []))
    assert [str(one.claim) for one in both] == [f"cast/?/{source}/{E4}" for source in ("float16", "bfloat16")]
    assert all(set(one.follows) == SATURATE for one in both)
    assert both[0].cases == ("edges", "every_code")
    assert both[0].identity is not None
    assert both[0].identity.elements == 1 << 16, "each input counts once"
    (one,) = identify_kernel(run, "not_what_it_claims", ["e4m3fn"], ["bf16"])
    assert str(one.claim) == f"cast/?/bfloat16/{E4}"


def test_kernels_without_an_answer(run: Run) -> None:
    def only(name: str) -> Found:
        (one,) = identify_kernel(run, name, [], [])
        return one

    hung = only("hangs")
    assert hung.problems == ("case edges: hung: no answer in 1 s",)
    assert hung.unrun == ("not tried: it hung in case edges",)
    short = only("short")
    assert "case every_code: codes misshaped: got [65535], want [65536]" in short.problems
    for one in (hung, short):
        assert one.identity is None
        assert one.follows == ()
        assert one.executed
    crashed = only("crashes")
    assert crashed.problems == ("case edges: crashed: signal SIGABRT",)
    assert crashed.cases == ("every_code",)
    assert crashed.identity is not None
    assert set(crashed.identity.follows) == SATURATE
    assert crashed.follows == (), "a kernel that crashes follows nothing"


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_on_one_that_follows(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a user calls it, but for the suite's own kernels."""
    monkeypatch.setattr(runs, "MODULES", {})
    arguments = ["identify", "not_what_it_claims", "--kernels", run.origins[0], "--device", "host"]
    text = said(arguments, capsys)
    assert text.count("not_what_it_claims on host: cast of float16, bfloat16 to float8_e4m3fn") == 1
    assert f"follows {', '.join(name for name in POLICIES if name in SATURATE)}" in text


@pytest.mark.usefixtures("here")
def test_the_command_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json(["identify", "not_what_it_claims"], capsys)
    assert [set(one["follows"]) for one in data] == [SATURATE, SATURATE]
    assert data[0]["identity"]["choices"] == {
        "left": 0,
        "values": {
            "rounding": ["nearest_even"], "overflow": ["max"], "infinity": ["max"], "nan": ["nan"],
            "negative_zero": ["keep"], "subnormals": ["keep"],
        },
    }  # fmt: skip


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("columns", [80, 160])
def test_the_command_on_one_that_does_not(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert ends(["identify", "all_but_one"]) == 1
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= columns
    text = " ".join(out.split())
    for words in (
        "follows no named policy",
        "but for 1 rounding nearest_even, overflow max,",
        "nearest ocp_saturate, torch_from_2_13,",
        "differs in 1 of 65,536 inputs (1 value)",
        "fault no known fault accounts for any of it",
        "values of the format x = 1 (0x3c00) 1 1.125 (0x39) 1 (0x38)",
    ):
        assert words in text


@pytest.mark.usefixtures("here")
def test_the_command_on_what_is_no_cast(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert ends(["identify", "nothing"]) == 1
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "follows     no named policy" in out
    assert "exactly" not in out
    assert "but for" not in out


@pytest.mark.usefixtures("here")
def test_the_command_on_a_kernel_without_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["identify", "short"], capsys, code=1)
    assert "no answer case every_code: codes misshaped: got [65535], want [65536]" in text
    assert "tried" not in text


@pytest.mark.usefixtures("here")
def test_the_command_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown kernel or library 'all_but_on'; did you mean all_but_one" in refused(
        ["identify", "all_but_on"], capsys
    )
    text = refused(["identify", "short", "--format", "e5m2"], capsys)
    assert "kernel 'short' does not name format 'float8_e5m2'; it names float8_e4m3fn" in text
    text = refused(["identify", "short", "--source", "float32"], capsys)
    assert "does not name source 'float32'; it names float16" in text
    assert "unknown format 'e9m9'" in refused(["identify", "short", "--format", "e9m9"], capsys)
    assert "--kernels is for a kernel that is run" in refused(["identify", "in", "out", "--kernels", "k.py"], capsys)
    assert "no_such" in refused(["identify", str(tmp_path / "no_such"), str(tmp_path / "out")], capsys)


@pytest.mark.parametrize("rule", ["?", "ocp_nonsaturate"])
def test_files(rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """identify reads outputs of any program, whatever the inputs file claims; judge says the same of an observation."""
    inputs, outputs = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    write_inputs(Claim.parse(f"cast/{rule}/float32/{E4}"), "smoke", inputs)
    answers = {}
    for case, x in cases_for(Claim(observe(Cast), "float32", E4), "smoke").items():
        with np.errstate(invalid="ignore"):
            clamped = np.clip(x.data.view(np.float32), -448, 448)
            codes = clamped.astype(ml_dtypes.float8_e4m3fn).view(np.uint8).copy()
        codes[np.abs(x.data.view(np.float32)) > 464] = 0x00
        answers[f"{case}.codes"] = Coded(E4, codes)
    write(outputs, answers, {}, typed=False)
    text = said(["identify", str(inputs), str(outputs), "--target", "gfx942"], capsys, code=1)
    assert "out on gfx942: cast of float32 to float8_e4m3fn" in text
    assert "|x| >= 464.000031 (0x43e80001)" in text
    if rule == "?":
        judged = said(["judge", str(inputs), str(outputs), "--target", "gfx942"], capsys)
        assert judged.startswith(text)


def test_files_without_an_answer_are_not_executed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs, outputs = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    write_inputs(Claim.parse(f"cast/?/float16/{E4}"), "smoke", inputs)
    write(outputs, {}, {}, typed=False)
    text = said(["identify", str(inputs), str(outputs)], capsys, code=6)
    assert "not executed on unknown: the outputs file holds no tensor of case 'edges'" in text
