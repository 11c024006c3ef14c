"""For each set of matrices, quantizers that it catches and the named rows do not.

Each is the right one but for a mistake that an engine could make; none is made from a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.behaviour import Behaviour, Buffers, behaviour_of
from narrowgauge.reference.fast_codec import cast, decode_values, to_float32
from narrowgauge.reference.quantize import block_values, elements, own_cast, statistics
from narrowgauge.reference.steps import F32

Wrong = Callable[[Claim, Coded], Buffers]
Test = Callable[[F32], npt.NDArray[np.bool_]]
TOKENS, TENSORS = "vllm.fp8_per_token_dynamic", "vllm.fp8_per_tensor_dynamic"


def _right(claim: Claim, x: Coded) -> Buffers:
    return behaviour_of(claim).run(x)


def _recipe(claim: Claim) -> Recipe:
    recipe = behaviour_of(claim).recipe
    assert recipe is not None
    return recipe


def amax_of(change: Callable[[F32], F32]) -> Wrong:
    """Scales are those of another matrix: of what the mistake leaves for amax to see."""

    def wrong(claim: Claim, x: Coded) -> Buffers:
        recipe, matrix = _recipe(claim), to_float32(x)
        with np.errstate(all="ignore"):
            seen = statistics(np.asarray(change(matrix.copy()), np.float32), recipe)
            values = block_values(seen, recipe, claim.format, x.format, {})
            codes = elements(matrix, values, recipe, claim.format, own_cast(recipe, claim.format))
        names = [name for name in recipe.outputs(claim.format) if name != "codes"]
        return {"codes": codes} | {name: values[f"{name} as stored"] for name in names}

    return wrong


def by_recipe(change: Callable[[Recipe], Recipe]) -> Wrong:
    """Another recipe."""
    return lambda claim, x: _with(behaviour_of(claim), change).run(x)


def _with(behaviour: Behaviour, change: Callable[[Recipe], Recipe]) -> Behaviour:
    assert behaviour.recipe is not None
    return replace(behaviour, recipe=change(behaviour.recipe))


def steps(**chains: tuple[object, ...]) -> Wrong:
    """Other chains for some steps, "element" among them; a name that the recipe does not have comes last."""

    def change(recipe: Recipe) -> Recipe:
        named = dict(recipe.steps) | {n: c for n, c in chains.items() if n != "element"}
        return replace(recipe, steps=tuple(named.items()), element=chains.get("element", recipe.element))  # type: ignore[arg-type]

    return by_recipe(change)


def outputs(change: Callable[[Buffers, Coded], Buffers]) -> Wrong:
    """What is returned is changed."""
    return lambda claim, x: change({n: Coded(c.format, c.data.copy()) for n, c in _right(claim, x).items()}, x)


def policy(**choices: object) -> Wrong:
    """Another last cast."""

    def wrong(claim: Claim, x: Coded) -> Buffers:
        behaviour = behaviour_of(claim)
        return replace(behaviour, policy=replace(behaviour.policy, **choices)).run(x)  # type: ignore[arg-type]

    return wrong


# --- mistakes --------------------------------------------------------------------------------------------------------


def masked(rows: slice = slice(None), columns: slice = slice(None), where: Test = np.isreal) -> Wrong:
    """amax does not see some elements."""

    def change(matrix: F32) -> F32:
        part = matrix[rows, columns]
        part[where(part)] = 0
        return matrix

    return amax_of(change)


def _lane(place: int, width: int, where: Test = np.isreal) -> Wrong:
    """amax does not see one place of each block of so many columns."""
    return masked(columns=slice(place, None, width), where=where)


def _cut_to_bfloat16(matrix: F32) -> F32:
    cut = (matrix.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(matrix), matrix, cut)


def _top_ties_away(claim: Claim, x: Coded) -> Buffers:
    """Ties between the eight largest codes go away from zero."""
    right, away = _right(claim, x), policy(rounding="nearest_away")(claim, x)
    large = np.abs(decode_values(away["codes"])) >= 256
    codes = np.where(large, away["codes"].data, right["codes"].data)
    return right | {"codes": Coded(claim.format, codes.astype(np.uint8))}


def _scale_ties_away(claim: Claim, x: Coded) -> Buffers:
    recipe, right = _recipe(claim), _right(claim, x)
    with np.errstate(all="ignore"):
        values = block_values(statistics(to_float32(x), recipe), recipe, claim.format, x.format, {})
        exact = Coded("float32", np.ascontiguousarray(values["scale"]).view(np.uint32))
    return right | {"scale": cast(exact, recipe.scale_format, CastPolicy(rounding="nearest_away"))}


def _tail_left(each: int) -> Wrong:
    """What is left of a row after whole vectors is not quantized."""

    def change(made: Buffers, x: Coded) -> Buffers:
        made["codes"].data[:, x.shape[1] // each * each :] = 0
        return made

    return outputs(change)


def _scales_from(rows: Callable[[int], np.ndarray[tuple[int], np.dtype[np.intp]]]) -> Wrong:
    """Each row is stored with the scale of another."""

    def change(made: Buffers, x: Coded) -> Buffers:
        scale = made["scale"]
        return made | {"scale": Coded(scale.format, scale.data[rows(scale.shape[0])])}

    return outputs(change)


def _scales_transposed(made: Buffers, x: Coded) -> Buffers:
    scale = made["scale"]
    return made | {"scale": Coded(scale.format, scale.data.T.reshape(scale.shape).copy())}


def _only_if(when: Callable[[Coded], bool], wrong: Wrong) -> Wrong:
    return lambda claim, x: wrong(claim, x) if when(x) else _right(claim, x)


def _zeros_by_memset(made: Buffers, x: Coded) -> Buffers:
    """A tensor whose amax is 0 is filled with code 0."""
    if not (to_float32(x) != 0).any():
        made["codes"].data[:] = 0
    return made


def _scale_up(made: Buffers, x: Coded) -> Buffers:
    """The scale is made one place larger, so that nothing clips."""
    scale = made["scale"].data.view(np.float32)
    return made | {"scale": Coded("float32", np.nextafter(scale, np.float32(np.inf)).view(np.uint32))}


def _has(test: Test) -> Callable[[Coded], bool]:
    return lambda x: bool(test(to_float32(x)).any())


def _of(recipe: str, format_name: str = "float8_e4m3fn", source: str = "float32") -> str:
    return f"quantize/{recipe}/{source}/{format_name}"


_NVFP4 = _of("nvidia.nvfp4_divisor", "float4_e2m1fn")
_NORMAL = np.float32(2.0**-126)

#: case -> claims and wrong quantizers that it catches, and rows_128 does not
WRONG: dict[str, tuple[tuple[str, Wrong], ...]] = {
    "rows_131": ((_of(TOKENS), _tail_left(4)),),
    "finite_128": ((_of(TENSORS), outputs(_scale_up)),),
    "one_column": ((_of(TOKENS), _only_if(lambda x: x.shape[1] == 1, masked())),),
    "no_rows": ((_of(TOKENS), _only_if(lambda x: x.shape[0] == 0, outputs(lambda made, x: {"codes": made["codes"]}))),),
    "no_columns": (
        (_of("vllm.fp8_group"), _only_if(lambda x: x.shape[1] == 0, outputs(lambda made, x: {"codes": made["codes"]}))),
    ),
    "shape_1x1": ((_of(TOKENS), _tail_left(4)),),
    # a row of one vector: the loop over further ones never runs, and the last elements with it
    "shape_1x16": ((_of(TOKENS), _only_if(lambda x: x.shape[1] <= 16, masked(columns=slice(8, None)))),),
    "shape_3x129": ((_of(TOKENS), masked(columns=slice(128, None))),),
    "shape_7x2880": ((_of(TOKENS), masked(columns=slice(2048, None))),),
    "shape_257x384": (
        (_of("vllm.fp8_block"), outputs(_scales_transposed)),
        (_of(TOKENS), _scales_from(lambda n: np.arange(n) % 256)),
    ),
    "wide": ((_of(TOKENS), masked(columns=slice(4096, None))),),
    "tall": ((_of(TOKENS), _scales_from(lambda n: np.arange(n) % 65_536)),),
    "blocks": (
        (_of(TOKENS), _lane(127, 128)),
        (_of("nvidia.mxfp8_e4m3"), amax_of(_cut_to_bfloat16)),
        (_of("nvidia.mxfp8_e4m3"), _lane(31, 32, where=np.isnan)),
        (_of(TOKENS), _top_ties_away),
        (
            _of(TOKENS),
            steps(encode=("scale", "recip"), element=("x", ("mul", "encode"), ("clamp_fmin_first", "bound"))),
        ),
    ),
    "large_blocks": ((_of("vllm.fp8_block"), masked(rows=slice(127, None, 128))),),
    "bad_lanes": (
        (_of("sglang.fp8_per_token_cta"), _lane(100, 128, where=np.isinf)),
        (_of("ocp.mxfp4", "float4_e2m1fn"), _lane(5, 32, where=np.isnan)),
    ),
    # log2 in float32 takes the largest number below a power of two for the power
    "every_amax": ((_of("ocp.mxfp8_e4m3"), steps(scale=("amax", "exp2_floor_log2", ("mul", 2.0**-8)))),),
    "every_tie": (
        (_of(TOKENS), _top_ties_away),
        (
            _of(TOKENS),
            steps(encode=("scale", "recip"), element=("x", ("mul", "encode"), ("clamp_fmin_first", "bound"))),
        ),
    ),
    "scale_ties": ((_NVFP4, _scale_ties_away),),
    # the same product in another order
    "scale_ties_odd": ((_NVFP4, steps(scale=("amax", ("mul", "global_scale"), ("div", "bound")))),),
    "tensor_zeros": ((_of(TENSORS), steps(scale=("amax", ("div", "bound"), ("zero_to", 1.0)))),),
    "tensor_ties": ((_of(TENSORS), _top_ties_away),),
    "tensor_ties_odd": ((_of(TENSORS), steps(element=("x", ("div", "scale"), ("clamp_fmin_first", "bound")))),),
    "tensor_outlier_last": ((_of(TENSORS), masked(slice(-1, None), slice(-1, None))),),
    "tensor_outlier_first": ((_of(TENSORS), masked(slice(0, 1), slice(0, 1))),),
    # NaN is looked for where the sum is not finite, and an infinity is not
    "tensor_nan": (
        (
            _of("compressed_tensors.int8_tensor", "int8"),
            _only_if(lambda x: not _has(np.isinf)(x), masked(where=np.isnan)),
        ),
    ),
    "tensor_infinity": ((_of(TENSORS), amax_of(lambda matrix: np.maximum(matrix, 0))),),
    "tensor_negative_zeros": ((_of("vllm.fp8_native_tensor"), outputs(_zeros_by_memset)),),
    "tensor_subnormals": ((_of(TENSORS), masked(where=lambda m: np.abs(m) < _NORMAL)),),
    # what needs no scaling is not scaled
    "tensor_amax_below": (
        (
            _of(TENSORS),
            _only_if(lambda x: not _has(lambda m: ~(np.abs(m) < 448))(x), steps(scale=("bound", ("div", "bound")))),
        ),
    ),
    "tensor_amax_exact": ((_of(TENSORS), outputs(_scale_up)),),
    "tensor_amax_above": ((_of(TENSORS), amax_of(_cut_to_bfloat16)),),
}
