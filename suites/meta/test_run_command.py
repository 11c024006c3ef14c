"""``narrowgauge run``: what it takes, what it refuses, and where it puts its results."""

from __future__ import annotations

from pathlib import Path

import pytest

from narrowgauge import command
from narrowgauge.command import run as module
from narrowgauge.contracts.errors import BadInput
from narrowgauge.devices import discovery
from narrowgauge.devices.device import Device
from narrowgauge.suites.lane_run import ADDED, LEFT, LaneRun, prepared
from narrowgauge.suites.meta.command_sets import refused

pytestmark = pytest.mark.meta


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (module.ARCH, module.SHARD, module.OUT, ADDED):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[LaneRun]:
    """The runs that were about to start; none does."""
    seen: list[LaneRun] = []

    def keep(ran: LaneRun, arguments: object) -> int:
        seen.append(ran)
        return 0

    monkeypatch.setattr(module, "_run", keep)
    return seen


def test_a_lane_alone_is_enough(started: list[LaneRun]) -> None:
    assert command.main(["run", "--lane=cpu"]) == 0
    (ran,) = started
    assert (ran.target, ran.shard, ran.shards, ran.depth, ran.workers) == ("cpu", 1, 1, "standard", 2)
    assert (ran.out, ran.options) == (Path(".narrowgauge/cpu"), ())


def test_a_ci_engine_says_it_by_variables(started: list[LaneRun], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ARCH", "gfx950"), ("SHARD", "2/3"), ("OUT", "results")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k 'one two'")
    assert command.main(["run", "--lane=rocm", "--depth=smoke", "-n", "4", "--kernels=mine.py"]) == 0
    (ran,) = started
    assert (ran.target, ran.shard, ran.shards, ran.depth, ran.workers) == ("gfx950", 2, 3, "smoke", 4)
    assert (ran.out, ran.options) == (Path("results"), ("-k", "one two", "--kernels=mine.py"))


def test_the_gpu_says_which_architecture(started: list[LaneRun], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "gpus", lambda: (Device("hip:0", "gfx942", "executed"),))
    assert command.main(["run", "--lane=rocm"]) == 0
    assert started[0].target == "gfx942"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--lane=cpus"], "unknown lane 'cpus'; did you mean cpu"),
        (["--lane=cpu", "--arch=sm_90"], "lane cpu is not for 'sm_90'; its architectures are cpu"),
        (["--lane=cpu", "--shard=0/2"], "shard '0/2'; expected K/N"),
        (["--lane=cpu", "--shard=3/2"], "shard '3/2'; expected K/N"),
        (["--lane=cpu", "-n", "0"], "-n 0; expected at least 1"),
        (["--lane=cpu", "--out=file"], "--out file is a file; expected a directory"),
        (["--lane=cpu", "--out=other"], "--out other has notes.txt in it, which no run wrote"),
        (["--lane=cpu", "--lanes=no.toml"], "cannot read lanes no.toml"),
    ],
)
def test_bad_input(words: list[str], said: str, started: list[LaneRun], capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").touch()
    Path("other").mkdir()
    Path("other/notes.txt").write_text("mine")
    assert said in refused(["run", *words], capsys)
    assert started == []
    assert Path("other/notes.txt").read_text() == "mine"


@pytest.mark.parametrize("word", [*module.REFUSED, "-vx", "-xsv", "--maxfail=3", "--reruns=2"])
def test_what_would_make_results_other_than_they_say(
    word: str, started: list[LaneRun], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "narrowgauge run does not take " in refused(["run", "--lane=cpu", word], capsys)
    monkeypatch.setenv("PYTEST_ADDOPTS", f"-q {word}")
    assert "narrowgauge run does not take " in refused(["run", "--lane=cpu"], capsys)
    assert started == []


@pytest.mark.parametrize("word", ["-v", "-k=x", "-kx", "-mfnuz", "--waivers=x.toml", "-sv"])
def test_what_is_taken(word: str, started: list[LaneRun]) -> None:
    assert command.main(["run", "--lane=cpu", word]) == 0
    assert started[0].options == (word,)


def test_a_second_run_finds_nothing_of_the_first() -> None:
    """Not even what the first was about to write when it was killed."""
    out = Path("out")
    (out / "allure-results").mkdir(parents=True)
    for name in (*LEFT[:-1], ".run.json.abc", "allure-results/x.json"):
        (out / name).touch()
    with prepared(out):
        assert list(out.iterdir()) == []


def test_two_runs_at_once_do_not_mix() -> None:
    with prepared(Path("out")):
        Path("out/run.json").write_text("of the first")
        with pytest.raises(BadInput, match="another run is writing to --out out"), prepared(Path("out")):
            pass
        assert Path("out/run.json").read_text() == "of the first"
    with prepared(Path("out")):
        assert list(Path("out").iterdir()) == []
