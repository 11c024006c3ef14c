"""Ask a kernel what its accumulator is: on a device, or by files of launches and results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from narrowgauge.contracts.coded import Coded, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.device import RUN, Device
from narrowgauge.golden.safetensors_file import TensorFile, metadata_of, read, write
from narrowgauge.reference.behaviour import resolved
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.memory import from_memory, in_memory, to_memory
from narrowgauge.reference.probes.calls import call_of, setting_of
from narrowgauge.reference.probes.matching import Known, known_units
from narrowgauge.reference.probes.portrait import LENGTH, Portrait, portrait, stages
from narrowgauge.reference.probes.rows import Key, Sheet
from narrowgauge.suites.offline import in_file
from narrowgauge.suites.planning import Planned, runs_on

SCHEMA = "narrowgauge.probes/1"
#: rows of a launch; a kernel may take other instructions for few of them
ROWS = 256
#: how often the launches that show the order are repeated
REPEATS = 4
#: how the child says of two calls that they differ, and no more
UNSTABLE = "not deterministic"


@dataclass(frozen=True)
class Probed:
    """A kernel's portrait, and what stood in the way of parts of it."""

    claim: Claim
    portrait: Portrait
    known: Known
    launches: int
    rows: int
    notes: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "claim": str(self.claim),
            "launches": self.launches,
            "rows": self.rows,
            "notes": list(self.notes),
            "units": self.known.to_json(),
            **self.portrait.to_json(),
        }


class _Refused(Exception):
    """A kernel gave no usable answer to a sheet."""


def probe_kernel(
    plugged: Plugged,
    claim: Claim,
    device: Device,
    k: int = LENGTH,
    rows: int = ROWS,
    repeats: int = REPEATS,
    timeout: float = RUN,
    told: Callable[[int, int], None] = lambda done, of: None,
) -> Probed:
    """Launch all probes on a device. ``told`` is called with how many launches are done, and of how many.

    A kernel that refuses another length of K loses the findings that need it. Raises ``BadInput`` where it refuses the
    first launches, and ``NotExecuted`` where it has nothing here to run with.
    """
    _check_place(plugged, claim, device)
    launcher = _Launcher(plugged, claim, device, timeout)
    found = stages(setting_of(claim, k), rows)
    total, done = sum(len(stage.sheets) for stage in found), 0
    answers: dict[Key, float] = {}
    repeated: list[dict[Key, float]] = []
    for place, stage in enumerate(found):
        try:
            for sheet in stage.sheets:
                answers |= launcher.run(sheet)
                done += 1
                told(done, total)
            if place == 0:
                repeated = [launcher.again(stage.sheets) for _ in range(repeats)]
        except _Refused as refused:
            if place == 0:
                raise BadInput(f"kernel {plugged.kernel.name!r}, {claim}, K = {stage.setting.k}: {refused}") from None
            launcher.notes.append(f"not asked at K = {stage.setting.k}: {refused}")
    made = portrait(setting_of(claim, k), answers, repeated)
    return Probed(claim, made, known_units(made, answers), launcher.count, rows, tuple(launcher.notes))


def _check_place(plugged: Plugged, claim: Claim, device: Device) -> None:
    if not runs_on(plugged, device):
        raise BadInput(f"kernel {plugged.kernel.name!r} ({plugged.kernel.backend}) is not for {device.id}")
    if hindrance := Planned(plugged, claim, "probe", device).hindrance:
        raise NotExecuted(hindrance)


@dataclass
class _Launcher:
    plugged: Plugged
    claim: Claim
    device: Device
    timeout: float
    notes: list[str] = field(default_factory=list)
    count: int = 0

    def run(self, sheet: Sheet) -> dict[Key, float]:
        """The answers to a sheet."""
        x = call_of(self.claim, sheet)
        sent, form = to_memory(self.claim, x), in_memory(self.claim, x)
        outcome = self.device.run(self.plugged, resolved(self.claim), sent, self.timeout, form=form)
        self.count += 1
        if outcome.kind == "not_executed":
            raise NotExecuted(outcome.reason)
        if outcome.kind != "returned":
            raise _Refused(f"{outcome.kind}: {outcome.reason}")
        unstable = [text for text in outcome.malformed if text.startswith(UNSTABLE)]
        if unstable:
            self.notes += [text for text in unstable if text not in self.notes]
        elif outcome.malformed:
            raise _Refused("; ".join(outcome.malformed))
        return _answers(self.claim, sheet, x, outcome.outputs)

    def again(self, sheets: tuple[Sheet, ...]) -> dict[Key, float]:
        """The answers, once more, to the sheets that show an order."""
        ordered = [sheet for sheet in sheets if any(key[0] == "stretches" for key in sheet.keys)] or list(sheets[:1])
        return {key: value for sheet in ordered for key, value in self.run(sheet).items()}


def _answers(claim: Claim, sheet: Sheet, x: Coded, outputs: dict[str, Coded]) -> dict[Key, float]:
    """What stands on the diagonal. Raises ``_Refused`` for results of another form."""
    matrices, wrong = from_memory(claim, x, outputs)
    if wrong:
        raise _Refused("; ".join(wrong))
    codes = matrices["codes"]
    size = x.shape[0]
    if codes.format != claim.format or codes.shape != (size, size) or not codes.well_formed:
        came = f"{codes.data.dtype} of {codes.format} {list(codes.shape)}"
        raise _Refused(f"it returned {came}; expected codes of {claim.format} [{size}, {size}]")
    diagonal = decode_values(Coded(codes.format, np.diagonal(codes.data).copy()))
    return dict(zip(sheet.keys, diagonal.tolist(), strict=False))


# --- files -----------------------------------------------------------------------------------------------------------


def _sheets(claim: Claim, k: int, rows: int) -> Iterator[tuple[str, Sheet]]:
    for number, stage in enumerate(stages(setting_of(claim, k), rows)):
        for place, sheet in enumerate(stage.sheets):
            yield f"{'abc'[number]}{place}", sheet


def write_probes(claim: Claim, path: Path, k: int = LENGTH, rows: int = ROWS) -> dict[str, tuple[int, ...]]:
    """Write all launches to a file. Returns the name of each, and the shape of its result [M, N]."""
    tensors: dict[str, Coded] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, sheet in _sheets(claim, k, rows):
        x = to_memory(claim, call := call_of(claim, sheet))
        tensors |= {f"{name}.{part}": in_file(value) for part, value in {"x": x, **given_with(x)}.items()}
        shapes[name] = (call.shape[0], call.shape[0])
    write(
        path, tensors, {"schema": SCHEMA, "claim": str(claim), "k": k, "rows": rows, "cases": list(shapes)}, typed=True
    )
    return shapes


def read_probes(inputs: Path, outputs: Path) -> Probed:
    """The portrait of whatever made the results. Raises ``BadInput`` that names file and tensor."""
    claim, k, rows = _asked(inputs)
    answered, missing = read(outputs), []
    answers: dict[Key, float] = {}
    for name, sheet in _sheets(claim, k, rows):
        tensor = f"{name}.codes"
        if tensor not in answered.tensors:
            if name.startswith("a"):
                raise BadInput(f"{outputs} holds no tensor {tensor!r}; those at K = {sheet.setting.k} are needed, all")
            missing.append(f"not asked at K = {sheet.setting.k}: {outputs.name} holds no {tensor!r}")
            continue
        try:
            x = call_of(claim, sheet)
            answers |= _answers(claim, sheet, x, {"codes": answered.tensors[tensor].as_format(claim.format)})
        except _Refused as refused:
            raise BadInput(f"{outputs}: {tensor!r}: {refused}") from None
    made = portrait(setting_of(claim, k), answers)
    return Probed(claim, made, known_units(made, answers), 0, rows, tuple(missing))


def _asked(path: Path) -> tuple[Claim, int, int]:
    """Claim, K and rows of a file of probes."""
    file: TensorFile = read(path)
    metadata = metadata_of(file, path)
    if metadata.get("schema") != SCHEMA:
        raise BadInput(f"{path} has schema {metadata.get('schema')!r}; expected {SCHEMA!r}, of 'probe --write'")
    k, rows = metadata.get("k"), metadata.get("rows")
    if not isinstance(k, int) or not isinstance(rows, int):
        raise BadInput(f"{path}: its metadata has no whole numbers k and rows; given {k!r} and {rows!r}")
    try:
        return Claim.parse(str(metadata.get("claim"))), k, rows
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error


# --- which kernel ----------------------------------------------------------------------------------------------------


def claim_of(plugged: Plugged, text: str = "") -> Claim:
    """What a kernel is probed as: a claim that is given, or its first on a product of matrices."""
    if text:
        claim = Claim.parse(text)
        setting_of(claim)  # raises for one on something else
        return claim
    for claim in plugged.kernel.claims:
        if claim.operation == "matmul":
            return claim
    raise BadInput(
        f"kernel {plugged.kernel.name!r} claims {plugged.kernel.claims[0].operation}, no product of matrices; "
        "give --claim matmul/PRODUCT/SOURCE/FORMAT if it is one"
    )
