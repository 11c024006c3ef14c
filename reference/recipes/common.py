"""What the entries of the catalogue share."""

from __future__ import annotations

from narrowgauge.contracts.recipe import CHANNEL, TENSOR, TOKEN, Blocks, Destination, Step, group

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
