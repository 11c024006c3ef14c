"""Kernels that give no usable answer, each in its own way; whoever runs them has to survive it and say which.

``tail_unwritten`` re-enacts vllm#37442 and FBGEMM#3632 (outputs of ``torch.empty`` that were not filled); the others
what any kernel can do to the process that runs it.
"""

from __future__ import annotations

import ctypes

import torch

from narrowgauge import Cast, kernel
from narrowgauge.suites.meta.mutant_kernels.encode import e4m3fn

_claim = kernel(Cast(policy="ocp_saturate"), formats=["float8_e4m3fn"], sources=["float32"])


@_claim
def crashes(x, format):
    """Ends its process by SIGSEGV."""
    ctypes.string_at(0)


@_claim
def hangs_holding_the_gil(x, format):
    """Never returns and never lets another Python thread run: a mutex is locked twice, GIL held, and no signal ends it.

    All bytes 0 is glibc's PTHREAD_MUTEX_INITIALIZER.
    """
    c, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(128)
    c.pthread_mutex_lock(mutex)
    c.pthread_mutex_lock(mutex)


@_claim
def returns_nothing(x, format):
    """Returns None."""


@_claim
def misshaped(x, format):
    """Returns one element too few, in one dimension."""
    return e4m3fn(x).reshape(-1)[:-1]


@_claim
def tail_unwritten(x, format):
    """Leaves the last three codes as ``torch.empty`` found them."""
    codes = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    codes.view(-1)[:-3] = e4m3fn(x.reshape(-1)[:-3])
    return codes


@_claim
def codes_out_of_range(x, format):
    """Returns int32, with 256 added to each code that has the sign bit."""
    codes = e4m3fn(x).to(torch.int32)
    return torch.where(codes >= 0x80, codes + 256, codes)


@_claim
def raises(x, format):
    """Raises ValueError."""
    raise ValueError("raises: this kernel always does")
