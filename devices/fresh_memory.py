"""Fill fresh memory with a pattern, so that what a kernel never wrote shows. Runs in the child.

The allocating functions of torch and numpy are wrapped once, before any plug-in is imported: a plug-in's own
``from torch import empty_like`` gets the wrapper too. The wrappers fill only while a kernel is being called.

An emulated launch asks ``written`` which bytes of a tensor's storage anybody wrote. What torch writes is not seen byte
by byte: a storage is given up as soon as a tensor's version counter moved, or a byte that no launch wrote is not the
pattern any more. So nothing is reported that somebody wrote, and what torch wrote only in part is not followed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

TORCH = ("empty", "empty_like", "empty_strided")
TENSOR = ("new_empty", "new_empty_strided")
NUMPY = ("empty", "empty_like")

_pattern: int | None = None


@dataclass
class _Fresh:
    """A storage that torch allocated and filled with a pattern."""

    size: int
    version: int
    pattern: int
    written: Any = None  #: bool [size], from the first launch on


#: by the address of the storage; of the call that is being made
_fresh: dict[int, _Fresh] = {}


@contextlib.contextmanager
def filled(pattern: int) -> Iterator[None]:
    """While this holds, fresh memory holds a byte pattern."""
    global _pattern
    _pattern = pattern
    try:
        yield
    finally:
        _pattern = None
        _fresh.clear()


def pattern() -> int:
    """The byte that fresh memory holds now; any, where none is set."""
    return 0xA5 if _pattern is None else _pattern


def written(tensor: Any, data: Any) -> Any:
    """Which bytes of a tensor's storage were written since it was allocated, bool [n]; None where that is not known.

    ``data`` are the bytes of the storage. Whoever writes marks it in the array, which is the same for every launch.
    """
    address = tensor.untyped_storage().data_ptr()
    known = _fresh.get(address)
    if known is None:
        return None
    if known.written is None:
        known.written = np.zeros(known.size, bool)
    if (
        tensor.is_inference()
        or known.size != data.size
        or known.version != tensor._version
        or (data[~known.written] != known.pattern).any()
    ):
        del _fresh[address]
        return None
    return known.written


def watch() -> None:
    """Wrap the allocating functions. Imports torch, if there is one."""
    _wrap(np, NUMPY, _fill_numpy)
    try:
        import torch
    except ImportError:
        return
    _wrap(torch, TORCH, functools.partial(_fill_torch, torch, torch.empty))
    _wrap(torch.Tensor, TENSOR, functools.partial(_fill_torch, torch, torch.empty))


def _wrap(owner: Any, names: tuple[str, ...], fill: Callable[[Any], None]) -> None:
    for name in names:
        setattr(owner, name, _filling(getattr(owner, name), fill))


def _filling(original: Callable[..., Any], fill: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def allocate(*args: Any, **kwargs: Any) -> Any:
        fresh = original(*args, **kwargs)
        if _pattern is not None:
            fill(fresh)
        return fresh

    return allocate


def _fill_numpy(fresh: Any) -> None:
    if fresh.dtype.kind != "O" and _pattern is not None:
        fresh.ravel(order="K").view(np.uint8).fill(_pattern)  # a view: fresh memory is contiguous in some order


def _fill_torch(torch: Any, raw_empty: Callable[..., Any], fresh: Any) -> None:
    # While dynamo traces, tensors are stand-ins without memory.
    if torch.compiler.is_compiling() or type(fresh) is not torch.Tensor or not fresh.untyped_storage().nbytes():
        return
    memory = raw_empty(0, dtype=torch.uint8, device=fresh.device).set_(fresh.untyped_storage())
    memory.fill_(_pattern)
    if _pattern is not None and not fresh.is_inference():  # these have no version counter
        storage = fresh.untyped_storage()
        _fresh[storage.data_ptr()] = _Fresh(storage.nbytes(), fresh._version, _pattern)
