"""A launch of a compiled kernel, run on the tensors it was given. Tensors are the CPU's; torch is the caller's."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices import fresh_memory
from narrowgauge.devices.emulator import llvm_ir, ptx
from narrowgauge.devices.emulator.engine import Machine, Program
from narrowgauge.devices.emulator.llvm_amdgcn import HIDDEN
from narrowgauge.devices.emulator.memory import GlobalMemory, Region

#: lanes that run at once: registers of so many lanes stay within a core's cache, and memory is bounded
LANES = 8192

#: the type of an argument; of a tuple, those of its members
Kinds = str | tuple["Kinds", ...]
#: a kernel, from its text, to a program and its parameters
Front = Callable[[str], tuple[Program, tuple[ptx.Parameter, ...]]]
nvidia: Front = lru_cache(maxsize=256)(ptx.parse)
_amd = lru_cache(maxsize=256)(llvm_ir.parse)


def amd(target: str, threads: int, fusion: bool, right: bool = False) -> Front:
    """The front end for LLVM IR of a target. ``fusion``: whether the code generator fuses a product and a sum."""

    def front(text: str) -> tuple[Program, tuple[ptx.Parameter, ...]]:
        kernel = _amd(text, target, threads, fusion, right)
        return kernel.program, kernel.parameters

    return front


def amd_fronts(text: str, amdgcn: str, target: str, threads: int, fusion: bool) -> tuple[Front, ...]:
    """One front end; or several where it is open what the code generator fused, which then must agree."""
    if not fusion:
        return (amd(target, threads, False),)
    products = _amd(text, target, threads, True, False).products
    right = (amd(target, threads, True, right=True),) if products.choices else ()
    without = () if products.settled(amdgcn) else (amd(target, threads, False),)
    return amd(target, threads, True), *right, *without


def launch(
    fronts: Sequence[Front],
    text: str,
    signature: Mapping[str, Kinds],
    arguments: Sequence[Any],
    grid: tuple[int, int, int],
    shared: int,
    warp: int,
    fill: int,
    choice: str = "first",
) -> dict[str, bool]:
    """Run one kernel and give the models of instructions that it used, True for those whose answer was open.

    ``signature`` gives the type of each argument, "constexpr" for those compiled in, of a tuple those of its members;
    ``fill`` the byte that registers hold before anybody writes them, ``choice`` which answer is taken where a model's
    words leave several.

    Raises ``NotExecuted`` for what the emulator does not know, ``KernelError`` for what the kernel does wrong.
    """
    program, parameters = fronts[0](text)
    every = [each for (n, kind), v in zip(signature.items(), arguments, strict=True) for each in _members(n, kind, v)]
    if unknown := [kind for _, kind, _ in every if kind[0] not in "*iufbc"]:
        raise NotExecuted(f"an argument of type {unknown[0]}")
    given = [(name, value) for name, kind, value in every if kind != "constexpr"]
    if len(parameters) < len(given):
        raise NotExecuted(f"{program.name} has {len(parameters)} parameters for {len(given)} arguments")
    regions: dict[int, Region] = {}
    held: dict[str, bytes] = {p.name: bytes(p.size) for p in parameters}  # scratch memory: none is asked for
    for (name, value), parameter in zip(given, parameters, strict=False):
        if hasattr(value, "data_ptr"):
            region = _region(name, value)
            regions.setdefault(region.address, region)
            value = value.data_ptr()
        held[parameter.name] = ptx.parameter_bytes(parameter, value)
    hidden = hidden_arguments(grid, program.threads)
    held[HIDDEN] = hidden.address.to_bytes(8, "little")
    memory = GlobalMemory([*regions.values(), hidden, *program.constants])
    before = [region.data.copy() for region in memory.regions] if len(fronts) > 1 else []

    def carry_out(which: Program) -> dict[str, bool]:
        return run(which, grid, memory, shared, warp, held, fill, choice)

    models = carry_out(program)
    for other in fronts[1:]:
        _same_otherwise(other(text)[0], before, carry_out, memory)
    return models


def _members(name: str, kind: Kinds, value: Any) -> Iterator[tuple[str, str, Any]]:
    """An argument, or in its place the members of a tuple: each is a parameter of its own."""
    if isinstance(kind, str):
        yield name, kind, value
        return
    for place, (of_member, member) in enumerate(zip(kind, value, strict=True)):
        yield from _members(f"{name}[{place}]", of_member, member)


def _same_otherwise(
    program: Program, before: Sequence[Any], again: Callable[[Program], object], memory: GlobalMemory
) -> None:
    """Run once more, with other sums fused. Raises ``NotExecuted`` where that gives anything else."""
    after = [region.data.copy() for region in memory.regions]
    for region, old in zip(memory.regions, before, strict=True):
        region.data[:] = old
    again(program)
    if any(not np.array_equal(region.data, new) for region, new in zip(memory.regions, after, strict=True)):
        raise NotExecuted(
            f"{program.name}: which products the code generator fused with a sum is not settled by the LLVM IR, and it "
            "matters for these inputs; compile with enable_fp_fusion=False to have it judged"
        )


def run(
    program: Program,
    grid: tuple[int, int, int],
    memory: GlobalMemory,
    shared: int,
    warp: int,
    held: dict[str, bytes],
    fill: int = 0xA5,
    choice: str = "first",
) -> dict[str, bool]:
    """Run every block of a grid, a batch of them at a time. Gives the models used, as ``launch`` does."""
    models: dict[str, bool] = {}
    count = max(1, LANES // program.threads)
    total = grid[0] * grid[1] * grid[2]
    memory.accesses.forget()
    with np.errstate(all="ignore"):
        for first in range(0, total, count):
            number = np.arange(first, min(total, first + count))
            blocks = np.stack([number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1])], axis=1)
            machine = Machine(program, blocks, grid, memory, shared, warp, held, fill, first)
            machine.choice = choice
            machine.run()
            merge(models, machine.models)
    return models


def merge(models: dict[str, bool], more: Mapping[str, bool]) -> None:
    """Add models that were used: one whose answer was open once stays so."""
    for name, was_open in more.items():
        models[name] = was_open or models.get(name, False)


def hidden_arguments(grid: tuple[int, int, int], threads: int) -> Region:
    """What AMD's launches pass unseen: blocks of the grid, then threads of a block (AMDGPU usage, code object V5)."""
    packed = np.frombuffer(struct.pack("<3I3H3H", *grid, threads, 1, 1, 0, 0, 0), np.uint8).copy()
    return Region(HIDDEN, packed.ctypes.data, packed)


def _region(name: str, tensor: Any) -> Region:
    """The storage of a tensor: a view's kernel may reach the rest of it, as strides do."""
    if tensor.device.type != "cpu":
        raise NotExecuted(f"argument {name!r} is on {tensor.device}: emulated tensors are the CPU's")
    storage = tensor.untyped_storage()
    data: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)
    if storage.nbytes():
        # The argument keeps the storage alive for as long as the launch takes.
        data = np.ctypeslib.as_array((ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr()))
    return Region(f"argument {name!r}", storage.data_ptr(), data, fresh_memory.written(tensor, data))
