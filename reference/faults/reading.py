"""Faults of dequantizers: ``read.*``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.recipe import OF_TENSOR, Chain, Reader, Recipe, Step
from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.faults.edits import Edit
from narrowgauge.reference.faults.fault import Fault
from narrowgauge.reference.steps import named

#: a step's name and its operand, for other steps in its place; None to leave it
Swap = Callable[[str, str], "tuple[str | Step, ...] | None"]


def _chain(chain: Chain, swap: Swap) -> Chain:
    done: list[str | Step] = [chain[0]]
    for step in chain[1:]:
        name, operands = named(step)
        other = swap(name, str(operands[0]) if operands else "")
        done.extend((step,) if other is None else other)
    return tuple(done)


def _swapped(swap: Swap) -> Edit:
    """Other steps on the way from a code to its value."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        r = behaviour.recipe
        if r is None or not behaviour.reads:
            return None
        blocks = tuple((name, _chain(chain, swap)) for name, chain in r.reader.blocks)
        changed = replace(r, reader=Reader(blocks, _chain(r.reader.element, swap)))
        return None if changed == r else replace(behaviour, recipe=changed)

    return edit


def _scale(name: str, operand: str) -> bool:
    return name == "mul" and operand in ("stored", "decode")


def _of(operand: str, *other: str) -> Swap:
    """Other operations with one operand; none of them for leaving it out."""
    return lambda name, used: tuple((o, operand) for o in other) if used == operand else None


_OTHER = {"mul": "div", "div": "mul", "add": "sub", "sub": "add"}


def _turned(operand: str) -> Swap:
    """The inverse operation with an operand."""
    return lambda name, used: ((_OTHER[name], operand),) if used == operand and name in _OTHER else None


def _twice(operand: str) -> Swap:
    return lambda name, used: ((name, operand), (name, operand)) if used == operand else None


def _received(change: Callable[[str, Coded, Behaviour], Coded], fits: Callable[[Recipe], bool]) -> Edit:
    """Something else is taken for what comes beside the codes."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        r = behaviour.recipe
        if r is None or not behaviour.reads or not fits(r):
            return None

        def taken(x: Coded) -> Coded:
            return Input(x.format, x.data, {n: change(n, v, behaviour) for n, v in given_with(x).items()})

        return replace(behaviour, received=(*behaviour.received, taken))

    return edit


def _rolled(axis: int) -> Callable[[str, Coded, Behaviour], Coded]:
    def change(name: str, value: Coded, behaviour: Behaviour) -> Coded:
        return value if name in OF_TENSOR else Coded(value.format, np.roll(value.data, 1, axis))

    return change


def _first_alone(name: str, value: Coded, behaviour: Behaviour) -> Coded:
    return Coded(value.format, np.broadcast_to(value.data[:1, :1], value.shape).copy()) if value.data.size else value


def _rounded(format_name: str) -> Edit:
    """The scale, and the code's value times it, in a 16-bit format."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        r = behaviour.recipe
        if r is None or not behaviour.reads or behaviour.format != format_name:
            return None
        scale = next((o[0] for n, o in map(named, r.reader.element[1:]) if _scale(n, str(o[0]) if o else "")), None)
        if scale is None:
            return None
        narrow = ("narrow", (str(scale), ("round", format_name)))
        element = _chain(r.reader.element, lambda n, o: (("mul", "narrow"),) if o == scale else None)
        return replace(behaviour, recipe=replace(r, reader=Reader((*r.reader.blocks, narrow), element)))

    return edit


def _has_blocks_across(r: Recipe) -> bool:
    return r.blocks.columns > 0


def _has_blocks_down(r: Recipe) -> bool:
    return r.blocks.rows > 0


def _moved_exponent(step: int) -> Edit:
    def change(name: str, value: Coded, behaviour: Behaviour) -> Coded:
        if name != "scale" or format_named(value.format).family != "exponent":
            return value
        moved = np.clip(value.data.astype(np.int64) + step, 0, 255).astype(np.uint8)
        return Coded(value.format, np.where(value.data == 255, value.data, moved).astype(np.uint8))

    return _received(change, lambda r: format_named(r.scale_format).family == "exponent" and not r.static)


FAULTS = (
    Fault(
        "read.scale_ignored",
        "SCALE",
        _swapped(lambda name, operand: () if _scale(name, operand) else None),
        "values are all of the codes' own range, whatever the tensor held: small ones too large, large ones clipped",
        "codes are cast to the wide format and the scale is not multiplied in, or 1.0 is delivered for it",
        ("flashinfer#4624", "tokenspeed#759"),
    ),
    Fault(
        "read.scale_inverted",
        "SCALE",
        _swapped(lambda name, operand: (("div", operand),) if _scale(name, operand) else None),
        "values are off by the square of their scale",
        "the encode scale is expected where the dequantization scale is stored",
        ("modular#6600",),
    ),
    Fault(
        "read.scale_twice",
        "SCALE",
        _swapped(lambda name, operand: (("mul", operand), ("mul", operand)) if _scale(name, operand) else None),
        "values are off by their scale: small blocks vanish",
        "the scale is multiplied in by two layers",
        ("vllm#48016",),
    ),
    Fault(
        "read.scale_rounded_to_bfloat16",
        "ROUND",
        _rounded("bfloat16"),
        "one value in seven is one place off",
        "the scale is cast to the activations' type before it is multiplied in",
        (),
    ),
    Fault(
        "read.scale_rounded_to_float16",
        "ROUND",
        _rounded("float16"),
        "values are one place off; scales beyond the range of float16 are 0 or infinite",
        "the scale is cast to the activations' type before it is multiplied in",
        (),
    ),
    Fault(
        "read.scale_of_the_block_before",
        "GRANULARITY",
        _received(_rolled(1), _has_blocks_across),
        "every block has its neighbour's magnitude: fluent nonsense, and nothing to see under uniform scales",
        "the index of the scale is one block off along the row",
        (),
    ),
    Fault(
        "read.scale_of_the_row_before",
        "GRANULARITY",
        _received(_rolled(0), _has_blocks_down),
        "every row has its neighbour's magnitude",
        "the index of the scale is one row of blocks off",
        (),
    ),
    Fault(
        "read.first_scale_for_all",
        "GRANULARITY",
        _received(_first_alone, lambda r: (r.blocks.rows, r.blocks.columns) != (0, 0)),
        "right in the first block alone",
        "the pointer to the scales is read and never moved: a tensor's scale is expected",
        (),
    ),
    Fault(
        "read.exponent_one_too_low",
        "EXPONENT",
        _moved_exponent(-1),
        "everything is half of what it should be",
        "the exponent's bias is taken for 128",
        (),
    ),
    Fault(
        "read.exponent_one_too_high",
        "EXPONENT",
        _moved_exponent(1),
        "everything is twice what it should be",
        "the exponent's bias is taken for 126",
        (),
    ),
    Fault(
        "read.zero_point_ignored",
        "ZERO",
        _swapped(_of("zero_point")),
        "every weight is shifted by so many scales: nonsense",
        "a symmetric reader is used for asymmetric codes",
        (),
    ),
    Fault(
        "read.zero_point_added",
        "ZERO",
        _swapped(_turned("zero_point")),
        "every weight is shifted by twice its zero point: nonsense",
        "the sign of the zero point is that of another convention",
        (),
    ),
    Fault(
        "read.global_ignored",
        "GLOBAL",
        _swapped(_of("global_scale")),
        "tensors are off by their global scale, 1e3 and more",
        "the scale of the tensor is not loaded",
        (),
    ),
    Fault(
        "read.global_inverted",
        "GLOBAL",
        _swapped(_turned("global_scale")),
        "tensors are off by the square of their global scale",
        "a divisor, as compressed-tensors keeps it, is taken for a multiplier, as ModelOpt keeps it, or the reverse",
        ("modular#6600",),
    ),
    Fault(
        "read.global_twice",
        "GLOBAL",
        _swapped(_twice("global_scale")),
        "tensors are off by their global scale",
        "the scale of the tensor is folded into the blocks' scales and applied once more",
        (),
    ),
)
