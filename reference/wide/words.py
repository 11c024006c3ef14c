"""A wide operation in words, for ``explain``."""

from __future__ import annotations

from narrowgauge.contracts.wide import FORMATS, Held, Step, Wide

_PER = {
    "element": "[rows, columns]",
    "column": "[1, columns]",
    "half": "[rows, columns / 2]",
    "row": "[rows, 1]",
    "chosen": "[rows, {}]",
}


def facts_of(wide: Wide) -> list[tuple[str, str]]:
    """What it does, what it takes and gives, and the steps between."""
    x = "x [rows, columns]" if wide.parts == 1 else f"x [rows, {wide.parts} · columns]"
    own = wide.outputs[0].format
    return [
        ("does", wide.about),
        ("takes", ", ".join([f"{x} {' or '.join(FORMATS)}", *(_held(held, wide, "as x") for held in wide.inputs)])),
        ("gives", ", ".join(_held(held, wide, "the claim's format") for held in wide.outputs)),
        ("steps", "; ".join(_step(step) for step in wide.steps)),
        ("source", wide.source),
        ("claim", f"wide/{wide.name}/float32/{own or 'float32'}"),
        (
            "before a quantizer",
            f'Then(RECIPE, first="{wide.name}")' if wide.quantizable else "no: it is no one matrix",
        ),
    ]


def _held(held: Held, wide: Wide, own: str) -> str:
    return f"{held.name} {_PER[held.per].format(wide.chosen)} {held.format or own}"


def _step(step: Step) -> str:
    name, out, *operands = (f"{part:g}" if isinstance(part, float) else str(part) for part in step)
    return f"{out} = {name}({', '.join(operand for operand in operands if operand)})"
