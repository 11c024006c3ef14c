"""vLLM's functions that run without a GPU, and its Triton kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from narrowgauge.suites.meta.engines.calls import (
    FNUZ,
    NVIDIA,
    OCP,
    TORCH,
    WIDE,
    Array,
    Call,
    finite,
    fixed,
    grid,
    nibbles,
    raw,
)
from narrowgauge.suites.meta.engines.loading import Engine

PACKAGE = "vllm"
_UTILS, _OPS = "model_executor.layers.quantization.utils.", "v1.attention.ops."
_OWN = (
    "scalar_type",
    "utils.deep_gemm",
    "utils.math_utils",
    "model_executor.layers.quantization.input_quant_fp8",
    *(
        f"{_UTILS}{name}"
        for name in ("quant_utils", "fp8_utils", "int8_utils", "mxfp4_utils", "mxfp8_utils", "nvfp4_emulation_utils")
    ),
    f"{_OPS}triton_reshape_and_cache_flash",
    "third_party.triton_kernels.numerics_details.mxfp",
    "third_party.triton_kernels.numerics_details.mxfp_details._downcast_to_mxfp",
    "third_party.triton_kernels.numerics_details.mxfp_details._upcast_from_mxfp",
)
_NO_INTEGER = "NaN and infinity: LLVM leaves open what NaN becomes as an integer"
_AS_INTEGER = "quotients that C leaves open as an integer"
_NO_NAN = "NaN and infinity: what it returns are values, which have no code"


def _platform(device: str) -> Any:
    """What the files ask of vLLM's platform: that of the device, or of a CPU."""
    import torch

    fp8 = torch.float8_e4m3fnuz if device == FNUZ else torch.float8_e4m3fn
    hip = device in (OCP, FNUZ)
    return SimpleNamespace(
        is_rocm=lambda: hip,
        is_cuda=lambda: False,
        is_cuda_alike=lambda: False,
        is_xpu=lambda: False,
        is_cpu=lambda: not hip,
        fp8_dtype=lambda: fp8,
        is_fp8_fnuz=lambda: device == FNUZ,
        simple_compile_backend="eager",
    )


def load(device: str) -> Engine:
    """The package for one device."""
    import torch
    import triton
    import triton.language as tl

    def register(op_name: str, op_func: Any, **more: Any) -> None:
        setattr(torch.ops.vllm, op_name, op_func)

    answers: dict[str, dict[str, Any]] = {
        "platforms": {"current_platform": _platform(device)},
        "triton_utils": {"triton": triton, "tl": tl, "HAS_TRITON": True},
        "utils.torch_utils": {"direct_register_custom_op": register},
        "v1.kv_cache_interface": {"is_quantized_kv_cache": lambda name: name.startswith("fp8")},
    }
    return Engine(PACKAGE, _OWN, answers)


def calls(device: str) -> Iterator[Call]:
    """Every call of a device."""
    engine = load(device)
    kinds = {TORCH: _torch, OCP: _triton, FNUZ: _triton, NVIDIA: _shifted}
    yield from kinds[device](engine, device)


# --- torch -----------------------------------------------------------------------------------------------------------


def _torch(engine: Engine, device: str) -> Iterator[Call]:
    yield from _native(engine)
    fp8, blocks = engine.module(f"{_UTILS}fp8_utils"), engine.module("utils.deep_gemm")
    yield Call("vllm.input_to_float8", "float8_e4m3fn", TORCH, lambda x, given: _pair(fp8.input_to_float8(x), x, 1))
    yield Call(
        "vllm.input_to_float8",
        "float8_e4m3fnuz",
        TORCH,
        lambda x, given: _pair(fp8.input_to_float8(x, _dtype("float8_e4m3fnuz")), x, 1),
    )
    for name, ue8m0 in (("", False), ("_ue8m0", True)):
        yield Call(
            f"vllm.fp8_block{name}",
            "float8_e4m3fn",
            TORCH,
            fixed(
                lambda x, given, ue8m0: _pair(blocks.per_block_cast_to_fp8(x, [128, 128], ue8m0), x, -(-len(x) // 128)),
                ue8m0=ue8m0,
            ),
        )
    mxfp8, nvfp4 = engine.module(f"{_UTILS}mxfp8_utils"), engine.module(f"{_UTILS}nvfp4_emulation_utils")
    yield Call(
        "vllm.mxfp8_torch", "float8_e4m3fn", TORCH, lambda x, given: _pair(mxfp8._mxfp8_e4m3_quantize_torch(x), x)
    )
    yield Call(
        "vllm.nvfp4_emulated",
        "float4_e2m1fn",
        TORCH,
        lambda x, given: _values(nvfp4.ref_nvfp4_quant(x, given["global_scale"].reshape(()), 16), x),
        left_out=_NO_NAN,
        kept=finite,
    )
    yield from _weights(engine)


def _dtype(name: str) -> Any:
    import torch

    return getattr(torch, name)


def _pair(got: tuple[Any, Any], x: Any, rows: int | None = None) -> Mapping[str, Array]:
    codes, scale = got[:2]
    return {"codes": raw(codes), "scale": grid(scale, len(x) if rows is None else rows)}


def _values(got: tuple[Any, Any], x: Any) -> Mapping[str, Array]:
    """Values and scales as float32 numbers."""
    values, scale = got
    return {"values": raw(values), "scale values": grid(scale, len(x))}


def _native(engine: Engine) -> Iterator[Call]:
    module = engine.module("model_executor.layers.quantization.input_quant_fp8")
    shapes = module.GroupShape
    kinds = {
        "tensor": shapes.PER_TENSOR,
        "token": shapes.PER_TOKEN,
        "channel": getattr(shapes, "PER_CHANNEL", shapes(-1, 1)),
        "group_128": shapes(1, 128),
    }

    def forward(x: Any, kind: str, scale: Any = None, bound: Any = None, ue8m0: bool = False) -> Mapping[str, Array]:
        layer = SimpleNamespace(
            static=scale is not None,
            is_group_quant=kind == "group_128",
            group_shape=kinds[kind],
            group_size=128,
            use_ue8m0=ue8m0,
            num_token_padding=None,
            column_major_scales=False,
        )
        layer._quantize_group_native = partial(module.QuantFP8._quantize_group_native, layer)
        codes, made = module.QuantFP8.forward_native(layer, x, scale, bound)
        return {"codes": raw(codes)} | (
            {} if scale is not None else {"scale": grid(made, 1 if kind == "tensor" else len(x))}
        )

    for kind in ("tensor", "token"):
        yield Call(
            f"vllm.fp8_native_{kind}", "float8_e4m3fn", TORCH, fixed(lambda x, given, kind: forward(x, kind), kind=kind)
        )
    yield Call(
        "vllm.fp8_native_token_bounded",
        "float8_e4m3fn",
        TORCH,
        lambda x, given: forward(x, "token", bound=given["upper_bound"].reshape(1)),
    )
    for name, ue8m0 in (("", False), ("_ue8m0", True)):
        yield Call(
            f"vllm.fp8_native_group{name}",
            "float8_e4m3fn",
            TORCH,
            fixed(lambda x, given, ue8m0: forward(x, "group_128", ue8m0=ue8m0), ue8m0=ue8m0),
        )
    yield Call(
        "vllm.fp8_native_static_tensor",
        "float8_e4m3fn",
        TORCH,
        lambda x, given: forward(x, "tensor", given["scale"].reshape(1)),
    )


def _spread(numbers: Array) -> Array:
    """Rows whose quotients are below float16's largest value, and so below 2^31."""
    with np.errstate(all="ignore"):
        span = np.maximum(numbers.max(axis=1) - numbers.min(axis=1), np.float32(1e-5))
        return np.asarray(finite(numbers) & (np.abs(numbers).max(axis=1) < span * 4000) & (span < 30000))


def _weights(engine: Engine) -> Iterator[Call]:
    module, types = engine.module(f"{_UTILS}quant_utils"), engine.module("scalar_type").scalar_types

    def symmetric(x: Any, given: Any) -> Mapping[str, Array]:
        _, codes, scale, _ = module.quantize_weights(x, types.uint4b8, 128)
        return {"codes": raw(codes), "scale": raw(scale)}

    def asymmetric(x: Any, given: Any) -> Mapping[str, Array]:
        _, codes, scale, zero = module.quantize_weights(x, types.uint4, 128, zero_points=True)
        return {"codes": raw(codes), "scale": raw(scale), "zero_point": raw(zero)}

    for source, on in (("float16", ""), ("bfloat16", "_bf16")):
        yield Call(f"vllm.uint4b8{on}", "uint4", TORCH, symmetric, (source,), _AS_INTEGER, finite)
        yield Call(f"vllm.uint4_zero_point{on}", "uint4", TORCH, asymmetric, (source,), _AS_INTEGER, _spread)


# --- Triton ----------------------------------------------------------------------------------------------------------


def _triton(engine: Engine, device: str) -> Iterator[Call]:
    import torch

    fp8, cache = engine.module(f"{_UTILS}fp8_utils"), engine.module(f"{_OPS}triton_reshape_and_cache_flash")
    int8 = engine.module(f"{_UTILS}int8_utils")
    own = "float8_e4m3fnuz" if device == FNUZ else "float8_e4m3fn"
    for name, ue8m0 in (("", False), ("_ue8m0", True)):
        yield Call(
            f"vllm.fp8_group_triton{name}",
            own,
            device,
            fixed(
                lambda x, given, ue8m0: _pair(fp8.per_token_group_quant_fp8(x, 128, use_ue8m0=ue8m0), x), ue8m0=ue8m0
            ),
        )

    def heads(x: Any, dtype: Any) -> Mapping[str, Array]:
        """Each row is a token, and each 128 columns a head."""
        tokens, count = len(x), x.shape[1] // 128
        key = x.reshape(tokens, count, 128).contiguous()
        stored = [torch.zeros(1, tokens, count, 128, dtype=torch.uint8).view(dtype) for _ in "kv"]
        scales = [torch.zeros(1, tokens, count) for _ in "kv"]
        slots = torch.arange(tokens)
        mode = SimpleNamespace()
        cache.triton_reshape_and_cache_flash_per_token_head_quant(key, key, *stored, *scales, slots, mode)
        return {"codes": raw(stored[0]).reshape(tokens, -1), "scale": grid(scales[0], tokens)}

    yield Call("vllm.kv_fp8_token_head", own, device, lambda x, given: heads(x, _dtype(own)))
    if device == FNUZ:
        yield _stored(engine, device, own)
        return
    yield Call("vllm.kv_int8_token_head", "int8", device, lambda x, given: heads(x, torch.int8))
    yield Call(
        "vllm.int8_per_token_triton",
        "int8",
        device,
        lambda x, given: _pair(int8.per_token_quant_int8(x), x),
        left_out=_NO_INTEGER,
        kept=finite,
    )
    yield Call(
        "vllm.int8_group_triton", "int8", device, lambda x, given: _pair(int8.per_token_group_quant_int8(x, 128), x)
    )
    yield from _blocks(engine, device)


def _stored(engine: Engine, device: str, to: str) -> Call:
    """The writer that leaves the cast to the store."""
    import torch

    cache = engine.module(f"{_OPS}triton_reshape_and_cache_flash")
    cache._is_supported_kv_cache_dtype = lambda name: True

    def stored(x: Any, scale: Any) -> Mapping[str, Array]:
        tokens, wide = x.shape
        key = x.reshape(tokens, 1, wide).contiguous()
        kept = [torch.zeros(1, tokens, 1, wide, dtype=torch.uint8) for _ in "kv"]
        cache.triton_reshape_and_cache_flash(
            key, key, *kept, torch.arange(tokens), "fp8", scale.reshape(1), scale.reshape(1)
        )
        return {"codes": raw(kept[0]).reshape(tokens, wide)}

    return Call("vllm.kv_fp8_tensor_triton", to, device, lambda x, given: stored(x, given["scale"]))


def _blocks(engine: Engine, device: str) -> Iterator[Call]:
    mxfp8, nvfp4 = engine.module(f"{_UTILS}mxfp8_utils"), engine.module(f"{_UTILS}nvfp4_emulation_utils")
    yield Call(
        "vllm.mxfp8_triton", "float8_e4m3fn", device, lambda x, given: _pair(mxfp8._mxfp8_e4m3_quantize_triton(x), x)
    )

    def back(x: Any, given: Any) -> Mapping[str, Array]:
        """It gives values times the scale over the tensor's alone."""
        return {"dequantized": raw(nvfp4._triton_nvfp4_quant_dequant(x, given["global_scale"].reshape(1), 16))}

    yield Call("vllm.nvfp4_triton", "float4_e2m1fn", device, back, WIDE[:1])


def _shifted(engine: Engine, device: str) -> Iterator[Call]:
    """To MXFP4 by bits, of which a zero is shifted by more than 31; and the same function to MXFP8."""
    yield _stored(engine, device, "float8_e4m3fn")
    mxfp4 = engine.module(f"{_UTILS}mxfp4_utils")
    carried = engine.module("third_party.triton_kernels.numerics_details.mxfp")

    def packed(got: tuple[Any, Any], x: Any) -> Mapping[str, Array]:
        return {"codes": nibbles(got[0]), "scale": grid(got[1], len(x))}

    yield Call(
        "vllm.mxfp4_triton",
        "float4_e2m1fn",
        device,
        lambda x, given: packed(mxfp4.downcast_to_mxfp(x, 1), x),
        WIDE[1:],
    )
    modes = carried.DequantScaleRoundingMode
    for on, mode in (("", modes.ROUND_UP), ("_down", modes.ROUND_DOWN)):
        yield Call(
            f"vllm.triton_kernels_mxfp4{on}",
            "float4_e2m1fn",
            device,
            fixed(lambda x, given, mode: packed(carried.downcast_to_mxfp(x, _dtype("uint8"), 1, mode), x), mode=mode),
        )
        for name in ("float8_e4m3fn", "float8_e5m2"):
            yield Call(
                f"triton_kernels.mxfp8{on}",
                name,
                device,
                fixed(
                    lambda x, given, mode, name: _pair(carried.downcast_to_mxfp(x, _dtype(name), 1, mode), x),
                    mode=mode,
                    name=name,
                ),
            )
