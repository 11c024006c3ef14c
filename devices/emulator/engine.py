"""The machine that executes a kernel: every virtual register is an array over the threads ("lanes") of many blocks.

A register that is the same for every lane may have one element. Arrays are never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from narrowgauge.devices.emulator.memory import Active, Array, Fault, GlobalMemory, LocalMemory, Region
from narrowgauge.devices.emulator.shared_memory import Copies, SharedMemory


class KernelError(Exception):
    """A ``Fault`` with the kernel, the source line and the instruction."""


@dataclass(frozen=True)
class Instruction:
    """One instruction. ``run`` changes a machine for the active lanes; a branch and a barrier are the engine's own."""

    text: str
    where: str  #: "file:line" of the kernel's source, "" where not known
    run: Callable[[Machine, Active], None]
    kind: Literal["straight", "branch", "barrier", "exit"] = "straight"
    guard: Callable[[Machine], Array] | None = None  #: lanes that carry it out [lanes] or [1] bool
    target: int = -1  #: of a branch: index into the program


@dataclass(frozen=True)
class Program:
    """A kernel: its instructions, and what the launch has to bring."""

    name: str
    instructions: Sequence[Instruction]
    threads: int  #: of a block
    local: int = 0  #: bytes of memory that each thread has for itself
    constants: tuple[Region, ...] = ()  #: tables that come with the code


class Machine:
    """A batch of blocks of one launch.

    ``blocks`` [n, 3] are their numbers within ``grid``, ``first`` is how many blocks ran before.
    """

    def __init__(
        self, program: Program, blocks: Array, grid: tuple[int, int, int], memory: GlobalMemory, shared: int, warp: int,
        parameters: dict[str, bytes], fill: int = 0xA5, first: int = 0,
    ) -> None:  # fmt: skip
        self.fill = fill
        self.program, self.warp, self.memory, self.parameters = program, warp, memory, parameters
        self.threads, self.blocks, self.grid = program.threads, blocks, grid
        self.lanes = len(blocks) * program.threads
        self.lane = np.arange(self.lanes)
        self.registers: dict[str, Array] = {}
        self.shared = SharedMemory(len(blocks), shared, program.threads, warp)
        memory.accesses.batch(first, len(blocks), program.threads, warp)
        self.copies = Copies(self.shared, self.lanes)
        self.local = LocalMemory(self.lanes, program.local)
        self.models: dict[str, bool] = {}  #: models used so far, and whether an answer of theirs was open
        self.choice = "first"  #: which answer of theirs is taken (modelled.choose)
        self.exited = np.zeros(self.lanes, bool)
        self._pending: dict[int, Array] = {}
        self._waiting: dict[int, Array] = {}  #: by the index of the barrier

    # --- what instructions use --------------------------------------------------------------------------------------

    def read(self, register: str, dtype: np.dtype[Any]) -> Array:
        """A register [lanes] or [1]. One that nobody wrote holds the launch's fill, as fresh memory does.

        Compilers do read such registers, for parts of a value that nobody uses. Raises ``Fault`` for a predicate.
        """
        found = self.registers.get(register)
        return self._unwritten(register, dtype) if found is None else found

    def write(self, register: str, value: Array, active: Active) -> None:
        """Set a register for the active lanes."""
        if active is not None:
            old = self.registers.get(register)
            if old is None:
                old = value.dtype.type(0) if value.dtype.kind == "b" else self._unwritten(register, value.dtype)
            value = np.where(active, value, old)
        self.registers[register] = value

    def _unwritten(self, register: str, dtype: np.dtype[Any]) -> Array:
        if dtype.kind == "b":
            raise Fault(f"predicate {register} is read and was never written")
        return np.frombuffer(bytes([self.fill]) * dtype.itemsize, dtype)

    def wide(self, value: Array) -> Array:
        """A register with one element for each lane."""
        return value if len(value) == self.lanes else np.broadcast_to(value, (self.lanes,))

    def special(self, name: str) -> Array:
        """A special register as uint32: thread and block numbers, sizes."""
        of, _, axis = name.partition(".")
        number = "xyz".index(axis) if axis else 0
        match of:
            case "tid":
                found = self.lane % self.threads if number == 0 else np.zeros(1)
            case "ntid":
                found = np.array([self.threads if number == 0 else 1])
            case "ctaid":
                found = np.repeat(self.blocks[:, number], self.threads)
            case "nctaid":
                found = np.array([self.grid[number]])
            case "laneid":
                found = self.lane % self.threads % self.warp
            case _:
                raise Fault(f"special register %{name} is not known")
        return found.astype(np.uint32)

    def whole_warps(self, active: Active, what: str) -> None:
        """Raise ``Fault`` where a warp takes part with some of its lanes only."""
        if active is not None:
            here = active.reshape(-1, self.warp)
            if (here.any(axis=1) & ~here.all(axis=1)).any():
                raise Fault(f"{what} by some lanes of a warp while others are elsewhere")

    # --- control flow -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Execute to the end. Lanes that parted meet again: those at the smallest instruction go first."""
        self._pending = {0: np.ones(self.lanes, bool)}
        while self._pending or self._waiting:
            if not self._pending:
                self._release()
                continue
            at = min(self._pending)
            self._run_from(at, self._pending.pop(at))

    def _run_from(self, at: int, lanes: Array) -> None:
        """Run a set of lanes to the next instruction where they part, wait, end or meet others."""
        active = None if lanes.all() else lanes
        instructions = self.program.instructions
        while True:
            instruction = instructions[at]
            try:
                taking = active
                if instruction.guard is not None:
                    chosen = instruction.guard(self)
                    taking = chosen if active is None else chosen & active
                if instruction.kind == "straight":
                    if taking is None or taking.any():
                        whole = taking is None or (len(taking) == 1 or taking.all())
                        instruction.run(self, None if whole else taking)
                    at += 1
                    if at in self._pending:
                        return self._go(at, lanes)
                    continue
                here = lanes if taking is None else np.broadcast_to(taking, lanes.shape)
                if instruction.kind == "branch":
                    self._go(instruction.target, here)
                elif instruction.kind == "exit":
                    self.exited |= here
                else:
                    self._wait(at, here)
                return self._go(at + 1, lanes & ~here)
            except Fault as fault:
                line = f" at {instruction.where}" if instruction.where else ""
                raise KernelError(f"{self.program.name}{line}, '{instruction.text}': {fault}") from fault

    def _go(self, at: int, lanes: Array) -> None:
        if lanes.any():
            self._pending[at] = self._pending[at] | lanes if at in self._pending else lanes

    def _wait(self, at: int, lanes: Array) -> None:
        """Lanes arrive at a barrier. Lanes of a warp arrive together: the others are past it, and will not come."""
        warps, gone = lanes.reshape(-1, self.warp), self.exited.reshape(-1, self.warp)
        if (warps.any(axis=1) & ~(warps | gone).all(axis=1)).any():
            raise Fault("divergent barrier: some lanes of a warp wait, others went another way")
        self._waiting[at] = lanes | self._waiting.get(at, np.zeros_like(lanes))

    def _release(self) -> None:
        """Nothing else can run: every lane that has not ended waits, so every barrier is complete."""
        waiting, self._waiting = self._waiting, {}
        blocks = np.zeros(len(self.blocks), bool)
        for at, lanes in waiting.items():
            blocks |= lanes.reshape(len(blocks), -1).any(axis=1)
            self._go(at + 1, lanes)
        self.shared.barrier(blocks)
        self.memory.accesses.barrier(blocks)
