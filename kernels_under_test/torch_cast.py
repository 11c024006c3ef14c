"""torch's own cast, eager and compiled. Its meaning changed between releases, so its claim follows the version."""

from __future__ import annotations

import shutil
from functools import cache

import torch

from narrowgauge import Cast, kernel
from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.kernels_under_test.by_version import torch_policy

SOURCES = ("float32", "bfloat16", "float16")
NARROW = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
FORMATS = tuple(name for name in NARROW if hasattr(torch, name))  # FNUZ came with 2.2, e8m0 with 2.7
CLAIM = Cast(torch_policy(torch.__version__))


@kernel(CLAIM, FORMATS, SOURCES, owner="pytorch", backend="torch", library="torch", expression="x.to(torch.{format})")
def torch_eager(x, format):
    return x.to(getattr(torch, format))


@kernel(
    CLAIM,
    FORMATS,
    SOURCES,
    owner="pytorch",
    backend="torch",
    library="torch",
    expression="torch.compile(lambda x: x.to(torch.{format}))(x)",
)
def torch_compiled(x, format):
    if not x.is_cuda and shutil.which("g++") is None and shutil.which("clang++") is None:
        raise NotExecuted("torch.compile on the CPU needs a C++ compiler, and none is on the path")
    return _compiled(format)(x)


@cache
def _compiled(format):
    # Past its recompilation limit, dynamo would run eagerly without a word; fullgraph makes it raise instead.
    torch._dynamo.config.recompile_limit = 64
    dtype = getattr(torch, format)
    return torch.compile(lambda x: x.to(dtype), dynamic=True, fullgraph=True)
