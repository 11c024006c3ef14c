"""Call a kernel on a tensor and bring back codes. Runs in the child.

A kernel is called twice, each time with all fresh memory filled with another pattern. What differs between the two
answers was never written, or came from memory that was never written.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS, Format, format_named
from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices import fresh_memory
from narrowgauge.devices.loading import Loaded
from narrowgauge.devices.placing import Placed, placed

FILLS = (0xA5, 0x5A)
Answer = tuple[dict[str, Any], dict[str, Coded]]
Called = tuple[dict[str, Coded], list[str]]


@dataclass(frozen=True)
class _Call:
    """One call of a kernel: the tensors, which it may write to, and what it is asked for."""

    loaded: Loaded
    inputs: Mapping[str, Placed]  #: "x", and what is given beside it
    format: str
    outputs: Mapping[str, str]  #: names and formats
    fill: int
    source: str  #: the format of x, and below its shape as a matrix, where what is passed is its memory image
    shape: tuple[int, ...]
    in_place: tuple[str, ...] = ()  #: outputs that are inputs, changed in place
    numbers: Mapping[str, float] = field(default_factory=dict)  #: for who asks for them


def run(loaded: Loaded, inputs: Mapping[str, Coded], request: Mapping[str, Any]) -> Answer:
    """Outputs as codes, and what is wrong with their form. ``inputs`` are ``x`` and what is given beside it.

    Raises what the kernel raises, and ``BadInput`` for a kernel that does not take what it is given.
    """

    def call(fill: int) -> Called:
        where = {
            name: placed(value, request["view"] if name in request["viewed"] else "contiguous")
            for name, value in inputs.items()
        }
        asked = request["source"], tuple(request["shape"]), tuple(request["in_place"]), request["numbers"]
        return _call(_Call(loaded, where, request["format"], request["outputs"], fill, *asked))

    first, wrong = call(FILLS[0])
    if wrong:
        return {"kind": "returned", "malformed": wrong}, first
    second, _ = call(FILLS[1])
    # padding that may be left unwritten is looked at by nobody; what else is not written there is a wrong value
    if differing := _differing({n: v for n, v in first.items() if n not in request["loose"]}, second):
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
        fill = FILLS[first // count % 2]
        outputs, wrong = _call(
            _Call(
                loaded, {"x": x}, request["format"], request["outputs"], fill, request["source"], self._patterns.shape
            )
        )
        return {"kind": "returned", "malformed": wrong}, outputs


def _call(call: _Call) -> Called:
    """Call a kernel: outputs, and what is wrong with their form or was done to its inputs."""
    return (_call_numpy if call.loaded.plugged.kernel.backend == "numpy" else _call_torch)(call)


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
    if not outputs:  # all is changed in place; what is returned then is looked at by nobody
        return {}, []
    if returned is None:
        return {}, ["returned nothing"]
    if isinstance(returned, Mapping):
        return dict(returned), []
    values = returned if isinstance(returned, tuple | list) else (returned,)
    if len(values) != len(outputs):
        return {}, [f"returned {len(values)} values; the contract has {len(outputs)}: {', '.join(outputs)}"]
    return dict(zip(outputs, values, strict=True)), []


def _returned(call: _Call) -> dict[str, str]:
    """Names and formats of the outputs that a kernel returns."""
    return {name: fmt for name, fmt in call.outputs.items() if name not in call.in_place}


def _by_name(call: _Call, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """What a kernel is given by the names of its parameters: all that comes beside x; and if it asks for them
    ``source``, the format of x, since not every format has a dtype, ``shape``, of x as a matrix, and numbers."""
    takes = inspect.signature(call.loaded.function).parameters
    given = {name: tensor for name, tensor in tensors.items() if name != "x"}
    if not any(p.kind is p.VAR_KEYWORD for p in takes.values()) and (lacking := given.keys() - takes.keys()):
        raise BadInput(
            f"kernel {call.loaded.plugged.kernel.name!r} takes {', '.join(takes)}; its claim gives it "
            f"{', '.join(sorted(lacking))} beside x: add a parameter of that name"
        )
    asked = {"source": call.source, "shape": call.shape, **call.numbers}
    return given | {name: value for name, value in asked.items() if name in takes}


# --- torch -----------------------------------------------------------------------------------------------------------


def _call_torch(call: _Call) -> Called:
    torch = _import_torch()
    memory = {name: _to_torch(torch, each) for name, each in call.inputs.items()}
    tensors = {name: each.tensor(memory[name]) for name, each in call.inputs.items()}
    x = tensors["x"]
    by_name = _by_name(call, tensors)
    with fresh_memory.filled(call.fill):
        returned = call.loaded.function(x, call.format, **by_name)
        if x.is_cuda:
            torch.cuda.synchronize()
    named, wrong = _named(returned, _returned(call))
    named |= {name: tensors[name] for name in call.in_place}
    buffers = {}
    for name, value in named.items():
        if not isinstance(value, torch.Tensor):
            wrong.append(f"{name} is a {type(value).__name__}, want a tensor")
            continue
        codes = _from_torch(torch, value, call.outputs.get(name, "float32"))
        if isinstance(codes, str):
            wrong.append(f"{name} {codes}")
        else:
            buffers[name] = codes
    for name, each in call.inputs.items():
        if name in call.in_place:
            continue
        after = _from_torch(torch, each.tensor(memory[name]), each.x.format) if each.watched else None
        wrong += each.changes(name, after.data) if isinstance(after, Coded) else []
    return buffers, wrong


def _to_torch(torch: Any, each: Placed) -> Any:
    """The memory of an input, of the format's own dtype where torch has it; codes of other formats as they are."""
    memory, fmt = torch.from_numpy(each.memory), format_named(each.x.format)
    if hasattr(torch, fmt.name) and fmt.bits == 8 * fmt.storage.itemsize:
        memory = memory.view(getattr(torch, fmt.name))
    return memory.to(torch_device())


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


def _call_numpy(call: _Call) -> Called:
    arrays = {n: each.array(each.memory.view(_numpy_type(each.x.format))) for n, each in call.inputs.items()}
    by_name = _by_name(call, arrays)
    with fresh_memory.filled(call.fill), np.errstate(all="ignore"):
        returned = call.loaded.function(arrays["x"], call.format, **by_name)
    named, wrong = _named(returned, _returned(call))
    named |= {name: arrays[name] for name in call.in_place}
    buffers = {}
    for name, value in named.items():
        fmt = format_named(call.outputs.get(name, "float32"))
        value = np.asarray(value)
        typed = value.dtype.kind not in "iu" and value.dtype == _numpy_type(fmt.name)  # integers are codes
        buffers[name] = Coded(fmt.name, np.array(value.view(fmt.storage) if typed else as_bits(value, fmt)))
    for name, each in call.inputs.items():
        if name not in call.in_place:
            wrong += each.changes(name, each.array(each.memory)) if each.watched else []
    return buffers, wrong


def _numpy_type(format_name: str) -> np.dtype[Any]:
    """numpy's or ml_dtypes' type for a format."""
    if format_name in ("float64", "float32", "float16", "int8", "uint8", "int32"):
        return np.dtype(format_name)
    try:
        import ml_dtypes
    except ImportError as error:
        raise NotExecuted(f"ml_dtypes is not installed ({error})") from error
    if not hasattr(ml_dtypes, format_name):
        raise BadInput(f"ml_dtypes {ml_dtypes.__version__} has no {format_name}")
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, format_name))
    return dtype
