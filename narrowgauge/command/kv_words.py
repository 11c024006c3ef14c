"""What the two reports of ``narrowgauge kv`` say alike."""

from __future__ import annotations

from collections.abc import Sequence

from narrowgauge.reference.kv.findings import Finding
from narrowgauge.suites.kv_scales import Scales
from narrowgauge.suites.kv_use import Report, Use

#: layers that are named one by one where a finding is about several
NAMED = 4


def about_use(use: Use, scales: Scales, warnings: Sequence[str]) -> list[tuple[str, str]]:
    """What is used how, for people."""
    made = ", ".join(filter(None, (scales.producer, *scales.spelled)))
    return [
        ("cache", str(use) + (f" ({use.says})" if use.says else "")),
        ("scales", scales.source + (f": {made}" if made else "")),
        *([("engine logs", "; ".join(warnings))] if warnings else []),
    ]


def verdict_of(report: Report, layers: int) -> str:
    """In one line: how many layers there is something wrong with, and what."""
    wrong = [finding for finding in report.every if finding.wrong]
    if not wrong:
        return f"nothing is wrong with the scales of {layers} layers"
    kinds: dict[str, set[str]] = {}
    for finding in wrong:
        kinds.setdefault(finding.kind, set()).add(finding.layer)
    said = ", ".join(kind if found == {""} else f"{kind} ({len(found)})" for kind, found in kinds.items())
    return f"{len({f.layer for f in wrong if f.layer})} of {layers} layers: {said}"


def finding_lines(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """Findings of layers and of the whole, those that say the same together."""
    same: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        same.setdefault((finding.kind, finding.said), []).append(finding.layer)
    return [(kind, _about(layers) + said) for (kind, said), layers in same.items()]


def _about(layers: Sequence[str]) -> str:
    named = list(dict.fromkeys(filter(None, layers)))
    if not named:
        return ""
    more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
    return f"{', '.join(named[:NAMED])}{more}: "
