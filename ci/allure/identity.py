"""Who a result is in Allure: what makes one test of several results, and what parts them.

One test is what is judged: ``fullName``, kernel, formats and case. Its results differ by ``target``. Host, worker,
device index and rule are told, and make no difference. Allure 3.18 computes from this

* one test in the tab "Environments": md5 of ``testCaseId``, which must leave the target out;
* the history: md5 of ``testCaseId`` and the parameters that are not excluded, *without* the environment, so the target
  must be one of them;
* retries: the same, with the environment.

allure-pytest's own ``testCaseId`` leaves all parameters out, and its values carry quotes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from narrowgauge.ci.records import Cell

#: label of every result of a cell: its id, by which a report is held to the plan
CELL = "cell"
#: label by which Allure's environments are told apart
ENVIRONMENT = "environment"
#: what recordings of GPUs are judged under
RECORDED = "unit"
#: how a target begins, and whose it is
VENDORS = {"sm_": "nvidia", "gfx": "amd"}
#: targets that are no GPU's, and what Allure calls them
PLACES = {"host": "cpu-host", "interpreter": "cpu-interpreter"}


@dataclass(frozen=True)
class Identity:
    """Of one cell of a plan."""

    cell: Cell

    @property
    def full_name(self) -> str:
        """As allure-pytest makes it of a test's path and function: ``package.module#test``."""
        path, _, test = self.cell.id.partition("::")
        return f"{path.removesuffix('.py').replace('/', '.')}#{test.partition('[')[0].replace('::', '.')}"

    @property
    def name(self) -> str:
        """What a reader sees in lists; the target is said by the environment."""
        cell = self.cell
        return f"{cell.kernel}, {cell.source} to {cell.format}: {cell.case}"

    @property
    def identifying(self) -> dict[str, str]:
        """The parameters that make an identity, in the order of the id."""
        names = ("source", "format", "case", "kernel", "target")
        return {name: str(getattr(self.cell, name)) for name in names}

    @property
    def test_case_id(self) -> str:
        """The same for every target."""
        return _md5(self.full_name, {n: v for n, v in self.identifying.items() if n != "target"})

    @property
    def history_id(self) -> str:
        """Another one for each target. Allure 2 takes it; Allure 3 computes its own, of the same."""
        return _md5(self.full_name, self.identifying)

    @property
    def environment(self) -> str:
        return environment_of(self.cell.target, self.cell.operation)

    @property
    def parameters(self) -> list[dict[str, Any]]:
        """As a result file has them."""
        told = [{"name": "rule", "value": self.cell.rule, "excluded": True}]
        return [{"name": n, "value": v} for n, v in self.identifying.items()] + told

    @property
    def labels(self) -> list[tuple[str, str]]:
        """What is known before anything ran."""
        cell = self.cell
        return [
            ("epic", cell.operation),
            ("feature", cell.kernel),
            ("story", f"{cell.source} to {cell.format}, {cell.rule}"),
            ("owner", cell.owner),
            ("kernels", "narrowgauge's own" if cell.own else "plugged in"),
            ("vendor", vendor_of(cell.target)),
            (ENVIRONMENT, self.environment),
            (CELL, cell.id),
        ]


def environment_of(target: str, operation: str = "") -> str:
    """Allure's name of a target: nvidia-sm_90, amd-gfx942, emulated-sm_90, cpu-host, recorded-sm_90.

    Letters, digits, "_" and "-" alone: Allure takes no others in an id, and compares names in some places, so both are
    the same.
    """
    if target in PLACES:
        return PLACES[target]
    if operation == RECORDED:
        return f"recorded-{target}"
    vendor = vendor_of(target)
    return target if target.startswith("emulated-") or vendor == "none" else f"{vendor}-{target}"


def vendor_of(target: str) -> str:
    """nvidia, amd, or none; of an emulated target whose it is."""
    bare = target.removeprefix("emulated-")
    return next((vendor for start, vendor in VENDORS.items() if bare.startswith(start)), "none")


def _md5(full_name: str, parameters: dict[str, str]) -> str:
    text = "\n".join([full_name, *(f"{name}={value}" for name, value in sorted(parameters.items()))])
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
