"""Allure's result of a cell: who it is, what it is labelled with, and what its page says first.

allure-pytest writes a result at the end of a test. What it makes of pytest's names and parameters is replaced before
that, so that a cell has the identity of ci/allure/identity.py wherever, and however, it ran.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from narrowgauge.ci.allure.identity import Identity
from narrowgauge.ci.allure.results import fault_of
from narrowgauge.ci.ledger import Row
from narrowgauge.plugin.allure_report import JUDGED, LISTENER
from narrowgauge.plugin.cells import stable
from narrowgauge.plugin.nightly import CELLS, cell_of
from narrowgauge.reference.faults.registry import fault_named
from narrowgauge.reference.faults.reports import link_of
from narrowgauge.reference.message import SCRIPT, SPELLED_OUT, code_in
from narrowgauge.suites.judging import Judged

#: what is at stake in every cell, whatever its result: a wrong code raises nothing in an engine
AT_STAKE = "critical"
#: in one that a waiver covers: somebody knows
KNOWN = "minor"
#: labels that allure-pytest makes, and that say nothing here or differ from night to night
NOISE = ("suite", "subSuite", "parentSuite", "thread", "tag", "package", "language")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """The outermost wrapper: what allure-pytest does at this point is done when it goes on."""
    try:
        return (yield)
    finally:
        listener: Any = item.config.pluginmanager.get_plugin(LISTENER)
        call = getattr(item, "callspec", None)
        if listener is not None and call is not None and any(name in call.params for name in CELLS):
            describe(listener.allure_logger.get_test(None), item)


def describe(result: Any, item: pytest.Item) -> None:
    """Give allure-pytest's result of a test the identity, labels and message of its cell."""
    from allure_commons.model2 import Label, Link, Parameter

    identity = Identity(cell_of(stable(item.nodeid), item))
    judged = item.stash.get(JUDGED, None)
    result.name, result.fullName = identity.name, identity.full_name
    result.testCaseId, result.historyId = identity.test_case_id, identity.history_id
    result.titlePath = []
    result.parameters = [Parameter(**each) for each in identity.parameters]
    kept = [label for label in result.labels if label.name not in NOISE]
    tags = [("tag", marker) for marker in identity.cell.markers]
    result.labels = kept + [Label(name, value) for name, value in [*identity.labels, *tags]]
    if judged is None:
        return
    row: Row = judged.row
    for name in ("device", "how"):
        result.parameters.append(Parameter(name, getattr(row, name), excluded=True))
    result.labels += [Label(name, value) for name, value in labels(row, judged.message)]
    result.links += [Link(kind, address, name) for kind, address, name in links(row)]
    if result.statusDetails is not None:
        result.statusDetails.message, result.statusDetails.trace = said(judged), None
    result.description = described(row)


def labels(row: Row, message: str) -> list[tuple[str, str]]:
    """What is known once it was judged: by the faults a category groups its results."""
    found = [("severity", severity(row)), ("result", row.result)]
    if code := code_in(message):
        found.append(("family", code))
    return found + fault_of(row)


def links(row: Row) -> list[tuple[str, str, str]]:
    """Kind, address and name: of the waiver's issue, and of public reports of the faults that explain it."""
    found = [("issue", row.waiver, row.reason)] if row.waiver.startswith("https://") else []
    names = dict.fromkeys(single for name in row.faults[:SPELLED_OUT] for single in name.split(" + "))
    reports = dict.fromkeys(report for name in names for report in fault_named(name).reports)
    return found + [("link", link_of(report), report) for report in reports if link_of(report)]


def severity(row: Row) -> str:
    """By what is at stake; the result is Allure's own field."""
    return KNOWN if row.waiver else AT_STAKE


def said(judged: Judged) -> str:
    """What stands first on the page: the finding with its table; the script is attached."""
    row = judged.row
    finding = judged.message.partition(f"\n{SCRIPT}")[0]
    if row.result == "not_executed":
        return f"not executed: {row.reason}"
    if row.waiver:
        return f"{finding}\nwaived: {row.reason} ({row.waiver})"
    return finding or row.reason


def described(row: Row) -> str:
    """What was claimed, on whose word, how to judge it again, and what to read about the mistake, in Markdown."""
    kernels = "" if row.own else " --kernels YOUR_FILE"
    said = [
        f"claim `{row.claim}`, by {row.authority or 'the contract'}",
        f"again: `narrowgauge test{kernels} -k '{row.kernel} and {row.case}' --device {row.device}`",
    ]
    if row.faults:
        said.append(f"about the mistake: `narrowgauge explain {row.faults[0].split(' + ')[0]}`")
    return "\n\n".join(said)
