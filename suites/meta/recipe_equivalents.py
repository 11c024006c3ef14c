# SPDX-License-Identifier: Apache-2.0
"""Mutants of recipes that change nothing, each with the reason why no input can show them."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: reason -> recipes, changes; as regular expressions, of the whole name and of the whole change
EQUIVALENT: Mapping[str, tuple[tuple[str, str], ...]] = {
    "a largest magnitude that drops NaN is none, and so is what is computed of it": (
        (
            r"(vllm|sglang|aiter)\.(fp8|int8).*",
            r"(scale|encode) \[\d\]: \('at_least', 1e-10\) becomes \('at_least_or_nan', 1e-10\)",
        ),
        (r"vllm\.fp8_per_token_dynamic.*", r"scale .*: \('at_least', 'minimum'\) becomes \('at_least_or_nan', .*"),
        (r"vllm\.fp8_per_token_dynamic_bounded", r"scale .*: \('at_most', .*\) becomes \('at_most_or_nan', .*"),
    ),
    "elements are held to the bound before, or come to it but for a rounding: where casts part, none arrives": (
        (
            r"vllm\.fp8_.*|vllm\.input_to_float8|sglang\.(fp8_(per|gr(?!oup_ue8m0_)|nat).*|fp8_block|mxfp8_kv)"
            r"|(triton_kernels|modelopt)\.mxfp8|aiter\.fp8_hip_group",
            r"float8_e4m3fn(uz)?: cast becomes (amd_native_clamped|(ocp|fnuz)_nonsaturate|triton_amd_fnuz)",
        ),
        (
            r"vllm\.fp8_native_(?!static|token_bounded).*|sglang\.(fp8_native_token|mxfp8_kv)|modelopt\.mxfp8",
            r"element .*: without \('clamp_keep_nan', 'bound'\)",
        ),
        (
            r"vllm\.int8_group.*",
            r"element .*: (without \('at_most', 'bound'\)|.* becomes \('at_most_or_nan', 'bound'\))",
        ),
        (
            r"vllm\.nvfp4_emulated",
            r"element .*: (without \('clamp_keep_nan', 'bound'\)|.* becomes \('clamp_fmin_first', 'bound'\))",
        ),
        (
            r"vllm\.nvfp4_emulated",
            r"scale .*: (without \('clamp_keep_nan', 448.0\)|.* becomes \('clamp_keep_nan', 448.4375\))",
        ),
    ),
    "the largest block is the tensor's, whose scale comes to 448, or the scale is held to it": (
        (r"(nvidia|vllm)\.nvfp4_(?!kv|ds_mla).*", r"scale cast becomes (ocp_nonsaturate|amd_native_clamped)"),
    ),
    "a limit that is rounded to the same code": (
        (r"ocp\.mxint8", r"element .* becomes \('clamp_keep_nan', 127.1.*"),
        (r"vllm\.int8_group.*", r"element .* becomes \('at_least', -128.125\)"),
    ),
    "0 or a NaN is added, and the sign of a scale is not looked at": (
        (r"ocp\..*", r"scale \[\d\]: \('add', 'nan'\) (becomes \('r?sub', 'nan'\)|before \('mul', .*\))"),
    ),
    "the scale is a value of its format before it is cast": (
        (r"compressed_tensors\.nvfp4", r"scale cast becomes e4m3_ceil"),
    ),
    "a power of two is rounded by no rule": (
        (r"ocp\..*", r"scale cast becomes (gfloat_saturate|ptx_ue8m0_rp_satfinite|e8m0_even|e8m0_nearest)"),
    ),
    "nothing is rounded by a product with 1, and what is stored is rounded down": (
        (r"ocp\.mxint8", r"scale \[1\]: (without floor_pow2|\('mul', 1.0\) before floor_pow2)"),
    ),
    "a power of two times a little more is stored as that power": (
        (
            r"ocp\..*",
            r"scale \[2\]: \('mul', (.*)\) becomes \('mul', (0\.0039[1-9].*|3\.05[4-9].*|\d\.(250|062[56]|000)\d+)\)",
        ),
    ),
    "any number above 0 is stored as 2^-9 at least, by rounding upward": (
        (
            r"vllm\.nvfp4_ds_mla",
            r"scale \[\d\]: \('at_least', 0.001953125\) (before \('div', 'bound'\)|becomes \('at_least', 0.000976.*)",
        ),
        (r"vllm\.nvfp4_ds_mla", r"encode \[1\]: recip becomes recip_or_zero"),
    ),
    "the reciprocal of a number that is neither zero nor so small or large that it would not be normal": (
        (
            r"vllm\.fp8_group.*|sglang\.fp8_(block|group_triton_row_major)|vllm\.fp8_(block|native_t).*|vllm\.int8_group",
            r"encode \[1\]: recip becomes recip_(or_zero|approx)",
        ),
        (
            r"sglang\.fp8_block_ue8m0|vllm\.(mxfp8_triton|(fp8|int8)_static_.*)",
            r"encode \[1\]: recip becomes recip_or_zero",
        ),
        (r"vllm\.fp8_(native|per_token)_.*", r"minimum \[2\]: recip becomes recip_(or_zero|approx)"),
        (r"aiter\.fp8_hip_group", r"encode \[1\]: recip_approx becomes recip(_or_zero)?"),
        (r"vllm\.nvfp4", r"sixth \[1\]: recip_approx becomes recip(_or_zero)?"),
        (r"vllm\.input_to_float8", r"scale \[1\]: recip becomes recip_approx"),
    ),
    "both levels together are about amax / 6, which is no zero where the block's scale is none": (
        (r"nvidia\.nvfp4_multiplier", r"encode \[2\]: recip becomes recip_or_zero"),
    ),
    "the first answer of an approximate reciprocal is the nearest, and of 6 that is 1/bound": (
        (r"vllm\.nvfp4", r"scale \[1\]: \('mul', 'sixth'\) becomes \('mul', '1/bound'\)"),
    ),
    "one block holds the whole tensor": (
        (r".*\.(fp8_(per|native)_tensor.*|int8_tensor)", r"scale \[0\]: from tensor_amax"),
        (r"vllm\.input_to_float8", r"reciprocal \[0\]: from tensor_amax"),
    ),
    "what is stored is a power of two, and below the least it is the least": (
        (
            r"vllm\.fp8_group(_triton)?_ue8m0.*|sglang\.(fp8_block_ue8m0|mxfp8_kv)",
            r"scale .*: \('at_least(_or_nan)?', .*\) becomes \('at_least(_or_nan)?', 1\.0009.*",
        ),
        (r"(vllm|sglang)\.fp8_block_ue8m0", r"scale .* becomes \('at_least_or_nan', 0\.0001000.*"),
        (r"vllm\.fp8_native_group_ue8m0", r"minimum \[1\]: \('mul', 512.0\) becomes \('mul', 512.5\)"),
        (r"quark\.mxfp4_even|vllm\.mxfp4_cuda", r"scale .*: \('mul', 0.25\) becomes \('mul', 0.250.*"),
        (r"vllm\.mxfp4_cuda", r"scale .*: \('not_finite_to', .* becomes \('not_finite_to', 8\.51.*"),
        (
            r"(modelopt|vllm|sglang)\.mxfp8_?.*|quark\.mxfp4_even|vllm\.mxfp4_cuda",
            r"scale cast becomes (e8m0_even|e8m0_nearest|ptx_ue8m0_r[pz]_satfinite|gfloat_saturate)",
        ),
        (r"vllm\.mxfp4_cuda|triton_kernels\.mxfp8", r"scale cast becomes (gfloat_nonsaturate|torch_until_2_12)"),
        (r"vllm\.mxfp4_cuda", r"scale .*: \('mul', 0.25\) before \('even_pow2', 1\)"),
        (r"ocp\.mxint8", r"scale .*: (without \('mul', 1.0\)|\('mul', 1.0\) becomes \('div', 1.0\))"),
    ),
    "of two least values the larger one counts": (
        (
            r"vllm\.fp8_group_ue8m0.*",
            r"scale \[1\]: (without \('at_least', 1e-10\)|.* becomes \('at_least', 5e-11\))",
        ),
        (r"vllm\.fp8_group_ue8m0.*", r"scale \[1\]: \('div', 'bound'\) before \('at_least', 1e-10\)"),
    ),
    "x times a power of two is a number of x's own format, unless it is too small for any code": (
        (r"vllm\.fp8_group_ue8m0_packed_bf16", r"element .*'round', 'bfloat16'.*"),
    ),
    "of a largest magnitude of 16 bits, the logarithm is rounded to no whole number beside which it lies": (
        (r"vllm\.fp8_group_ue8m0_(packed_bf16|registers)", r"scale .*: ceil_pow2 becomes exp2_ceil_log2"),
    ),
    "rounding to 16 bits has the last word": (
        (r"vllm\.input_to_float8", r"reciprocal .* becomes \('at_least_or_nan', 1\.0009.*"),
        (r"vllm\.input_to_float8", r"element .*: \('clamp_keep_nan', 'bound'\) before \('round', 'source'\)"),
    ),
    "an integer has no NaN: 0 times infinity becomes 0, as 0 times 0 does": (
        (
            r"vllm\.int8_per_token_dynamic",
            r"encode .*: (without \('zero_where_zero', 'amax'\)|\('zero_where_zero', 'amax'\) before .*)",
        ),
        (r"vllm\.int8_per_token_dynamic", r"encode .* becomes \('nan_to', 'amax'\)"),
        (
            r"vllm\.int8_per_token_dynamic",
            r"encode .* becomes \('zero_where_zero', '(bound|1/bound|tensor_amax)'\)",
        ),
    ),
    "what is whole already is not rounded": ((r"vllm\.int8_.*azp", r"int8: cast becomes integer_(away|truncated)"),),
}


def reason_of(recipe: str, what: str) -> str | None:
    """Why a change of a recipe changes nothing; None where no reason is known."""
    for reason, covered in EQUIVALENT.items():
        if any(re.fullmatch(names, recipe) and re.fullmatch(changes, what) for names, changes in covered):
            return reason
    return None
