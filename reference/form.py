"""The form of an answer: which outputs a claim has, of which format and shape, before any value is looked at."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim, Dequantize, Then, WideOp
from narrowgauge.contracts.recipe import OF_TENSOR
from narrowgauge.reference.behaviour import recipe_of, resolved, widening_of
from narrowgauge.reference.interval import Expected, Interval
from narrowgauge.reference.wide.catalogue import WIDE


def takes(claim: Claim, shape: tuple[int, ...]) -> bool:
    """Whether an input of that shape is one of the claim: a quantizer wants a matrix that its blocks divide."""
    recipe = recipe_of(claim)
    if recipe is None:
        return True
    parts = parts_of(claim)
    return len(shape) == 2 and shape[1] % parts == 0 and recipe.blocks.divide(shape[0], shape[1] // parts)


def parts_of(claim: Claim) -> int:
    """How many matrices of the outputs' shape stand side by side in x."""
    return WIDE[claim.contract.first].parts if isinstance(claim.contract, Then) else 1


def shaped(claim: Claim, shape: tuple[int, ...]) -> Expected:
    """Outputs of the formats and shapes that a claim has for an input of that shape. Their values mean nothing."""
    recipe, outputs = recipe_of(claim), resolved(claim).outputs
    if isinstance(claim.contract, WideOp):
        return _zeros(outputs, _shapes_of_wide(claim, shape))
    shape = (*shape[:-1], shape[-1] // parts_of(claim)) if shape else shape
    shapes = dict.fromkeys(outputs, shape)
    if recipe is not None and claim.operation != Dequantize.operation:
        grid = recipe.blocks.grid(*shape)
        shapes |= {name: (1, 1) if name in OF_TENSOR else grid for name in outputs if name != "codes"}
    return _zeros(outputs, shapes)


def _zeros(outputs: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]) -> Expected:
    return {
        name: Interval.exactly(Coded(fmt, np.zeros(shapes[name], format_named(fmt).storage)))
        for name, fmt in outputs.items()
    }


def _shapes_of_wide(claim: Claim, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    wide = widening_of(claim).wide
    return {held.name: held.shape(shape[0], wide.columns(shape[1]), wide.chosen) for held in wide.outputs}


def form_of(got: Mapping[str, Coded], want: Expected) -> tuple[str, ...]:
    """What is wrong with an answer before any value is looked at: outputs missing, shapes, storage types."""
    wrong = [f"{name} was not returned" for name in want if name not in got]
    wrong += [f"returned {name!r}, which the contract does not have" for name in got if name not in want]
    for name in want.keys() & got.keys():
        shape, storage = want[name].low.shape, format_named(want[name].format).storage
        if got[name].shape != shape:
            wrong.append(f"{name} misshaped: got {list(got[name].shape)}, want {list(shape)}")
        elif got[name].format != want[name].format:
            wrong.append(f"{name} is {got[name].format}, want {want[name].format}")
        elif got[name].data.dtype.kind not in "ui":
            wrong.append(f"{name} came as {got[name].data.dtype}, want codes ({storage})")
    return tuple(wrong)


def observed_form(candidates: list[Claim], x: Coded, got: Mapping[str, Coded]) -> tuple[str, ...]:
    """What is wrong with an answer of which nothing is claimed: it has the form of no candidate. Of the nearest one."""
    wrong = [form_of(got, shaped(claim, x.shape)) for claim in candidates if takes(claim, x.shape)]
    nothing = (f"no named rule takes an input of shape {list(x.shape)}",)
    return min(wrong, key=len, default=nothing)
