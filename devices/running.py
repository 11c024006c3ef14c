"""Call a kernel on a tensor and bring back codes. Runs in the child.

A kernel is called twice, each time with all fresh memory filled with another pattern. What differs between the two
answers was never written, or came from memory that was never written.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS, Format, format_named
from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.contracts.views import View
from narrowgauge.devices import fresh_memory
from narrowgauge.devices.loading import Loaded
from narrowgauge.devices.placing import Placed, placed

FILLS = (0xA5, 0x5A)
Answer = tuple[dict[str, Any], dict[str, Coded]]
Called = tuple[dict[str, Coded], list[str]]


def run(loaded: Loaded, x: Coded, format_name: str, outputs: Mapping[str, str], view: View = "contiguous") -> Answer:
    """Outputs as codes, and what is wrong with their form. Raises what the kernel raises."""

    def call(fill: int) -> Called:
        return _call(loaded, placed(x, view), format_name, outputs, fill)

    first, wrong = call(FILLS[0])
    if wrong:
        return {"kind": "returned", "malformed": wrong}, first
    second, _ = call(FILLS[1])
    if differing := _differing(first, second):
        again, _ = call(FILLS[0])
        wrong = _unwritten(differing) if not _differing(first, again) else _unstable(differing)
    return {"kind": "returned", "malformed": wrong}, first


class Range:
    """Consecutive patterns of a format, in memory that is used again for the next ones."""

    def __init__(self) -> None:
        self._from_zero = self._patterns = np.empty(0, np.uint32)

    def run(self, loaded: Loaded, request: Mapping[str, Any]) -> Answer:
        """One call on patterns ``first`` to ``first + count - 1``: for spaces too large to call twice on."""
        storage = format_named(request["source"]).storage
        first, count = request["first"], request["count"]
        if self._patterns.dtype != storage or self._patterns.size != count:
            self._from_zero = np.arange(count, dtype=storage)
            self._patterns = np.empty_like(self._from_zero)
        np.add(self._from_zero, storage.type(first), out=self._patterns)
        x = Placed(Coded(request["source"], self._patterns), self._patterns)
        # The fills alternate, so that what was never written does not hold the answer of the block before.
        outputs, wrong = _call(loaded, x, request["format"], request["outputs"], FILLS[first // count % 2])
        return {"kind": "returned", "malformed": wrong}, outputs


def _call(loaded: Loaded, x: Placed, format_name: str, outputs: Mapping[str, str], fill: int) -> Called:
    """Call a kernel on a tensor: outputs, and what is wrong with their form or was done to the input."""
    call = _call_numpy if loaded.plugged.kernel.backend == "numpy" else _call_torch
    return call(loaded, x, format_name, outputs, fill)


def _differing(one: Mapping[str, Coded], other: Mapping[str, Coded]) -> dict[str, npt.NDArray[np.bool_]]:
    found = {}
    for name, buffer in one.items():
        data = other[name].data if name in other else buffer.data[:0]
        apart = np.ones(buffer.shape, np.bool_) if data.shape != buffer.shape else _bits_differ(data, buffer.data)
        if apart.any():
            found[name] = apart
    return found


def _bits_differ(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Per element, by bits: a NaN equals itself."""
    if one.dtype != other.dtype:
        return np.ones(one.shape, np.bool_)
    each = (*one.shape, one.dtype.itemsize)
    raw = (np.ascontiguousarray(a).reshape(-1).view(np.uint8).reshape(each) for a in (one, other))
    return np.asarray(np.not_equal(*raw).any(axis=-1))


def _unwritten(differing: Mapping[str, npt.NDArray[np.bool_]]) -> list[str]:
    return [
        f"unwritten: {np.count_nonzero(apart)} of {apart.size} elements of {name} are what fresh memory held, "
        f"first at {[int(i) for i in np.argwhere(apart)[0]]}"
        for name, apart in differing.items()
    ]


def _unstable(differing: Mapping[str, npt.NDArray[np.bool_]]) -> list[str]:
    return [
        f"not deterministic: {np.count_nonzero(apart)} of {apart.size} elements of {name} changed between two calls "
        f"with the same input, first at {[int(i) for i in np.argwhere(apart)[0]]}"
        for name, apart in differing.items()
    ]


def _named(returned: Any, outputs: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """What the kernel returned, by output name: a single value, a tuple in the contract's order, or a dict."""
    if returned is None:
        return {}, ["returned nothing"]
    if isinstance(returned, Mapping):
        return dict(returned), []
    values = returned if isinstance(returned, tuple | list) else (returned,)
    if len(values) != len(outputs):
        return {}, [f"returned {len(values)} values; the contract has {len(outputs)}: {', '.join(outputs)}"]
    return dict(zip(outputs, values, strict=True)), []


def _source(loaded: Loaded, x: Coded) -> dict[str, str]:
    """The source format, for a kernel that asks for it by a parameter ``source``: not every format has a dtype."""
    return {"source": x.format} if "source" in inspect.signature(loaded.function).parameters else {}


# --- torch -----------------------------------------------------------------------------------------------------------


def _call_torch(loaded: Loaded, x: Placed, format_name: str, outputs: Mapping[str, str], fill: int) -> Called:
    torch = _import_torch()
    memory, name = torch.from_numpy(x.memory), x.x.format
    if hasattr(torch, name) and format_named(name).family != "integer":
        memory = memory.view(getattr(torch, name))  # other formats travel as plain codes
    memory = memory.to(torch_device())
    with fresh_memory.filled(fill):
        returned = loaded.function(x.tensor(memory), format_name, **_source(loaded, x.x))
        if memory.is_cuda:
            torch.cuda.synchronize()
    named, wrong = _named(returned, outputs)
    buffers = {}
    for name, value in named.items():
        if not isinstance(value, torch.Tensor):
            wrong.append(f"{name} is a {type(value).__name__}, want a tensor")
            continue
        codes = _from_torch(torch, value, outputs.get(name, "float32"))
        if isinstance(codes, str):
            wrong.append(f"{name} {codes}")
        else:
            buffers[name] = codes
    if x.watched:
        after = _from_torch(torch, x.tensor(memory), x.x.format)
        wrong += x.changes(after.data) if isinstance(after, Coded) else []
    return buffers, wrong


def _import_torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise NotExecuted(f"torch is not installed ({error})") from error
    return torch


def torch_device() -> str:
    """Where this child's tensors live: the one GPU that it sees, or the CPU."""
    torch = _import_torch()
    return "cuda" if torch.cuda.is_available() else "cpu"


def _from_torch(torch: Any, value: Any, format_name: str) -> Coded | str:
    """A returned tensor as codes, or what is wrong with it. One of another format keeps its label."""
    value = value.detach().cpu().contiguous()
    fmt = format_named(format_name)
    if value.dtype == getattr(torch, fmt.name, None) and fmt.family != "integer":
        unsigned = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}[fmt.storage.itemsize]
        value = value.reshape(-1).view(unsigned).reshape(value.shape)
    elif value.dtype.is_floating_point or value.dtype.is_complex:  # another buffer: its label tells the judge
        other = next((f for f in FORMATS if getattr(torch, f, None) == value.dtype), None)
        if other is not None:
            return _from_torch(torch, value, other)
        return f"is a tensor of {value.dtype}, want codes of {fmt.name} as integers or in its own dtype"
    return Coded(fmt.name, as_bits(value.numpy().copy(), fmt))


def as_bits(data: npt.NDArray[Any], fmt: Format) -> npt.NDArray[Any]:
    """Signed integers of the storage's own width are its bits; others keep their numbers, for the judge to see."""
    signed = data.dtype.kind == "i" and data.dtype.itemsize == fmt.storage.itemsize
    return data.view(fmt.storage) if signed else data


# --- numpy -----------------------------------------------------------------------------------------------------------


def _call_numpy(loaded: Loaded, x: Placed, format_name: str, outputs: Mapping[str, str], fill: int) -> Called:
    array = x.array(x.memory.view(_numpy_type(x.x.format)))
    with fresh_memory.filled(fill), np.errstate(all="ignore"):
        returned = loaded.function(array, format_name, **_source(loaded, x.x))
    named, wrong = _named(returned, outputs)
    buffers = {}
    for name, value in named.items():
        fmt = format_named(outputs.get(name, "float32"))
        value = np.asarray(value)
        typed = value.dtype.kind not in "iu" and value.dtype == _numpy_type(fmt.name)  # integers are codes
        buffers[name] = Coded(fmt.name, np.array(value.view(fmt.storage) if typed else as_bits(value, fmt)))
    return buffers, wrong + (x.changes(x.array(x.memory)) if x.watched else [])


def _numpy_type(format_name: str) -> np.dtype[Any]:
    """numpy's or ml_dtypes' type for a format."""
    if format_name in ("float64", "float32", "float16", "int8", "uint8"):
        return np.dtype(format_name)
    try:
        import ml_dtypes
    except ImportError as error:
        raise NotExecuted(f"ml_dtypes is not installed ({error})") from error
    if not hasattr(ml_dtypes, format_name):
        raise BadInput(f"ml_dtypes {ml_dtypes.__version__} has no {format_name}")
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, format_name))
    return dtype
