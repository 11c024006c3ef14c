"""Four-bit integer weights in another tool's packing: the numbers are the same, their places and zeros are not."""

from __future__ import annotations

from narrowgauge.contracts.conversion import FIRST, Conversion, Held, Step
from narrowgauge.contracts.recipe import Blocks

#: a weight is [K, N], and 128 consecutive k share a scale and a zero point
_GROUPS, _UINT4 = Blocks(128, 1), (("uint4", "uint4"),)
_FACTS = "gptqmodel 7.7.0 nn_modules/qlinear/__init__.py:931-957, 1769-1789; vLLM q_gemm.cu:138-139"
_CT = "compressed-tensors 0.20.1 compressors/pack_quantized: pack_to_int32 adds half the range"


def _held(codes: str, zeros: str) -> tuple[Held, ...]:
    return (
        Held(FIRST, layout=codes),
        Held("scale", "block", "float16"),
        Held("zero_point", "block", "int32", zeros),
    )


_AWQ = _held("awq_4bit", "awq_4bit~awq_4bit")
_V1, _V2 = (_held("gptq_4bit", f"gptq_zeros_4bit~gptq_{v}_4bit") for v in ("v1", "v2"))
_STANDARD = _held("gptq_4bit", "gptq_4bit^T~awq_4bit")


def _moved(
    name: str, takes: tuple[Held, ...], gives: tuple[Held, ...], source: str, steps: tuple[Step, ...] = ()
) -> Conversion:
    return Conversion(name, _UINT4, takes, gives, steps, source, blocks=_GROUPS, new_blocks=_GROUPS, exact=True)


_STANDARD_SAID = "vLLM 0.33.0 model_executor/layers/quantization/auto_awq.py:92-165"
_INDEX = Held("g_idx", "row", "int32")
CONVERSIONS = (
    _moved("awq_to_gptq", _AWQ, (*_V1, _INDEX), _FACTS, (("group_index", 128),)),
    _moved("awq_to_gptq_v2", _AWQ, (*_V2, _INDEX), _FACTS, (("group_index", 128),)),
    _moved("gptq_v1_to_v2", _V1, _V2, _FACTS),
    _moved("gptq_v2_to_v1", _V2, _V1, _FACTS),
    _moved("vllm.awq_to_standard", _AWQ, _STANDARD, _STANDARD_SAID),
    Conversion(
        "compressed_tensors.int4_packed", (("int4", "uint4"),), (Held(FIRST),),
        (Held(FIRST, layout="compressed_tensors_4bit"),), (("flip", FIRST, 8),), _CT, exact=True,
    ),
    Conversion(
        "compressed_tensors.int4_unpacked", (("uint4", "int4"),), (Held(FIRST, layout="compressed_tensors_4bit"),),
        (Held(FIRST),), (("flip", FIRST, 8),), _CT, exact=True,
    ),
)  # fmt: skip
