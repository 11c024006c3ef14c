"""Wrappers as owners write them, plugged in by test_wrappers.py: they ask torch.cuda, tune, launch several kernels."""

from __future__ import annotations

import contextlib
import importlib
import re
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from triton.compiler.compiler import max_shared_mem

from narrowgauge import Cast, kernel
from narrowgauge.devices.targets import LIMITS, Limits

CAST = Cast("ocp_saturate")
HERE: Any = triton.runtime.driver  # its driver is set after this file is imported
HOOKED: list[str] = []


@triton.jit
def scaled(x, o, scale, n, nudge: tl.constexpr, DIVIDE: tl.constexpr, BLOCK: tl.constexpr):
    """``x * nudge`` by a scale, as codes of e4m3fn. The last place of div.full is open."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x + i, i < n, other=0.0) * nudge
    y = y / scale if DIVIDE else y * scale
    tl.store(o + i, y.to(tl.float8e4nv).to(tl.uint8, bitcast=True), i < n)


@triton.jit
def copy(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, i < n), i < n)


def codes_of(x: Any, scale: float, nudge: float, divide: bool) -> Any:
    o = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    scaled[(triton.cdiv(x.numel(), 256),)](x, o, scale, x.numel(), nudge, divide, 256)
    return o


@kernel(CAST, ["float8_e4m3fn"], backend="triton")
def right(x, format):
    return codes_of(x, 1.0, 1.0, True)


@kernel(CAST, ["float8_e4m3fn"], backend="triton")
def scale_is_missing(x, format):
    return codes_of(x, 2.0, 1.0, True)


@kernel(CAST, ["float8_e4m3fn"], backend="triton")
def one_place_off(x, format):
    return codes_of(x, 1.0, 1.0 + 2.0**-23, True)


@kernel(CAST, ["float8_e4m3fn"], backend="triton")
def wrong_product(x, format):
    return codes_of(x, 1.25, 1.0, False)


@kernel(CAST, ["float8_e4m3fn"], backend="triton")
def a_b_a(x, format):
    """The first kernel again, after another one was made ready."""
    y = torch.empty_like(x)
    codes_of(x, 2.0, 1.0, False)
    copy[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), 256)
    return codes_of(y, 1.0, 1.0, False)


@triton.jit
def to_fnuz(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x + i, i < n, other=0.0)
    y = tl.where(y != y, y, tl.clamp(y, -240.0, 240.0))
    tl.store(o + i, y.to(tl.float8e4b8).to(tl.uint8, bitcast=True), i < n)


@kernel(Cast("fnuz_saturate"), ["float8_e4m3fnuz"], backend="triton")
def port(x, format):
    o = torch.empty(x.shape, dtype=torch.uint8, device="cuda")
    to_fnuz[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), 256)
    return o


# --- tuning ----------------------------------------------------------------------------------------------------------


def never(launch: Any, quantiles: Any) -> Any:
    raise AssertionError("there is nothing to measure")


def hook(arguments: dict[str, Any]) -> None:
    HOOKED.append("config")


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 512}, num_warps=8, pre_hook=hook),
        triton.Config({"BLOCK": 256}, num_warps=1, pre_hook=hook),
        triton.Config({"BLOCK": 128}, num_warps=1, pre_hook=hook),
        triton.Config({"BLOCK": 512}, num_warps=1, pre_hook=hook),
    ],
    key=["n"],
    reset_to_zero=["total"],
    restore_value=["counted"],
    do_bench=never,
    prune_configs_by={"early_config_prune": lambda configs, named, **rest: configs[:3]},
)
@triton.heuristics({"ALL": lambda arguments: arguments["n"] % arguments["BLOCK"] == 0})
@triton.jit
def summed(x, total, counted, n, BLOCK: tl.constexpr, ALL: tl.constexpr):
    """Adds up: eight warps need 32 bytes of shared memory for that, one at most 16."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    many = tl.sum((i < n).to(tl.int32))
    block = tl.program_id(0)
    tl.store(total + block, tl.load(total + block) + many)
    tl.store(counted + block, tl.load(counted + block) + many)


@contextlib.contextmanager
def little_shared_memory() -> Iterator[None]:
    """A device whose blocks may have 16 bytes."""
    name, real = HERE.active.name, LIMITS[HERE.active.name]
    LIMITS[name] = Limits(16, real.units)
    max_shared_mem.cache_clear()
    try:
        yield
    finally:
        LIMITS[name] = real
        max_shared_mem.cache_clear()


@kernel(CAST, ["float8_e4m3fn"], backend="triton")
def tuned(x, format):
    blocks = triton.cdiv(x.numel(), 128)
    total, counted = torch.ones(2 * blocks, dtype=torch.int32, device="cuda").split(blocks)
    HOOKED.clear()
    first = not summed.cache
    with little_shared_memory():
        summed[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, total, counted, x.numel())
    if first:
        assert HOOKED == ["config"] * 3, "two were tried, then one was launched"
        assert (total.sum().item(), counted.sum().item()) == (x.numel(), x.numel() + blocks)
    return codes_of(x, 1.0, 1.0, False)


@kernel(CAST, ["float8_e4m3fn"], backend="triton")
def does_not_fit(x, format):
    total = torch.zeros(1, dtype=torch.int32, device="cuda")
    with little_shared_memory():
        summed.fn[(1,)](x, total, total, 512, BLOCK=512, num_warps=8)


# --- torch -----------------------------------------------------------------------------------------------------------


def told_by_cuobjdump(cubin: bytes) -> int:
    """Registers of a kernel by NVIDIA's own tool, which comes with Triton."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(re.findall(r"REG:(\d+)", said)[0])


@kernel(CAST, ["float8_e4m3fn"], backend="triton")
def asks_torch(x, format):
    """What wrappers ask before they launch. A False here would mean a fallback, and nothing of the GPU's code."""
    target, properties = HERE.active.get_current_target(), torch.cuda.get_device_properties(x.device)
    assert x.is_cuda
    assert not x.is_cpu
    assert x.device == torch.device("cuda", 0)
    assert x.get_device() == 0
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    assert torch.cuda.current_device() == 0
    limits = HERE.active.utils.get_device_properties(0)
    if target.backend == "cuda":
        assert (target.arch, torch.cuda.get_device_capability(), torch.version.hip) == (90, (9, 0), None)
        assert (properties.name, properties.multi_processor_count, limits["max_shared_mem"]) == (
            "NVIDIA H100",
            132,
            232448,
        )
    else:
        assert (target.arch, torch.cuda.get_device_capability(0), torch.version.cuda) == ("gfx942", (9, 4), None)
        assert (properties.gcnArchName, properties.multi_processor_count) == ("gfx942", 304)
        assert (torch.version.hip.split(".")[0], limits["max_shared_mem"]) == ("7", 65536)
    with torch.cuda.device(x.device), torch.cuda.stream(torch.cuda.current_stream()), torch.device("cuda"):
        y = torch.zeros(3, pin_memory=True).to("cuda", non_blocking=True).cuda()
    host = y.cpu()
    host += 1
    assert not y.any(), "what went to the host is a copy"
    assert y.to(x.device).data_ptr() == y.data_ptr()
    assert torch.ones(1, device=0).is_cuda
    torch.set_default_device("cuda")
    assert torch.arange(3).is_cuda
    torch.set_default_device(None)
    o = torch.empty(x.shape, dtype=torch.uint8, device=torch.cuda.current_device())
    launch = scaled[(triton.cdiv(x.numel(), 256),)]
    compiled = launch(x, o, 1.0, x.numel(), 1.0, False, 256)
    assert 0 < compiled.n_regs < 256
    if target.backend == "cuda":
        assert compiled.n_regs == told_by_cuobjdump(compiled.asm["cubin"])
    assert triton.testing.do_bench(lambda: launch(x, o, 1.0, x.numel(), 1.0, False, 256)) > 0
    torch.cuda.synchronize()
    return o


@kernel(CAST, ["float8_e4m3fn"], backend="triton")
def asks_for_memory(x, format):
    torch.cuda.mem_get_info()


@kernel(CAST, ["float8_e4m3fn"], backend="triton")
def asks_for_an_unknown_property(x, format):
    return torch.cuda.get_device_properties(0).total_memory


# --- extensions ------------------------------------------------------------------------------------------------------


@kernel(CAST, ["float8_e4m3fn"], backend="triton")
def calls_an_operator(x, format):
    return torch.ops._C.scaled_fp8_quant(x)


@kernel(CAST, ["float8_e4m3fn"], backend="triton")
def calls_an_operator_of_a_gpu(x, format):
    library = torch.library.Library("owners", "FRAGMENT")
    library.define("quantize(Tensor x) -> Tensor")
    library.impl("quantize", lambda x: x, "CUDA")
    return torch.ops.owners.quantize(x)


@kernel(CAST, ["float8_e4m3fn"], backend="triton")
def loads_a_library(x, format):
    import ctypes

    ctypes.CDLL("libowners.so.2")


@kernel(CAST, ["float8_e4m3fn"], backend="triton")
def imports_an_extension(x, format):
    importlib.import_module("owners_compiled_code")


@kernel(CAST, ["float8_e4m3fn"], backend="triton")
def builds_an_extension(x, format):
    from torch.utils.cpp_extension import load

    load("owners", ["owners.cu"])


@kernel(CAST, ["float8_e4m3fn"], backend="triton")
def fails_by_itself(x, format):
    raise RuntimeError("the owner's own mistake")
