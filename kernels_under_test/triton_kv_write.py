"""Triton writers of key-value caches: copies, and float8 with a static scale of the tensor or of each head.

Copies are given scales too, and leave them alone. ``soft`` writers encode by integers; ``native`` ones leave the
conversion to the hardware.
"""

from __future__ import annotations

from functools import partial

from narrowgauge import KvWrite, kernel
from narrowgauge.kernels_under_test.claiming import BFLOAT16, E4M3, E5M2, FLOAT32, FNUZ
from narrowgauge.kernels_under_test.kv_places import by_columns, flat, hnd, in_places, interleaved, nhd, packed_keys
from narrowgauge.kernels_under_test.kv_rows import SKIP_NEGATIVE, SKIP_ZERO, WRITE_ALL, Rows
from narrowgauge.kernels_under_test.triton_kv_recipes import divided_held, divided_in_float16
from narrowgauge.kernels_under_test.triton_kv_slots import write
from narrowgauge.kernels_under_test.triton_quantize_given import divided
from narrowgauge.kernels_under_test.triton_targets import NATIVE

FLOAT16, E5M2FNUZ = ("float16",), ("float8_e5m2fnuz",)


def _writer(conversion, cache, formats=E4M3, sources=BFLOAT16):
    return kernel(KvWrite(cache), formats, sources, owner="narrowgauge", conversion=conversion)


soft, native = partial(_writer, "soft"), partial(_writer, "native")


def one_head(x):
    """Rows without heads, [tokens, columns], as one head."""
    return x[:, None]


# --- copies ----------------------------------------------------------------------------------------------------------


def copied(slots, k, v, format, rule=SKIP_NEGATIVE):
    """K and V as they are; each comes with its view."""
    parts = ("k", *k), ("v", *v)
    write(slots, *(Rows(name, each, to, format=format) for name, each, to in parts), rule=rule)


def _latent(x, rope, cache, format, recipe=None, given=None, code=None):
    """Rows of 512 columns and 64; one scale is of both."""
    parts = ("latent", x, in_places(cache, 0, 512)), ("rope", rope, in_places(cache, 512, 64))
    return [
        Rows(name, one_head(each), to, recipe, format, code, size=64, given=given, scaled_by="latent")
        for name, each, to in parts
    ]


@soft("vllm.flash_copy", BFLOAT16, BFLOAT16)
def triton_soft_kv_copy(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    copied(slot_mapping, (x, nhd(k_cache)), (v, nhd(v_cache)), format)


@soft("vllm.flash_copy_hnd", FLOAT16, FLOAT16)
def triton_soft_kv_copy_hnd(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    copied(slot_mapping, (x, hnd(k_cache)), (v, hnd(v_cache)), format)


@soft("vllm.paged_copy", BFLOAT16, BFLOAT16)
def triton_soft_kv_paged_copy(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    copied(slot_mapping, (x, packed_keys(k_cache)), (v, by_columns(v_cache)), format)


@soft("vllm.interleaved_copy", FLOAT16, FLOAT16)
def triton_soft_kv_interleaved_copy(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    copied(slot_mapping, (x, packed_keys(k_cache)), (v, interleaved(v_cache)), format)


@soft("vllm.mla_copy", BFLOAT16, BFLOAT16)
def triton_soft_kv_mla_copy(x, format, rope, slot_mapping, kv_cache):
    write(slot_mapping, *_latent(x, rope, kv_cache, format))


@soft("sglang.copy", BFLOAT16, BFLOAT16)
def triton_soft_kv_pool_copy(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    copied(slot_mapping, (x, flat(k_cache)), (v, flat(v_cache)), format, WRITE_ALL)


@soft("sglang.copy_hnd", FLOAT16, FLOAT16)
def triton_soft_kv_pool_copy_hnd(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    copied(slot_mapping, (x, hnd(k_cache)), (v, hnd(v_cache)), format, WRITE_ALL)


@soft("sglang.copy_vectorized", BFLOAT16, BFLOAT16)
def triton_soft_kv_pool_copy_vectorized(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    copied(slot_mapping, (x, packed_keys(k_cache)), (v, interleaved(v_cache)), format, WRITE_ALL)


@soft("sglang.mla_copy", BFLOAT16, BFLOAT16)
def triton_soft_kv_pool_mla_copy(x, format, rope, slot_mapping, kv_cache):
    write(slot_mapping, *_latent(x, rope, kv_cache[:, None], format), rule=SKIP_ZERO)


# --- a static scale --------------------------------------------------------------------------------------------------


def by_scale(slots, k, v, format, recipe=divided, code=None, rule=SKIP_NEGATIVE, **more):
    """K and V over their static scales; each comes with its view and its scale."""
    parts = ("k", *k), ("v", *v)
    write(
        slots,
        *(Rows(name, each, to, recipe, format, code, given=given, **more) for name, each, to, given in parts),
        rule=rule,
    )


@soft("vllm.flash_fp8", E5M2, FLOAT32)
def triton_soft_kv_fp8(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    by_scale(slot_mapping, (x, nhd(k_cache), k_scale), (v, nhd(v_cache), v_scale), format)


@native("vllm.flash_fp8", (*E4M3, *E5M2))
def triton_native_kv_fp8(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    k, v = (x, nhd(k_cache), k_scale), (v, nhd(v_cache), v_scale)
    by_scale(slot_mapping, k, v, format, divided_held, NATIVE)


@soft("vllm.flash_fp8_hnd")
def triton_soft_kv_fp8_hnd(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    by_scale(slot_mapping, (x, hnd(k_cache), k_scale), (v, hnd(v_cache), v_scale), format)


@soft("vllm.flash_fp8_head")
def triton_soft_kv_fp8_head(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    by_scale(slot_mapping, (x, nhd(k_cache), k_scale), (v, nhd(v_cache), v_scale), format, per_head=True)


@native("vllm.flash_fp8_head", E4M3)
def triton_native_kv_fp8_head(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    k, v = (x, nhd(k_cache), k_scale), (v, nhd(v_cache), v_scale)
    by_scale(slot_mapping, k, v, format, divided_held, NATIVE, per_head=True)


@soft("vllm.flash_fp8_head_hnd")
def triton_soft_kv_fp8_head_hnd(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    by_scale(slot_mapping, (x, hnd(k_cache), k_scale), (v, hnd(v_cache), v_scale), format, per_head=True)


@soft("vllm.flash_fp8_rocm", FNUZ)
def triton_soft_kv_fp8_rocm(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    by_scale(slot_mapping, (x, nhd(k_cache), k_scale), (v, nhd(v_cache), v_scale), format)


@soft("vllm.flash_fp8_rocm_float16", FNUZ, FLOAT16)
def triton_soft_kv_fp8_rocm_float16(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    k, v = (x, nhd(k_cache), k_scale), (v, nhd(v_cache), v_scale)
    by_scale(slot_mapping, k, v, format, divided_in_float16)


@soft("vllm.flash_fp8_rocm_float16_head", FNUZ, FLOAT16)
def triton_soft_kv_fp8_rocm_float16_head(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    k, v = (x, nhd(k_cache), k_scale), (v, nhd(v_cache), v_scale)
    by_scale(slot_mapping, k, v, format, divided_in_float16, per_head=True)


@native("vllm.flash_fp8_triton", FNUZ)
def triton_native_kv_fp8_triton(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    k, v = (x, nhd(k_cache), k_scale), (v, nhd(v_cache), v_scale)
    by_scale(slot_mapping, k, v, format, code=NATIVE)


@soft("vllm.paged_fp8")
def triton_soft_kv_paged_fp8(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    by_scale(slot_mapping, (x, packed_keys(k_cache), k_scale), (v, by_columns(v_cache), v_scale), format)


@soft("vllm.interleaved_fp8_triton")
def triton_soft_kv_interleaved_fp8(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    by_scale(slot_mapping, (x, packed_keys(k_cache), k_scale), (v, interleaved(v_cache), v_scale), format)


@soft("vllm.mla_fp8")
def triton_soft_kv_mla_fp8(x, format, rope, slot_mapping, kv_cache, latent_scale):
    write(slot_mapping, *_latent(x, rope, kv_cache, format, divided, latent_scale))


@soft("plain.fp8_tensor", E5M2FNUZ)
def triton_soft_kv_plain(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    by_scale(slot_mapping, (x, nhd(k_cache), k_scale), (v, nhd(v_cache), v_scale), format)


@soft("plain.fp8_head", FNUZ)
def triton_soft_kv_plain_head(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    by_scale(slot_mapping, (x, nhd(k_cache), k_scale), (v, nhd(v_cache), v_scale), format, per_head=True)
