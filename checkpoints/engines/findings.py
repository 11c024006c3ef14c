"""Everything that an engine makes of a checkpoint, by names, configuration and a few scales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from narrowgauge.checkpoints.configured import configuration
from narrowgauge.checkpoints.engines.caches import cache_findings, loader_of
from narrowgauge.checkpoints.engines.fused import renamed_findings, requantized_findings
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.model import Checkpoint
from narrowgauge.checkpoints.passports import Passport
from narrowgauge.checkpoints.targets import target_findings


def engine_findings(
    checkpoint: Checkpoint, passports: Sequence[Passport], engine: str, target: str, kv_cache_dtype: str = ""
) -> Iterator[Finding]:
    """What ``engine`` ("vllm", "sglang" or "") drops and uses, and what ``target`` (or "") computes.

    ``kv_cache_dtype`` is the engine's flag. No codes are read, of scales those of one number. Raises ``BadInput`` for
    an unknown target or flag.
    """
    said = configuration(checkpoint)
    if target:
        yield from target_findings(passports, said.method, engine, target)
    if engine:
        yield from cache_findings(checkpoint, engine, target, kv_cache_dtype)
        yield from renamed_findings(passports, said, loader_of(checkpoint, engine))
        yield from requantized_findings(passports, said, engine, target)
