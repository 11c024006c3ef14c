"""Writes the second half of docs/kv-caches.md, from the declarations."""

from __future__ import annotations

from narrowgauge.contracts.cache import Buffer, Cache, Part
from narrowgauge.reference.kv.before import BEFORE
from narrowgauge.reference.kv.caches import CACHES
from narrowgauge.reference.kv.slots import SLOTS
from narrowgauge.reference.kv.words import axes, element, padding
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites.meta.pages import Page, anchor


def buffer_line(cache: Cache, buffer: Buffer) -> str:
    """A buffer with its axes; of several fields what follows what."""
    if len(buffer.fields) == 1:
        field = buffer.fields[0]
        also = f"; the lowest bits are {field.shares}" if field.shares else ""
        return f"`{buffer.name}` {element(cache, buffer)} [{axes(cache, field)}]{also}"
    follow = " \\| ".join(f"{field.of} [{axes(cache, field)}]" for field in buffer.fields)
    return f"`{buffer.name}` {element(cache, buffer)}, for each {buffer.per}: {follow}"


def part_line(part: Part) -> str:
    """A part: what quantizes it, what is done before, which scale it is given."""
    how = f"[{part.recipe}](recipes.md#{anchor(part.recipe)})" if part.recipe else part.keeps or "kept"
    first = f", {part.first} first" if part.first else ""
    given = "".join(f", `{part.scaled_by}_{name}`" for name in (RECIPES[part.recipe].inputs if part.recipe else ()))
    columns = f" [{part.columns}]" if part.columns else ""
    return f"{part.name}{columns}: {how}{first}{given}"


def paired(lines: list[str]) -> list[str]:
    """Lines on keys, and the same ones on values, as one: "k, v", and ``*_scale`` for each its own."""
    found: list[str] = []
    for line in lines:
        keys = line.replace("v:", "k:").replace("`v_", "`k_").replace("v_zero_point", "k_zero_point")
        if line != keys and keys in found:
            both = keys.replace("k:", "k, v:", 1).replace("`k_", "`*_").replace("k_zero_point", "*_zero_point")
            found[found.index(keys)] = both
        else:
            found.append(line)
    return found


def row(cache: Cache) -> str:
    """One cache."""
    parts = "; ".join(paired([part_line(part) for part in cache.parts]))
    buffers = "; ".join(paired([buffer_line(cache, buffer) for buffer in cache.buffers]))
    blocks = ", ".join(map(str, cache.blocks))
    return f"| {cache.name} | {parts} | {buffers} | {blocks} | {cache.slots.replace('_', ' ')} | {cache.source} |"


def below() -> str:
    """All that stands below the mark."""
    rules = ["| rule | padding | what becomes of it | source |", "|---|---|---|---|"]
    for rule in SLOTS.values():
        rules.append(f"| {rule.name.replace('_', ' ')} | {' | '.join(padding(rule))} | {rule.source} |")
    first = ["| before | | also given to a writer | readers turn it back | source |", "|---|---|---|---|---|"]
    for name, one in BEFORE.items():
        given = ", ".join(f"`{g}`" for g in one.given)
        first.append(f"| {name} | {one.about} | {given} | {'yes' if one.undone else 'no'} | {one.source} |")
    rows = ["| cache | parts | buffers | blocks | padding | source |", "|---|---|---|---|---|---|"]
    rows += [row(cache) for cache in CACHES.values()]
    titled = (("Padding", rules), ("What is done before", first), ("Caches", rows))
    return "\n".join(line for title, lines in titled for line in ("", f"## {title}", "", *lines)) + "\n"


PAGE = Page("kv-caches.md", "kv_cache_pages", below)

if __name__ == "__main__":
    PAGE.write()
