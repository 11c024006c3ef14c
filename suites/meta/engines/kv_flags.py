"""What engines' own files make of ``--kv-cache-dtype``: modes, storage, what a writer stores, bytes of a page.

Run: ``python -m narrowgauge.suites.meta.engines.kv_flags ENGINE``, with the engine's unpacked wheel in the path.
It asks for torch, and prints one JSON object; ``suites.meta.test_kv_flags`` compares.
"""

from __future__ import annotations

import ast
import json
import sys
from types import SimpleNamespace
from typing import Any

from narrowgauge.suites.meta.engines.loading import Engine, StandIn, folder_of

#: targets, whether they are AMD's, whether vLLM's capability reaches 8.9, whether fp8 is FNUZ
PLATFORMS = {
    "sm_80": (False, False, False),
    "sm_89": (False, True, False),
    "sm_90": (False, True, False),
    "sm_120": (False, True, False),
    "gfx90a": (True, True, False),
    "gfx942": (True, True, True),
    "gfx950": (True, True, False),
    "gfx1201": (True, True, False),
}
#: heads, elements of K's head and of V's
SHAPES = ((8, 128, 128), (1, 64, 64), (2, 256, 128))


def _assigned(package: str, file: str, name: str) -> Any:
    """The value of a literal, or of the one within ``Literal[...]``, that a file assigns."""
    folder = folder_of(package)
    assert folder is not None
    for node in ast.parse((folder / file).read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            value = node.value
            return ast.literal_eval(value.slice if isinstance(value, ast.Subscript) else value)
    raise AssertionError(f"{file} assigns no {name}")


def vllm() -> dict[str, Any]:
    """By flag: its mode, and what the Triton writer stores on each platform; then bytes of pages."""
    import torch

    at = SimpleNamespace(capable=True, fnuz=False, hip=False)
    platform = SimpleNamespace(
        fp8_dtype=lambda: torch.float8_e4m3fnuz if at.fnuz else torch.float8_e4m3fn,
        is_fp8_fnuz=lambda: at.fnuz,
        is_rocm=lambda: at.hip,
        is_xpu=lambda: False,
        is_cuda=lambda: not at.hip,
        has_device_capability=lambda wanted: at.capable,
    )
    sizes = {torch.uint8: 1, torch.int8: 1, torch.bfloat16: 2, torch.float32: 4}
    quantization = "model_executor.layers.quantization."
    answers: dict[str, dict[str, Any]] = {
        "platforms": {"current_platform": platform},
        "config.cache": {"get_kv_cache_dtype_handler": lambda name: None},
        "utils.torch_utils": {
            "get_dtype_size": sizes.__getitem__,
            "nvfp4_kv_cache_full_dim": lambda size: size // 2 + size // 16,  # utils/torch_utils.py:542-544
        },
        "utils.math_utils": {"round_up": lambda size, to: -(-size // to) * to},
        f"{quantization}utils.quant_utils": {
            "FP8_DTYPE": torch.float8_e4m3fn,
            "get_fp8_min_max": lambda: (-448.0, 448.0),
        },
        "triton_utils": {"tl": StandIn(), "triton": _Triton()},
    }
    writer = "v1.attention.ops.triton_reshape_and_cache_flash"
    own = ("v1.kv_cache_interface", writer, f"{quantization}turboquant.config", "v1.attention.ops.ultraquant.format")
    engine = Engine("vllm", own, answers)
    modes, module = engine.module("v1.kv_cache_interface"), engine.module(writer)
    flags = _assigned("vllm", "config/cache.py", "CacheDType")
    stored: dict[str, dict[str, str]] = {}
    module.reshape_and_cache_kernel_flash = kernel = _Kernel()
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    for flag in [f for f in flags if f in ("fp8", "fp8_e4m3", "fp8_e5m2")]:
        stored[flag] = {}
        for target, (at.hip, at.capable, at.fnuz) in PLATFORMS.items():
            cache = torch.zeros(1, 16, 1, 8, dtype=torch.uint8)
            x, one = torch.zeros(1, 1, 8), torch.ones(1)
            try:
                module.triton_reshape_and_cache_flash(x, x, cache, cache, torch.zeros(1), flag, one, one)
                stored[flag][target] = str(kernel.stored).removeprefix("torch.")
            except AssertionError:
                stored[flag][target] = ""
    storage = {flag: str(dtype) for flag, dtype in _storages().items()}
    return {
        "modes": {flag: modes.get_kv_quant_mode(flag).name for flag in flags},
        "storage": {flag: storage[flag] for flag in flags if flag != "auto"},
        "stored": stored,
        "bytes": _pages(engine, modes),
    }


def _storages() -> dict[str, str]:
    """``STR_DTYPE_TO_TORCH_DTYPE``, names of dtypes."""
    folder = folder_of("vllm")
    assert folder is not None
    for node in ast.parse((folder / "utils/torch_utils.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "STR_DTYPE_TO_TORCH_DTYPE":
            assert isinstance(node.value, ast.Dict)
            pairs = zip(node.value.keys, node.value.values, strict=True)
            return {ast.literal_eval(key): ast.unparse(value).removeprefix("torch.") for key, value in pairs if key}
    raise AssertionError("no table of storage")


def _pages(engine: Engine, modes: Any) -> dict[str, int]:
    """Bytes of a page of 16 tokens, by flag and shape: the specs', and of packed kinds their own functions'."""
    import torch

    turbo = engine.module("model_executor.layers.quantization.turboquant.config").TurboQuantConfig
    ultra = engine.module("v1.attention.ops.ultraquant.format").slot_size
    found = {}
    for heads, k, v in SHAPES:
        for flag, dtype in (("auto", torch.bfloat16), ("fp8", torch.uint8), ("float32", torch.float32)):
            spec = modes.FullAttentionSpec(block_size=16, num_kv_heads=heads, head_size=k, head_size_v=v, dtype=dtype)
            found[f"{flag} {heads} {k} {v}"] = spec.page_size_bytes
        if k == v:
            for preset in ("k8v4", "4bit_nc", "k3v4_nc", "3bit_nc"):
                slot = turbo.from_cache_dtype(f"turboquant_{preset}", k).slot_size_aligned
                found[f"turboquant_{preset} {heads} {k} {v}"] = 16 * heads * slot
            found[f"ultraquant_4bit {heads} {k} {v}"] = 16 * heads * ultra(k)
    for tokens in (1, 16, 64):
        spec = modes.MLAAttentionSpec(
            block_size=tokens, num_kv_heads=1, head_size=512, dtype=torch.uint8, state_content_bytes=584, alignment=576
        )
        found[f"V4 {tokens}"] = spec.page_size_bytes
    return found


class _Triton:
    """What the writer asks of Triton outside of a kernel."""

    def jit(self, function: Any) -> Any:
        return function

    def cdiv(self, size: int, by: int) -> int:
        return -(-size // by)

    def next_power_of_2(self, size: int) -> int:
        return 1 << (size - 1).bit_length()

    def __getattr__(self, name: str) -> Any:
        return StandIn()


class _Kernel:
    """In the kernel's place: remembers the dtype under which the cache arrives."""

    stored: Any = None

    def __getitem__(self, grid: Any) -> Any:
        return self

    def __call__(self, **arguments: Any) -> None:
        self.stored = arguments["key_cache_ptr"].dtype


def sglang() -> dict[str, Any]:
    """By flag and platform, the dtype; the choices of the command."""
    import torch

    answers: dict[str, dict[str, Any]] = {
        "kernels.ops.quantization.fp8_kernel": {"fp8_dtype": torch.float8_e4m3fn},
        "srt.utils": {"is_hip": lambda: False},
        "srt.platforms": {"current_platform": SimpleNamespace(is_cpu=lambda: False)},
    }
    module = Engine("sglang", ("srt.mem_cache.kv_cache_dtype",), answers).module("srt.mem_cache.kv_cache_dtype")
    folder = folder_of("sglang")
    assert folder is not None
    text = (folder / "srt/arg_groups/fields/model.py").read_text()
    calls = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.AnnAssign) and _name(n) == "kv_cache_dtype"]
    lists = [k.value for n in ast.walk(calls[0]) if isinstance(n, ast.Call) for k in n.keywords if k.arg == "choices"]
    choices = ast.literal_eval(lists[0])
    stored: dict[str, dict[str, str]] = {}
    for flag in [*choices, "fp4_e2m1"]:
        stored[flag] = {}
        for target, (hip, _, fnuz) in PLATFORMS.items():
            module._is_hip, module.fp8_dtype = hip, torch.float8_e4m3fnuz if fnuz else torch.float8_e4m3fn
            try:
                _, dtype = module.configure_kv_cache_dtype(
                    server_args_kv_cache_dtype=flag, model=None, model_dtype=torch.float16, is_draft_worker=False,
                    is_dflash=False, speculative_draft_attention_backend="",
                )  # fmt: skip
                stored[flag][target] = str(dtype).removeprefix("torch.")
            except ValueError:
                stored[flag][target] = ""
    return {"choices": choices, "stored": stored}


def _name(node: ast.AnnAssign) -> str:
    return node.target.id if isinstance(node.target, ast.Name) else ""


if __name__ == "__main__":
    print(json.dumps({"vllm": vllm, "sglang": sglang}[sys.argv[1]]()))
