"""What ``--kv-cache-dtype`` stores: by engine, flag, architecture, and which code writes.

Targets are written as devices spell them: sm_90, gfx942. Nothing here was run on hardware.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.reference.kv.flag import WRITERS, Flag, Row
from narrowgauge.reference.kv.flags_sglang import SGLANG
from narrowgauge.reference.kv.flags_vllm import VLLM

#: what a target has to look like; which there are is the devices' to say
_TARGET = re.compile(r"(sm_\d+|gfx[0-9a-f]+)\Z")
FLAGS: dict[str, dict[str, Flag]] = {
    "vllm": {flag.name: flag for flag in VLLM},
    "sglang": {flag.name: flag for flag in SGLANG},
}
#: the releases that were read
VERSIONS = {"vllm": "0.33.0", "sglang": "0.5.23"}


@dataclass(frozen=True)
class Stored:
    """What a flag stores in one place."""

    engine: str
    flag: str
    target: str
    writer: str
    format: str  #: "" where it is refused, or is none of ours; "model" the model's own
    storage: str
    scale: str
    kind: str
    recipe: str
    says: str
    refused: bool
    source: str


def is_fnuz(target: str) -> bool:
    """Whether both engines take a target's fp8 for FNUZ.

    vllm/platforms/rocm.py:1259-1261, sglang/kernels/ops/quantization/fp8_kernel.py:94-107.
    """
    return "gfx94" in target


def flag_named(engine: str, name: str) -> Flag:
    """A flag of an engine. Raises ``BadInput`` with near names."""
    if engine not in FLAGS:
        raise unknown("engine", engine, FLAGS)
    if name not in FLAGS[engine]:
        raise unknown("--kv-cache-dtype", name, FLAGS[engine], engine)
    return FLAGS[engine][name]


def possibly_stored(engine: str, flag: str, target: str, writer: str | None = None) -> list[Stored]:
    """What a flag stores on a target, by every writer that may be meant; of one writer the first row that matches.

    Raises ``BadInput`` for an unknown engine, flag or writer, and for what is no target's name.
    """
    found = flag_named(engine, flag)
    if not _TARGET.match(target):
        raise BadInput(f"target {target!r}; expected an architecture as sm_90 or gfx942")
    if writer is not None and writer not in WRITERS:
        raise unknown("writer", writer, WRITERS)
    rows = [row for row in found.rows if any(fnmatchcase(target, pattern) for pattern in row.targets.split())]
    by = {w: next(row for row in rows if row.writer in ("any", w)) for w in WRITERS if writer in (None, w)}
    if writer is None and len(set(by.values())) == 1:
        by = {"any": rows[0]}
    return [_stored(engine, found, target, w, row) for w, row in by.items()]


def stored(engine: str, flag: str, target: str, writer: str | None = None) -> Stored:
    """What a flag stores on a target. Raises ``BadInput`` as ``possibly_stored`` does, and where the writer decides."""
    found = possibly_stored(engine, flag, target, writer)
    if len(found) > 1:
        each = "; ".join(f"{one.writer}: {one.format or 'refused'}" for one in found)
        raise BadInput(f"--kv-cache-dtype {flag} of {engine} on {target} depends on the writer ({each}); say which")
    return found[0]


def _stored(engine: str, flag: Flag, target: str, writer: str, row: Row) -> Stored:
    return Stored(
        engine=engine,
        flag=flag.name,
        target=target,
        writer=writer,
        format=row.stores,
        storage=flag.storage,
        scale=flag.scale,
        kind=flag.kind,
        recipe=row.recipe,
        says="; ".join(filter(None, (row.says, flag.says))),
        refused=row.refused,
        source=row.source,
    )
