"""The difference of two sets of golden vectors as tables: for a screen, as Markdown and as one page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.text import Text

from narrowgauge.golden.comparing import OfClaim
from narrowgauge.golden.difference import Difference, OfFile
from narrowgauge.golden.reasons import lines_for
from narrowgauge.golden.sets import VectorSet
from narrowgauge.plugin.screen import Grid, Line, facts

TEMPLATES, PAGE, MARKDOWN = Path(__file__).parent / "templates", "golden.html.jinja", "golden.md.jinja"
FILES = ("file", "what", "changed", "added", "removed", "why")
EXAMPLES = ("input", "inputs", "old", "new")
NO_REASON = "no reason given"
_VERSIONS = {
    "major": "an expectation changed or is gone: a major version of the vectors",
    "minor": "vectors were added, none changed: a minor version of the vectors",
    "patch": "no expectation changed: a patch version of the vectors",
    "none": "the same vectors",
}


def explained(found: Difference) -> bool:
    """Whether every expectation that changed or is gone has a reason."""
    return not any(file.without_reason for file in found.files)


def texts(found: Difference, width: int) -> list[Text]:
    """For a screen of so many columns."""
    said = [*facts(summary(found), width)]
    if found.files:
        grid = Grid("", list(FILES[:-1]), note=FILES[-1])
        for file in found.files:
            *cells, why = row(file)
            grid.lines.append(Line([Text(cell) for cell in cells], why))
        said += [Text(), *grid.texts(width)]
    for file in found.files:
        if file.claims or file.flags or file.notes:
            said += [Text(), Text(file.family, "bold"), *_details(file, width)]
    if not explained(found):
        said += [Text(), Text(_missing(found), "bold"), *(Text(line) for line in missing_lines(found).splitlines())]
    return said


def _details(file: OfFile, width: int) -> Iterator[Text]:
    for claim in file.claims:
        yield Text(f"  {claim.claim}: {in_words(claim)}")
        if claim.examples:
            grid = Grid("", [f"    {EXAMPLES[0]}", *EXAMPLES[1:]])
            grid.lines += [Line([Text(cell) for cell in (f"    {one[0]}", *one[1:])]) for one in examples(claim)]
            yield from grid.texts(width)
    if said := remarks(file):
        yield from facts(said, width)


# --- in words --------------------------------------------------------------------------------------------------------


def summary(found: Difference) -> list[tuple[str, str]]:
    """What the difference is, in names and sentences."""
    counts = {
        "changed": [file.changed for file in found.files],
        "added": [file.added for file in found.files],
        "removed": [file.removed for file in found.files],
    }
    said = [("old", _set(found.old)), ("new", _set(found.new))]
    for name, numbers in counts.items():
        files = sum(1 for number in numbers if number)
        said.append((name, f"{sum(numbers):,} expectations in {_files(files)}" if files else "nothing"))
    if others := [file for file in found.files if not file.claims]:
        said.append(("besides", f"{_files(len(others))} with other flags, notes or form alone"))
    said += [(name, f"{was} before, {now} now") for name, (was, now) in found.about.items()]
    if not found.flags_compared:
        said.append(("flags", "not compared: an export has none"))
    return [*said, ("version", f"{found.version}: {_VERSIONS[found.version]}" if found.files else _VERSIONS["none"])]


def _set(one: VectorSet) -> str:
    return f"{one.where}: {_files(len(one.contents))}, manifest {one.manifest[:12]}"


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"


def row(file: OfFile) -> tuple[str, ...]:
    """A file's line of the table: as ``FILES`` names its columns."""
    why = NO_REASON if file.without_reason else "; ".join(file.why)
    return file.family, file.kind, f"{file.changed:,}", f"{file.added:,}", f"{file.removed:,}", why


def in_words(claim: OfClaim) -> str:
    """How many of a claim's expectations changed."""
    numbers = (("changed", claim.changed), ("added", claim.added), ("removed", claim.removed))
    said = ", ".join(f"{count:,} {name}" for name, count in numbers if count)
    if claim.other_inputs:
        return f"{said}: it is another call, with other inputs"
    left = claim.places - len(claim.examples)
    return f"{said}; the first of {claim.places:,} places:" if left and claim.examples else said


def examples(claim: OfClaim) -> list[tuple[str, str, str, str]]:
    """Rows as ``EXAMPLES`` names their columns."""
    return [(": ".join(p for p in (e.where, e.input) if p), f"{e.inputs:,}", e.old, e.new) for e in claim.examples]


def remarks(file: OfFile) -> list[tuple[str, str]]:
    """What changed of a file besides its expectations."""
    shown: dict[str, list[str]] = {"now shows": [], "shows no more": [], "shows in other numbers": []}
    for flag, (was, now) in file.flags.items():
        place = "shows in other numbers" if was and now else "now shows" if now else "shows no more"
        shown[place].append(f"{flag} ({was:,} -> {now:,})")
    flags = [(place, ", ".join(said)) for place, said in shown.items() if said]
    return [*flags, *((name, f"{was} -> {now}") for name, (was, now) in file.notes.items())]


def _missing(found: Difference) -> str:
    count = sum(1 for file in found.files if file.without_reason)
    return f"{NO_REASON} for {_files(count)}; what is missing in golden/reasons.toml:"


def missing_lines(found: Difference) -> str:
    """The lines of reasons.toml for what has no reason."""
    return lines_for((file.family, file.before, file.after) for file in found.files if file.without_reason)


# --- files -----------------------------------------------------------------------------------------------------------


def markdown(found: Difference) -> str:
    """For a step's summary, or the text of a pull request."""
    return _rendered(MARKDOWN, found, escapes=False)


def page(found: Difference) -> str:
    """One page, nothing fetched."""
    return _rendered(PAGE, found, escapes=True)


def _rendered(template: str, found: Difference, escapes: bool) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=escapes, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    made.filters["cell"] = _cell
    return made.get_template(template).render(
        found=found, summary=summary(found), headings=FILES, rows=[row(file) for file in found.files],
        example_headings=EXAMPLES, examples=examples, in_words=in_words, remarks=remarks,
        missing="" if explained(found) else _missing(found), lines=missing_lines(found),
    )  # fmt: skip


def _cell(text: str) -> str:
    """A text in a cell of a table of Markdown."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
