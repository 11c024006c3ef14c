"""Everything that an engine makes of a checkpoint, by names, configuration and a few scales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from narrowgauge.checkpoints.configured import Configuration, configuration
from narrowgauge.checkpoints.engines.caches import cache_findings, loader_of
from narrowgauge.checkpoints.engines.fused import renamed_findings, requantized_findings
from narrowgauge.checkpoints.engines.paths import ALGORITHMS
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.methods import METHODS
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
    unknown = list(_unknown(said, engine)) if engine else []
    yield from unknown
    if target and not unknown:
        yield from target_findings(passports, said.method, engine, target)
    if engine:
        yield from cache_findings(checkpoint, engine, target, kv_cache_dtype)
        yield from renamed_findings(passports, said, engine, loader_of(checkpoint, engine))
        yield from requantized_findings(passports, said, engine, target)


def _unknown(said: Configuration, engine: str) -> Iterator[Finding]:
    """A method, or an algorithm of ModelOpt, at which the engine ends. A method of nobody is not for us to tell."""
    kind, known = "engine does not know the method", METHODS.get(said.method)
    if known and engine not in known.engines:
        yield Finding(kind, f"{engine}: quant_method {said.method!r}")
    algorithm = str(said.said.get("quant_algo") or "")
    taken, capitals, source = ALGORITHMS[engine]
    if said.method == "modelopt" and algorithm and (algorithm.upper() if capitals else algorithm) not in taken:
        yield Finding(kind, f"{engine}: quant_algo {algorithm!r} of ModelOpt; it takes {', '.join(taken)} ({source})")
