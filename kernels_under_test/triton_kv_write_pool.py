"""Triton writers of SGLang's float8 pools, of which padding is written to slot 0, and of keys that are rotated first.

SGLang divides in the format of x, in the caller's own K. Nothing of the caller's is written to here.
"""

from __future__ import annotations

import torch
import triton

from narrowgauge.kernels_under_test.claiming import ALL_SOURCES, BFLOAT16, E4M3, E5M2, FNUZ
from narrowgauge.kernels_under_test.kv_places import flat, nhd
from narrowgauge.kernels_under_test.triton_codec import encode
from narrowgauge.kernels_under_test.triton_kv_before import to_float16, unscaled
from narrowgauge.kernels_under_test.triton_kv_slots import WRITE_ALL, Rows, write
from narrowgauge.kernels_under_test.triton_kv_write import FLOAT16, by_scale, soft
from narrowgauge.kernels_under_test.triton_quantize_given import divided
from narrowgauge.kernels_under_test.triton_steps import bits, clamp, over, to_bfloat16
from narrowgauge.kernels_under_test.triton_targets import OWN_BOUNDS, SOFT


@triton.jit
def in_bfloat16(x, scale, bound):
    return scale, to_bfloat16(over(x, to_bfloat16(scale)))


@triton.jit
def in_float16(x, scale, bound):
    return scale, to_float16(over(x, to_float16(scale)))


@triton.jit
def by_number(x, scale, bound):
    """A scale that is a Python number: x times its reciprocal."""
    return scale, x * over(1.0, scale)


@triton.jit
def by_number_bfloat16(x, scale, bound):
    return scale, to_bfloat16(x * over(1.0, scale))


@triton.jit
def by_number_float16(x, scale, bound):
    return scale, to_float16(x * over(1.0, scale))


@triton.jit
def held_in_bfloat16(x, scale, bound):
    return scale, clamp(to_bfloat16(over(x, to_bfloat16(scale))), bound)


@triton.jit
def held_by_number_bfloat16(x, scale, bound):
    return scale, clamp(to_bfloat16(x * over(1.0, scale)), bound)


@triton.jit
def overflowing_e5m2(value):
    # narrowgauge: ignore[nan_code] the function's name has the format
    return encode(bits(value), 2, 15, 0x7B, 0x80, 0x7C, 0x7C, 0x7F, 0x7F, True)


@triton.jit
def overflowing_e4m3fnuz(value):
    return encode(bits(value), 3, 8, 0x7F, 0x80, 0x80, 0x80, 0x80, 0x80, False)


DIVIDED = {torch.float32: divided, torch.bfloat16: in_bfloat16, torch.float16: in_float16}
TIMES = {torch.float32: by_number, torch.bfloat16: by_number_bfloat16, torch.float16: by_number_float16}
#: torch 2.13's cast: E4M3 is held to its largest value, all else is not
TORCH = {
    "float8_e4m3fn": SOFT["float8_e4m3fn"],
    "float8_e5m2": overflowing_e5m2,
    "float8_e4m3fnuz": overflowing_e4m3fnuz,
}


def pool(x, v, slots, k_cache, v_cache, k_scale, v_scale, format, recipe, code=None, bound=0.0):
    """K and V into pools of slots."""
    k, v = (x, flat(k_cache), k_scale), (v, flat(v_cache), v_scale)
    by_scale(slots, k, v, format, recipe, code, rule=WRITE_ALL, bound=bound)


@soft("sglang.fp8", E4M3, ALL_SOURCES)
def triton_soft_kv_pool_fp8(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    pool(x, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, format, DIVIDED[x.dtype], TORCH[format])


@soft("sglang.fp8_number", (*E5M2, *FNUZ))
def triton_soft_kv_pool_fp8_number(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    pool(x, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, format, TIMES[x.dtype], TORCH[format])


@soft("sglang.fp8_commit", FNUZ)
def triton_soft_kv_pool_fp8_commit(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    bound = OWN_BOUNDS[format]
    pool(x, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, format, held_in_bfloat16, bound=bound)


@soft("sglang.fp8_commit_number", E4M3)
def triton_soft_kv_pool_fp8_commit_number(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    pool(x, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, format, held_by_number_bfloat16)


# --- keys rotated by their positions ---------------------------------------------------------------------------------


@triton.jit
def to_bfloat16_pattern(value):
    """Of a value that is a bfloat16."""
    return bits(value) >> 16


@triton.jit
def to_float16_pattern(value):
    return encode(bits(value), 10, 15, 0x7BFF, 0x8000, 0x7C00, 0x7C00, 0x7E00, 0x7E00, True)


PATTERN = {"bfloat16": to_bfloat16_pattern, "float16": to_float16_pattern}


def _rotated_copy(x, v, slots, k_cache, v_cache, format, cos_sin, positions, first):
    k = Rows(
        "k", x, nhd(k_cache), unscaled, format, PATTERN[format], first=first, beside=cos_sin, positions=positions,
        bound=1.0,
    )  # fmt: skip
    write(slots, k, Rows("v", v, nhd(v_cache)))


def _rotated(x, v, slots, k_cache, v_cache, k_scale, v_scale, format, cos_sin, positions, first):
    k = Rows("k", x, nhd(k_cache), divided, format, given=k_scale, first=first, beside=cos_sin, positions=positions)
    write(slots, k, Rows("v", v, nhd(v_cache), divided, format, given=v_scale))


@soft("vllm.flash_copy_rope", BFLOAT16, BFLOAT16)
def triton_soft_kv_rope_copy(x, format, v, slot_mapping, k_cache, v_cache, cos_sin, positions):
    _rotated_copy(x, v, slot_mapping, k_cache, v_cache, format, cos_sin, positions, "rope")


@soft("vllm.flash_copy_rope_interleaved", FLOAT16, FLOAT16)
def triton_soft_kv_rope_interleaved_copy(x, format, v, slot_mapping, k_cache, v_cache, cos_sin, positions):
    _rotated_copy(x, v, slot_mapping, k_cache, v_cache, format, cos_sin, positions, "rope_interleaved")


@soft("vllm.flash_fp8_rope", E4M3, (*BFLOAT16, *FLOAT16))
def triton_soft_kv_rope_fp8(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, cos_sin, positions):
    _rotated(x, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, format, cos_sin, positions, "rope")


@soft("vllm.flash_fp8_rope_interleaved", E5M2)
def triton_soft_kv_rope_interleaved_fp8(
    x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, cos_sin, positions
):
    _rotated(x, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, format, cos_sin, positions, "rope_interleaved")
