"""What the entries of the catalogue share."""

from __future__ import annotations

from narrowgauge.contracts.recipe import CHANNEL, TENSOR, TOKEN, Blocks, Chain, Destination, Step, group

#: vLLM and SGLang hold FNUZ to 224 = 448 / 2, which keeps its codes those of OCP; the format itself reaches 240.
ENGINE_FP8 = (
    Destination("float8_e4m3fn", 448.0, "ocp_saturate"),
    Destination("float8_e4m3fnuz", 224.0, "fnuz_saturate"),
)
#: who divides by the format's own maximum
OWN_FP8 = (
    Destination("float8_e4m3fn", 448.0, "ocp_saturate"),
    Destination("float8_e4m3fnuz", 240.0, "fnuz_saturate"),
)
OCP_FP8 = ENGINE_FP8[:1]
FP4 = (Destination("float4_e2m1fn", 6.0, "ptx_satfinite"),)

#: amax over the bound where torch runs eagerly, by the ending of a recipe's name: a GPU multiplies by a reciprocal
OVER_BOUND: dict[str, Step] = {"": ("div", "bound"), "_gpu": ("mul", "1/bound")}
#: granularities of a scale that is given, by the ending of a recipe's name
GIVEN: dict[str, Blocks] = {"tensor": TENSOR, "token": TOKEN, "channel": CHANNEL, "group_128": group(128)}
TILE_128 = Blocks(128, 128, ragged=True)
VLLM, SGLANG, AITER = "vLLM 0.33.0", "SGLang 0.5.23", "AITER e4048607"
#: elements of MX blocks: what overflows is held to the largest value, and so is a NaN where there is none
MX = (
    Destination("float8_e4m3fn", 448.0, "ocp_saturate"),
    Destination("float8_e5m2", 57344.0, "ocp_saturate"),
    Destination("float6_e2m3fn", 7.5, "ptx_satfinite"),
    Destination("float6_e3m2fn", 28.0, "ptx_satfinite"),
    *FP4,
)
#: 0, or NaN where amax is: added to what a step has made of amax by its bits, which know no NaN
NAN_WHERE_AMAX_IS: tuple[str, Chain] = ("nan", ("amax", ("at_most_or_nan", 0.0)))
#: the same for an infinite amax
NAN_UNLESS_FINITE: tuple[str, Chain] = ("nan", ("amax", ("mul", 0.0)))
#: elements of MXINT8: codes are multiples of 2^-6, from -127
MXINT8 = Destination("int8", 127.0, "integer_nearest")
TO_MXINT8: tuple[Step, ...] = (("mul", 64.0), ("clamp_keep_nan", 127.0))
