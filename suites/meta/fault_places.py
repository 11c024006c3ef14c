"""In which claims of the suite each fault can be seen, in a few words, kept in fault_places.json: a survey of all takes
half a minute, and each is made anew by test_applicability.py.

    python -m narrowgauge.suites.meta.fault_places
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.faults.applicability import Applicability, survey
from narrowgauge.reference.faults.registry import FAULTS

DATA = Path(__file__).with_name("fault_places.json")
#: operations as one says them of many claims
NOUNS = {
    "cast": "casts",
    "quantize": "quantizers",
    "dequantize": "readers of codes",
    "then": "fused quantizers",
    "kv_write": "writers of caches",
    "kv_read": "readers of caches",
    "attend": "attention",
    "convert": "conversions",
    "matmul": "products",
    "wide": "wide operations",
}
#: the example is in one of these, where the fault shows there: what most people have
USUAL = ("/float32/float8_e4m3fn", "/bfloat16/float8_e4m3fn", "/float32/float8_e4m3fnuz", "/float8_e4m3fn/bfloat16")
#: so many names are said; of more it is said how many there are
NAMES = 8


def places_of(found: Sequence[Applicability]) -> dict[str, str]:
    """Where it shows, an example with its count, and where no input at all can show it."""
    shows = [one for one in found if one.state == "shows"]
    said = {"shows in": "; ".join(_by_operation(shows))}
    if shows:
        one = next((one for end in USUAL for one in shows if one.claim.endswith(end)), shows[0])
        said["cases"] = ", ".join(f"`{case}`" for case in dict.fromkeys(one.case for one in shows))
        said["example"] = f"`{one.claim}`, case `{one.case}`: {one.changed:,} of {one.inputs:,} outputs differ"
    never = sum(one.state == "equivalent" for one in found)
    if never:
        said["never shows in"] = f"{never} casts, by every input that there is"
    return said


def _by_operation(shows: Sequence[Applicability]) -> Iterator[str]:
    by: dict[str, list[Claim]] = {}
    for one in shows:
        claim = Claim.parse(one.claim)
        by.setdefault(claim.operation, []).append(claim)
    for operation, claims in by.items():
        names = dict.fromkeys(claim.format if operation == "cast" else claim.rule for claim in claims)
        if operation != "cast" and len(names) > NAMES:
            names = dict.fromkeys(name.partition(".")[0] for name in names)
        what = f"{NOUNS[operation]} {'to' if operation == 'cast' else 'of'}"
        more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
        yield f"{what} {', '.join([f'`{name}`' for name in names][:NAMES])}{more}"


def load() -> dict[str, dict[str, str]]:
    """What was found of every fault."""
    held: dict[str, dict[str, str]] = json.loads(DATA.read_text(encoding="utf-8"))
    return held


if __name__ == "__main__":
    made = {name: places_of(survey(name)) for name in FAULTS}
    DATA.write_text(json.dumps(made, indent=0) + "\n", encoding="utf-8")
