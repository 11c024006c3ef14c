# SPDX-License-Identifier: Apache-2.0
"""docs/plugins.md: every kernel on it runs on the host, and what comes out is what the page says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from narrowgauge.ci import waivers
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import OPERATIONS, Cast, Contract, Observe
from narrowgauge.devices.device import Device
from narrowgauge.reference.behaviour import behaviour_of
from narrowgauge.reference.compare import compare
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.inputs import case_named
from narrowgauge.reference.interval import Interval
from narrowgauge.suites.judging import run_cell
from narrowgauge.suites.meta.marks import needs_torch
from narrowgauge.suites.meta.page_blocks import blocks
from narrowgauge.suites.meta.pages import DOCS
from narrowgauge.suites.planning import plan_cases
from narrowgauge.suites.run import ENTRY_POINTS

PATH = DOCS / "plugins.md"
pytestmark = [
    pytest.mark.meta,
    pytest.mark.skipif(not PATH.exists(), reason="the package is installed without docs/"),
]
PAGE = PATH.read_text(encoding="utf-8") if PATH.exists() else ""
#: kernel -> what it claims, its format, and what comes out
TABLE = {
    name: (rule, format_name, said)
    for name, rule, format_name, said in re.findall(
        r"^\| (\w+) \| (\S+) \| (\w+) \| (passed.*?) \|$", PAGE, re.MULTILINE
    )
}
CLAMP, WRONG = "torch.fmax(torch.fmin(x / scale, bound), -bound)", "wrong_quantizer"


@pytest.fixture(scope="module")
def plugged(host: Device, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plugged]:
    """The kernels of all blocks in one file, as the page says; and the quantizer with its clamp the other way."""
    path, parts = tmp_path_factory.mktemp("page") / "my_kernels.py", blocks(PAGE, "python")
    (quantizer,) = [part for part in parts if CLAMP in part]
    wrong = quantizer.replace(CLAMP, "torch.fmin(torch.fmax(x / scale, -bound), bound)").replace(
        "def my_", "def wrong_"
    )
    path.write_text("\n\n".join([*parts, wrong.replace("per_token(x)", "clamped_otherwise(x)")]), encoding="utf-8")
    return {p.kernel.name: p for p in host.describe(str(path))}


def operation_of(contract: Contract) -> str:
    return contract.of if isinstance(contract, Observe) else contract.operation


@needs_torch
def test_the_page_has_a_kernel_of_every_contract(plugged: dict[str, Plugged]) -> None:
    contracts = [p.kernel.contract for p in plugged.values()]
    assert {operation_of(c) for c in contracts} == set(OPERATIONS)
    assert any(isinstance(c, Observe) for c in contracts)
    assert set(plugged) == {*TABLE, WRONG}


@needs_torch
@pytest.mark.parametrize("name", TABLE)
def test_what_comes_out_is_what_the_page_says(name: str, plugged: dict[str, Plugged], host: Device) -> None:
    mine = plugged[name]
    rule, format_name, said = TABLE[name]
    claims = mine.kernel.claims
    assert {claim.rule for claim in claims} == {rule}
    assert {claim.format.removeprefix("float8_") for claim in claims} == {format_name}
    operation = operation_of(mine.kernel.contract)
    rows = [
        run_cell(planned, case_named(planned.case, operation).inputs(planned.claim)).row
        for planned in plan_cases([mine], [host], operation, "smoke")
    ]
    assert rows
    assert {row.result for row in rows} == {said.split(",")[0]}
    if "follows" in said:
        assert all(any(rule.startswith("torch_") for rule in row.follows) for row in rows)


@needs_torch
def test_the_clamp_the_other_way_is_the_fault_that_the_page_names(plugged: dict[str, Plugged], host: Device) -> None:
    mine = plugged[WRONG]
    planned = next(p for p in plan_cases([mine], [host], "quantize", "smoke") if p.case == "rows_128")
    x = case_named("rows_128", "quantize").inputs(planned.claim)
    found = run_cell(planned, x, explained=False)
    assert found.row.result == "failed"
    assert found.outputs is not None
    (fault,) = re.findall(r"would name that: `(.*?)`", " ".join(PAGE.split()))
    wrongly = FAULTS[fault].applied_to(behaviour_of(planned.claim)).run(x)
    assert compare(found.outputs, {name: Interval.exactly(value) for name, value in wrongly.items()}).total == 0


def test_the_entry_point_and_the_waiver_are_read(tmp_path: Path) -> None:
    entry, waiver = blocks(PAGE, "toml")
    assert list(tomllib.loads(entry)["project"]["entry-points"]) == [ENTRY_POINTS]
    path = tmp_path / "waivers.toml"
    path.write_text(waiver, encoding="utf-8")
    (one,) = waivers.load([path])
    assert one.names("float16-float8_e4m3fn-edges-my_cast-host", "my_cast", "host")


def test_the_table_of_contracts_has_all_of_them() -> None:
    named = set(re.findall(r"`(\w+)\(", "\n".join(re.findall(r"^\| `.*", PAGE, re.MULTILINE))))
    kinds = {kind.__name__ for kind in Contract.__args__} - {Observe.__name__}
    assert named == kinds | {"observe"}
    assert Cast.__name__ in named
