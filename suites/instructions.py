"""Which instructions kernels of products become on targets: each is compiled for a small call, and not executed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import Claim, Matmul
from narrowgauge.devices.device import Device
from narrowgauge.reference.behaviour import claim_on, multiplying_of, resolved
from narrowgauge.reference.instructions import Code, Finding, code_of, findings
from narrowgauge.reference.matmul.cases import Shape, call_of
from narrowgauge.reference.memory import in_memory, to_memory
from narrowgauge.suites.planning import runs_on

#: of the call that is compiled for: tiles are whole, and K is more than one of them
ROWS, COLUMNS, DEPTH = 128, 128, 1024
#: seconds; some products take half a minute to compile
TIMEOUT = 120.0


@dataclass(frozen=True)
class Compiled:
    """What became of one claim on one target; ``reason`` where nothing did."""

    kernel: str
    claim: Claim
    target: str
    code: Code | None = None
    findings: tuple[Finding, ...] = field(default=())
    reason: str = ""

    @property
    def contradicted(self) -> bool:
        return any(finding.contradicts for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        said = [{"name": f.name, "text": f.text, "contradicts": f.contradicts} for f in self.findings]
        code = {"target": self.target} if self.code is None else self.code.to_json()
        return {"kernel": self.kernel, "claim": str(self.claim), "findings": said, "reason": self.reason} | code


def compiled(kernels: Sequence[Plugged], devices: Sequence[Device], rows: int = ROWS) -> Iterator[Compiled]:
    """The first claim of each source of each kernel of a product, on each emulated device."""
    for plugged in kernels:
        for device in devices:
            if runs_on(plugged, device):
                for claim in _by_source(plugged.kernel.claims):
                    yield compiled_on(plugged, claim, device, rows)


def compiled_on(plugged: Plugged, claim: Claim, device: Device, rows: int = ROWS) -> Compiled:
    """What one claim becomes there. Raises ``BadInput`` for a device that is not emulated, or another operation."""
    if not device.emulates:
        raise BadInput(f"instructions are looked at on emulated devices; {device.id} is none: name emulated:TARGET")
    x = _call(claim, rows)
    outcome = device.run(
        plugged, resolved(claim), to_memory(claim, x), TIMEOUT, form=in_memory(claim, x), verb="instructions"
    )
    name, target = plugged.kernel.name, device.emulates
    if outcome.kind != "returned" or not outcome.launches:
        reason = f"{outcome.kind}: {outcome.reason}" if outcome.reason else "it launches no Triton kernel"
        return Compiled(name, claim, target, reason=reason)
    code = code_of(target, outcome.launches)
    return Compiled(name, claim, target, code, tuple(findings(code, multiplying_of(claim_on(claim, target)))))


def _by_source(claims: Sequence[Claim]) -> list[Claim]:
    found = {claim.source: claim for claim in reversed(claims) if isinstance(claim.contract, Matmul)}
    return list(reversed(found.values()))


def _call(claim: Claim, rows: int) -> Coded:
    if not isinstance(claim.contract, Matmul):
        raise BadInput(f"claim {claim}: instructions are looked at of products of matrices (Matmul) alone")
    multiplying, blocks = multiplying_of(claim), 8
    x = call_of(multiplying, Shape("noise", rows, COLUMNS, blocks, DEPTH))
    if x.shape[1] < DEPTH:
        x = call_of(multiplying, Shape("noise", rows, COLUMNS, -(-blocks * DEPTH // x.shape[1]), DEPTH))
    return x
