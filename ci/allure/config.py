"""Allure's configuration, made of what the project has declared: families of faults, failures, waivers, environments.

Measured of Allure 3.18: a categories.json among the results is ignored, so categories stand here too; matchers of
categories and resolutions compare an environment's *name*, so that it is the same as the id; an environment is matched
by a function, which JSON cannot hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from narrowgauge.ci.allure import metrics
from narrowgauge.ci.allure.gather import Gathered
from narrowgauge.ci.allure.identity import ENVIRONMENT, Identity, environment_of
from narrowgauge.ci.allure.results import RESULT
from narrowgauge.ci.ledger import Row
from narrowgauge.ci.records import Cell, RunRecord, Shard
from narrowgauge.ci.waivers import Waiver

#: nights that the history keeps: some 740 bytes for each test of each
HISTORY = 30
WRONG = ("failed", "broken")
#: labels that say nothing to readers. Allure forgets them before it looks for categories
HIDDEN = ("cell", "environment", "host", "framework")
#: categories by our word for the result, with what Allure 2 knows it by in a message. Known failures stand first
KNOWN = {"waived": ("waived: known failures", r"(?s).*\nwaived: .*")}
NOT_WRONG = {
    "disputed": (
        "disputed: the expectation rests on a document, or another allowed answer explains it",
        r"(?s).*\ndisputed: .*",
    ),
    "not_executed": ("not executed", r"(?s)not executed: .*"),
}
#: of the dashboard, in order
CHARTS: tuple[dict[str, Any], ...] = (
    {"type": "currentStatus", "title": "This night"},
    {"type": "statusDynamics", "title": "Nights", "limit": HISTORY},
    {"type": "statusTransitions", "title": "New, fixed, regressed", "limit": HISTORY},
    {"type": "problemsDistribution", "title": "Problems by environment", "by": "environment"},
    {"type": "successRateDistribution", "title": "Success by operation and kernel"},
    {"type": "testResultSeverities", "title": "Severities"},
)
#: one that has a column for each kernel, and from how many kernels on nobody can read it
BY_KERNEL, READABLE = "problemsDistribution", 25
FILE = "allurerc.mjs"
_MODULE = """\
// Written by `narrowgauge report`; not to be edited.
const config = {config};
const matcher = (id) => ({{ labels }}) => labels.some((one) => one.name === {label} && one.value === id);
for (const [id, environment] of Object.entries(config.environments)) environment.matcher = matcher(id);
export default config;
"""


def module(config: Mapping[str, Any]) -> str:
    """The configuration as a module that imports nothing, so that it works from any folder."""
    return _MODULE.format(config=json.dumps(config, indent=1), label=json.dumps(ENVIRONMENT))


def configuration(
    found: Gathered,
    categories: Sequence[Mapping[str, Any]],
    accepted: Sequence[Mapping[str, Any]],
    *,
    name: str,
    output: str,
    history: str,
    single_file: bool,
) -> dict[str, Any]:
    """What ``module`` writes. ``history`` is the file that Allure reads and adds this night to; "" for none."""
    options: dict[str, Any] = {"reportName": name, "singleFile": single_file, "reportLanguage": "en"}
    config: dict[str, Any] = {
        "name": name,
        "output": output,
        "hideLabels": list(HIDDEN),
        "categories": {"rules": list(categories)},
        "environments": {e: {"name": e, "variables": variables(found, e)} for e in found.environments},
        "performance": metrics.described(found.rows.values()),
        "plugins": {
            "awesome": {"options": {**options, "groupBy": ["epic", "feature", "story"]}},
            "dashboard": {"options": {**options, "reportName": f"{name}: charts", "layout": charts(found)}},
        },
    }
    if accepted:
        config["resolutions"] = {"rules": list(accepted)}
    if history:
        config |= {"historyPath": history, "historyLimit": HISTORY}
    return config


def charts(found: Gathered) -> list[dict[str, Any]]:
    """Those that can be read with so many kernels."""
    few = len({cell.kernel for cell in found.cells.values()}) < READABLE
    return [chart for chart in CHARTS if few or chart["type"] != BY_KERNEL]


# --- categories ------------------------------------------------------------------------------------------------------


def categories(words: Mapping[str, str]) -> list[dict[str, Any]]:
    """Known failures; one for each word in brackets, in which results stand by fault and environment; and those that
    are not wrong. Allure takes the first that matches."""
    by_word = [
        {
            "name": f"{code}: {said}",
            "matchers": {"statuses": list(WRONG), "message": rf"^\[{code}\]"},
            "groupBy": [{"label": "fault"}, "environment"],
            "groupByMessage": False,
        }
        for code, said in words.items()
    ]
    known, others = (
        [
            {"name": said, "matchers": {"labels": {RESULT: f"^{word}$"}}, "groupBy": ["environment"]}
            for word, (said, _) in named.items()
        ]
        for named in (KNOWN, NOT_WRONG)
    )
    return [*known, *by_word, *others]


def categories_json(words: Mapping[str, str]) -> str:
    """The same for Allure 2, whose patterns must match a message as a whole, over its lines."""
    wrong = [(said, pattern) for said, pattern in KNOWN.values()]
    wrong += [(f"{code}: {said}", rf"(?s)\[{code}\].*") for code, said in words.items()]
    rules = [{"name": name, "messageRegex": pattern, "matchedStatuses": list(WRONG)} for name, pattern in wrong]
    rules += [{"name": n, "messageRegex": p, "matchedStatuses": ["skipped"]} for n, p in NOT_WRONG.values()]
    return json.dumps(rules, indent=1)


# --- known issues ----------------------------------------------------------------------------------------------------


def resolutions(rows: Iterable[Row], cells: Mapping[str, Cell], waivers: Sequence[Waiver]) -> list[dict[str, Any]]:
    """Rules by which Allure calls exactly the waived cells accepted, each waiver with its reason, link and date."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for row in sorted(rows, key=lambda row: row.id):
        if row.result == "waived" and row.id in cells:
            place = environment_of(row.target, row.operation)
            groups.setdefault((row.reason, row.waiver, place), []).append(Identity(cells[row.id]).test_case_id)
    dates = {(w.reason, w.link): w.expires for w in waivers}
    rules = []
    for (reason, link, place), tests in groups.items():
        until = f", until {dates[reason, link]}" if (reason, link) in dates else ""
        comment = f"waived{until}: {reason} ({link})"
        rules.append({"resolution": "accepted", "comment": comment, "testCaseId": tests, "environment": [place]})
    return rules


# --- environments ----------------------------------------------------------------------------------------------------


def variables(found: Gathered, environment: str) -> dict[str, str]:
    """What an environment ran on, as its runs said it; where shards say different things, all of them."""
    said: dict[str, list[str]] = {}
    for shard in found.shards:
        if shard.run is not None and environment in _environments(shard):
            for name, value in _said(shard.run).items():
                if value and value not in said.setdefault(name, []):
                    said[name].append(value)
    return {name: ", ".join(values) for name, values in said.items() if values}


def _environments(shard: Shard) -> set[str]:
    cells = shard.plan.cells if shard.plan is not None else ()
    return {environment_of(cell.target, cell.operation) for cell in cells}


def _said(run: RunRecord) -> dict[str, str]:
    return {
        "run": run.name,
        "GPU": ", ".join(dict.fromkeys(run.gpus)),
        **run.versions,
        "narrowgauge": run.narrowgauge,
        "commit": run.commit,
        "golden manifest": run.golden[:16],
        "depth": run.depth,
        "started": run.started,
        "build": run.build,
    }
