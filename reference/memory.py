"""Between a claim's matrices and the memory images in which its buffers stand."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.layout import InMemory
from narrowgauge.contracts.operations import Claim, Convert, Dequantize, Matmul, OfCache, Then
from narrowgauge.reference.behaviour import converting_of, multiplying_of, recipe_of, resolved
from narrowgauge.reference.convert import memory as convert_memory
from narrowgauge.reference.form import shaped
from narrowgauge.reference.kv import memory as kv_memory
from narrowgauge.reference.matmul import memory as product_memory
from narrowgauge.reference.packings import Packing, packing_named
from narrowgauge.reference.wide.catalogue import WIDE


def packings(claim: Claim) -> dict[str, Packing]:
    """By name of the output or input."""
    return {name: packing_named(text) for name, text in claim.layouts.items()}


def check_layouts(claim: Claim) -> None:
    """Raise ``BadInput`` for a layout that does not exist, or of a buffer that the claim does not have."""
    held = _formats(claim)
    for name, packing in packings(claim).items():
        if name not in held:
            raise BadInput(f"{claim}: {name!r} has a layout; the contract has {', '.join(held)}")
        packing.check(str(claim), name, held[name])


def _formats(claim: Claim) -> dict[str, str]:
    """Names and formats of the buffers that can be packed: a quantizer's outputs, a reader's inputs."""
    full = resolved(claim)
    return {"codes": claim.source} | full.inputs if claim.operation == Dequantize.operation else full.outputs


def fits(claim: Claim, x: Coded) -> bool:
    """Whether the layouts of a claim have a place for matrices of these sizes."""
    try:
        for name, packing in packings(claim).items():
            packing.check_shape(x.shape if name == "codes" else _shape_beside(claim, x, name))
    except BadInput:
        return False
    return True


def _shape_beside(claim: Claim, x: Coded, name: str) -> tuple[int, ...]:
    if claim.operation == Dequantize.operation:
        return given_with(x)[name].shape
    return shaped(claim, x.shape)[name].low.shape


def to_memory(claim: Claim, x: Coded) -> Coded:
    """The input as the kernel is given it: that of a reader is packed."""
    if isinstance(claim.contract, OfCache):
        return kv_memory.to_memory(claim, x)
    if isinstance(claim.contract, Convert):
        return convert_memory.to_memory(converting_of(claim).conversion, x)
    if isinstance(claim.contract, Matmul):
        return product_memory.to_memory(multiplying_of(claim).product, x)
    if claim.operation != Dequantize.operation or not claim.layouts:
        return x
    held = packings(claim)
    given = {name: held[name].pack(value) if name in held else value for name, value in given_with(x).items()}
    image = held["codes"].pack(x) if "codes" in held else x
    return Input(image.format, image.data, given)


def sent_formats(claim: Claim) -> dict[str, str]:
    """Names and formats of what a kernel is given, x first, as elements of memory. Not of a cache: see kv/filed.py."""
    if isinstance(claim.contract, Convert):
        return convert_memory.sent_formats(converting_of(claim).conversion, claim.source)
    if isinstance(claim.contract, Matmul):
        return product_memory.sent_formats(multiplying_of(claim).product, claim.source, claim.format)
    given = dict(resolved(claim).inputs)
    if isinstance(claim.contract, Then):
        given |= WIDE[claim.contract.first].given(claim.source)
    formats = {"x": claim.source} | given
    if claim.operation == Dequantize.operation:
        formats |= {"x" if name == "codes" else name: packing.element for name, packing in packings(claim).items()}
    return formats


def read_memory(
    claim: Claim, shape: tuple[int, int], x: Coded, given: Mapping[str, Coded]
) -> tuple[Coded, dict[str, Coded]]:
    """The inverse of ``to_memory``: the codes [rows, columns] of a reader, and what comes beside them.

    Raises ``BadInput`` for a buffer of another size than the layouts give, or with other padding.
    """
    if isinstance(claim.contract, Convert):
        call = convert_memory.read_memory(converting_of(claim).conversion, claim.source, shape, x, given)
        return Coded(call.format, call.data), dict(call.given)
    if isinstance(claim.contract, Matmul):
        product = multiplying_of(claim).product
        call = product_memory.read_memory(product, claim.source, claim.format, shape, x, given)
        return Coded(call.format, call.data), dict(call.given)
    full, held = resolved(claim), packings(claim)
    recipe = recipe_of(claim)
    assert recipe is not None
    grid = recipe.blocks.grid(*shape)
    matrices = {"codes": x, **given}
    for name, packing in held.items():
        fmt = claim.source if name == "codes" else full.inputs[name]
        like = np.zeros(shape if name == "codes" else grid, format_named(fmt).storage)
        matrices[name], wrong = packing.unpack(matrices[name], Coded(fmt, like))
        if wrong:
            raise BadInput(f"{name}: {wrong[0]}")
    return matrices.pop("codes"), matrices


def in_memory(claim: Claim, x: Coded) -> InMemory:
    """What a device must know of the memory images of a claim."""
    if isinstance(claim.contract, OfCache):
        return kv_memory.in_memory(claim, x)
    if isinstance(claim.contract, Convert):
        return convert_memory.in_memory(converting_of(claim).conversion, claim.format, x)
    if isinstance(claim.contract, Matmul):
        return InMemory({"codes": claim.format}, x.shape, viewed=("x", "b"))
    outputs = dict(resolved(claim).outputs)
    if claim.operation == Dequantize.operation:
        return InMemory(outputs, x.shape)
    held = packings(claim)
    outputs |= {name: packing.element for name, packing in held.items()}
    loose = tuple(name for name, packing in held.items() if packing.layout.padding == "unwritten")
    return InMemory(outputs, x.shape, loose)


def from_memory(claim: Claim, x: Coded, got: Mapping[str, Coded]) -> tuple[dict[str, Coded], tuple[str, ...]]:
    """What a kernel returned as the claim's matrices, and what is wrong with the images; those are left out."""
    if isinstance(claim.contract, OfCache):
        return kv_memory.from_memory(claim, x, got)
    if isinstance(claim.contract, Convert):
        return convert_memory.from_memory(converting_of(claim).conversion, claim.format, x, got)
    if isinstance(claim.contract, Matmul):
        return dict(got), ()
    matrices, wrong = dict(got), []
    if claim.operation == Dequantize.operation or not claim.layouts:
        return matrices, ()
    like = shaped(claim, x.shape)
    for name, packing in packings(claim).items():
        if name not in matrices:
            continue
        try:
            matrices[name], said = packing.unpack(matrices.pop(name), like[name].low)
            wrong += [f"{name}: {each}" for each in said]
        except BadInput as error:
            wrong.append(f"{name}: {error}")
    return matrices, tuple(wrong)
