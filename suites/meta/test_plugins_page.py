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
from narrowgauge.reference.inputs import case_named
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


@pytest.fixture(scope="module")
def plugged(host: Device, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plugged]:
    """The kernels of all blocks in one file, as the page says."""
    path = tmp_path_factory.mktemp("page") / "my_kernels.py"
    path.write_text("\n\n".join(blocks(PAGE, "python")), encoding="utf-8")
    return {p.kernel.name: p for p in host.describe(str(path))}


def operation_of(contract: Contract) -> str:
    return contract.of if isinstance(contract, Observe) else contract.operation


@needs_torch
def test_the_page_has_a_kernel_of_every_contract(plugged: dict[str, Plugged]) -> None:
    contracts = [p.kernel.contract for p in plugged.values()]
    assert {operation_of(c) for c in contracts} == set(OPERATIONS)
    assert any(isinstance(c, Observe) for c in contracts)
    assert set(plugged) == set(TABLE)


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
def test_the_clamp_the_other_way_is_what_the_page_says(host: Device, tmp_path: Path) -> None:
    """fmax first makes the lower bound of NaN, and the failure names it."""
    right = "torch.fmax(torch.fmin(x / scale, bound), -bound)"
    (block,) = [b for b in blocks(PAGE, "python") if right in b]
    wrong = block.replace(right, "torch.fmin(torch.fmax(x / scale, -bound), bound)")
    path = tmp_path / "wrong.py"
    path.write_text("\n\n".join([blocks(PAGE, "python")[0], wrong]), encoding="utf-8")
    (mine,) = host.describe(str(path))
    planned = next(p for p in plan_cases([mine], [host], "quantize", "smoke") if p.case == "rows_128")
    row = run_cell(planned, case_named("rows_128", "quantize").inputs(planned.claim)).row
    assert (row.result, row.faults) == ("failed", ("element.nan_to_lower_bound",))
    assert f"`{row.faults[0]}`" in PAGE


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
