"""The plan of a run: which kernel, claim and case goes to which device, decided before anything is judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import OPERATIONS, Cast, Claim, Convert, Matmul, Observe, OfCache, WideOp
from narrowgauge.contracts.views import View
from narrowgauge.devices.device import Device
from narrowgauge.devices.targets import TARGETS
from narrowgauge.golden.families import family_of
from narrowgauge.reference.behaviour import claim_on
from narrowgauge.reference.inputs import CASES, DEPTHS, Depth
from narrowgauge.reference.judge import check_claim

#: formats that every target converts
PLAIN = {"float32", "bfloat16", "float16", "int8", "uint8"}
#: cases that have most in them: scattered slots or pages, padding, NaN in what nobody uses; every code under a scale of
#: each block, as many rows as columns; sums that are exact in any order, under scales of each block; NaN or infinity in
#: a row
RICHEST = ("exact", "scattered", "permuted", "square", "specials", "infinities")


@dataclass(frozen=True)
class Planned:
    """One cell of the plan. ``case`` names an input set, or a golden family, or "property"."""

    plugged: Plugged
    claim: Claim
    case: str
    device: Device

    def __repr__(self) -> str:  # Allure makes a test's identity from it
        return self.id

    @property
    def id(self) -> str:
        """source-format-case-kernel-target: stable, and free of host, worker and device index."""
        names = (self.claim.source, self.claim.format, self.case, self.plugged.kernel.name, self.device.target)
        return "-".join(names)

    @property
    def view(self) -> View:
        """How the inputs lie in memory; vectors and generated ones in the plain way."""
        return next((c.view for c in CASES if (c.name, c.operation) == (self.case, self.claim.operation)), "contiguous")

    @property
    def subject(self) -> str:
        """The same in the words of a message."""
        return (
            f"{self.plugged.kernel.name} ({self.claim.source} to {self.claim.format}) "
            f"on {self.device.target}, case {self.case}"
        )

    @property
    def markers(self) -> tuple[str, ...]:
        """Names of the pytest markers of this cell."""
        # A wrong code raises nothing in an engine: every cell is about a silent failure.
        of_formats = [m for name in (self.claim.source, self.claim.format) for m in format_named(name).markers]
        names = [OPERATIONS[self.claim.operation], "silent_failure", *dict.fromkeys(of_formats)]
        if self.device.emulates:
            names.append("emulated")
        elif self.device.target not in ("host", "interpreter"):
            names.append("gpu")
        if self.case == "every_code":
            names.append("exhaustive")
        return tuple(names)

    @property
    def hindrance(self) -> str:
        """Why this cell cannot be executed, known before trying; "" if nothing is known."""
        kernel = self.plugged.kernel
        if isinstance(self.claim.contract, Matmul) and self.device.emulates and not _is_plain_arithmetic(self):
            return "instructions of matrix units are not emulated (docs/emulator.md)"
        if kernel.conversion != "native" or kernel.backend != "triton" or kernel.canary:
            return ""
        if self.device.how == "interpreted":
            return "it converts a narrow type, which Triton's interpreter does wrongly (interpreter_canary)"
        name = self.device.emulates or self.device.target
        if name not in TARGETS:
            return f"{name} is not in devices/targets.py: which formats it converts is not known"
        for narrow in {self.claim.source, self.claim.format} - PLAIN:
            if narrow not in TARGETS[name].triton:
                return f"{name} has no conversion of {narrow}, in hardware or in Triton"
        return ""


def _is_plain_arithmetic(planned: Planned) -> bool:
    """Whether a product becomes multiplications and additions of float32: what widens its operands by integers does so
    on NVIDIA; for AMD Triton makes matrix instructions of float32 too."""
    return planned.plugged.kernel.conversion == "soft" and TARGETS[planned.device.emulates].backend == "cuda"


def runs_on(plugged: Plugged, device: Device) -> bool:
    """Whether a kernel is meant to run on a device at all."""
    kernel = plugged.kernel
    if kernel.canary:
        return device.how == "interpreted"
    if device.how == "interpreted":
        return kernel.backend == "triton"
    if device.emulates:
        return kernel.backend == "triton"
    if device.target == "host":
        return kernel.backend != "triton"
    return kernel.backend != "numpy"


def plan_cases(kernels: Iterable[Plugged], devices: Sequence[Device], operation: str, depth: Depth) -> list[Planned]:
    """Every cell of an operation: each claim on each device it is for, with each case of the depth."""
    reached = DEPTHS[: DEPTHS.index(depth) + 1]
    cases = [c for c in CASES if c.operation == operation and c.depth in reached]
    planned = []
    for plugged, claim, device in _places(kernels, devices, operation, sparing=depth == DEPTHS[0]):
        seen_elsewhere = depth == DEPTHS[0] and _is_like_the_interpreted(plugged, claim, device)
        # To see whether a claim can have a case may cost as much as to make it, so nobody asks for one too many.
        suiting = (c.name for c in cases if (c.name in RICHEST or not seen_elsewhere) and c.suits(claim))
        most = 1 if _is_first(plugged, claim) else 0  # of products one cell for each kernel
        if not (seen_elsewhere and isinstance(claim.contract, Matmul)):
            # Where nothing will be executed, one case says all there is to say.
            most = 1 if Planned(plugged, claim, "", device).hindrance else len(cases)
        planned += [Planned(plugged, claim, name, device) for name in islice(suiting, most)]
    return planned


def _is_like_the_interpreted(plugged: Plugged, claim: Claim, device: Device) -> bool:
    """Whether a smoke run has seen every case of a kernel elsewhere: ours that write and read caches, convert, or
    stay wide are run whole on the interpreter, and compiled with the richest case alone."""
    ours = (
        plugged.own
        and plugged.kernel.conversion == "soft"
        and isinstance(claim.contract, OfCache | Convert | Matmul | WideOp)
    )
    return ours and bool(device.emulates)


def _is_first(plugged: Plugged, claim: Claim) -> bool:
    """Whether a claim is the first of its kernel."""
    first = plugged.kernel.claims[0]
    return (claim.source, claim.format) == (first.source, first.format)


def plan_one(
    kernels: Iterable[Plugged], devices: Sequence[Device], operation: str, case: str, depth: Depth
) -> list[Planned]:
    """One cell for each claim on each device that can run it: for tests that bring their own inputs."""
    places = _places(kernels, devices, operation, sparing=depth == DEPTHS[0])
    cells = [Planned(plugged, claim, case, device) for plugged, claim, device in places]
    return [c for c in cells if not (c.hindrance or c.plugged.kernel.canary)]


def _places(
    kernels: Iterable[Plugged], devices: Sequence[Device], operation: str, sparing: bool
) -> Iterator[tuple[Plugged, Claim, Device]]:
    for plugged in kernels:
        for claim in plugged.kernel.claims:
            if claim.operation == operation:
                places = [device for device in one_per_target(devices) if runs_on(plugged, device)]
                for device in _sparing(plugged, operation, places) if sparing else places:
                    yield plugged, claim_on(claim, device.emulates or device.target), device


def _sparing(plugged: Plugged, operation: str, places: list[Device]) -> list[Device]:
    """Where a smoke run judges a kernel: ours that compute codes by integers, casts apart, on one emulated target of
    each vendor, since they are compiled to much the same code. Everybody else's run everywhere."""
    if not plugged.own or plugged.kernel.conversion != "soft" or operation == Cast.operation:
        return places
    seen: set[str] = set()
    kept = []
    for device in places:
        vendor = device.emulates[:3] or device.target
        if not device.emulates or vendor not in seen:
            kept.append(device)
        seen.add(vendor)
    return kept


def has_vectors(planned: Planned) -> bool:
    """Whether golden vectors hold for a cell's claim."""
    return not isinstance(planned.claim.contract, Observe) and family_of(planned.claim) is not None


def one_per_target(devices: Sequence[Device]) -> list[Device]:
    """The first device of each target: two equal GPUs give the same answers under the same names."""
    return list({device.target: device for device in reversed(devices)}.values())[::-1]


def check_kernels(kernels: Sequence[Plugged]) -> None:
    """Raise ``BadInput`` for claims that cannot be, and for two kernels of one name."""
    seen: dict[str, str] = {}
    for plugged in kernels:
        name = plugged.kernel.name
        if name in seen:
            raise BadInput(f"two kernels are named {name!r}: one in {seen[name]}, one in {plugged.origin}; rename one")
        seen[name] = plugged.origin
        for claim in plugged.kernel.claims:
            try:
                check_claim(claim)
            except BadInput as error:
                raise BadInput(f"kernel {name!r} in {plugged.origin}: {error}") from None
