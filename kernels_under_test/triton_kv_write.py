"""Triton writers of key-value caches: copies, and float8 with a static scale of the tensor or of each head.

``soft`` ones encode by integers; ``native`` ones leave the conversion to the hardware.
"""

from __future__ import annotations

from functools import partial

import triton

from narrowgauge import KvWrite, kernel
from narrowgauge.kernels_under_test.claiming import BFLOAT16, E4M3, E5M2, FLOAT32
from narrowgauge.kernels_under_test.kv_places import hnd, nhd
from narrowgauge.kernels_under_test.triton_kv_slots import Rows, write
from narrowgauge.kernels_under_test.triton_quantize_given import divided
from narrowgauge.kernels_under_test.triton_steps import clamp, over
from narrowgauge.kernels_under_test.triton_targets import NATIVE


def _writer(conversion, cache, formats=E4M3, sources=BFLOAT16):
    return kernel(KvWrite(cache), formats, sources, owner="narrowgauge", conversion=conversion)


soft, native = partial(_writer, "soft"), partial(_writer, "native")


@triton.jit
def divided_held(x, scale, bound):
    """The same to a conversion that saturates: AMD's documents leave open what CDNA4's makes of an infinity."""
    return scale, clamp(over(x, scale), bound)


def by_scale(x, v, slots, k_view, v_view, k_scale, v_scale, format, recipe=divided, code=None, per_head=False):
    """K and V over their static scales."""
    k = Rows("k", x, k_view, recipe, format, code, given=k_scale)
    write(slots, k, Rows("v", v, v_view, recipe, format, code, given=v_scale), per_head=per_head)


@soft("vllm.flash_copy", BFLOAT16, BFLOAT16)
def triton_soft_kv_copy(x, format, v, slot_mapping, k_cache, v_cache):
    write(slot_mapping, Rows("k", x, nhd(k_cache)), Rows("v", v, nhd(v_cache)))


@soft("vllm.flash_fp8", (*E4M3, *E5M2), FLOAT32)
def triton_soft_kv_fp8(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    by_scale(x, v, slot_mapping, nhd(k_cache), nhd(v_cache), k_scale, v_scale, format)


@soft("vllm.flash_fp8_hnd", E4M3, ("float16",))
def triton_soft_kv_fp8_hnd(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    by_scale(x, v, slot_mapping, hnd(k_cache), hnd(v_cache), k_scale, v_scale, format)


@soft("vllm.flash_fp8_head")
def triton_soft_kv_fp8_head(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    by_scale(x, v, slot_mapping, nhd(k_cache), nhd(v_cache), k_scale, v_scale, format, per_head=True)


@native("vllm.flash_fp8", (*E4M3, *E5M2))
def triton_native_kv_fp8(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    by_scale(x, v, slot_mapping, nhd(k_cache), nhd(v_cache), k_scale, v_scale, format, divided_held, NATIVE[format])
