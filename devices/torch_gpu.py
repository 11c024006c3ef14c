"""torch on an emulated device: tensors lie in the CPU's memory and say that they are on ``cuda:0``. Runs in the child.

A ``TorchFunctionMode`` sees every call of torch that has a device in it: "cuda" in an argument becomes "cpu", and a
tensor that is asked where it is answers "cuda:0". ``torch.cuda`` is answered for the target where wrappers ask it to
choose their way; what needs a GPU is refused with what was asked (``NotExecuted``). What this cannot do: tell a tensor
of the host from one of the device, so a tensor that was never moved is not found; calls from other threads.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.targets import LIMITS, Target, target_named

#: what ``torch.version`` says: the versions that torch 2.13 is built for
_CUDA, _HIP = "13.0", "7.0.0"
#: milliseconds between any two events: time on hardware is not known, and with this do_bench runs its function seldom
INTERVAL = 1000.0


def capability(name: str) -> tuple[int, int]:
    """What ``torch.cuda.get_device_capability`` gives on a target: sm_90 (9, 0), gfx942 (9, 4)."""
    if name.startswith("sm_"):
        return int(name[3:-1]), int(name[-1])
    return int(name[3:-2]), int(name[-2])


def install(name: str) -> None:
    """Make torch answer as on a GPU of that target. Without torch, nothing."""
    try:
        import torch
    except ImportError:
        return
    target = target_named(name)
    torch.version.cuda, torch.version.hip = (_CUDA, None) if target.backend == "cuda" else (None, _HIP)
    _answer(torch, target)
    _mode(torch).__enter__()


def as_they_are() -> Any:
    """While this holds, tensors say that they are the CPU's."""
    import torch

    return torch._C.DisableTorchFunction()


# --- tensors ---------------------------------------------------------------------------------------------------------


def _mode(torch: Any) -> Any:
    from torch.overrides import TorchFunctionMode
    from torch.utils._device import _device_constructors

    where, here = torch.device("cuda", 0), torch.device("cpu")
    tensor = torch.Tensor
    says: dict[Any, Any] = {tensor.is_cuda: True, tensor.is_cpu: False, tensor.device: where}

    def moved(value: Any) -> Any:
        gpu = value.split(":")[0] == "cuda" if isinstance(value, str) else getattr(value, "type", "") == "cuda"
        return here if gpu and isinstance(value, str | torch.device) else value

    class OnTheDevice(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            attribute = getattr(func, "__self__", None)
            if attribute in says and func.__name__ == "__get__":
                return says[attribute]
            if func is torch.device:
                return func(*args, **kwargs)  # a name of a place; nothing is there yet
            if func is tensor.get_device:
                return 0
            if func in (tensor.cuda, tensor.pin_memory):
                return args[0]
            # What goes to the host is a copy there, and may be written to.
            to_host = func is tensor.cpu or (
                func is tensor.to and _names_host([*args[1:2], kwargs.get("device")], torch.device)
            )
            args = [moved(each) for each in args]
            kwargs = {name: moved(value) for name, value in kwargs.items()} | _unpinned(kwargs)
            if type(kwargs.get("device")) is int:
                kwargs["device"] = here  # the number of a GPU
            if func is tensor.to and len(args) > 1 and type(args[1]) is int:
                args[1] = here
            if func in _device_constructors() and kwargs.get("device") is None:
                kwargs["device"] = here  # before torch.set_default_device says otherwise
            result = func(*args, **kwargs)
            return result.clone() if to_host and result.data_ptr() == args[0].data_ptr() else result

    return OnTheDevice()


def _names_host(places: list[Any], device: type) -> bool:
    return any(str(place).split(":")[0] == "cpu" for place in places if isinstance(place, str | device))


def _unpinned(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"pin_memory": False} if kwargs.get("pin_memory") else {}


# --- torch.cuda ------------------------------------------------------------------------------------------------------


class Properties:
    """``torch.cuda.get_device_properties``, as far as it is public."""

    def __init__(self, target: Target) -> None:
        limits = LIMITS[target.name]
        self.name = device_name(target)
        self.major, self.minor = capability(target.name)
        self.gcnArchName = target.name if target.backend == "hip" else self.name
        self.warp_size = target.warp
        self.regs_per_multiprocessor = 65536
        self.shared_memory_per_block = min(limits.shared, 48 * 1024) if target.backend == "cuda" else limits.shared
        self.shared_memory_per_block_optin = limits.shared
        if limits.units:
            self.multi_processor_count = limits.units

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotExecuted(f"torch.cuda.get_device_properties().{name} is not answered on an emulated {self.name}")


def device_name(target: Target) -> str:
    """The product that a target stands for; real names are longer."""
    return f"{'NVIDIA' if target.backend == 'cuda' else 'AMD'} {target.product.partition(',')[0]}"


class Event:
    """Everything before it is done: launches are not queued."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        pass

    wait = record

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Event) -> float:
        return INTERVAL


class Stream:
    """The one order in which things are done. As a context it changes nothing."""

    cuda_stream = stream_id = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    wait_event = wait_stream

    def record_event(self, event: Any = None) -> Event:
        return event or Event()

    def query(self) -> bool:
        return True


def _always(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


def _answer(torch: Any, target: Target) -> None:
    stream = Stream()
    answers: dict[str, Any] = {
        "is_available": _always(True),
        "device_count": _always(1),
        "current_device": _always(0),
        "set_device": _always(None),
        "get_device_capability": _always(capability(target.name)),
        "get_device_name": _always(device_name(target)),
        "get_device_properties": _always(Properties(target)),
        "is_bf16_supported": _always(True),
        "synchronize": _always(None),
        "empty_cache": _always(None),
        "is_current_stream_capturing": _always(False),
        "current_stream": _always(stream),
        "default_stream": _always(stream),
        "set_stream": _always(None),
        "stream": _always(contextlib.nullcontext()),
        "device": _Where,
        "device_of": _Where,
        "Stream": Stream,
        "Event": Event,
        "_lazy_init": functools.partial(_refuse, target.name),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    torch.get_device_module = _always(torch.cuda)
    torch.accelerator.is_available = _always(True)
    torch.accelerator.current_accelerator = _always(torch.device("cuda"))
    torch.accelerator.device_count, torch.accelerator.current_device_index = _always(1), _always(0)
    torch.accelerator.synchronize = _always(None)


class _Where(contextlib.nullcontext[None]):
    """``torch.cuda.device(...)``: there is one device."""

    idx = 0

    def __init__(self, device: Any) -> None:
        super().__init__()


def _refuse(target: str) -> None:
    """Stands for ``torch.cuda._lazy_init``: says which function of torch wanted a real GPU."""
    frame, name = sys._getframe(1), "a function of torch"
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("torch."):
        name = f"{frame.f_globals['__name__']}.{frame.f_code.co_name}"
        frame = frame.f_back  # type: ignore[assignment]
    raise NotExecuted(
        f"{name} is not answered on emulated:{target}: it needs a real GPU. Have the wrapper do without it, or run the "
        "kernel on the hardware"
    )
