"""What a contract says of its kernel's portrait, held against the one that was found."""

from __future__ import annotations

from collections.abc import Mapping

from narrowgauge.contracts.errors import unknown
from narrowgauge.reference.probes.portrait import PROBES, SCHEDULE, Portrait

#: between values of which the answers fit each
OR = " or "


def findings_named() -> tuple[str, ...]:
    """Names of all findings that a contract may claim."""
    return (*(name for probe in PROBES for name in probe.finds), *SCHEDULE)


def check_named(claimed: Mapping[str, str]) -> None:
    """Raise ``BadInput`` for a name that no finding has."""
    for name in claimed:
        if name not in findings_named():
            raise unknown("finding", name, findings_named(), "portrait of a contract")


def differences(claimed: Mapping[str, str], found: Portrait) -> list[str]:
    """What of a claimed portrait was not found, a sentence each; none where all was.

    Where the answers fit several values, one of them is enough. Raises ``BadInput`` for a name that no finding has.
    """
    check_named(claimed)
    wrong = []
    for name, want in claimed.items():
        finding = found.findings[name]
        if not finding.value:
            wrong.append(f"{name} is claimed to be {want}; it was not to be seen: {finding.words}")
        elif want != finding.value and want not in finding.value.split(OR):
            wrong.append(f"{name} is claimed to be {want}; found: {finding.value} ({finding.words})")
    return wrong
