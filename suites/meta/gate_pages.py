"""Writes what docs/nightly.md says of the gate, from ci/findings.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from narrowgauge.ci.findings import KINDS, Kind
from narrowgauge.ci.gate.clocks import APART, MOVED
from narrowgauge.ci.history import NIGHTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "nightly.md"
BEGIN, END = "<!-- gate: begin -->\n", "<!-- gate: end -->\n"

HEAD = """\
<!-- written by python -m narrowgauge.suites.meta.gate_pages -->

    narrowgauge gate results-*/ --expect cuda/sm_90x2 --expect cpu/cpu \\
        --history nights.json.gz --summary summary.md

The gate holds what came to what was planned, and to the nights before. `--expect LANE/TARGET` names what must be
there, with `xN` of how many shards (without it the runs say how many). Without `--expect` a lost lane is noticed
only if the last night had it. A directory of results directories stands for all in it.

Its exit code is the one that counts: 0 green (there may be remarks), 1 red, 3 red by machines, files or the set-up
alone, 4 the gate was given what it cannot use (nothing is written then). `--json` has everything, `--summary` writes
Markdown for a step summary or an annotation.
"""

TAIL = f"""\
**History** (`--history FILE`, compressed if it ends in .gz): of each test the last verdict, since which night, and the
last night in which it passed. Of the cpu lane's 7,600 tests it takes 1.6 MB, or 50 kB compressed, however many nights
there were; {NIGHTS} nights are listed by name. Only whole shards are taken in: a lost or damaged one leaves what was
known of its tests. The same night may be judged twice. A file that is damaged is refused: put back the copy of the
night before. What is not executed any more, or gone from the plan, stays red; `--accept`, said once by hand, takes it
as it is.

**Waivers** (ci/waivers.toml, `--waivers FILE`): give the gate the files that the run was given. The day by which their
dates are judged is the latest that anything proves: the gate's clock, a run's, or the history's. So a clock that is set
back keeps no waiver alive. No other part of the suite judges by the date: the self-test of an old tag stays green.

**Clocks.** A clock that was set by more than {MOVED:.0f} s during a run is a remark, since machines that were just
started do so and no verdict rests on it. An end before its start, a run that is older than one that was judged before,
or one that is more than {APART} days from the gate's date is red, and the night is not recorded: it would spoil "since"
for all that follow. To judge an old night again say `--today`.

**Quarantine** (ci/quarantine.toml, `--quarantine FILE`): machines that are known to fail, for a while. It is never for
a test: only {", ".join(f"`{name}`" for name, kind in KINDS.items() if kind.quarantine)} can be covered.

    [[quarantine]]
    lane = "rocm"
    target = "gfx942"
    kind = ["missing_shard", "lost"]
    link = "https://example.org/hosts/7"
    reason = "its power supply is being changed"
    expires = 2027-01-31
"""


def _rows(title: str, kinds: list[Kind]) -> Iterator[str]:
    yield f"### {title}\n"
    yield "| finding | what it is | what to do |"
    yield "|---|---|---|"
    for kind in kinds:
        yield f"| `{kind.name}` | {kind.title} | {kind.remedy} |"
    yield ""


def between() -> str:
    """All that stands between the marks."""
    red = [kind for kind in KINDS.values() if kind.level == "red"]
    lines = [HEAD]
    lines += _rows("Red, by what was judged", [kind for kind in red if not kind.infrastructure])
    lines += _rows("Red, by machines, files or the set-up", [kind for kind in red if kind.infrastructure])
    lines += _rows("Remarks", [kind for kind in KINDS.values() if kind.level == "yellow"])
    return "\n".join(lines) + "\n### What it rests on\n\n" + TAIL


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(before + BEGIN + between() + END + after, encoding="utf-8")
