"""Faults that tests inject into a run, with what ``run`` and ``gate`` must say of each: the table of docs/nightly.md.

python -m narrowgauge.suites.meta.injected        writes it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "nightly.md"
BEGIN, END = "<!-- injected: begin -->", "<!-- injected: end -->"


@dataclass(frozen=True)
class Injected:
    """One fault. ``run`` and ``gate`` are exit codes; no code of ``run`` where it has no say."""

    what: str
    run: int | None
    state: str  #: in run.json; "" where it is gone
    gate: int
    red: tuple[str, ...]  #: findings
    yellow: tuple[str, ...] = ()


FAULTS = {
    "nothing": Injected("nothing", 0, "finished", 0, ()),
    "wrong": Injected("a kernel is wrong", 1, "finished", 1, ("new_failure",)),
    # processes
    "kernels": Injected(
        "one kernel kills pytest's worker, one hangs, one test hangs outside a kernel, what Allure writes of one does "
        "not fit on the disk, and the clock goes back an hour",
        1, "finished", 1, ("crashed", "new_failure"),
    ),
    "controller": Injected("pytest itself is killed", 3, "stopped", 3, ("stopped",)),
    "exit 0": Injected("pytest leaves with exit code 0 in the middle", 3, "stopped", 3, ("stopped",)),
    "silence": Injected("pytest hangs", 3, "stopped", 3, ("stopped",)),
    "too long": Injected("the time of the lane is over", 3, "stopped", 3, ("stopped",)),
    "SIGTERM": Injected("the job is cancelled", 3, "stopped", 3, ("stopped",)),
    "SIGKILL": Injected("`run` is killed, and with it all that it started", None, "started", 3, ("lost",)),
    "exit code": Injected("pytest's exit code and its results do not agree", 3, "stopped", 3, ("stopped",)),
    "twice": Injected("something runs a test twice", 3, "stopped", 3, ("duplicate_id", "stopped")),
    # files and disks
    "journal full": Injected("the disk is full in the middle of a test", 3, "stopped", 3, ("stopped",)),
    "ledger full": Injected("the disk is full at the end of pytest", 3, "stopped", 3, ("stopped",)),
    "log full": Injected("the log cannot be written", 3, "stopped", 3, ("stopped",)),
    "record full": Injected("the disk is full, and the record cannot be written either", 3, "started", 3, ("lost",)),
    "no ledger": Injected("pytest leaves no ledger", 3, "stopped", 3, ("stopped",)),
    "cut": Injected("a result file is cut, changed or gone afterwards", None, "finished", 3, ("damaged",)),
    "no record": Injected("run.json is cut or gone afterwards", None, "", 3, ("damaged", "missing_lane")),
    # nights of several shards
    "three shards": Injected("nothing, with three shards", 0, "finished", 0, ()),
    "shard lost": Injected("one of three shards is lost", None, "finished", 3, ("missing_shard",)),
    "other vectors": Injected("shards have different golden manifests", None, "finished", 3, ("mixed",)),
    "duplicate ids": Injected("a test is in two shards", None, "finished", 3, ("duplicate_id", "mixed")),
    "foreign id": Injected("a shard runs a test of another", None, "finished", 3, ("foreign_id",)),
    "shard twice": Injected("a shard is given twice", None, "finished", 3, ("duplicate_shard",)),
    # clocks
    "clock forth": Injected("the clock goes forth a week on the way", 0, "finished", 0, (), ("clock_moved",)),
    "clock back": Injected("the clock goes back an hour on the way", 0, "finished", 3, ("clock_back",)),
    "clock behind": Injected("a machine's clock is a week behind", 0, "finished", 3, ("clock_apart",)),
    # machines and input
    "unfit": Injected("the lane's GPU is not there, or a smoke kernel is wrong", 3, "infra", 3, ("preflight",)),
    "stumble": Injected("the preflight itself breaks", 3, "infra", 3, ("preflight",)),
    "marker": Injected("-m names a marker that is none", 4, "stopped", 3, ("stopped",)),
    "syntax": Injected("a file of kernels does not load", 4, "stopped", 3, ("stopped",)),
    "nothing selected": Injected("-k selects nothing", 5, "finished", 3, ("skipped_path", "zero_tests")),
}  # fmt: skip


def table() -> Iterator[str]:
    """Lines between the marks."""
    yield "Tests do each of these to a run, and hold `run` and `gate` to what stands here (suites/meta/test_run_*.py)."
    yield ""
    yield "| what is done | `run` exits with | run.json says | `gate` exits with | and finds |"
    yield "|---|---|---|---|---|"
    for fault in FAULTS.values():
        code = "·" if fault.run is None else fault.run
        found = [*(f"`{kind}`" for kind in fault.red), *(f"`{kind}` (yellow)" for kind in fault.yellow)]
        yield f"| {fault.what} | {code} | {fault.state or '·'} | {fault.gate} | {', '.join(found) or 'nothing'} |"


def page(text: str) -> str:
    """The page with the table between its marks."""
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return "\n".join([f"{before}{BEGIN}", *table(), f"{END}{after}"])


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
