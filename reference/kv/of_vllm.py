"""vLLM's caches."""

from __future__ import annotations

from narrowgauge.contracts.cache import Buffer, Cache, Field, Part
from narrowgauge.reference.kv.building import (
    HND,
    INTERLEAVED,
    NHD,
    NIBBLES,
    PACKED,
    PAIR,
    TRANSPOSED,
    beside,
    codes,
    of_scale,
    pair,
    parts,
)

_CSRC, _TRITON = "vLLM 0.33.0, csrc/cache_kernels.cu", "vLLM 0.33.0, triton_reshape_and_cache_flash.py"
_NVFP4 = "vLLM 0.33.0, nvfp4_kv_cache_kernels.cu"
_SKIPS = "negative_skipped"
#: pages in the order in which cases meet them
BLOCKS = (16, 32, 64, 128, 256)
#: fp8 with a scale that is given: what a name ends in, what follows kv_fp8_ in its recipe's name, whether of each head
_GIVEN = (
    ("", "tensor", False),
    ("_head", "head", True),
    ("_rocm", "tensor_rocm", False),
    ("_rocm_head", "head_rocm", True),
    ("_rocm_float16", "tensor_rocm_float16", False),
    ("_rocm_float16_head", "head_rocm_float16", True),
)
_FLASH = (
    pair("vllm.flash_copy", "", codes(NHD), _SKIPS, f"{_CSRC}:335-421, dtype auto", BLOCKS),
    pair("vllm.flash_copy_hnd", "", codes(HND), _SKIPS, f"{_CSRC}:335-421, dtype auto", BLOCKS),
    *(
        pair(f"vllm.flash_fp8{end}{order}", f"vllm.kv_fp8_{of}", codes(axes), _SKIPS, f"{_CSRC}:335-421", BLOCKS, by)
        for end, of, by in _GIVEN
        for order, axes in (("", NHD), ("_hnd", HND))
    ),
    pair("vllm.flash_fp8_triton", "vllm.kv_fp8_tensor_triton", codes(NHD), _SKIPS, f"{_TRITON}:33-154", BLOCKS),
)  # fmt: skip
#: keys [pages, heads, columns / x, slots, x] of x = 16 bytes; values with a column's slots together
_PAGED = tuple(
    pair(f"vllm.paged_{name}", recipe, (PACKED, TRANSPOSED), _SKIPS, source, BLOCKS)
    for name, recipe, source in (
        ("copy", "", f"{_CSRC}:265-333, dtype auto"),
        ("fp8", "vllm.kv_fp8_tensor", f"{_CSRC}:265-333"),
        ("fp8_rocm", "vllm.kv_fp8_tensor_rocm", f"{_CSRC}:265-333 (ROCm)"),
        ("fp8_rocm_float16", "vllm.kv_fp8_tensor_rocm_float16", f"{_CSRC}:265-333 (ROCm)"),
        ("fp8_triton", "vllm.kv_fp8_tensor_triton", f"{_TRITON}:79-108"),
    )
)
_INTERLEAVED = tuple(
    pair(f"vllm.interleaved_{name}", recipe, (PACKED, INTERLEAVED), _SKIPS, f"{_TRITON}:79-108", BLOCKS)
    for name, recipe in (("copy", ""), ("fp8_triton", "vllm.kv_fp8_tensor_triton"))
)
_TOKEN_HEAD = (
    *(
        Cache(
            name=f"vllm.{number}_token_head",
            parts=parts(f"vllm.kv_{number}_token_head", per_head=True),
            buffers=(*beside("{}_cache", codes(NHD)), *beside("{}_scale_cache", (of_scale("b", "o", "h"),) * 2)),
            slots=_SKIPS,
            source=f"{_TRITON}:169-286",
            blocks=BLOCKS,
        )
        for number in ("int8", "fp8")
    ),
    Cache(
        name="vllm.int4_token_head",
        parts=parts("vllm.int4_per_token_head", per_head=True, first="hadamard"),
        buffers=(
            *beside("{}_cache", (NIBBLES,) * 2),
            *beside(
                "{}_scale_cache",
                tuple(
                    Field(f"{part}_scale", ("b", "o", "h"), columns="h", shares=f"{part}_zero_point",
                          encode="low_mantissa")
                    for part in PAIR
                ),
            ),
        ),
        slots=_SKIPS,
        source="vLLM 0.33.0, int4_per_token_head.py:64-256",
        blocks=BLOCKS,
    ),
)  # fmt: skip


def _mla(name: str, recipe: str, source: str) -> Cache:
    """A latent and its rotated columns, one after the other, under one scale."""
    return Cache(
        name=f"vllm.mla_{name}",
        parts=(
            Part("latent", recipe, columns=512, heads=1),
            Part("rope", recipe, columns=64, heads=1, scale_of="latent" if recipe else ""),
        ),
        buffers=(Buffer("kv_cache", (Field("latent", NHD), Field("rope", NHD)), per="token"),),
        slots=_SKIPS,
        source=source,
        blocks=(64, 16, 32, 128),
    )


_MLA = (
    _mla("copy", "", f"{_CSRC}:425-469, dtype auto"),
    _mla("fp8", "vllm.kv_fp8_tensor", f"{_CSRC}:425-469"),
    _mla("fp8_rocm", "vllm.kv_fp8_tensor_rocm", f"{_CSRC}:425-469 (ROCm)"),
    _mla("fp8_rocm_float16", "vllm.kv_fp8_tensor_rocm_float16", f"{_CSRC}:425-469 (ROCm)"),
    Cache(
        name="vllm.fp8_ds_mla",
        parts=(
            Part("latent", "vllm.fp8_ds_mla", columns=512, heads=1),
            Part("rope", keeps="bfloat16", columns=64, heads=1),
        ),
        buffers=(
            Buffer("kv_cache", (Field("latent", NHD), Field("latent_scale", NHD), Field("rope", NHD)), per="token"),
        ),
        slots=_SKIPS,
        source=f"{_CSRC}:529-635,1466-1491",
        blocks=(64,),
    ),
    Cache(
        name="vllm.nvfp4_ds_mla",
        parts=(
            Part("latent", "vllm.nvfp4_ds_mla", columns=512, heads=1),
            Part("rope", keeps="float8_e4m3fn", columns=64, heads=1, cast="ocp_saturate"),
        ),
        buffers=(
            Buffer(
                "kv_cache",
                (
                    Field("latent", ("b", "o", "h", "c"), columns="h c:width/2 n:2", slots="n"),
                    Field("rope", NHD),
                    # the scale of block s stands at byte 8 (s mod 4) + s / 4
                    Field("latent_scale", ("b", "o", "h", "r q"), columns="h q:width/4 r:4"),
                ),
                per="token",
            ),
        ),
        slots=_SKIPS,
        source="vLLM 0.33.0, nvfp4_ds_mla_cache_kernels.cu:36-53",
        blocks=(64,),
    ),
)


def _indexer(end: str, recipe: str, field: Field, source: str) -> Cache:
    """The keys of a sparse attention's indexer: the codes of a page, and then its scales."""
    return Cache(
        name=f"vllm.indexer{end}",
        parts=(Part("k", recipe, columns=128, heads=1),),
        buffers=(Buffer("k_cache", (field, Field("k_scale", NHD)), per="page"),),
        slots=_SKIPS,
        source=source,
        blocks=(64,),
    )


_SPARSE = "vLLM 0.33.0, rocm_aiter_mla_sparse.py:112-210"
#: tiles of 16 slots and 16 bytes
_TILED = Field("k", ("b", "p", "h d", "o", "c"), rows="b p:block/16 o:16", columns="h d:width/16 c:16")
_INDEXERS = tuple(
    _indexer(f"{shuffled}{power}", f"vllm.fp8_indexer{power}", field, source)
    for shuffled, field, source in (("", Field("k", NHD), f"{_CSRC}:637-705"), ("_tiled", _TILED, _SPARSE))
    for power in ("", "_ue8m0")
)


def _nvfp4(name: str, axes: tuple[str, ...], v_scale: Field) -> Cache:
    """Pages of K's codes, K's scales, V's codes, V's scales."""
    nibbles = {p: Field(p, axes, columns="h c:width/2 n:2", slots="n") for p in PAIR}
    return Cache(
        name=f"vllm.{name}",
        parts=parts("vllm.nvfp4_kv"),
        buffers=(Buffer("kv_cache", (nibbles["k"], Field("k_scale", axes), nibbles["v"], v_scale), per="page"),),
        slots=_SKIPS,
        source=f"{_NVFP4}:34-48,282-300",
        blocks=BLOCKS,
    )


#: scale s of slot t of a page stands in row 4 (t / 4) + s / (S / 4), column 4 (s mod S / 4) + t mod 4
SWIZZLED = Field("v_scale", ("b", "h", "p s", "c t"), rows="b p:block/4 t:4", columns="h s:4 c:width/4")
_NVFP4_PAGES = (
    _nvfp4("nvfp4", HND, SWIZZLED),  # SM100
    _nvfp4("nvfp4_linear", NHD, Field("v_scale", NHD)),  # SM12x
    _nvfp4("nvfp4_linear_hnd", HND, Field("v_scale", HND)),
)
#: keys are rotated by their positions first, in the same kernel
_ROPE = tuple(
    Cache(
        name=f"vllm.flash_{name}_{first}",
        parts=(Part("k", recipe, first=first), Part("v", recipe)),
        buffers=beside("{}_cache", codes(NHD)),
        slots=_SKIPS,
        source=f"{_CSRC}:335-421, after pos_encoding_kernels.cu",
        blocks=BLOCKS,
    )
    for name, recipe in (("copy", ""), ("fp8", "vllm.kv_fp8_tensor"))
    for first in ("rope", "rope_interleaved")
)
CACHES = (*_FLASH, *_PAGED, *_INTERLEAVED, *_TOKEN_HEAD, *_MLA, *_INDEXERS, *_NVFP4_PAGES, *_ROPE)
