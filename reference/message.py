"""The failure message: what is wrong, how much of it, where, by whose word, and how to see it oneself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest

from narrowgauge.contracts.verdict import Explanation, OpenAnswers, Verdict
from narrowgauge.reference.faults.registry import fault_named

#: how many faults of an indistinguishable set are spelled out
SPELLED_OUT = 4
#: characters of a line of the table that a report's page shows without a break
WIDEST = 110
#: what stands before the script
SCRIPT = "see it without narrowgauge:"


def failure_message(verdict: Verdict, subject: str, script: str = "") -> str:
    """The whole message. ``subject`` names the kernel, formats, case and target."""
    parts = [*findings(verdict, subject), _count(verdict)]
    parts += [_table(verdict), f"claim: {verdict.claim}", f"authority: {verdict.authority}"]
    if verdict.models:
        parts.append(f"emulated with models: {', '.join(verdict.models)}")
    parts += verdict.notes
    if script:
        parts.append(f"{SCRIPT}\n" + "\n".join(f"    {line}" for line in script.splitlines()))
    return "\n".join(part for part in parts if part)


def findings(verdict: Verdict, subject: str) -> list[str]:
    """The lines that say what is wrong and which mistake it was, without counts and elements."""
    return [_headline(verdict, subject), *_reasons(verdict), _breaks(verdict)]


def code_in(message: str) -> str:
    """The word in brackets with which a message begins; "" where it begins with none."""
    found = re.match(r"\[([A-Z0-9-]+)\]", message)
    return found[1] if found else ""


def code_of(verdict: Verdict) -> str:
    """The word in brackets that stands first: the family of the fault."""
    if verdict.malformed:
        return "FORM"
    if "not_a_code" in verdict.differences:
        return "NOT-A-CODE"
    if verdict.reason:
        return "POLICY"
    if not verdict.explanations or not verdict.explanations[0].accounts_for(verdict.differing):
        return "UNEXPLAINED"
    return fault_named(verdict.explanations[0].faults[0].split(" + ")[0]).code


def _headline(verdict: Verdict, subject: str) -> str:
    word = "disputed" if verdict.result == "disputed" else "wrong"
    if verdict.malformed:
        return f"[FORM] {subject}: {'; '.join(verdict.malformed)}"
    if strange := verdict.differences.get("not_a_code", 0):
        return f"[NOT-A-CODE] {subject}: {strange} numbers that are no codes of the format"
    if verdict.reason:
        return f"[POLICY] {subject}: {word}; {verdict.reason}"
    if not verdict.explanations:
        return f"[UNEXPLAINED] {subject}: {word}, and no known fault accounts for any of it"
    best = verdict.explanations[0]
    name = best.faults[0] if len(best.faults) == 1 else f"one of {', '.join(best.faults[:SPELLED_OUT])}"
    extra = len(best.faults) - SPELLED_OUT
    name += f" and {extra} more" if extra > 0 else ""
    name += f" in {best.only} alone" if best.only else ""
    name += f" ({best.how[0]})" if best.how and best.how[0] and len(best.faults) == 1 else ""
    if not best.accounts_for(verdict.differing):
        nearest = f"nearest: {name} {in_part(best, verdict.differing)}"
        return f"[UNEXPLAINED] {subject}: {word}, and no known fault accounts for it; {nearest}"
    how = "" if best.complete else f" {in_part(best, verdict.differing)}"
    return f"[{code_of(verdict)}] {subject}: {name}{how}"


def _breaks(verdict: Verdict) -> str:
    several = ", ".join(verdict.open_models)
    if verdict.open_answers is not None:
        return _with_other_answers(verdict, verdict.open_answers, several)
    if verdict.result == "disputed" and several:
        return f"disputed: the instruction set allows several answers of {several}; the emulator went on with one"
    if verdict.result == "disputed":
        return "disputed: the expectation rests on a document, not on hardware or a measurement; nobody is blamed"
    return f"breaks: {verdict.breaks}"


def _with_other_answers(verdict: Verdict, found: OpenAnswers, several: str) -> str:
    tried = f"{len(found.tried)} choices of the open answers of {several} were tried"
    if found.agrees:
        return f"disputed: {tried}; with {found.agrees!r} nothing differs"
    if not found.beyond:
        return f"disputed: {tried}; they explain all {found.within:,} of the codes"
    some = f"; they explain {found.within:,} more" if found.within else ""
    document = "" if verdict.result == "failed" else "\ndisputed: the expectation rests on a document"
    return f"breaks: {verdict.breaks}\n{tried}; none explains {found.beyond:,} of the codes{some}{document}"


def _reasons(verdict: Verdict) -> list[str]:
    if verdict.explanations and (verdict.reason or not verdict.explanations[0].accounts_for(verdict.differing)):
        return [
            f"  near: {_short(e, verdict.differing)}" for e in verdict.explanations
        ]  # a cause, spelled out, would read as a finding
    lines = []
    for explanation in verdict.explanations[:1]:
        for name, how in zip_longest(explanation.faults[:SPELLED_OUT], explanation.how[:SPELLED_OUT], fillvalue=""):
            for single in name.split(" + "):
                fault = fault_named(single)
                seen = f" (seen in {', '.join(fault.reports)})" if fault.reports else ""
                lines.append(f"  {single}: {fault.cause}{seen}{f'; {how}' if how else ''}")
        if explanation.separated_by:
            lines.append(f"  told apart by: {explanation.separated_by}")
    lines += [f"  next best: {_short(e, verdict.differing)}" for e in verdict.explanations[1:]]
    return list(dict.fromkeys(lines))


def _short(explanation: Explanation, differing: int) -> str:
    return f"{', '.join(explanation.faults)} {in_part(explanation, differing)}"


def in_part(explanation: Explanation, differing: int) -> str:
    """What faults explain of what differs, and what is right that they would change."""
    spoilt = explanation.spoils(differing)
    and_spoils = f" and would change {spoilt:,} that {'is' if spoilt == 1 else 'are'} right" if spoilt else ""
    return f"explains {explanation.explained:,} of {differing:,}{and_spoils}"


def _count(verdict: Verdict) -> str:
    if not verdict.differing:
        return ""
    kinds = ", ".join(f"{count} {kind}" for kind, count in verdict.differences.items())
    return f"differing: {verdict.differing} of {verdict.elements} elements ({kinds})"


def _table(verdict: Verdict) -> str:
    if not verdict.mismatches:
        return ""
    rows = [("output", "kind", "input", "got", "want")]
    rows += [
        (f"{m.output}[{', '.join(map(str, m.index))}]", m.kind, m.input, m.got, m.want) for m in verdict.mismatches
    ]
    lines = _columns(rows)
    if max(map(len, lines)) > WIDEST:  # inputs of a product: each on a line of its own, below what came of it
        head, *others = _columns([(output, kind, got, want) for output, kind, _, got, want in rows])
        below = [f"    {row[2]}" for row in rows[1:]]
        lines = [head, *(line for pair in zip(others, below, strict=True) for line in pair)]
    return "\n".join(lines)


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return [line.rstrip() for line in lines]
