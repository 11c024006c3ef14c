"""The child that has torch: our kernels on caches, and index_put and gather of the same bytes.

It reads ``who CASE``, ``run CASE`` and ``peer CASE`` from standard input, a line each, and answers in a line: kernel,
peer, elements of K and V, and the bytes that one run reads and writes.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

_KERNELS = "narrowgauge.kernels_under_test"
#: by case: the module and the kernel on a CPU, and on a GPU
KERNELS = {
    "write_copy": (("torch_kv_write", "torch_kv_copy"), ("triton_kv_write", "triton_soft_kv_copy")),
    "write_fp8": (("torch_kv_write", "torch_kv_fp8"), ("triton_kv_write", "triton_soft_kv_fp8")),
    "read_copy": (("torch_kv_read", "torch_kv_read_copy"), ("triton_kv_read", "triton_soft_kv_read_copy")),
    "read_fp8": (("torch_kv_read", "torch_kv_read_fp8"), ("triton_kv_read", "triton_soft_kv_read_fp8")),
}


@dataclass(frozen=True)
class Work:
    """A kernel's run and its peer's, which move as many bytes."""

    kernel: str
    size: int  #: of what is read and written, in bytes
    ours: Callable[[], Any]
    theirs: Callable[[], Any]


def main() -> None:
    """Arguments: tokens, heads, columns of a head, slots of a page."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = [int(text) for text in sys.argv[1:5]]
    gpu = torch.cuda.is_available()
    elements = 2 * sizes[0] * sizes[1] * sizes[2]
    cases = {case: _work(case, *of[gpu], Sizes(*sizes), "cuda" if gpu else "cpu") for case, of in KERNELS.items()}
    for line in sys.stdin:
        verb, case = line.split()
        work = cases[case]
        if verb != "who":
            (work.ours if verb == "run" else work.theirs)()
            if gpu:
                torch.cuda.synchronize()
        name = "index_put" if case.startswith("write") else "gather"
        print(f"{work.kernel}|torch {torch.__version__}, {name}|{elements}|{work.size}", flush=True)


@dataclass(frozen=True)
class Sizes:
    """Of a call; the cache is twice as large as what is moved."""

    tokens: int
    heads: int
    width: int
    block: int

    @property
    def pages(self) -> int:
        return 2 * self.tokens // self.block


def _work(case: str, module: str, name: str, sizes: Sizes, device: str) -> Work:
    import torch

    function = getattr(importlib.import_module(f"{_KERNELS}.{module}"), name)
    operation, kept = case.split("_")
    kind = torch.float8_e4m3fn if kept == "fp8" else torch.bfloat16
    size = 2 + kind.itemsize  # of an element, read and written
    given = {f"{part}_cache": torch.randn(sizes.pages, sizes.block, sizes.heads, sizes.width, device=device).to(kind)
             for part in "kv"}  # fmt: skip
    if kept == "fp8":
        given |= {f"{part}_scale": torch.full((1,), scale, device=device) for part, scale in (("k", 0.03), ("v", 0.07))}
    make = _written if operation == "write" else _read
    theirs = partial(_moved, operation, *_peer(sizes, size, device))
    return Work(name, 2 * sizes.tokens * sizes.heads * sizes.width * size, make(function, given, sizes, kind), theirs)


def _written(function: Any, given: dict[str, Any], sizes: Sizes, kind: Any) -> Callable[[], Any]:
    import torch

    device = given["k_cache"].device
    k, v = (torch.randn(sizes.tokens, sizes.heads, sizes.width, device=device).bfloat16() for _ in range(2))
    slots = torch.randperm(sizes.pages * sizes.block, device=device)[: sizes.tokens].int()
    return partial(function, k, str(kind).removeprefix("torch."), v=v, slot_mapping=slots, **given)


def _read(function: Any, given: dict[str, Any], sizes: Sizes, kind: Any) -> Callable[[], Any]:
    """One sequence, its pages in no order."""
    import torch

    x = given.pop("k_cache")
    table = torch.randperm(sizes.pages, device=x.device)[: sizes.tokens // sizes.block].int().reshape(1, -1)
    lengths = torch.full((1,), sizes.tokens, dtype=torch.int32, device=x.device)
    of = str(kind).removeprefix("torch.")
    return partial(function, x, "bfloat16", source=of, block_table=table, seq_lens=lengths, **given)


def _peer(sizes: Sizes, size: int, device: str) -> tuple[Any, Any, list[Any]]:
    """Slots, rows and two caches of bfloat16, whose elements are read and written: two bytes each."""
    import torch

    columns = sizes.heads * sizes.width * size // 4
    slots = torch.randperm(sizes.pages * sizes.block, device=device)[: sizes.tokens]
    rows = torch.randn(sizes.tokens, columns, device=device).bfloat16()
    caches = torch.zeros(2, sizes.pages * sizes.block, columns, device=device, dtype=torch.bfloat16)
    return slots, rows, list(caches)


def _moved(operation: str, slots: Any, rows: Any, caches: list[Any]) -> Any:
    if operation == "read":
        return [cache[slots] for cache in caches]
    for cache in caches:
        cache[slots] = rows
    return caches
