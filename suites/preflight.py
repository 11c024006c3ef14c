"""Whether a machine is fit to judge anything, before a test runs. What is wrong here is never a kernel's mistake."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from narrowgauge.ci.lanes import Lane
from narrowgauge.ci.records import Check
from narrowgauge.contracts.errors import NarrowgaugeError
from narrowgauge.contracts.operations import Claim
from narrowgauge.devices.device import Device
from narrowgauge.devices.discovery import device_named, gpus, host
from narrowgauge.golden.manifest import VECTORS, problems
from narrowgauge.reference.inputs import case_named
from narrowgauge.suites.judging import run_cell
from narrowgauge.suites.planning import Planned
from narrowgauge.suites.run import Run

#: how a lane names every GPU of its architecture
GPU = "gpu"
#: bytes that a run needs for its journal, ledger and attachments, and then some
ROOM = 512 * 2**20
#: the kernel that must be right, and its claim
SMOKE = "narrowgauge.kernels_under_test.smoke_"
CLAIM, CASE = Claim.parse("cast/ieee/int8/float32"), "every_code"


@dataclass
class Fitness:
    """What the preflight found: checks, the devices that will be judged on, and what is installed."""

    checks: list[Check] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    gpus: tuple[str, ...] = ()

    @property
    def wrong(self) -> list[Check]:
        return [check for check in self.checks if not check.ok]


def preflight(lane: Lane, target: str, out: Path) -> Fitness:
    """Look at the machine: the disk, vectors, kernels, devices, versions, vendor, a smoke kernel on each device."""
    found = Fitness()
    found.checks += [*_disk(out), *_vectors(), *_kernels()]
    devices = _devices(lane, target, found)
    with contextlib.ExitStack() as stack:
        asked = devices[0] if devices else host()
        for device in devices or [asked]:
            stack.callback(device.close)
        found.checks += _vendor(lane, _facts(asked, found))
        for device in devices:
            found.checks.append(_smoke(device))
            device.close()  # the next one needs the memory
    return found


def _disk(out: Path) -> Iterator[Check]:
    free = shutil.disk_usage(out).free
    yield Check("room on the disk", free >= ROOM, f"{free // 2**20} MiB free", f"{ROOM // 2**20} MiB")


def _vectors() -> Iterator[Check]:
    try:
        wrong = problems(VECTORS)
    except NarrowgaugeError as error:
        wrong = [str(error)]
    said = "; ".join(wrong[:3]) or "as their manifest says"
    yield Check("golden vectors", not wrong, said, "as their manifest says")


def _kernels() -> Iterator[Check]:
    """A module that is left out takes its tests out of the plan, and no gate would miss them after the next commit."""
    missing = [f"{module.rpartition('.')[2]}: {why}" for module, why in Run().missing.items()]
    yield Check("the suite's kernels", not missing, "; ".join(missing[:3]) or "all are there", "all are there")


def _devices(lane: Lane, target: str, found: Fitness) -> list[Device]:
    """The lane's devices; a check for each that is not there, and one for GPUs that the lane is not for."""
    devices: list[Device] = []
    for name in lane.devices:
        if name == GPU:
            devices += _gpus(target, found)
            continue
        try:
            devices.append(device_named(name))
        except NarrowgaugeError as error:
            found.checks.append(Check(f"device {name}", False, str(error), "that it exists"))
    found.devices = [device.id for device in devices]
    return devices


def _gpus(target: str, found: Fitness) -> list[Device]:
    try:
        seen = gpus()
    except NarrowgaugeError as error:
        found.checks.append(Check("architecture", False, str(error), target))
        return []
    found.gpus = tuple(f"{d.id} {d.target} {d.note}" for d in seen)
    wrong = sorted({d.target for d in seen} - {target})
    ok = bool(seen) and not wrong
    found.checks.append(Check("architecture", ok, ", ".join(found.gpus) or "no GPU that torch sees", target))
    return list(seen) if ok else []


def _facts(device: Device, found: Fitness) -> dict[str, Any]:
    """What a child of a device says of its surroundings."""
    try:
        facts = device.facts()
    except NarrowgaugeError as error:
        found.checks.append(Check(f"{device.id} answers", False, str(error), "that its process starts"))
        return {}
    drivers = {gpu["driver"] for gpu in facts["gpus"] if gpu["driver"]}
    found.versions = {"python": facts["python"], **facts["versions"]}
    found.versions |= {"driver": "; ".join(sorted(drivers))} if drivers else {}
    return facts


def _vendor(lane: Lane, facts: dict[str, Any]) -> Iterator[Check]:
    """Whether torch is a build for the lane's vendor; the cpu lane takes any."""
    torch = facts.get("torch")
    if torch is None:
        yield Check("torch", False, "not installed", "any build" if lane.vendor == "none" else f"for {lane.vendor}")
    elif lane.vendor != "none":
        builds = {name: torch.get(name) for name in ("cuda", "hip") if torch.get(name)}
        said = ", ".join(f"{name} {version}" for name, version in builds.items()) or "for the CPU alone"
        yield Check("torch", lane.vendor in builds, f"{torch['version']}, {said}", f"for {lane.vendor}")


def _smoke(device: Device) -> Check:
    """Run the smallest kernel on every code of int8, and look at each result."""
    name = f"smoke kernel on {device.id}"
    origin = SMOKE + ("torch" if device.target == "host" else "triton")
    try:
        (plugged,) = device.describe(origin)
        judged = run_cell(Planned(plugged, CLAIM, CASE, device), case_named(CASE, "cast").inputs(CLAIM), timeout=120.0)
    except NarrowgaugeError as error:
        return Check(name, False, str(error), "256 right results")
    row = judged.row
    said = f"{row.elements} right results" if row.result == "passed" else judged.message or row.reason
    return Check(name, row.result == "passed", said, "256 right results")
