"""SGLang's caches: pools of slots, of which slot 0 is that of padding."""

from __future__ import annotations

from dataclasses import replace

from narrowgauge.contracts.cache import Buffer, Cache, Field, Part
from narrowgauge.reference.kv.building import FLAT, HND, INTERLEAVED, NIBBLES, PACKED, beside, codes, flat, pair, parts
from narrowgauge.reference.kv.of_vllm import SWIZZLED

_POOL, _METHOD = "SGLang 0.5.23, memory_pool.py", "SGLang 0.5.23, fp4_kv_cache_quant_method.py"
_SHUFFLE = "SGLang 0.5.23, shuffle_5d_cache.py"
_SINK, _SKIPS = "zero_written", "zero_skipped"
#: what a table's pages are; a pool knows none
BLOCKS = (16, 1, 32, 64, 128, 256)
_PAGED = BLOCKS[:1] + BLOCKS[2:]
_PLAIN = (flat(Field("k", FLAT)), flat(Field("v", FLAT)))
_NIBBLES = (flat(NIBBLES), flat(NIBBLES))
_MHA = (
    pair("sglang.copy", "", _PLAIN, _SINK, f"{_POOL}:2568-2580,2926-2990", BLOCKS),
    pair("sglang.copy_hnd", "", codes(HND), _SINK, f"{_POOL}:2568-2580,2964-2983", _PAGED),
    pair("sglang.copy_vectorized", "", (PACKED, INTERLEAVED), _SINK, f"{_SHUFFLE}:7-80", (16, 64)),
    *(
        pair(f"sglang.fp8{end}", f"sglang.kv_fp8{end}", _PLAIN, _SINK, source, BLOCKS)
        for of, source in (("", f"{_POOL}:2926-2990"), ("_commit", "SGLang 0.5.23, cache_move.py:59-142"))
        for end in (of, f"{of}_number")
    ),
)  # fmt: skip


def _scaled(
    name: str,
    recipe: str,
    scale: tuple[Field, Field],
    source: str,
    element: str = "",
    blocks: tuple[int, ...] = BLOCKS,
) -> Cache:
    """4-bit codes, and a scale for each 16."""
    return Cache(
        name=f"sglang.{name}",
        parts=parts(recipe),
        buffers=(*beside("{}_cache", _NIBBLES), *beside("{}_scale_cache", scale, element)),
        slots=_SINK,
        source=source,
        blocks=blocks,
    )


_FLAT_SCALES = (flat(Field("k_scale", FLAT)), flat(Field("v_scale", FLAT)))
_OF_ROW = (replace(_FLAT_SCALES[0], storage=("s", "h c")), replace(_FLAT_SCALES[1], storage=("s", "h c")))
_FP4 = (
    *(
        _scaled(f"fp4_block16{end}", f"sglang.fp4_kv_block16{end}", _OF_ROW, f"{_POOL}:3621-3773", "uint8")
        for end in ("", "_eager")
    ),
    _scaled("nvfp4", "sglang.nvfp4_kv_sm90", _FLAT_SCALES, f"{_METHOD}:572-630 (linear scales)"),
    _scaled(
        "nvfp4_native",
        "sglang.nvfp4_kv_sm90",
        (Field("k_scale", HND), SWIZZLED),
        "SGLang 0.5.23, nvfp4_kv_cache.py:30-120 (SM100)",
        blocks=_PAGED,
    ),
)
#: a page's scales: for each slot modulo 32 those of its quarters of the page
_INTERLEAVED_SCALES = Field("k_scale", ("b", "h", "t", "p", "c"), rows="b p:block/32 t:32")
_MXFP8 = Cache(
    name="sglang.mxfp8",
    parts=parts("sglang.mxfp8_kv"),
    buffers=(*beside("{}_cache", _PLAIN), *beside("{}_scale_cache", (_INTERLEAVED_SCALES,) * 2)),
    slots=_SKIPS,
    source="SGLang 0.5.23, mxfp8_quant_store_kv.py:8-75",
    blocks=(128,),
)


def _mla(name: str, latent: Part, rope: Part, fields: tuple[str, ...], source: str) -> Cache:
    return Cache(
        name=f"sglang.{name}",
        parts=(latent, rope),
        buffers=(Buffer("kv_cache", tuple(flat(Field(of, FLAT)) for of in fields), per="token"),),
        slots=_SKIPS,
        source=source,
        blocks=(64, 1),
    )


_MLA = (
    _mla(
        "mla_copy",
        Part("latent", columns=512, heads=1),
        Part("rope", columns=64, heads=1),
        ("latent", "rope"),
        f"{_POOL}:4858-4880,4980-5051, mla_buffer.py:14-74",
    ),
    # the bytes of vllm.fp8_ds_mla, other scales
    _mla(
        "dsa",
        Part("latent", "sglang.fp8_dsa", columns=512, heads=1),
        Part("rope", keeps="bfloat16", columns=64, heads=1),
        ("latent", "latent_scale", "rope"),
        "SGLang 0.5.23, dsa_quant_k_cache.py:234-300",
    ),
)
CACHES = (*_MHA, *_FP4, _MXFP8, *_MLA)
