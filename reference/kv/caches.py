"""The key-value caches of engines: ``CACHES`` by name."""

from __future__ import annotations

from narrowgauge.contracts.cache import Buffer, Cache, Field, Part
from narrowgauge.contracts.errors import unknown

_VLLM = "vLLM 0.33.0, csrc/cache_kernels.cu"

#: pages as axes of memory: b page, o place in it, h head, c column of a head
NHD, HND = ("b", "o", "h", "c"), ("b", "h", "o", "c")


def _pair(name: str, recipe: str, storage: tuple[str, ...], slots: str, source: str, per_head: bool = False) -> Cache:
    """Keys and values alike, in two buffers."""
    return Cache(
        name=name,
        parts=tuple(Part(part, recipe, per_head=per_head) for part in ("k", "v")),
        buffers=tuple(Buffer(f"{part}_cache", (Field(part, storage),)) for part in ("k", "v")),
        slots=slots,
        source=source,
    )


CACHES: dict[str, Cache] = {
    cache.name: cache
    for cache in (
        _pair("vllm.flash_copy", "", NHD, "negative_skipped", f"{_VLLM}:335-421, dtype auto"),
        _pair("vllm.flash_fp8", "vllm.kv_fp8_tensor", NHD, "negative_skipped", f"{_VLLM}:335-421"),
        _pair("vllm.flash_fp8_hnd", "vllm.kv_fp8_tensor", HND, "negative_skipped", f"{_VLLM}:335-421"),
        _pair("vllm.flash_fp8_head", "vllm.kv_fp8_head", NHD, "negative_skipped", f"{_VLLM}:403-407", per_head=True),
        Cache(
            name="vllm.fp8_token_head",
            parts=tuple(Part(part, "vllm.kv_fp8_token_head", per_head=True) for part in ("k", "v")),
            buffers=(
                *(Buffer(f"{part}_cache", (Field(part, NHD),)) for part in ("k", "v")),
                *(Buffer(f"{part}_scale_cache", (Field(f"{part}_scale", NHD),)) for part in ("k", "v")),
            ),
            slots="negative_skipped",
            source="vLLM 0.33.0, triton_reshape_and_cache_flash.py:169-286",
        ),
        Cache(
            name="vllm.fp8_ds_mla",
            parts=(
                Part("latent", "vllm.fp8_ds_mla", columns=512, heads=1),
                Part("rope", keeps="bfloat16", columns=64, heads=1),
            ),
            buffers=(
                Buffer(
                    "kv_cache",
                    (Field("latent", NHD), Field("latent_scale", NHD), Field("rope", NHD)),
                    per="token",
                ),
            ),
            slots="negative_skipped",
            source=f"{_VLLM}:529-635,1466-1491",
            blocks=(64,),
        ),
    )
}


def resolve(cache: str | Cache) -> Cache:
    """The cache of that name, or the owner's own. Raises ``BadInput`` with near names."""
    if isinstance(cache, Cache):
        return cache
    if cache not in CACHES:
        raise unknown("cache", cache, CACHES)
    return CACHES[cache]
