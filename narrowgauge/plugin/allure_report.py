"""Allure results for kernel owners: labels, parameters, the mismatch table and the script. Nothing without Allure."""

from __future__ import annotations

import csv
import importlib.util
import io

from narrowgauge.ci.ledger import Row
from narrowgauge.suites.judging import Judged

#: what is at stake in every cell, whatever its result: a wrong code raises nothing in an engine
AT_STAKE = "critical"
#: in one that a waiver covers: somebody knows
KNOWN = "minor"


def attach(judged: Judged) -> None:
    """Describe the current test in Allure's terms. Without the plugin's --alluredir this costs nothing."""
    if importlib.util.find_spec("allure") is None:
        return
    import allure

    row = judged.row
    allure.dynamic.feature(row.operation)
    allure.dynamic.story(f"{row.rule} to {row.format}")
    allure.dynamic.severity(severity(row))
    allure.dynamic.label("owner", row.owner)
    for name in ("kernel", "source", "format", "case", "target", "rule"):
        allure.dynamic.parameter(name, getattr(row, name))
    allure.dynamic.parameter("device", row.device, excluded=True)
    allure.dynamic.parameter("how", row.how, excluded=True)
    if row.waiver:
        allure.dynamic.issue(row.waiver, name=row.reason)
    kinds = allure.attachment_type
    if judged.message:
        allure.attach(judged.message, name="verdict", attachment_type=kinds.TEXT)
    if row.mismatches:
        allure.attach(mismatch_table(judged), name="mismatches", attachment_type=kinds.CSV)
    if judged.script:
        allure.attach(judged.script, name="standalone script", attachment_type=kinds.TEXT)


def severity(row: Row) -> str:
    """By what is at stake; the result is Allure's own field."""
    return KNOWN if row.waiver else AT_STAKE


def mismatch_table(judged: Judged) -> str:
    """The listed mismatches as CSV."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("output", "index", "kind", "input", "got", "want"))
    for m in judged.row.mismatches:
        writer.writerow((m.output, list(m.index), m.kind, m.input, m.got, m.want))
    return text.getvalue()
