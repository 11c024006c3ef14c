"""Layers that engines hold as one: scales of one number that differ between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite, prod

from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.passports import Passport
from narrowgauge.checkpoints.values import has_numbers, numbers

#: last components of the names of layers that engines hold as one
FUSED = (
    ("q_proj", "k_proj", "v_proj"),
    ("gate_proj", "up_proj"),
    ("w1", "w3"),
    ("in_proj_qkv", "in_proj_z"),
    ("q_a_proj", "kv_a_proj_with_mqa"),
)


def shard_findings(passports: Sequence[Passport]) -> Iterator[Finding]:
    """Layers that an engine fuses, and whose scales of one number differ."""
    by_name = {passport.module: passport for passport in passports}
    for passport in passports:
        above, _, leaf = passport.module.rpartition(".")
        for family in FUSED:
            if leaf == family[0]:
                shards = [by_name[name] for part in family if (name := f"{above}.{part}") in by_name]
                yield from _of_shards(shards)


def _of_shards(shards: list[Passport]) -> Iterator[Finding]:
    for role, kind in (
        ("second", "shards differ"),
        ("second_input", "shards' inputs differ"),
        ("input", "shards' inputs differ"),
        ("scale", "shards requantized"),
    ):
        tensors = [shard.tensors[role] for shard in shards if role in shard.tensors]
        if len(tensors) < 2 or any(prod(tensor.shape) != 1 or not has_numbers(tensor) for tensor in tensors):
            continue
        if role == "scale" and any(shard.cutting is None or shard.cutting.cut != "tensor" for shard in shards):
            continue
        each = [float(numbers(tensor)[0]) for tensor in tensors]
        good = [value for value in each if isfinite(value) and value > 0]
        if len(set(each)) > 1 and len(good) == len(each):
            said = ", ".join(
                f"{tensor.name.split('.')[-2]} {value:g}" for tensor, value in zip(tensors, each, strict=True)
            )
            yield Finding(kind, f"{said}: a ratio of {max(good) / min(good):.4g}", tensors[0].name, len(each))
