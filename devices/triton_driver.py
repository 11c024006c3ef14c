"""An emulated device is a Triton driver: the owner's own launches run unchanged and arrive here. Runs in the child.

Triton compiles for the target as it would with the hardware. devices/emulator executes the code on the tensors of the
launch: PTX for NVIDIA's targets, for AMD's the LLVM IR that the code generator gets.

Private interfaces of Triton 3.9 are used: ``runtime.driver.set_active``, a driver's ``launcher_cls`` and ``utils``,
and ``CompiledKernel._init_handles``. suites/portability/test_emulated.py fails first when they move.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from narrowgauge.contracts.outcome import CHOICES, NotExecuted
from narrowgauge.devices import autotuning, fresh_memory, machine_code, torch_gpu
from narrowgauge.devices.targets import LIMITS, target_named


def install(name: str) -> Driver:
    """Make Triton compile for a target and hand every launch to ``_Launcher``. Needs no GPU."""
    try:
        from triton.backends.compiler import GPUTarget
        from triton.compiler.compiler import CompiledKernel
        from triton.runtime import driver
    except ImportError as error:
        raise NotExecuted(f"triton is not installed ({error})") from error
    target = target_named(name)
    number: int | str = int(name.removeprefix("sm_")) if target.backend == "cuda" else name
    active = Driver(GPUTarget(target.backend, number, target.warp), name)
    prepare = CompiledKernel._init_handles

    def remember_then_prepare(self: Any) -> Any:
        active.preparing = self
        return prepare(self)

    CompiledKernel._init_handles = remember_then_prepare
    driver.set_active(active)
    autotuning.watch(active.note)
    torch_gpu.install(name)
    return active


class _Utils:
    """What Triton asks of the device and of a loaded module."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def get_device_properties(self, device: int) -> dict[str, Any]:
        known, limits = self.driver.target, LIMITS[self.driver.name]
        return _Properties(
            max_shared_mem=limits.shared, max_num_regs=65536, warpSize=known.warp_size,
            **({"multiprocessor_count": limits.units} if limits.units else {}),
            **({"arch": self.driver.name} if known.backend == "hip" else {}),
        )  # fmt: skip

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, ...]:
        return object(), name, _registers(self.driver.preparing), 0, 1024

    def unload_module(self, module: Any) -> None:
        pass


class _Properties(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        raise NotExecuted(f"get_device_properties()[{name!r}] is not answered on an emulated device")


def _registers(compiled: Any) -> int:
    """Registers of a thread: wrappers compute from them how many blocks fit."""
    if "amdgcn" in compiled.asm:
        found = re.search(r"\.vgpr_count:\s*(\d+)", compiled.asm["amdgcn"])
        return int(found[1]) if found else 0
    # .nv.info of the cubin: attribute 0x2f of form 4 has 8 bytes, the function's number and its registers.
    place = compiled.asm["cubin"].find(b"\x04\x2f\x08\x00")
    return int(struct.unpack_from("<I", compiled.asm["cubin"], place + 8)[0]) if place >= 0 else 0


class Driver:
    """The Triton driver of an emulated target. Tensors stay on the CPU."""

    def __init__(self, target: Any, name: str) -> None:
        self.target, self.name = target, name
        self.utils = _Utils(self)
        self.preparing: Any = None  #: the compiled kernel that Triton makes ready to launch
        self.models: dict[str, bool] = {}  #: of instructions, used by launches; True where an answer was open
        self.notes: list[str] = []
        self.choice: str = CHOICES[0]
        self.recorded: dict[str, dict[str, Any]] | None = None  #: code of what is launched, which does not run then
        self.launcher_cls = lambda source, metadata: _Launcher(self, source)

    def begin(self, choice: str) -> None:
        """Start a request: nothing of the one before is left."""
        self.models.clear()
        self.notes.clear()
        self.choice = choice

    def record(self, called: Callable[[], object]) -> list[dict[str, Any]]:
        """The code of what a call launches, one entry for each kernel that was compiled. Nothing is executed."""
        self.recorded = {}
        try:
            called()
            return list(self.recorded.values())
        finally:
            self.recorded = None

    def note(self, text: str) -> None:
        """Say something of the launches of this request, once."""
        if text not in self.notes:
            self.notes.append(text)

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return torch_gpu.capability(self.name)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def is_active(self) -> bool:
        return True

    def get_benchmarker(self) -> Any:
        from triton.testing import do_bench

        return do_bench

    def get_empty_cache_for_benchmark(self) -> Any:
        return None  # there is no cache to clear between two runs

    def clear_cache(self, cache: Any) -> None:
        pass


class _Launcher:
    """Called once per launch, after compilation."""

    def __init__(self, driver: Driver, source: Any) -> None:
        self.driver, self.source, self.compiled = driver, source, driver.preparing

    def __call__(
        self, x: int, y: int, z: int, stream: int, function: Any, packed: Any, described: Any, enter: Any, leave: Any,
        *arguments: Any,
    ) -> None:  # fmt: skip
        if enter is not None:
            enter(described)
        if self.driver.recorded is None:
            with torch_gpu.as_they_are():
                self._launch((x, y, z), arguments)
        else:
            named = {"kernel": self.compiled.metadata.name}
            self.driver.recorded[self.compiled.hash] = named | machine_code.instructions(self.compiled)
        if leave is not None:
            leave(described)

    def _launch(self, grid: tuple[int, int, int], arguments: tuple[Any, ...]) -> None:
        compiled = self.compiled
        metadata = compiled.metadata
        if metadata.num_ctas != 1:
            raise NotExecuted(f"{metadata.name} uses clusters of {metadata.num_ctas} blocks")
        from narrowgauge.devices.emulator import launching

        warp = self.driver.target.warp_size
        if self.driver.target.backend == "cuda":
            fronts: Any = (launching.nvidia,)
            text = compiled.asm["ptx"]
        else:
            fusion = bool(getattr(metadata, "enable_fp_fusion", True))
            text, threads = compiled.asm["llir"], metadata.num_warps * warp
            fronts = launching.amd_fronts(text, compiled.asm["amdgcn"], self.driver.name, threads, fusion)
        models = launching.launch(
            fronts,
            text,
            self.source.signature,
            arguments,
            grid,
            metadata.shared,
            warp,
            fresh_memory.pattern(),
            self.driver.choice,
        )
        launching.merge(self.driver.models, models)
