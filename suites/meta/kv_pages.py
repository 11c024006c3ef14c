"""Writes the second half of docs/kv-engines.md, from the declarations."""

from __future__ import annotations

from collections.abc import Iterator

from narrowgauge.reference.kv.flag import Flag
from narrowgauge.reference.kv.flags import FLAGS, VERSIONS, possibly_stored
from narrowgauge.reference.kv.footprint import KINDS, bytes_per_token
from narrowgauge.reference.kv.guards import METHODS, RULES, Rules
from narrowgauge.suites.meta.pages import Page, line, table

#: one target for each column of the table of flags
COLUMNS = ("sm_80", "sm_90", "sm_100", "sm_120", "gfx942", "gfx950")


def _cell(engine: str, flag: Flag, target: str) -> str:
    """What is stored; by writer where they differ."""
    found = {
        one.writer: "refused" if one.refused else one.format or "its own"
        for one in possibly_stored(engine, flag.name, target)
    }
    words = set(found.values())
    return words.pop() if len(words) == 1 else ", ".join(f"{writer}: {word}" for writer, word in found.items())


def flags(engine: str) -> Iterator[str]:
    """Every flag, what it stores on a target of each kind, and what is to be known."""
    yield f"## Flags of {engine} {VERSIONS[engine]}\n"
    yield from table(("flag", "scales", *COLUMNS), ())
    for flag in FLAGS[engine].values():
        yield line(flag.name, flag.scale, *(_cell(engine, flag, target) for target in COLUMNS))
    yield ""
    for flag in FLAGS[engine].values():
        said = dict.fromkeys(filter(None, (flag.says, *(row.says for row in flag.rows))))
        if said:
            yield f"* `{flag.name}`: {'; '.join(said)}."
    yield ""


def footprints() -> Iterator[str]:
    """Every kind, and what a token takes."""
    yield "## Bytes of a token\n"
    yield "Of a layer with 8 heads of 128; of latent rows with a latent vector of 512 and 64 beside it.\n"
    yield from table(("kind", "bytes", "32 layers, KiB", "source"), ())
    for kind in KINDS.values():
        shape = (1, 512, 64) if kind.latent else (8, 128, 128)
        if "V4" in kind.name:
            shape = (1, 512, 0) if kind.name.endswith(".1") else (1, 448, 64)
        size = bytes_per_token(kind.name, 1, *shape)
        yield line(kind.name, f"{size:,}", f"{size / 32:g}", kind.source)
    yield ""


def guards(engine: str, method: str, rules: Rules) -> Iterator[str]:
    """The guards of one way to read a checkpoint, in their order."""
    yield f"### {engine}, {method}: {METHODS[method]}\n"
    yield f"What the checkpoint lacks is {rules.missing:g} before the guards. Read in {rules.source}.\n"
    yield from table(("scales", "first that holds", "then"), ())
    for guard in rules.refuses:
        yield line("all", guard.when, guard.raises)
    if rules.heads:
        yield line("all", "more than one number in a scale", rules.heads)
    for chain in rules.chains:
        for guard in chain.guards:
            taken = ", ".join("1.0" if t == "one" else t for t in guard.takes) + (
                ", doubled on FNUZ" if guard.doubled else ""
            )
            yield line(", ".join(chain.scales), guard.when, guard.raises or "; ".join(filter(None, (taken, guard.why))))
    yield ""
    if rules.warns:
        yield from (f"* logs where {warns.when} ({warns.over}): {warns.says}." for warns in rules.warns)
        yield ""


def below() -> str:
    """All that stands below the mark."""
    lines = ["", *(line for engine in FLAGS for line in flags(engine)), *footprints(), "## Which scales are in use", ""]
    for (engine, method), rules in RULES.items():
        lines += guards(engine, method, rules)
    return "\n".join(lines).rstrip() + "\n"


PAGE = Page("kv-engines.md", "kv_pages", below)

if __name__ == "__main__":
    PAGE.write()
