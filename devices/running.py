"""Call a kernel on a tensor and bring back codes. Runs in the child.

A kernel is called twice, each time with all fresh memory filled with another pattern. What differs between the two
answers was never written, or came from memory that was never written.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS, format_named
from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.loading import Loaded

PATTERNS = (0xA5, 0x5A)
Answer = tuple[dict[str, Any], dict[str, Coded]]


def told(error: BaseException) -> str:
    """The error, and where in the plug-in it was raised."""
    here = os.path.dirname(__file__)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if os.path.dirname(f.filename) != here]
    where = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def run(loaded: Loaded, x: Coded, format_name: str, outputs: Mapping[str, str]) -> Answer:
    """Outputs as codes, and what is wrong with their form. Raises what the kernel raises."""
    call = _call_numpy if loaded.plugged.kernel.backend == "numpy" else _call_torch
    first, wrong = call(loaded, x, format_name, outputs, PATTERNS[0])
    if wrong:
        return {"kind": "returned", "malformed": wrong}, first
    second, _ = call(loaded, x, format_name, outputs, PATTERNS[1])
    if differing := _differing(first, second):
        again, _ = call(loaded, x, format_name, outputs, PATTERNS[0])
        wrong = _unwritten(differing) if not _differing(first, again) else _unstable(differing)
    return {"kind": "returned", "malformed": wrong}, first


def _differing(one: Mapping[str, Coded], other: Mapping[str, Coded]) -> dict[str, npt.NDArray[np.bool_]]:
    found = {}
    for name, buffer in one.items():
        data = other[name].data if name in other else buffer.data[:0]
        apart = np.ones(buffer.shape, np.bool_) if data.shape != buffer.shape else data != buffer.data
        if apart.any():
            found[name] = apart
    return found


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


def _call_torch(loaded: Loaded, x: Coded, format_name: str, outputs: Mapping[str, str], pattern: int) -> Any:
    torch = _import_torch()
    tensor = torch.from_numpy(x.data.copy())
    if hasattr(torch, x.format) and format_named(x.format).family != "integer":
        tensor = tensor.view(getattr(torch, x.format))
    tensor = tensor.to(torch_device())
    fill = _fill_torch(torch, pattern)
    with _fresh_memory_filled(torch, ("empty", "empty_like", "empty_strided"), fill, torch.compiler.is_compiling):
        returned = loaded.function(tensor, format_name, **_source(loaded, x))
        if tensor.is_cuda:
            torch.cuda.synchronize()
    named, wrong = _named(returned, outputs)
    buffers = {}
    for name, value in named.items():
        if not isinstance(value, torch.Tensor):
            wrong.append(f"{name} is a {type(value).__name__}, want a tensor")
            continue
        buffers[name] = _from_torch(torch, value, outputs.get(name, "float32"))
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


def _from_torch(torch: Any, value: Any, format_name: str) -> Coded:
    """A returned tensor as codes. One of another dtype keeps its own numbers, for the judge to name."""
    value = value.detach().cpu().contiguous()
    fmt = format_named(format_name)
    if value.dtype == getattr(torch, fmt.name, None) and fmt.family != "integer":
        unsigned = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}[fmt.storage.itemsize]
        value = value.reshape(-1).view(unsigned).reshape(value.shape)
    elif value.dtype == torch.int8 and fmt.name == "int8":
        value = value.view(torch.uint8)
    elif value.dtype.is_floating_point:  # another format's buffer: its label tells the judge
        other = next((f for f in FORMATS if getattr(torch, f, None) == value.dtype), None)
        if other is not None:
            return _from_torch(torch, value, other)
        value = value.double()
    return Coded(fmt.name, value.numpy().copy())


def _fill_torch(torch: Any, pattern: int) -> Callable[[Any], Any]:
    raw_empty = torch.empty

    def fill(tensor: Any) -> Any:
        # While dynamo traces, tensors are stand-ins without memory.
        if type(tensor) is torch.Tensor and tensor.untyped_storage().nbytes():
            memory = raw_empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
            memory.fill_(pattern)
        return tensor

    return fill


# --- numpy -----------------------------------------------------------------------------------------------------------


def _call_numpy(loaded: Loaded, x: Coded, format_name: str, outputs: Mapping[str, str], pattern: int) -> Any:
    array = x.data.copy().view(_numpy_type(x.format))

    def fill(fresh: npt.NDArray[Any]) -> npt.NDArray[Any]:
        fresh.view(np.uint8).fill(pattern)
        return fresh

    with _fresh_memory_filled(np, ("empty", "empty_like"), fill), np.errstate(all="ignore"):
        returned = loaded.function(array, format_name, **_source(loaded, x))
    named, wrong = _named(returned, outputs)
    buffers = {}
    for name, value in named.items():
        fmt = format_named(outputs.get(name, "float32"))
        value = np.asarray(value)
        codes = value.view(fmt.storage) if value.dtype == _numpy_type(fmt.name) else value
        buffers[name] = Coded(fmt.name, np.array(codes))
    return buffers, wrong


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


# --- fresh memory ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _fresh_memory_filled(
    module: Any, names: tuple[str, ...], fill: Callable[[Any], Any], leave: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """While this holds, the module's allocating functions give memory that ``fill`` has filled, unless ``leave()``."""
    originals = {name: getattr(module, name) for name in names}

    def filling(original: Callable[..., Any]) -> Callable[..., Any]:
        def allocate(*args: Any, **kwargs: Any) -> Any:
            fresh = original(*args, **kwargs)
            return fresh if leave() else fill(fresh)

        return allocate

    for name, original in originals.items():
        setattr(module, name, filling(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(module, name, original)
