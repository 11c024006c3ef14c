"""vLLM's float8 quantizers: CUDA, torch and Triton.

On a GPU torch multiplies by the reciprocal of a Python number where a CPU divides by it, eagerly (PyTorch,
aten/src/ATen/native/cuda/BinaryDivTrueKernel.cu) and compiled (torch/_inductor/lowering.py, div_prim): such a path is
two recipes, of which that of the GPU ends in "_gpu".
"""

from __future__ import annotations

from narrowgauge.contracts.recipe import TENSOR, TOKEN, Blocks, Chain, Recipe, Step, group
from narrowgauge.reference.recipes.common import ENGINE_FP8, GIVEN, OCP_FP8, OVER_BOUND, OWN_FP8, TILE_128, VLLM

_COMMON = f"{VLLM}, csrc/quantization common.cu"
_GROUP = f"{VLLM}, csrc/quantization per_token_group_quant.cu"
_NATIVE = f"{VLLM}, input_quant_fp8.py"
_TRITON = f"{VLLM}, fp8_utils.py"
#: the least scale of the per-token paths, 1 / (448 * 512)
_MINIMUM: tuple[str, Chain] = ("minimum", ("bound", ("mul", 512.0), "recip"))
_INVERSE: tuple[str, Chain] = ("encode", ("scale", "recip"))
#: fminf first: NaN becomes +bound
_TIMES: Chain = ("x", ("mul", "encode"), ("clamp_fmin_first", "bound"))
_LOWEST = ("at_least", 1e-10)
_GROUP_SCALE: Chain = ("amax", _LOWEST, ("div", "bound"))
#: fmaxf first: NaN becomes -bound
_GROUP_ELEMENT: Chain = ("x", ("mul", "encode"), ("clamp_fmax_first", "bound"))
_NATIVE_ELEMENT: Chain = ("x", ("mul", "encode"), ("clamp_keep_nan", "bound"))


def _static(name: str, blocks: Blocks) -> Recipe:
    return Recipe(
        name=f"vllm.fp8_static_{name}",
        blocks=blocks,
        destinations=ENGINE_FP8,
        inputs=("scale",),
        steps=(_INVERSE,),
        element=_TIMES,
        source=f"{_COMMON}:62-125",
    )


def _native(name: str, blocks: Blocks, over: Step, held: Chain = (), inputs: tuple[str, ...] = ()) -> Recipe:
    return Recipe(
        name=f"vllm.fp8_native_{name}",
        blocks=blocks,
        destinations=ENGINE_FP8,
        amax_nan="keep",
        inputs=inputs,
        steps=(_MINIMUM, ("scale", ("amax", *held, over, ("at_least_or_nan", "minimum"))), _INVERSE),
        element=_NATIVE_ELEMENT,
        source=f"{_NATIVE}:184-231",
    )


def _native_static(name: str, blocks: Blocks) -> Recipe:
    return Recipe(
        name=f"vllm.fp8_native_static_{name}",
        blocks=blocks,
        destinations=ENGINE_FP8,
        inputs=("scale",),
        steps=(_INVERSE,),
        element=_NATIVE_ELEMENT,
        source=f"{_NATIVE}:184-231",
    )


def _native_group(name: str, over: Step, *power: str) -> Recipe:
    return Recipe(
        name=f"vllm.fp8_native_group{name}",
        blocks=Blocks(1, 128, ragged=True),
        destinations=ENGINE_FP8,
        amax_nan="keep",
        steps=(_MINIMUM, ("scale", ("amax", over, ("at_least_or_nan", "minimum"), *power))),
        element=("x", ("div", "scale"), ("clamp_keep_nan", "bound")),
        source=f"{_NATIVE}:233-268",
    )


def _groups(name: str, source: str, *power: str | tuple[str, float]) -> Recipe:
    return Recipe(
        name=f"vllm.fp8_group{name}",
        blocks=group(128),
        destinations=ENGINE_FP8,
        steps=(("scale", (*_GROUP_SCALE, *power)), _INVERSE),
        element=_GROUP_ELEMENT,
        source=f"{_GROUP}:{source}",
    )


def _triton(name: str, *power: str) -> Recipe:
    return Recipe(
        name=f"vllm.fp8_group_triton{name}",
        blocks=group(128),
        destinations=ENGINE_FP8,
        steps=(("scale", ("amax", _LOWEST, ("mul", "1/bound"), *power)),),
        element=("x", ("div", "scale"), ("clamp_fmax_first", "bound")),
        source=f"{_TRITON}:83-138",
    )


def _weights(name: str, over: Step, *power: str) -> Recipe:
    return Recipe(
        name=f"vllm.fp8_block{name}",
        blocks=TILE_128,
        destinations=OCP_FP8,
        amax_nan="keep",
        steps=(("scale", ("amax", ("at_least_or_nan", 1e-4), over, *power)), _INVERSE),
        element=("x", ("mul", "encode")),
        source=f"{VLLM}, deep_gemm.py:1027-1046",
    )


RECIPES = (
    *(_static(name, blocks) for name, blocks in GIVEN.items()),
    Recipe(
        name="vllm.fp8_per_tensor_dynamic",
        blocks=TENSOR,
        destinations=ENGINE_FP8,
        steps=(("scale", ("amax", ("div", "bound"))), _INVERSE),
        element=_TIMES,
        source=f"{_COMMON}:127-201,403-465",
    ),
    Recipe(
        name="vllm.fp8_per_token_dynamic",
        blocks=TOKEN,
        destinations=ENGINE_FP8,
        steps=(_MINIMUM, ("scale", ("amax", ("div", "bound"), ("at_least", "minimum")))),
        element=("x", ("div", "scale"), ("clamp_fmin_first", "bound")),
        source=f"{_COMMON}:203-245, utils.cuh:31-39",
    ),
    Recipe(
        name="vllm.fp8_per_token_dynamic_bounded",
        blocks=TOKEN,
        destinations=ENGINE_FP8,
        inputs=("upper_bound",),
        steps=(
            _MINIMUM,
            ("scale", ("amax", ("at_most", "upper_bound"), ("div", "bound"), ("at_least", "minimum"))),
        ),
        element=("x", ("div", "scale"), ("clamp_fmin_first", "bound")),
        source=f"{_COMMON}:203-245 (with scale_ub)",
    ),
    *(_native(f"tensor{on}", TENSOR, over) for on, over in OVER_BOUND.items()),
    *(_native(f"token{on}", TOKEN, over) for on, over in OVER_BOUND.items()),
    *(
        _native(f"token_bounded{on}", TOKEN, over, (("at_most_or_nan", "upper_bound"),), ("upper_bound",))
        for on, over in OVER_BOUND.items()
    ),
    *(_native_group(on, over) for on, over in OVER_BOUND.items()),
    *(_native_group(f"_ue8m0{on}", over, "exp2_ceil_log2") for on, over in OVER_BOUND.items()),
    *(_native_static(name, blocks) for name, blocks in GIVEN.items()),
    _groups("", "42-100, 176-304"),
    _groups("_ue8m0", "42-100 (shared memory)", _LOWEST, "exp2_ceil_log2"),
    _groups("_ue8m0_registers", "176-304 (16-bit input, groups of 128)", _LOWEST, "ceil_pow2"),
    _groups("_ue8m0_packed", "534-726 (for DeepGEMM)", _LOWEST, "ceil_pow2"),
    Recipe(
        name="vllm.fp8_group_ue8m0_packed_bf16",
        blocks=group(128),
        destinations=OCP_FP8,
        steps=(("scale", (*_GROUP_SCALE, _LOWEST, "ceil_pow2")), _INVERSE),
        # hmax2 and hmin2 return the number where the other operand is NaN
        element=("x", ("mul", "encode"), ("round", "bfloat16"), ("clamp_fmax_first", "bound")),
        source=f"{_GROUP}:670-690 (sm_100, bfloat16 input)",
    ),
    _triton(""),
    _triton("_ue8m0", "exp2_ceil_log2"),
    *(_weights(on, over) for on, over in OVER_BOUND.items()),
    *(_weights(f"_ue8m0{on}", over, "exp2_ceil_log2") for on, over in OVER_BOUND.items()),
    Recipe(
        name="vllm.input_to_float8",
        blocks=TENSOR,
        destinations=OWN_FP8,
        amax_nan="keep",
        # torch takes a number over a tensor as the number times the reciprocal: rounded twice
        steps=(
            ("reciprocal", ("amax", ("at_least_or_nan", 1e-12), ("round", "source"), "recip", ("round", "source"))),
            ("encode", ("reciprocal", ("mul", "bound"), ("round", "source"))),
            ("scale", ("encode", "recip")),
        ),
        element=("x", ("mul", "encode"), ("round", "source"), ("clamp_keep_nan", "bound")),
        source=f"{_TRITON}:68-79",
    ),
)
