"""What explains a finding of ``narrowgauge compare``: the claim, a policy, a fault, a waiver, an open answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from narrowgauge.ci.comparison.beside import DRAWN
from narrowgauge.ci.comparison.findings import Finding
from narrowgauge.ci.ledger import Row, common_faults
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Cast, Claim, Quantize
from narrowgauge.plugin.screen import brief
from narrowgauge.reference.claims_apart import claims_apart, followers, left_open
from narrowgauge.reference.faults.registry import fault_named

#: so many names stand in a line
NAMED = 4
#: kinds that are explained
_EXPLAINED = ("verdicts", "codes", "nan", "failures")
#: name of what explains, and what it says
Why = list[tuple[str, str]]


def why(finding: Finding) -> Why:
    """Everything that is known; empty for what needs no explanation."""
    if finding.kind not in _EXPLAINED:
        return []
    first = finding.rows[0]
    rows = {label: [each[label] for each in finding.rows if label in each] for label in first}
    found = [*_claims(first), *_followed(rows)]
    if any(row.case == DRAWN for mine in rows.values() for row in mine):
        found.append(("inputs", f"of {DRAWN} are drawn anew in each run: one may have met what another did not"))
    passed = [row for row in first.values() if row.result == "passed"]
    if len({row.digest for row in passed}) > 1:
        found.append(("left open" if finding.kind != "verdicts" else "of those that pass", _left_open(passed[0])))
    if finding.kind in ("verdicts", "failures"):
        if finding.kind == "verdicts" and len({row.digest for row in first.values()}) == 1:
            found.append(("codes", "equal: what is expected, or waived, is not the same"))
        found += _alike((label, _wrong(mine)) for label, mine in rows.items())
        found += _portraits(rows, finding.format)
    return [*found, *_alike((label, _open_models(mine)) for label, mine in rows.items())]


def _alike(said: Iterable[tuple[str, str]]) -> Why:
    """What is said of several columns in the same words, once."""
    labels: dict[str, list[str]] = {}
    for label, text in said:
        labels.setdefault(text, []).append(label)
    return [(", ".join(names), text) for text, names in labels.items() if text]


def _claims(first: Mapping[str, Row]) -> Why:
    """Where the claim is not the same on all of them: the first choice or step in which two part."""
    (one, row), *others = first.items()
    found = []
    for label, other in others:
        if other.claim != row.claim:
            said = f"{row.rule} on {one}, {other.rule} on {label}"
            try:
                part = claims_apart(Claim.parse(row.claim), Claim.parse(other.claim))
            except BadInput:  # a rule that came as data, or of another version
                part = "what they say is not in the ledger"
            found.append(("claims part", f"{said}; {part}"))
    return found


def _left_open(row: Row) -> str:
    try:
        return left_open(Claim.parse(row.claim)).said
    except BadInput:
        return "what the claim leaves open is not known: its rule came as data, or is of another version"


def _followed(rows: Mapping[str, Sequence[Row]]) -> Why:
    """Of an observed kernel the rules that it follows on each, and where the first two of them part."""
    first = next(iter(rows.values()))[0]
    if first.rule != "?":
        return []
    follows = {label: _common(mine) for label, mine in rows.items()}
    if len(set(follows.values())) == 1:
        return []
    found = _alike((label, f"follows {_names(names) or 'no named rule'}") for label, names in follows.items())
    named = [names[0] for names in dict.fromkeys(follows.values()) if names]
    if len(named) > 1:
        of = Cast if first.operation == Cast.operation else Quantize
        one, other = (replace(Claim.parse(first.claim), contract=of(name)) for name in named[:2])
        found.append(("policies part", f"{named[0]} and {named[1]}: {claims_apart(one, other)}"))
    return found


def _common(rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(name for name in rows[0].follows if all(name in row.follows for row in rows))


def _wrong(rows: Sequence[Row]) -> str:
    """Why some rows of one column do not pass: waiver, faults, or what the call did."""
    wrong = [row for row in rows if row.result != "passed"]
    if not wrong:
        return ""
    row = wrong[0]
    said = [f"{row.result}{_counts(wrong)}"]
    if faults := common_faults(wrong):
        said.append(f"fault {_names(faults)}: {_cause(faults[0])}")
    if tried := [each.open_answers for each in wrong if each.open_answers is not None]:
        within, beyond = sum(t.within for t in tried), sum(t.beyond for t in tried)
        how_many = f"{within:,} of them, and not {beyond:,}" if beyond else "all of them"
        said.append(f"other answers that its instructions allow explain {how_many}")
    if row.reason:
        said.append(brief(row.reason))
    if row.waiver:
        said.append(row.waiver)
    if not (faults or row.reason or tried):
        said.append("no known fault makes all of it")
    return "; ".join(said)


def _counts(rows: Sequence[Row]) -> str:
    kinds: dict[str, int] = {}
    for kind, count in (pair for row in rows for pair in row.differences.items()):
        kinds[kind] = kinds.get(kind, 0) + count
    told = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in kinds.items())
    return f": {told} of {sum(row.elements for row in rows):,} elements differ from what is expected" if told else ""


def _cause(fault: str) -> str:
    try:
        return "; ".join(fault_named(single).cause for single in fault.split(" + "))
    except BadInput:
        return "a fault of another version"


def _portraits(rows: Mapping[str, Sequence[Row]], format_name: str) -> Why:
    """Of casts: the places at the edge of the range where columns part, and the policies that say so."""
    seen = {label: _portrait(mine) for label, mine in rows.items()}
    places = dict.fromkeys(place for each in seen.values() for place in each)
    apart = [p for p in places if len({each[p] for each in seen.values() if p in each}) > 1]
    if not apart:
        return []
    found = []
    for label, each in seen.items():
        said = ", ".join(f"{place} gives {each[place]}" for place in apart if place in each)
        named = followers(each, format_name)
        found.append((label, f"at the edge {said or 'was not seen'}; as {_names(named) or 'no named policy'}"))
    return _alike(found)


def _portrait(rows: Sequence[Row]) -> dict[str, str]:
    """What came out at each place in all cases that have it; a place with several answers says them all."""
    found: dict[str, dict[str, None]] = {}
    for place, value in (pair for row in rows for pair in row.portrait.items()):
        found.setdefault(place, {})[value] = None
    return {place: " or ".join(values) for place, values in found.items()}


def _open_models(rows: Sequence[Row]) -> str:
    names = dict.fromkeys(name for row in rows for name, is_open in row.models.items() if is_open)
    if not names:
        return ""
    return f"emulated by models that allow several answers: {_names(tuple(names))}; hardware may give another one"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
