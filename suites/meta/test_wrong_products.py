# SPDX-License-Identifier: Apache-2.0
"""Wrong products of matrices, from public reports, by somebody who had seen neither the faults nor the reference: each
is caught by a case of the smoke depth, by what it returns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from narrowgauge.devices import discovery
from narrowgauge.devices.device import Device
from narrowgauge.reference.inputs import cases_for
from narrowgauge.suites.judging import run_cell
from narrowgauge.suites.meta.marks import needs_torch
from narrowgauge.suites.meta.wrong_products_table import FOLDER, WRONG
from narrowgauge.suites.planning import Planned

pytestmark = [pytest.mark.meta, needs_torch]


@pytest.fixture(scope="module")
def devices() -> Iterator[dict[str, Device]]:
    host, interpreter = discovery.host(), discovery.interpreter()
    yield {"host": host, "triton": interpreter}
    host.close()
    interpreter.close()


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_product_is_caught(name: str, devices: dict[str, Device]) -> None:
    if name.startswith("triton") and not discovery.has_triton():
        pytest.skip("triton is not installed: its mutants cannot run")
    device = devices["triton" if name.startswith("triton") else "host"]
    (plugged,) = (p for p in device.describe(str(FOLDER / f"{WRONG[name].file}.py")) if p.kernel.name == name)
    claim = plugged.kernel.claims[0]
    for case, x in cases_for(claim, "smoke").items():
        found = run_cell(Planned(plugged, claim, case, device), x, explained=False)
        if found.row.result == "failed" and found.row.outcome == "returned":
            assert all("unwritten" in said for said in found.row.malformed), found.row.malformed
            return
    pytest.fail("no case of the smoke depth shows what it does")


def test_words_say_the_mistake_and_the_report() -> None:
    """A report by its number, a file and lines, or that none is known."""
    for name, wrong in WRONG.items():
        known = "#" in wrong.words or ".py" in wrong.words or ".cu" in wrong.words or "no report" in wrong.words
        assert known or "facts" in wrong.words or "note" in wrong.words, name
