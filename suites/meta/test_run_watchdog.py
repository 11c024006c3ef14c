"""When the watchdog of ``narrowgauge run`` ends a program, on a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.contracts.errors import Infrastructure
from narrowgauge.suites import supervising
from narrowgauge.suites.supervising import Limits, supervise

pytestmark = pytest.mark.meta

#: how long the program would run, in seconds of that clock
LONG = 100.0


@dataclass
class Time:
    """A clock that goes on only while somebody sleeps; ``happens`` is done in each sleep."""

    happens: Callable[[], object]
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.happens()

    def poll(self) -> int | None:
        """As a process has it."""
        return 0 if self.now >= LONG else None


def waited(
    path: Path, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object], **limits: float
) -> tuple[str, float]:
    """Why the program was to be ended, and when, in whole seconds."""
    time: Any = Time(happens)
    monkeypatch.setattr(supervising, "time", time)
    given = {"whole": 2 * LONG, "silence": LONG / 10} | limits
    return supervising._wait(time, Limits(progress=path, **given), []), round(time.now)


def grow(path: Path) -> None:
    with path.open("a") as file:
        file.write("a line\n")


def test_what_goes_on_is_not_hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    assert waited(path, monkeypatch, lambda: grow(path)) == ("", LONG)


@pytest.mark.parametrize("exists", [True, False])
def test_what_does_not_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool) -> None:
    path = tmp_path / "journal"
    if exists:
        path.write_text("one line\n")
    assert waited(path, monkeypatch, lambda: None) == ("hung: no test began or ended for 10 s", 10)


def test_time_in_all_is_over_even_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    assert waited(path, monkeypatch, lambda: grow(path), whole=LONG / 2) == ("its 50 s are over", 50)


def test_what_cannot_be_started_is_the_machines_fault(tmp_path: Path) -> None:
    limits = Limits(1.0, 1.0, tmp_path / "journal")
    with pytest.raises(Infrastructure, match="cannot start no-such-program: No such file"):
        supervise(["no-such-program"], {}, tmp_path / "log", limits, quiet=True)


def test_the_output_is_kept_and_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    limits = Limits(60.0, 60.0, tmp_path / "journal")
    ended = supervise(["sh", "-c", "echo out; echo err >&2; exit 7"], {}, tmp_path / "log", limits)
    assert (ended.code, ended.why, ended.log) == (7, "", "")
    assert (tmp_path / "log").read_text() == capfd.readouterr().out == "out\nerr\n"
