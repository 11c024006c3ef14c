"""Kernels that read what torch allocated, on an emulated device. A program: it prints what came of each, as JSON.

Each tensor is written in another way, or not at all. Of each there is "ran", or the error of the kernel.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import triton
import triton.language as tl

from narrowgauge.devices import fresh_memory, triton_driver
from narrowgauge.devices.emulator.engine import KernelError


@triton.jit
def copied(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


def _by_numpy(x: Any) -> Any:
    x.numpy()[:] = 2
    return x


def _in_part(x: Any) -> Any:
    x[:50] = 1
    return x


def _by_a_kernel(x: Any) -> Any:
    copied[(1,)](torch.ones(128), x, 100, BLOCK=128)
    return x


#: how the first 100 of 128 float32 are written
WRITTEN = {
    "fill": lambda x: x.fill_(1),
    "copy": lambda x: x.copy_(torch.ones(128)),
    "out": lambda x: torch.add(torch.ones(128), 1, out=x),
    "view": lambda x: x.view(2, 64).zero_().view(128),
    "detached": lambda x: x.detach().fill_(2),
    "data": lambda x: x.data.zero_(),
    "numpy": _by_numpy,
    "part": _in_part,
    "kernel": _by_a_kernel,
    "another": lambda x: torch.ones(128),
}
UNWRITTEN = {
    "nobody": (lambda x: x, 100),
    "a slice": (lambda x: x[3:], 5),
    "one more than the kernel wrote": (_by_a_kernel, 101),
}


def tried(make: Any, count: int) -> str:
    """What comes of a kernel that reads so many elements."""
    with fresh_memory.filled(0xA5):
        x = make(torch.empty(128))
        try:
            copied[(1,)](x, torch.empty(128), count, BLOCK=128)
        except KernelError as error:
            return str(error)
    return "ran"


def main() -> None:
    """Print an object of JSON: each program's name and what came of it."""
    fresh_memory.watch()
    triton_driver.install("sm_90")
    found = {name: tried(make, 100) for name, make in WRITTEN.items()}
    found |= {name: tried(make, count) for name, (make, count) in UNWRITTEN.items()}
    with torch.inference_mode():
        found["inference"] = tried(lambda x: x, 100)  # these tensors have no version counter: not followed
    print(json.dumps(found))


if __name__ == "__main__":
    main()
