"""SGLang's functions that run without a GPU, and its Triton kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from narrowgauge.suites.meta.engines.calls import (
    FNUZ,
    NVIDIA,
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

PACKAGE = "sglang"
_OPS = "kernels.ops."
_OWN = (
    "srt.layers.quantization.fp8_utils",
    "srt.layers.quantization.kvfp4_tensor",
    "srt.layers.quantization.mxfp4_tensor",
    f"{_OPS}quantization.fp8_kernel",
    f"{_OPS}quantization.int8_kernel",
    f"{_OPS}quantization.mxfp8_quant",
    f"{_OPS}quantization.dsa_quant_k_cache",
    f"{_OPS}kvcache.cache_move",
)
#: a scale that is not finite as an exponent is a conversion that C leaves open
_NO_INTEGER = "NaN and infinity: LLVM leaves open what NaN becomes as an integer"
_OPEN = "NaN and infinity: C leaves open what they become as an unsigned byte"


def load(device: str) -> Engine:
    """The package for one device; torch's part is that for AMD without AITER."""
    utils: dict[str, Any] = {
        "is_hip": lambda: True,
        "is_cuda": lambda: False,
        "is_cpu": lambda: False,
        "is_musa": lambda: False,
        "is_xpu": lambda: False,
        "is_npu": lambda: False,
        "get_device_capability": lambda: (9, 0),
        "ceil_align": lambda size, by: -(-size // by) * by,
    }
    answers = {
        "srt.utils": utils,
        "srt.runtime_context": {"get_device_capability": lambda: (9, 0)},
        "srt.utils.common": {"torch_release": (2, 13)},
        "srt.utils.custom_op": {"register_custom_op": lambda *a, **k: a[0] if a else (lambda f: f)},
        "kernels.jit.utils": {"is_arch_support_pdl": lambda: False},
    }
    return Engine(PACKAGE, _OWN, answers)


def calls(device: str) -> Iterator[Call]:
    """Every call of a device."""
    if device == TORCH:
        import torch

        torch.cuda.get_device_properties = lambda index: type("P", (), {"gcnArchName": "gfx950"})()
        torch.compile = lambda function=None, **options: function  # what is compiled is run eagerly
    if device != NVIDIA:
        engine = load(device)
        yield from _torch(engine) if device == TORCH else _triton(engine, device)


def _pair(got: tuple[Any, Any], x: Any, rows: int | None = None) -> Mapping[str, Array]:
    codes, scale = got[:2]
    return {"codes": raw(codes), "scale": grid(scale, len(x) if rows is None else rows)}


def _torch(engine: Engine) -> Iterator[Call]:
    import torch

    fp8, tiles = engine.module(f"{_OPS}quantization.fp8_kernel"), engine.module("srt.layers.quantization.fp8_utils")
    mxfp4 = engine.module("srt.layers.quantization.mxfp4_tensor").MXFP4QuantizeUtil
    kvfp4 = engine.module("srt.layers.quantization.kvfp4_tensor").FP4MXBlock16KVQuantizeUtil

    def native(x: Any, rows: int, function: Any) -> Mapping[str, Array]:
        codes, scale = torch.empty(x.shape, dtype=torch.float8_e4m3fn), torch.empty(rows, 1)
        function(codes, x, scale)
        return _pair((codes, scale), x, rows)

    def static(x: Any, scale: Any) -> Mapping[str, Array]:
        codes = torch.empty(x.shape, dtype=torch.float8_e4m3fn)
        fp8._native_static_quant_fp8(codes, x, scale.reshape(1))
        return {"codes": raw(codes)}

    def own(name: str, run: Any, **more: Any) -> Call:
        return Call(f"sglang.{name}", "float8_e4m3fn", TORCH, run, **more)

    yield own("fp8_native_tensor", lambda x, given: native(x, 1, fp8._native_dynamic_per_tensor_quant_fp8))
    yield own("fp8_native_token", lambda x, given: native(x, len(x), fp8._native_dynamic_per_token_quant_fp8))
    yield own("fp8_native_static_tensor", lambda x, given: static(x, given["scale"]))
    yield own("fp8_block_ue8m0", lambda x, given: _pair(tiles.per_block_cast_to_fp8(x), x, -(-len(x) // 128)))

    def eager(x: Any, given: Any) -> Mapping[str, Array]:
        packed, scale = kvfp4.batched_quantize(x.reshape(len(x), 1, -1))
        return {"codes": nibbles(packed.reshape(len(x), -1)), "scale": grid(scale, len(x))}

    def util(x: Any, given: Any) -> Mapping[str, Array]:
        made, scale = mxfp4.quantize(x, 32)
        return {"codes": nibbles(made._quantized_data), "scale": grid(scale, len(x))}

    mxfp4.__init__ = lambda self, shape, dtype, data: setattr(self, "_quantized_data", data)
    yield Call("sglang.fp4_kv_block16_eager", "float4_e2m1fn", TORCH, eager, left_out=_OPEN, kept=finite)
    yield Call(
        "sglang.fp4_kv_block16",
        "float4_e2m1fn",
        TORCH,
        lambda x, given: eager(x.float(), given),
        left_out=_OPEN,
        kept=finite,
    )
    yield Call("sglang.mxfp4_util", "float4_e2m1fn", TORCH, util, left_out=_OPEN, kept=finite)

    def nearest(x: Any, given: Any) -> Mapping[str, Array]:
        tiles.block_quant_dequant = lambda weight, *rest: weight.float()  # the weight is given as it is
        packed, scale = tiles._quantize_block_fp8_weight_to_mxfp4_rne(x, torch.ones(1, 1), [128, 128], 32)
        return {"codes": nibbles(packed.view(torch.uint8)), "scale": grid(scale, len(x))}

    yield Call("sglang.mxfp4_rne", "float4_e2m1fn", TORCH, nearest)


def _triton(engine: Engine, device: str) -> Iterator[Call]:
    import torch

    fp8 = engine.module(f"{_OPS}quantization.fp8_kernel")
    own = "float8_e4m3fnuz" if device == FNUZ else "float8_e4m3fn"
    dtype = getattr(torch, own)
    if device == FNUZ:
        fp8.fp8_max, fp8.fp8_min = 224.0, -224.0

    def groups(x: Any, to: Any, **how: Any) -> Mapping[str, Array]:
        return _pair(fp8._per_token_group_quant_8bit_raw(x, 128, dtype=to, **how), x)

    for name, how in (
        ("row_major", {}),
        ("column_major", {"column_major_scales": True}),
    ):
        yield Call(
            f"sglang.fp8_group_triton_{name}",
            own,
            device,
            fixed(lambda x, given, how: groups(x, dtype, **how), how=how),
        )

    def columns(x: Any, given: Any) -> Mapping[str, Array]:
        """The kernel itself: its wrapper packs the scales."""
        codes, scale = torch.empty(x.shape, dtype=dtype), torch.empty(x.shape[1] // 128, len(x))
        bound = 224.0 if device == FNUZ else 448.0
        fp8._per_token_group_quant_8bit_colmajor[(scale.numel(),)](
            x, codes, scale, 128, x.shape[1], len(x), 1e-10, -bound, bound, BLOCK=128, SCALE_UE8M0=True, num_warps=1
        )
        return {"codes": raw(codes), "scale": raw(scale).T}

    yield Call("sglang.fp8_group_triton_column_major_ue8m0", own, device, columns)
    yield from _values_of(engine, device, own, dtype)
    if device == FNUZ:
        return
    int8, mxfp8 = engine.module(f"{_OPS}quantization.int8_kernel"), engine.module(f"{_OPS}quantization.mxfp8_quant")
    dsa = engine.module(f"{_OPS}quantization.dsa_quant_k_cache")
    yield Call("sglang.int8_group_triton", "int8", device, lambda x, given: groups(x, torch.int8))
    yield Call(
        "sglang.int8_per_token",
        "int8",
        device,
        lambda x, given: _pair(int8.per_token_quant_int8(x), x),
        left_out=_NO_INTEGER,
        kept=finite,
    )
    yield Call(
        "vllm.int8_group_triton", "int8", device, lambda x, given: _pair(int8.per_token_group_quant_int8(x, 128), x)
    )
    yield Call("sglang.mxfp8_kv", "float8_e4m3fn", device, lambda x, given: _pair(mxfp8.to_mxfp8(x), x))

    def latent(x: Any, given: Any) -> Mapping[str, Array]:
        codes, scale = torch.empty(x.shape, dtype=torch.float8_e4m3fn), torch.empty(len(x), x.shape[1] // 128)
        rope = torch.empty(len(x), 0, dtype=x.dtype)
        dsa._quantize_k_cache_fast_kernel[(len(x), scale.shape[1])](
            codes, scale, rope, x, rope, codes.stride(0), scale.stride(0), 0, x.stride(0), 0,
            NUM_NOPE_BLOCKS=scale.shape[1], GROUP_SIZE=128, DIM_NOPE=x.shape[1], DIM_ROPE=0,
            FP8_MIN=-448.0, FP8_MAX=448.0,
        )  # fmt: skip
        return _pair((codes, scale), x)

    yield Call("sglang.fp8_dsa", "float8_e4m3fn", device, latent)


def _values_of(engine: Engine, device: str, own: str, dtype: Any) -> Iterator[Call]:
    """The kernel that commits keys and values, whose scale is given in two ways."""
    import torch

    move = engine.module(f"{_OPS}kvcache.cache_move")

    def commit(x: Any, scale: Any, tensor: bool) -> Mapping[str, Array]:
        codes = [torch.zeros(x.shape, dtype=torch.uint8).view(dtype) for _ in "kv"]
        number = float(scale)
        move.set_kv_buffer_prefix_valid_tiled_fp8[(1, len(x), 1)](
            x, x, *codes, torch.arange(len(x))[None], torch.tensor([len(x)]), number, number,
            x.stride(0), x.stride(0), codes[0].stride(0), codes[1].stride(0), len(x),
            ROW_ELEMS=x.shape[1], ELEMS_PER_TILE=1 << (x.shape[1] - 1).bit_length(),
            FP8_MAX=240.0 if device == FNUZ else 448.0, K_SCALE_IS_TENSOR=tensor, V_SCALE_IS_TENSOR=tensor,
        )  # fmt: skip
        return {"codes": raw(codes[0])}

    for name, tensor in (("", True), ("_number", False)):
        yield Call(
            f"sglang.kv_fp8_commit{name}",
            own,
            device,
            fixed(lambda x, given, tensor: commit(x, given["scale"], tensor), tensor=tensor),
            WIDE[:2],  # the emulator has no division of float16
        )
