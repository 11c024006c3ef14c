"""What the configuration says against what the tensors are: modules, sizes, the scales of a key-value cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.kv_scales import kv_findings
from narrowgauge.checkpoints.model import Checkpoint
from narrowgauge.checkpoints.modules import module_findings
from narrowgauge.checkpoints.passports import Passport
from narrowgauge.checkpoints.sizes import size_findings


def config_findings(
    checkpoint: Checkpoint, passports: Sequence[Passport], to_float16: bool = False, kv_cache_dtype: str = ""
) -> Iterator[Finding]:
    """By headers, but for the scales of K and V, which are a number each.

    ``to_float16``: whether the model is to run in float16; ``kv_cache_dtype``: the engine's flag, "" without one.
    """
    yield from module_findings(checkpoint, passports)
    yield from size_findings(checkpoint, passports, to_float16)
    yield from kv_findings(checkpoint, kv_cache_dtype)
