"""What a file calls bytes against what they are."""

from __future__ import annotations

from collections.abc import Iterator

from narrowgauge.checkpoints.counted import Census
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.fingerprint import FLAVOURS, Verdict, fingerprint, flavour
from narrowgauge.contracts.formats import FORMATS

#: labels that may hide floats of 8 bits
_BARE = ("uint8", "int8")
_FAMILY = {name: family for family, names in FLAVOURS.items() for name in names}


def flavour_findings(label: str, census: Census) -> Iterator[Finding]:
    """Findings about the label of one tensor of bytes, our name of a format; or about several's, of added censuses."""
    if census.codes is None or label not in _FAMILY:
        return
    verdict = fingerprint(census.codes)
    if label not in _BARE and set(verdict.candidates) & set(FLAVOURS[_FAMILY[label]]):
        verdict = flavour(census.codes, _FAMILY[label])  # which the label decides, where the spacing does not
    if label in verdict.candidates or not (kind := _kind(label, verdict)):
        return
    found = f"{'surely' if verdict.sure else 'likely'} {' or '.join(verdict.candidates)}"
    yield Finding(kind, f"{label}, and the bytes are {found}: {'; '.join(verdict.reasons)}", count=census.elements)


def _kind(label: str, verdict: Verdict) -> str:
    """The kind of finding; "" where files commonly hold such bytes under such a label."""
    found = FORMATS[verdict.candidates[0]]
    if found.bits == 4:
        return "" if label in _BARE else "bytes of another format"
    if found.family == "exponent":
        return "exponents as integers" if label in _BARE else ""
    if label in _BARE and found.family != "integer":
        return "flavour not recorded"
    if found.family == "fnuz" and FORMATS[label].family != "fnuz" and verdict.sure:
        return "FNUZ bytes labelled OCP"
    return "bytes of another format"
