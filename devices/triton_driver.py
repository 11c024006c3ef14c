"""An emulated device is a Triton driver: the owner's own launches run unchanged and arrive here. Runs in the child.

Triton compiles for the target as it would with the hardware. devices/emulator executes the code on the tensors of the
launch: PTX for NVIDIA's targets, for AMD's the LLVM IR that the code generator gets.

Private interfaces of Triton 3.9 are used: ``runtime.driver.set_active``, a driver's ``launcher_cls`` and ``utils``,
and ``CompiledKernel._init_handles``. suites/portability/test_emulated.py fails first when they move.
"""

from __future__ import annotations

import itertools
from typing import Any

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices import fresh_memory
from narrowgauge.devices.targets import target_named


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
        active.compiled = self
        return prepare(self)

    CompiledKernel._init_handles = remember_then_prepare
    driver.set_active(active)
    return active


class _Utils:
    """What Triton asks of a loaded module."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        # Enough of everything: a kernel that does not fit the real target is for the emulator's own limits to say.
        return {"max_shared_mem": 1 << 30, "multiprocessor_count": 1, "warpSize": 32}

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, ...]:
        return object(), name, 0, 0, 1024

    def unload_module(self, module: Any) -> None:
        pass


class Driver:
    """The Triton driver of an emulated target. Tensors stay on the CPU."""

    def __init__(self, target: Any, name: str) -> None:
        self.target, self.name = target, name
        self.utils = _Utils()
        self.compiled: Any = None
        self.models: dict[str, bool] = {}  #: of instructions, used by launches; True where an answer was open
        self.launched = itertools.count()
        self.launcher_cls = lambda source, metadata: _Launcher(self, source)

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        import torch

        return torch.cpu

    def is_active(self) -> bool:
        return True

    def get_benchmarker(self) -> Any:
        # Autotuning: every configuration is launched once, and the first one that can be is said to be the fastest.
        def bench(launch: Any, quantiles: Any = None) -> list[float]:
            launch()
            return [float(next(self.launched))] * 3

        return bench


class _Launcher:
    """Called once per launch, after compilation."""

    def __init__(self, driver: Driver, source: Any) -> None:
        self.driver, self.source = driver, source

    def __call__(
        self, x: int, y: int, z: int, stream: int, function: Any, packed: Any, described: Any, enter: Any, leave: Any,
        *arguments: Any,
    ) -> None:  # fmt: skip
        compiled = self.driver.compiled
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
            (x, y, z),
            metadata.shared,
            warp,
            fresh_memory.pattern(),
        )
        launching.merge(self.driver.models, models)
