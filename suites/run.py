"""Everything a run of the suites knows: options, devices, kernels, waivers. One per process; devices start lazily."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from narrowgauge.ci import waivers
from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.devices.device import RUN, Device
from narrowgauge.devices.discovery import all_devices, default_devices, device_named
from narrowgauge.golden.manifest import VECTORS, load_manifest
from narrowgauge.kernels_under_test import MODULES
from narrowgauge.reference.inputs import DEPTHS, Depth
from narrowgauge.suites.planning import Planned, check_kernels, runs_on

ENTRY_POINTS = "narrowgauge.kernels"


@dataclass
class Run:
    """A run of the suites. ``origins`` are plug-in files or modules, besides the suite's own and installed ones."""

    origins: Sequence[str] = ()
    device_names: Sequence[str] = ()
    waiver_files: Sequence[Path] = ()
    golden: Path = VECTORS
    depth: Depth = "smoke"
    timeout: float = RUN
    _facts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @cached_property
    def devices(self) -> list[Device]:
        """The devices of this run, the deepest on every emulated target. Raises ``BadInput`` for an unknown one."""
        if self.device_names:
            found = [device_named(name) for name in self.device_names]
        else:
            found = all_devices() if self.depth == DEPTHS[-1] else default_devices()
        return _shared_out(found, os.environ.get("PYTEST_XDIST_WORKER", ""))

    @cached_property
    def kernels(self) -> list[Plugged]:
        """The user's kernels, then the suite's own. Raises ``BadInput`` for a file that does not load."""
        installed = [entry.value for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)]
        chosen = list(dict.fromkeys(_absolute(origin) for origin in [*self.origins, *installed]))
        own = [module for module in MODULES if module not in self.missing]
        # Any child can describe: Triton needs no driver before the first launch.
        kernels = [p for origin in [*chosen, *own] for p in self.devices[0].describe(origin)]
        check_kernels(kernels)
        return kernels

    def kernel_named(self, name: str) -> Plugged:
        """The kernel of that name, the user's own or one of ours, or the first one of a library of that name.

        Raises ``BadInput`` where there is none.
        """
        by_library = {p.kernel.library: p for p in reversed(self.kernels) if p.kernel.library}
        known = by_library | {p.kernel.name: p for p in self.kernels}
        if name in known:
            return known[name]
        error = unknown("kernel or library", name, known)
        lacking = "; ".join(f"{module}: {why}" for module, why in sorted(self.missing.items()))
        raise BadInput(f"{error}{f' (not loaded: {lacking})' if lacking else ''}")

    def place_of(self, plugged: Plugged) -> Device:
        """The first device that executes a kernel. Raises ``BadInput`` where there is none."""
        devices = [d for d in self.devices if runs_on(plugged, d) and not d.emulates]
        if not devices:
            where = ", ".join(d.id for d in self.devices)
            raise BadInput(f"kernel {plugged.kernel.name!r} is not for {where}: nothing executes it")
        return devices[0]

    @cached_property
    def missing(self) -> dict[str, str]:
        """Our own modules that cannot be loaded here, each with what is not installed."""
        absent = {
            module: [n for n in needs if importlib.util.find_spec(n) is None] for module, needs in MODULES.items()
        }
        return {module: f"{', '.join(names)} not installed" for module, names in absent.items() if names}

    def check(self) -> None:
        """Raise ``BadInput`` for anything that the options ask for and that cannot be."""
        if not 0 < self.timeout < float("inf"):
            raise BadInput(f"--kernel-timeout {self.timeout:g}; expected a positive number of seconds")
        self.devices, self.waivers  # noqa: B018  (each is computed, and checked, when asked for)
        load_manifest(self.golden)
        self.kernels  # noqa: B018  (the last, since it takes seconds)

    @cached_property
    def waivers(self) -> list[waivers.Waiver]:
        """The suite's own waivers and the user's."""
        return waivers.load([waivers.OWN, *self.waiver_files])

    def is_waived(self, planned: Planned) -> bool:
        """Whether a waiver names this cell, for whatever versions."""
        kernel, target = planned.plugged.kernel.name, planned.device.target
        return any(w.names(planned.id, kernel, target) for w in self.waivers)

    def facts(self, device: Device) -> dict[str, Any]:
        """What a device's child says of its surroundings, asked once."""
        if device.id not in self._facts:
            self._facts[device.id] = device.facts() | {"device": device.id, "how": device.how, "note": device.note}
        return self._facts[device.id]

    @property
    def known_facts(self) -> dict[str, dict[str, Any]]:
        """Facts of the devices that were asked, by target."""
        return {device.target: self._facts[device.id] for device in self.devices if device.id in self._facts}

    def close(self) -> None:
        """End every child."""
        if "devices" in self.__dict__:
            for device in self.devices:
                device.close()


def _shared_out(devices: Sequence[Device], worker: str) -> list[Device]:
    """The same devices, equal ones in another order for each of xdist's workers ("gw3").

    A plan takes the first device of each target, so that each worker has one of several equal GPUs, and ids do not
    change.
    """
    number = int(worker[2:]) if worker[2:].isdigit() else 0
    equal: dict[str, list[Device]] = defaultdict(list)
    for device in devices:
        equal[device.target].append(device)
    turned = {target: iter(_turned(found, number)) for target, found in equal.items()}
    return [next(turned[device.target]) for device in devices]


def _turned(devices: list[Device], places: int) -> list[Device]:
    places %= len(devices)
    return [*devices[places:], *devices[:places]]


def _absolute(origin: str) -> str:
    """A path made absolute; a dotted module name as it is."""
    if not origin.endswith(".py"):
        if os.sep in origin or Path(origin).exists():
            raise BadInput(f"kernels {origin!r}: expected a Python file (.py) or a dotted module name")
        return origin
    path = Path(origin).absolute()
    if not path.is_file():
        raise BadInput(f"kernels {origin!r}: no such file ({path})")
    return str(path)
