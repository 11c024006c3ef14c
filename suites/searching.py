"""Judge inputs that hypothesis draws: what the property tests of several operations share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hypothesis.errors import Flaky

from narrowgauge.suites.judging import Judged

WELL = ("passed", "not_executed")


def assert_answers(judged: Sequence[Judged]) -> None:
    """A kernel that ends its process is not asked again, for 25 inputs and then for a smaller one."""
    assert not judged or judged[-1].row.outcome not in ("crashed", "hung")


def assert_well(judged: Sequence[Judged]) -> None:
    """What hypothesis looks for, and shrinks, is an input whose judgement is not well."""
    assert judged[-1].row.result in WELL


def search(hold: Callable[[], None], judged: Sequence[Judged]) -> None:
    """Run a property to its end. Its judgements say more than its assertion, so that is taken for said."""
    try:
        hold()
    except (AssertionError, Flaky):
        if not judged:
            raise


def worst(judged: Sequence[Judged]) -> Judged:
    """The last judgement that is not well, which is that of the shrunk input; else the last.

    A kernel that failed and then passed on the same input is not well: what it did is said with that.
    """
    wrong = [j for j in judged if j.row.result not in WELL]
    if not wrong:
        return judged[-1]
    found = wrong[-1]
    again = judged[-1]
    same = again.x is not None and found.x is not None and again.x.digest() == found.x.digest()
    if again.row.result in WELL and same:
        note = "not deterministic: it passed on the same input afterwards"
        return replace(found, row=replace(found.row, reason=note), message=f"{found.message}\n{note}")
    return found
