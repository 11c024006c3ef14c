"""The key-value caches of engines: ``CACHES`` by name."""

from __future__ import annotations

from narrowgauge.contracts.cache import Cache
from narrowgauge.contracts.errors import unknown
from narrowgauge.reference.kv import of_sglang, of_vllm
from narrowgauge.reference.kv.building import NHD, codes, pair

#: every 8-bit format under a scale of the tensor or of a head, by the definition of the format alone
_PLAIN = tuple(
    pair(
        f"plain.fp8_{per}",
        f"plain.kv_fp8_{per}",
        codes(NHD),
        "negative_skipped",
        "the definition of the format; pages as vLLM has them",
        of_vllm.BLOCKS,
        per == "head",
    )
    for per in ("tensor", "head")
)
CACHES: dict[str, Cache] = {cache.name: cache for cache in (*of_vllm.CACHES, *of_sglang.CACHES, *_PLAIN)}


def resolve(cache: str | Cache) -> Cache:
    """The cache of that name, or the owner's own. Raises ``BadInput`` with near names."""
    if isinstance(cache, Cache):
        return cache
    if cache not in CACHES:
        raise unknown("cache", cache, CACHES)
    return CACHES[cache]
