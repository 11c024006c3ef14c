"""torch's switches for reduced precision, as data, and how one is set around a call.

Which switch exists, what it may change where, and what of it was measured: docs/torch-products.md. A switch that a
version of torch does not have, or does not take, is a reason not to execute.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

from narrowgauge.contracts.outcome import NotExecuted

#: what a switch may change on a device: nothing; the format that float32 operands are rounded to; in what sums, or
#: partial sums of a split K, are kept
Changes = Literal["", "tfloat32", "bfloat16", "float16 sums", "bfloat16 partial sums", "float16 partial sums"]


@dataclass(frozen=True)
class Switch:
    """One setting that is not the default."""

    name: str
    path: str  #: below torch: an attribute, or a pair of functions "get_…/set_…"
    value: bool | str
    source: str  #: format of the operands that it is about
    cuda: Changes
    cpu: Changes = ""  #: of a processor with AMX; of others it changes nothing (measured)
    about: str = ""


_NOTES = "torch's notes on CUDA semantics and on numerical accuracy"
SWITCHES: dict[str, Switch] = {
    s.name: s
    for s in (
        Switch("allow_tf32", "backends.cuda.matmul.allow_tf32", True, "float32", "tfloat32", about=_NOTES),
        Switch("precision_high", "get_float32_matmul_precision/set_float32_matmul_precision", "high", "float32",
               "tfloat32", "tfloat32", _NOTES),
        Switch("precision_medium", "get_float32_matmul_precision/set_float32_matmul_precision", "medium", "float32",
               "tfloat32", "bfloat16", _NOTES),
        Switch("fp32_precision_tf32", "backends.fp32_precision", "tf32", "float32", "tfloat32", "tfloat32", _NOTES),
        Switch("cuda_fp32_precision_tf32", "backends.cuda.matmul.fp32_precision", "tf32", "float32", "tfloat32",
               about=_NOTES),
        Switch("mkldnn_fp32_precision_tf32", "backends.mkldnn.matmul.fp32_precision", "tf32", "float32", "",
               "tfloat32", _NOTES),
        Switch("mkldnn_fp32_precision_bf16", "backends.mkldnn.matmul.fp32_precision", "bf16", "float32", "",
               "bfloat16", _NOTES),
        Switch("no_bf16_reduction", "backends.cuda.matmul.allow_bf16_reduced_precision_reduction", False, "bfloat16",
               "", about="without it partial sums of a split K may be bfloat16"),
        Switch("no_fp16_reduction", "backends.cuda.matmul.allow_fp16_reduced_precision_reduction", False, "float16",
               "", about="without it partial sums of a split K may be float16"),
        Switch("fp16_accumulation", "backends.cuda.matmul.allow_fp16_accumulation", True, "float16", "float16 sums",
               about="sums of float16 products are float16"),
    )
}  # fmt: skip
#: settings that others write to; they are put back, since a legacy switch that is turned off leaves "ieee" behind
_WRITTEN = ("backends.fp32_precision", "backends.cuda.matmul.fp32_precision", "backends.mkldnn.matmul.fp32_precision")


@contextlib.contextmanager
def switched(name: str) -> Iterator[None]:
    """Set a switch, and put everything back. Raises ``NotExecuted`` where this torch lacks it or refuses."""
    switch = SWITCHES[name]
    try:
        before = state(switch)
        _write(switch.path, switch.value)
    except (AttributeError, RuntimeError) as error:
        raise NotExecuted(f"torch refuses {switch.path} = {switch.value}: {error}") from error
    try:
        if _read(switch.path) != switch.value:
            raise NotExecuted(f"torch does not take {switch.path} = {switch.value}")
        yield
    finally:
        for path, value in before.items():
            _write(path, value)
        if (after := state(switch)) != before:
            raise RuntimeError(f"{name}: torch's settings are {after} after it, and were {before}")


def state(switch: Switch) -> dict[str, Any]:
    """The setting of a switch, and those that it may write to."""
    written = [path for path in _WRITTEN if path != switch.path and _has(path)]
    return {path: _read(path) for path in (switch.path, *written)}


def _has(path: str) -> bool:
    owner, _, attribute = path.rpartition(".")
    return hasattr(_owner(owner), attribute)


def _owner(path: str) -> Any:
    import torch

    return reduce(getattr, path.split("."), torch) if path else torch


def _read(path: str) -> Any:
    owner, _, name = path.rpartition(".")
    getter, _, setter = name.partition("/")
    found = getattr(_owner(owner), getter)
    return found() if setter else found


def _write(path: str, value: Any) -> None:
    owner, _, name = path.rpartition(".")
    _, _, setter = name.partition("/")
    if setter:
        getattr(_owner(owner), setter)(value)
    else:
        setattr(_owner(owner), name, value)
