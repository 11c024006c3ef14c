"""Triton writers of caches in the microscaling formats and in NVFP4: codes of K and V, and a scale for 16 or 32."""

from __future__ import annotations

from narrowgauge.kernels_under_test.claiming import E4M3, FP4
from narrowgauge.kernels_under_test.kv_checks import check_axes, check_bytes
from narrowgauge.kernels_under_test.kv_places import flat, hnd, in_heads, in_page, interleaved_scales, nhd, swizzled
from narrowgauge.kernels_under_test.kv_rows import SKIP_NEGATIVE, SKIP_ZERO, WRITE_ALL, Rows
from narrowgauge.kernels_under_test.triton_kv_recipes import (
    fp4_block16,
    nvfp4,
    to_e2m1_away,
)
from narrowgauge.kernels_under_test.triton_kv_slots import write
from narrowgauge.kernels_under_test.triton_kv_write import soft
from narrowgauge.kernels_under_test.triton_quantize_mx import sglang_kv


def by_sixteens(slots, x, v, codes, scales, given, format, rule):
    """NVFP4 of K and V, by a number that each is given."""
    parts = zip(("k", "v"), (x, v), codes, scales, given, strict=True)
    write(
        slots,
        *(
            Rows(
                name, each, to, nvfp4, format, formats=FP4, size=16, pack=2, nan="all", whole=whole, scales=of,
                scale_format="float8_e4m3fn",
            )
            for name, each, to, of, whole in parts
        ),
        rule=rule,
    )  # fmt: skip


# --- vLLM: pages of K's codes, K's scales, V's codes, V's scales -----------------------------------------------------


def _in_pages(cache, x, block, heads_first):
    """The four parts of a page, [pages, heads, places, columns] or [pages, places, heads, columns]."""
    check_axes("k", x, "tokens heads columns")
    heads, width = x.shape[1:]
    check_bytes("kv_cache", cache, block * heads * width * 9 // 8, "pages")
    found, start = [], 0
    for columns in (width // 2, width // 16) * 2:
        outer = (heads, block) if heads_first else (block, heads)
        found.append(in_page(cache, start, (*outer, columns)))
        start += heads * block * columns
    return found


def _pages(x, v, slots, cache, block, given, format, heads_first, k_scales, v_scales):
    k, k_of, v_codes, v_of = _in_pages(cache, x, block, heads_first)
    codes = hnd if heads_first else nhd
    scales = (k_scales(k_of), v_scales(v_of))
    by_sixteens(slots, x, v, (codes(k), codes(v_codes)), scales, given, format, SKIP_NEGATIVE)


@soft("vllm.nvfp4", FP4)
def triton_soft_kv_nvfp4(x, format, v, slot_mapping, kv_cache, k_global_scale, v_global_scale, block_size):
    given = k_global_scale, v_global_scale
    _pages(x, v, slot_mapping, kv_cache, block_size, given, format, True, hnd, swizzled)


@soft("vllm.nvfp4_linear", FP4)
def triton_soft_kv_nvfp4_linear(x, format, v, slot_mapping, kv_cache, k_global_scale, v_global_scale, block_size):
    given = k_global_scale, v_global_scale
    _pages(x, v, slot_mapping, kv_cache, block_size, given, format, False, nhd, nhd)


@soft("vllm.nvfp4_linear_hnd", FP4)
def triton_soft_kv_nvfp4_linear_hnd(x, format, v, slot_mapping, kv_cache, k_global_scale, v_global_scale, block_size):
    given = k_global_scale, v_global_scale
    _pages(x, v, slot_mapping, kv_cache, block_size, given, format, True, hnd, hnd)


# --- SGLang: pools, of which padding is written to slot 0 ------------------------------------------------------------


@soft("sglang.nvfp4", FP4)
def triton_soft_kv_pool_nvfp4(
    x, format, v, slot_mapping, k_cache, v_cache, k_scale_cache, v_scale_cache, k_global_scale, v_global_scale
):
    scales, given = (flat(k_scale_cache), flat(v_scale_cache)), (k_global_scale, v_global_scale)
    by_sixteens(slot_mapping, x, v, (flat(k_cache), flat(v_cache)), scales, given, format, WRITE_ALL)


@soft("sglang.nvfp4_native", FP4)
def triton_soft_kv_pool_nvfp4_native(
    x, format, v, slot_mapping, k_cache, v_cache, k_scale_cache, v_scale_cache, k_global_scale, v_global_scale,
    block_size,
):  # fmt: skip
    codes, scales = (
        (flat(k_cache, block_size), flat(v_cache, block_size)),
        (hnd(k_scale_cache), swizzled(v_scale_cache)),
    )
    by_sixteens(slot_mapping, x, v, codes, scales, (k_global_scale, v_global_scale), format, WRITE_ALL)


@soft("sglang.fp4_block16", FP4)
def triton_soft_kv_fp4_block16(x, format, v, slot_mapping, k_cache, v_cache, k_scale_cache, v_scale_cache):
    parts = ("k", x, k_cache, k_scale_cache), ("v", v, v_cache, v_scale_cache)
    write(
        slot_mapping,
        *(
            Rows(
                name, each, flat(codes), fp4_block16, format, to_e2m1_away, formats=FP4, size=16, pack=2, nan="keep",
                scales=flat(in_heads(of, each.shape[1])), scale_format="float8_e8m0fnu",
            )
            for name, each, codes, of in parts
        ),
        rule=WRITE_ALL,
    )  # fmt: skip


@soft("sglang.mxfp8", E4M3)
def triton_soft_kv_mxfp8(x, format, v, slot_mapping, k_cache, v_cache, k_scale_cache, v_scale_cache, block_size):
    parts = ("k", x, k_cache, k_scale_cache), ("v", v, v_cache, v_scale_cache)
    write(
        slot_mapping,
        *(
            Rows(
                name, each, flat(codes, block_size), sglang_kv, format, formats=E4M3, size=32,
                scales=interleaved_scales(of), scale_format="float8_e8m0fnu",
            )
            for name, each, codes, of in parts
        ),
        rule=SKIP_ZERO,
    )  # fmt: skip
