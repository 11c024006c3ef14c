"""Triton writers of SGLang's float8 pools, of which padding is written to slot 0, and of keys that are rotated first.

SGLang divides in the format of x, in the caller's own K. Nothing of the caller's is written to here.
"""

from __future__ import annotations

from narrowgauge.kernels_under_test.claiming import BFLOAT16, E4M3, E5M2, FNUZ
from narrowgauge.kernels_under_test.kv_places import flat, nhd
from narrowgauge.kernels_under_test.kv_rows import WRITE_ALL, Rows
from narrowgauge.kernels_under_test.triton_kv_recipes import (
    DIVIDED,
    HELD,
    HELD_TIMES,
    PATTERN,
    SATURATING,
    TIMES,
    TORCH,
    unscaled,
)
from narrowgauge.kernels_under_test.triton_kv_slots import write
from narrowgauge.kernels_under_test.triton_kv_write import FLOAT16, by_scale, soft
from narrowgauge.kernels_under_test.triton_quantize_given import divided
from narrowgauge.kernels_under_test.triton_targets import OWN_BOUNDS


def pool(x, v, slots, k_cache, v_cache, k_scale, v_scale, format, recipe, code=None, **more):
    """K and V into pools of slots."""
    k, v = (x, flat(k_cache), k_scale), (v, flat(v_cache), v_scale)
    by_scale(slots, k, v, format, recipe, code, rule=WRITE_ALL, **more)


@soft("sglang.fp8", E4M3, (*BFLOAT16, *FLOAT16))
def triton_soft_kv_pool_fp8(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    pool(x, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, format, DIVIDED.get(x.dtype), TORCH)


@soft("sglang.fp8_number", (*E5M2, *FNUZ))
def triton_soft_kv_pool_fp8_number(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    pool(x, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, format, TIMES.get(x.dtype), TORCH)


@soft("sglang.fp8_commit", FNUZ)
def triton_soft_kv_pool_fp8_commit(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    recipe, bound = HELD.get(x.dtype), OWN_BOUNDS.get(format, 0.0)
    pool(x, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, format, recipe, SATURATING, bound=bound)


@soft("sglang.fp8_commit_number", E4M3)
def triton_soft_kv_pool_fp8_commit_number(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    recipe, bound = HELD_TIMES.get(x.dtype), OWN_BOUNDS.get(format, 0.0)
    pool(x, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, format, recipe, SATURATING, bound=bound)


# --- keys rotated by their positions ---------------------------------------------------------------------------------


def _rotated_copy(x, v, slots, k_cache, v_cache, format, cos_sin, positions, first):
    k = Rows(
        "k", x, nhd(k_cache), unscaled, format, PATTERN, first=first, beside=cos_sin, positions=positions,
        bound=1.0,
    )  # fmt: skip
    write(slots, k, Rows("v", v, nhd(v_cache), format=format))


def _rotated(x, v, slots, k_cache, v_cache, k_scale, v_scale, format, cos_sin, positions, first):
    k = Rows("k", x, nhd(k_cache), divided, format, given=k_scale, first=first, beside=cos_sin, positions=positions)
    write(slots, k, Rows("v", v, nhd(v_cache), divided, format, given=v_scale))


@soft("vllm.flash_copy_rope", BFLOAT16, BFLOAT16)
def triton_soft_kv_rope_copy(x, format, v, slot_mapping, k_cache, v_cache, cos_sin, positions):
    _rotated_copy(x, v, slot_mapping, k_cache, v_cache, format, cos_sin, positions, "rope")


@soft("vllm.flash_copy_rope_interleaved", FLOAT16, FLOAT16)
def triton_soft_kv_rope_interleaved_copy(x, format, v, slot_mapping, k_cache, v_cache, cos_sin, positions):
    _rotated_copy(x, v, slot_mapping, k_cache, v_cache, format, cos_sin, positions, "rope_interleaved")


@soft("vllm.flash_fp8_rope", E4M3)
def triton_soft_kv_rope_fp8(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, cos_sin, positions):
    _rotated(x, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, format, cos_sin, positions, "rope")


@soft("vllm.flash_fp8_rope_interleaved")
def triton_soft_kv_rope_interleaved_fp8(
    x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, cos_sin, positions
):
    _rotated(x, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, format, cos_sin, positions, "rope_interleaved")
