"""Recipes: how a quantizer computes its scale and codes, as straight-line float32 steps.

Zero, NaN and infinity behaviour follows from the steps, as it does in the engines, and is never stored twice. What
needs a branch or a second look at the data is a function around a recipe, not a step in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.policy import CastPolicy

#: ``("div", "bound")``: the name of a step and its operands, numbers or names of values of the context.
Step = tuple[float | str, ...]
#: A chain starts at the name of a value and applies steps to it. A step without operands may be its name alone.
Chain = tuple[str | Step, ...]

#: what a chain can start from, or name as an operand, besides inputs and values that stand before it
STATISTICS = ("amax", "min", "max", "tensor_amax")
#: the destination's bound; of the format of x the distance from 1 to the next number, and the least normal number
CONSTANTS = ("bound", "1/bound", "epsilon", "least_normal")
#: what a recipe can be given beside x, and the format of each: one for each block, or [1, 1] for all
INPUTS = {"scale": "float32", "zero_point": "int32", "global_scale": "float32", "upper_bound": "float32"}
#: values that belong to the whole tensor, [1, 1]
OF_TENSOR = ("global_scale", "upper_bound")
#: values of a recipe that a kernel returns, beside the codes, where a step computes them
RETURNED = ("scale", "global_scale", "zero_point")
#: what an expectation of a recipe rests on: as of a policy; or the engine's own source, read, which is the definition
Evidence = Literal["specification", "source", "measured", "document"]


def names_in(chain: Chain) -> tuple[str, ...]:
    """The name that a chain starts from, and those that are operands of its steps."""
    operands = [o for step in chain[1:] if not isinstance(step, str) for o in step[1:]]
    return str(chain[0]), *(o for o in operands if isinstance(o, str))


@dataclass(frozen=True)
class Blocks:
    """What shares one scale: so many rows and columns of a matrix. 0 stands for the whole axis."""

    rows: int
    columns: int
    ragged: bool = False  #: the last block of an axis may be smaller; otherwise the axis must divide

    def __str__(self) -> str:
        for name, blocks in GRANULARITIES.items():
            if (self.rows, self.columns) == (blocks.rows, blocks.columns):
                return name
        if self.rows == 1:
            return f"group of {self.columns}"
        return f"block of {self.rows or 'all'} × {self.columns or 'all'}"

    def divide(self, rows: int, columns: int) -> bool:
        """Whether a matrix of that shape can be quantized in such blocks."""
        return self.ragged or not (rows % (self.rows or 1) or columns % (self.columns or 1))

    def grid(self, rows: int, columns: int) -> tuple[int, int]:
        """How many blocks a matrix has each way. Raises ``BadInput`` where they do not divide it."""
        return self._count("rows", rows, self.rows), self._count("columns", columns, self.columns)

    def _count(self, axis: str, size: int, each: int) -> int:
        if each == 0:
            return 1
        if size % each and not self.ragged:
            raise BadInput(
                f"a matrix of {size} {axis} has no whole number of blocks of {each} {axis}; "
                f"expected a multiple of {each}: pad it, or choose a recipe of another granularity"
            )
        return -(-size // each)


TENSOR, TOKEN, CHANNEL = Blocks(0, 0), Blocks(1, 0), Blocks(0, 1)
GRANULARITIES = {"tensor": TENSOR, "token": TOKEN, "channel": CHANNEL}


def group(columns: int) -> Blocks:
    """So many consecutive elements of a row: also a head, where a row holds all heads of a token."""
    return Blocks(1, columns)


@dataclass(frozen=True)
class Destination:
    """What a recipe uses for one destination format."""

    format: str
    bound: float  #: the number the engine divides amax by and clamps to; 224 on FNUZ in some engines
    cast: str | CastPolicy  #: the cast policy of the last step: its name, or all of it where nobody else has it


@dataclass(frozen=True)
class Reader:
    """What a code stands for, in the order in which engines compute it.

    ``blocks`` are named values, one of each block, from what is stored beside the codes; ``element`` starts at the
    number "x" that the code is.
    """

    blocks: tuple[tuple[str, Chain], ...] = ()
    element: Chain = ("x", ("mul", "stored"))

    @property
    def chains(self) -> tuple[Chain, ...]:
        return (*(chain for _, chain in self.blocks), self.element)


#: the scale of the whole tensor was multiplied into the stored scales, and is taken out again; or the reverse
OVER_GLOBAL = Reader((("decode", ("stored", ("div", "global_scale"))),), ("x", ("mul", "decode")))
TIMES_GLOBAL = Reader((("decode", ("stored", ("mul", "global_scale"))),), ("x", ("mul", "decode")))
LESS_ZERO_POINT = Reader((), ("x", ("sub", "zero_point"), ("mul", "stored")))


def less(zero: float) -> Reader:
    """Codes of which this one stands for 0."""
    return Reader((), ("x", ("sub", zero), ("mul", "stored")))


def times(unit: float) -> Reader:
    """Codes that count so many units."""
    return Reader((), ("x", ("mul", unit), ("mul", "stored")))


@dataclass(frozen=True)
class Recipe:
    """One engine's quantizer.

    ``steps`` are named values in the order in which they are computed, one of each block. "scale" is the dequantization
    scale; it is stored in ``scale_format``, and "stored" is from then on the value that the stored code has. A recipe
    with "scale" among its ``inputs`` is static: it is given and not computed. ``element`` starts at "x".
    """

    name: str
    blocks: Blocks
    destinations: tuple[Destination, ...]
    steps: tuple[tuple[str, Chain], ...]
    element: Chain  #: from "x" to what the last cast is given
    source: str  #: where the engine does this: file and lines; or clause of a specification
    #: fmax seeded with 0 drops NaN elements; without a seed, a block of nothing else ("all") stays NaN
    amax_nan: Literal["drop", "keep", "all"] = "drop"
    inputs: tuple[str, ...] = ()  #: given beside x: names of ``INPUTS``
    scale_format: str = "float32"
    scale_cast: str = "ieee"  #: name of the cast policy by which the scale is stored
    evidence: Evidence = "source"
    reader: Reader = Reader()  #: what the codes stand for

    def __post_init__(self) -> None:
        for name in self.inputs:
            if name not in INPUTS:
                raise BadInput(f"recipe {self.name!r}: input {name!r}; expected one of {', '.join(INPUTS)}")
        known = {*STATISTICS, *CONSTANTS, *self.inputs, *(("stored",) if "scale" in self.inputs else ())}
        for name, chain in self.steps:
            self._check(name, chain, known)
            known |= {name, "stored"} if name == "scale" else {name}
        self._check("element", self.element, known | {"x"})
        if self.element[0] != "x":
            raise BadInput(f"recipe {self.name!r}: element starts at {self.element[0]!r}; expected 'x'")
        if "scale" in known:
            self._check_reader()
        else:
            raise BadInput(f"recipe {self.name!r}: it has no 'scale', neither as a step nor among its inputs")

    def _check_reader(self) -> None:
        """A reader knows what is stored and what the writer was given, and none of what the writer computed."""
        known = {"stored", *self.inputs, *(name for name, _ in self.steps if name in RETURNED)} - {"scale"}
        for name, chain in self.reader.blocks:
            self._check(name, chain, known)
            known.add(name)
        self._check("reader", self.reader.element, known | {"x"})

    def _check(self, name: str, chain: Chain, known: set[str]) -> None:
        """Raise ``BadInput`` for a chain that starts at, or names, what is not known yet."""
        for operand in names_in(chain) if chain else ("",):
            if operand not in known and operand not in ROUNDED_TO:
                raise BadInput(
                    f"recipe {self.name!r}: {name} uses {operand!r}, which nothing before it gives; "
                    f"known there: {', '.join(sorted(known))}"
                )

    @property
    def static(self) -> bool:
        """Whether the scale is given."""
        return "scale" in self.inputs

    @property
    def by_rows(self) -> bool:
        """Whether what comes out of a row depends on that row alone, and on what is given."""
        named = {name for _, chain in self.steps for name in names_in(chain)}
        if self.blocks.rows == 0:
            return named.isdisjoint(STATISTICS)
        return self.blocks.rows == 1 and "tensor_amax" not in named

    def given_to_reader(self, format_name: str) -> dict[str, str]:
        """Names and formats of what a dequantizer is given beside the codes: the scale, and what else it uses."""
        used = {name for chain in self.reader.chains for name in names_in(chain)}
        formats = {name: INPUTS[name] for name in self.inputs} | self.outputs(format_name)
        names = ("scale", *(n for n in INPUTS if n != "scale" and n in used))
        return {name: formats[name] for name in names}

    def outputs(self, format_name: str) -> dict[str, str]:
        """Names and formats of what a kernel returns: codes [rows, columns], and one value of each block.

        ``global_scale`` is float32 [1, 1].
        """
        computed = [name for name, _ in self.steps if name in RETURNED]
        formats = {"scale": self.scale_format, "global_scale": "float32", "zero_point": "int32"}
        return {"codes": format_name} | {name: formats[name] for name in computed}

    def destination(self, format_name: str) -> Destination:
        """What this recipe uses for a format. Raises ``BadInput`` where the engine has no such path."""
        for destination in self.destinations:
            if destination.format == format_name:
                return destination
        known = ", ".join(d.format for d in self.destinations)
        raise BadInput(f"recipe {self.name!r} has no destination {format_name!r}; it has {known}")


#: operands of the step "round" that are no values: formats, and the format of x
ROUNDED_TO = ("source", "bfloat16", "float16", "float8_e4m3fn")
