"""Scales in another convention or order: reciprocals, swizzles, other codes for the same numbers."""

from __future__ import annotations

from narrowgauge.contracts.conversion import FIRST, Conversion, Held
from narrowgauge.contracts.recipe import Blocks

_NVFP4 = (Held(FIRST), Held("scale", "block", "float8_e4m3fn"), Held("global_scale", "tensor", "float32"))
#: scales that kernels expect in tiles, and the formats of the scales
_SWIZZLES = {
    "scales_128x4": ("float8_e4m3fn", "float8_e8m0fnu"),
    "scales_8x4": ("float8_e4m3fn", "float8_e8m0fnu"),
    "cdna4_mx_scales": ("float8_e8m0fnu",),
}
_MXFP4 = (Held(FIRST, layout="nibbles_low_first"), Held("scale", "block", "float8_e8m0fnu"))


def _reciprocal(name: str, source: str) -> Conversion:
    return Conversion(
        name, (("float4_e2m1fn", "float4_e2m1fn"),), _NVFP4, _NVFP4, (("reciprocal", "global_scale"),), source,
        blocks=Blocks(1, 16), new_blocks=Blocks(1, 16),
    )  # fmt: skip


def _renamed(one: str, other: str, source: str) -> Conversion:
    """A scale under another name: it multiplies under both."""
    return Conversion(
        f"{one}_to_{other}", (("float8_e4m3fn", "float8_e4m3fn"),), (Held(FIRST), Held(one, "block", "float32")),
        (Held(FIRST), Held(other, "block", "float32")), (("copied", one, other),), source,
        blocks=Blocks(128, 128, ragged=True), new_blocks=Blocks(128, 128, ragged=True), exact=True,
    )  # fmt: skip


def _swizzled(layout: str, formats: tuple[str, ...], back: bool) -> Conversion:
    plain, tiled = (Held(FIRST),), (Held(FIRST, layout=layout),)
    return Conversion(
        f"{layout}_to_plain" if back else f"plain_to_{layout}",
        tuple((f, f) for f in formats),
        tiled if back else plain,
        plain if back else tiled,
        (),
        f"reference/layouts/scales.py, {layout}",
        exact=True,
    )


_CONVERTER = "compressed-tensors 0.20.1 converters/modelopt_nvfp4.py: the one global scale is 1 over the other"
_INV = (
    "transformers 5.24.0 integrations/finegrained_fp8.py:1131-1173, as DeepSeek-V3 README_WEIGHTS.md: a weight is "
    "code * weight_scale_inv, whatever its name says"
)
CONVERSIONS = (
    _renamed("weight_scale_inv", "weight_scale", _INV),
    _renamed("weight_scale", "weight_scale_inv", _INV),
    _reciprocal("nvfp4_to_divisor", _CONVERTER),
    _reciprocal("nvfp4_to_multiplier", _CONVERTER),
    *(_swizzled(layout, formats, back) for layout, formats in _SWIZZLES.items() for back in (False, True)),
    Conversion(
        "gpt_oss_to_bfloat16",
        (("float4_e2m1fn", "bfloat16"),),
        _MXFP4,
        (Held(FIRST, "transposed"),),
        (("values", "bfloat16"), ("as_codes", "ieee"), ("transpose", FIRST)),
        "OCP MX 1.0, 5.1: the product of element and scale; transformers 5.24.0 integrations/mxfp4.py turns it",
        evidence="specification",
        blocks=Blocks(1, 32),
        exact=True,
    ),
    Conversion(
        "transformers.gpt_oss_to_bfloat16",
        (("float4_e2m1fn", "bfloat16"),),
        _MXFP4,
        (Held(FIRST, "transposed"),),
        (
            ("shifted", "bfloat16"),
            ("as_codes", "ieee"),
            ("transpose", FIRST),
        ),
        "transformers 5.24.0 integrations/mxfp4.py:201-290, torch 2.13: ldexp with the byte less 127, so 255 is 2^128",
        blocks=Blocks(1, 32),
    ),
    Conversion(
        "compressed_tensors.scale_to_e8m0",
        (("float32", "float8_e8m0fnu"), ("bfloat16", "float8_e8m0fnu")),
        (Held(FIRST),),
        (Held(FIRST),),
        (("exponent_of", FIRST, 127),),
        "compressed-tensors 0.20.1 compressors/mx_utils.py, run on a CPU",
    ),
    Conversion(
        "compressed_tensors.e8m0_to_scale",
        (("float8_e8m0fnu", "bfloat16"),),
        (Held(FIRST),),
        (Held(FIRST),),
        (("rounded", FIRST, "bfloat16"), ("infinite_for_nan", FIRST)),
        "compressed-tensors 0.20.1 compressors/mx_utils.py: 255 is infinity",
    ),
    Conversion(
        "quark_mx_to_mxfp4",
        (("float4_e2m1fn", "float4_e2m1fn"),),
        (_MXFP4[0], Held("scale", "block", "int8")),
        _MXFP4,
        (("signed_exponent", "scale"),),
        "AMD Quark 0.13 torch/quantization/utils/pack.py:462-510: log2 as a signed byte before each 16 bytes of codes",
        blocks=Blocks(1, 32),
        new_blocks=Blocks(1, 32),
        exact=True,
    ),
    Conversion(
        "gpt_oss_parted",
        (("float4_e2m1fn", "float4_e2m1fn"),),
        _MXFP4,
        _MXFP4,
        (("part_rows", FIRST, 2), ("part_rows", "scale", 2)),
        "vLLM 0.33.0 and transformers: rows of gate and up of gpt-oss stand in turn",
        blocks=Blocks(1, 32),
        new_blocks=Blocks(1, 32),
        exact=True,
    ),
)
