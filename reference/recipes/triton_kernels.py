"""triton_kernels' downcast to MXFP8 and MXFP4: one Triton function, of which vLLM carries an older copy."""

from __future__ import annotations

from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import Chain, Destination, Recipe, group
from narrowgauge.reference.recipes.common import FP4, VLLM
from narrowgauge.reference.recipes.standards import E8M0

_FILE = "triton_kernels, numerics_details/mxfp_details/_downcast_to_mxfp.py"
_HERE = f"{_FILE} (0616e645)"
_CARRIED = f"{VLLM}, third_party/{_FILE}"
_TIMES: Chain = ("x", ("mul", "encode"))
#: below 1 an element loses what lies under 2^-23 before its tie is looked at; above, nothing lies there
_CUT: Chain = (*_TIMES, ("mul", 2.0**23), "trunc", ("mul", 2.0**-23))


def _downcast(name: str, to: tuple[Destination, ...], power: str, element: Chain, source: str) -> Recipe:
    return Recipe(
        name=f"{name}{'' if power == 'ceil_pow2' else '_down'}",
        blocks=group(32),
        destinations=to,
        amax_nan="all",
        # the bits are stored as they are: an infinite amax as 255
        steps=(("scale", ("amax", ("div", "bound"), power)), ("encode", ("scale", "recip_or_zero"))),
        element=element,
        scale_format=E8M0,
        scale_cast="gfloat_nonsaturate",
        source=f"{source}, ROUND_{'UP' if power == 'ceil_pow2' else 'DOWN'}",
    )


_FP8 = (Destination("float8_e4m3fn", 448.0, "triton_nvidia"), Destination("float8_e5m2", 57344.0, "triton_nvidia"))
#: NVIDIA multiplies a NaN to the positive NaN, whose bits become the largest code
_AWAY = (Destination("float4_e2m1fn", 6.0, CastPolicy("nearest_away", nan="max")),)

RECIPES = (
    _downcast("triton_kernels.mxfp8", _FP8, "ceil_pow2", _TIMES, f"{_HERE}; SGLang 0.5.23 fp8_utils.py:1853-1867"),
    _downcast("triton_kernels.mxfp8", _FP8, "floor_pow2", _TIMES, _HERE),
    *(_downcast("triton_kernels.mxfp4", FP4, power, _CUT, _HERE) for power in ("ceil_pow2", "floor_pow2")),
    *(_downcast("vllm.triton_kernels_mxfp4", _AWAY, power, _TIMES, _CARRIED) for power in ("ceil_pow2", "floor_pow2")),
)
