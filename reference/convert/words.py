"""Conversions in words: what is taken and given, step by step, and where it stands."""

from __future__ import annotations

from collections.abc import Callable

from narrowgauge.contracts.conversion import Conversion, Held, Step
from narrowgauge.reference.convert.work import VALUES

#: each step of reference/convert/steps.py, with its operands
_WORDS: dict[str, Callable[..., str]] = {
    "relabel": lambda name: f"the bits of {name} are those of the new format",
    "swap": lambda name, pairs: "codes of " + name + ": " + ", ".join(_pair(p) for p in str(pairs).split()),
    "plus": lambda name, count, low, high: f"{name}: {count:+g} to each byte, within {low:g} to {high:g}",
    "flip": lambda name, bits: f"{name}: bits {int(bits):#x} are inverted",
    "transpose": lambda name: f"{name} is transposed",
    "part_rows": lambda name, count: f"rows of {name} that stand in turn become {int(count)} parts",
    "taken_where_one_scale_came": lambda name: f"{name} is kept where the last shard's scale was never loaded (≤ -448)",
    "times": lambda name, factor: f"{name} × {factor:g} in float32",
    "reciprocal": lambda name: f"1 / {name} in float32",
    "largest": lambda name: f"the largest of {name}",
    "rounded": lambda name, fmt: f"{name} rounded to {fmt}",
    "infinite_for_nan": lambda name: f"NaN of {name} becomes infinity",
    "exponent_of": lambda name, bias: f"{name}: log2, rounded to its format, then down, plus {int(bias)}, as a byte",
    "signed_exponent": lambda name: f"{name}: signed exponents plus 127",
    "copied": lambda name, other: f"{other} is a copy of {name}",
    "of_rows": lambda name: f"each row has the {name} of its shard",
    "values": lambda through, scale="scale": f"{VALUES}: code × {scale}, rounded to {through}",
    "shifted": lambda through: f"{VALUES}: code × 2^(byte of scale − 127), exact, rounded to {through}",
    "numbers": lambda: "the codes' own numbers",
    "quantized": lambda recipe: f"quantized by {recipe}",
    "as_codes": lambda policy: f"cast by {policy}",
    "one_global": lambda: (
        "block scales × own global scale / the largest one, exactly, rounded to e4m3; codes are what their numbers "
        "need under the new block scale, rounded once"
    ),
    "group_index": lambda size: f"g_idx: the row over {int(size)}",
    "counted": lambda: "of each row: how many finite values overflow, how many that are not 0 become 0, first columns",
}


def _pair(pair: str) -> str:
    one, _, other = pair.partition(":")
    return f"0x{one.upper()} → 0x{other.upper()}"


def said(step: Step) -> str:
    """One step in words."""
    name, *operands = step
    return _WORDS[str(name)](*operands)


def held_words(side: tuple[Held, ...]) -> str:
    """Buffers with what they have one value for, and how they are packed."""
    return ", ".join(_held(each) for each in side)


def _held(held: Held) -> str:
    beside = [held.format, "" if held.per == "element" else f"one a {held.per}", held.layout]
    words = ", ".join(word for word in beside if word)
    return f"{held.name} ({words})" if words else held.name


def facts_of(conversion: Conversion) -> list[tuple[str, str]]:
    """What there is to say of a conversion, as pairs: what it is, and the words."""
    ways = ", ".join(f"{one} to {other}" for one, other in conversion.formats)
    facts = [("formats", ways), ("takes", held_words(conversion.takes)), ("gives", held_words(conversion.gives))]
    if any(held.per == "block" for held in conversion.takes):
        facts.append(("one scale for", str(conversion.blocks)))
    if any(held.per == "new block" for held in conversion.gives):
        facts.append(("afterwards for", str(conversion.new_blocks)))
    steps = [(f"step {n}", said(step)) for n, step in enumerate(conversion.steps, 1)]
    kept = "every code stands for the number that it stood for" if conversion.exact else "numbers change"
    return [*facts, *(steps or [("steps", "none: the same codes, packed otherwise")]), ("numbers", kept),
            ("source", conversion.source), ("evidence", conversion.evidence)]  # fmt: skip
