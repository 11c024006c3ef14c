"""Writers of caches that run without a GPU: the engines' Triton kernels by Triton's interpreter, and their torch code.

Each is called as a kernel of the suite is: with what ``reference/kv/memory.py`` makes of a call, the buffers changed in
place. What is kept in fp8 is made of numbers that need no rounding, since the interpreter's casts to fp8 round in their
own way (the casts are compared on emulated targets, by against_engines). Run as a program, it answers each line of its
input, a JSON object of a cache's name, formats and a shape, with what the reference finds wrong.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import json
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.operations import Claim, KvWrite
from narrowgauge.reference.behaviour import paged_behaviour
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.kv import memory
from narrowgauge.reference.kv.cases import Shape, call
from narrowgauge.reference.kv.outputs import paged_outputs, stored_rows
from narrowgauge.reference.noise import scrambled
from narrowgauge.suites.meta.engines.loading import Engine
from narrowgauge.suites.meta.second_catalogue import differ

#: the tensors of a call by the names of a kernel's parameters, numbers too
Given = SimpleNamespace
Writer = Callable[[Engine, Given], None]
_FLASH, _INT4 = "v1.attention.ops.triton_reshape_and_cache_flash", "v1.attention.ops.int4_per_token_head"
_SPARSE = "v1.attention.ops.rocm_aiter_mla_sparse"
_POOL = "kernels.ops.kvcache."


def vllm() -> Engine:
    """The files of vLLM that write."""
    import torch
    import triton
    import triton.language as tl

    platform = SimpleNamespace(
        is_rocm=lambda: True,
        is_cuda=lambda: False,
        is_cuda_alike=lambda: False,
        is_xpu=lambda: False,
        fp8_dtype=lambda: torch.float8_e4m3fn,
    )

    def largest(n: int) -> int:
        return n & -n

    answers: dict[str, dict[str, Any]] = {
        "platforms": {"current_platform": platform},
        "triton_utils": {"triton": triton, "tl": tl},
        "model_executor.layers.quantization.utils.quant_utils": {
            "FP8_DTYPE": torch.float8_e4m3fn,
            "get_fp8_min_max": lambda: (-448.0, 448.0),
        },
        "utils.math_utils": {"largest_power_of_2_divisor": largest},
        "v1.kv_cache_interface": {
            "is_quantized_kv_cache": lambda name: name.startswith("fp8"),
            "KVQuantMode": SimpleNamespace(INT4_PER_TOKEN_HEAD="int4"),
        },
    }
    return Engine("vllm", (_FLASH, _INT4, _SPARSE), answers)


def sglang() -> Engine:
    """The files of SGLang that write."""
    import torch

    torch.compile = lambda function=None, **options: function  # run eagerly
    names = ("shuffle_5d_cache", "mxfp8_quant_store_kv", "mla_buffer")
    own = (
        *(f"{_POOL}{name}" for name in names),
        "srt.layers.quantization.nvfp4_kv_cache",
        "srt.layers.quantization.kvfp4_tensor",
        "kernels.ops.quantization.dsa_quant_k_cache",
    )
    answers: dict[str, dict[str, Any]] = {"kernels.jit.utils": {"is_arch_support_pdl": lambda: False}}
    return Engine("sglang", own, answers)


def _copied(key: Any, value: Any) -> Writer:
    """vLLM's Triton writer of 16-bit caches, with the buffers seen as it wants them."""

    def write(engine: Engine, g: Given) -> None:
        module = engine.module(_FLASH)
        one = g.x.new_ones(1).float()
        keys, (values, factor) = key(g.k_cache), value(g.v_cache)
        module.triton_reshape_and_cache_flash(g.x, g.v, keys, values, g.slot_mapping, "auto", one, one, factor)

    return write


def _as_is(buffer: Any) -> Any:
    return buffer


def _turned(buffer: Any) -> Any:
    return buffer.permute(0, 2, 1, 3)


def _token_head(engine: Engine, g: Given) -> None:
    engine.module(_FLASH).triton_reshape_and_cache_flash_per_token_head_quant(
        g.x, g.v, g.k_cache, g.v_cache, g.k_scale_cache, g.v_scale_cache, g.slot_mapping, SimpleNamespace()
    )


def _int4(engine: Engine, g: Given) -> None:
    module = engine.module(_INT4)
    module._hadacore_available = lambda: False
    module.reshape_and_cache_int4(
        g.x, g.v, g.k_cache, g.v_cache, g.slot_mapping, k_scale_cache=g.k_scale_cache, v_scale_cache=g.v_scale_cache
    )


def _indexer(ue8m0: bool) -> Writer:
    def write(engine: Engine, g: Given) -> None:
        pages = g.k_cache.reshape(len(g.k_cache), -1, 132)
        scale = "ue8m0" if ue8m0 else ""
        engine.module(_SPARSE).indexer_k_quant_and_cache_triton(g.x, pages, g.slot_mapping, 128, scale)

    return write


def _vectorized(engine: Engine, g: Given) -> None:
    module = engine.module(f"{_POOL}shuffle_5d_cache")
    module.launch_reshape_and_cache_shuffle_5d(g.x, g.v, g.k_cache, g.v_cache, g.slot_mapping)


def _mxfp8(engine: Engine, g: Given) -> None:
    module = engine.module(f"{_POOL}mxfp8_quant_store_kv")
    scales = g.k_scale_cache, g.v_scale_cache
    module.quant_store_kv_mxfp8(g.x, g.v, g.slot_mapping, g.k_cache, g.v_cache, *scales, page_size=g.block_size)


def _mla(engine: Engine, g: Given) -> None:
    module = engine.module(f"{_POOL}mla_buffer")
    module.set_mla_kv_buffer_naive(
        g.kv_cache[:, None], g.slot_mapping, g.x[:, None], g.rope[:, None],
        reserved_skip_index=0, dcp_world_size=1, dcp_rank=0,
    )  # fmt: skip


def _dsa(engine: Engine, g: Given) -> None:
    quantizer, module = engine.module("kernels.ops.quantization.dsa_quant_k_cache"), engine.module(f"{_POOL}mla_buffer")
    nope, rope = quantizer.quantize_k_cache_separate(g.x[:, None], g.rope[:, None])
    module.set_mla_kv_buffer_naive(
        g.kv_cache[:, None], g.slot_mapping, nope, rope, reserved_skip_index=0, dcp_world_size=1, dcp_rank=0
    )


def _fp4(engine: Engine, g: Given) -> None:
    """What ``set_kv_buffer`` of the pool does, eagerly."""
    quantizer = engine.module("srt.layers.quantization.kvfp4_tensor").FP4MXBlock16KVQuantizeUtil
    slots = g.slot_mapping.long()
    for x, codes, scales in ((g.x, g.k_cache, g.k_scale_cache), (g.v, g.v_cache, g.v_scale_cache)):
        codes[slots], scales[slots] = quantizer.batched_quantize(x)


def _nvfp4(native: bool) -> Writer:
    """The store of what FlashInfer, which is not here, has quantized: the reference's codes stand for it."""

    def write(engine: Engine, g: Given) -> None:
        import torch

        def bytes_of(name: str, packed: bool) -> Any:
            codes = g.rows[name].reshape(len(g.x), g.heads, -1)
            return torch.from_numpy((codes[..., 0::2] | codes[..., 1::2] << 4) if packed else codes.copy())

        scales = [g.k_scale_cache.view(torch.uint8), g.v_scale_cache.view(torch.uint8)]
        linear, inside = ([None, None], scales) if native else (scales, [None, None])
        engine.module("srt.layers.quantization.nvfp4_kv_cache").store_nvfp4_kv_cache(
            bytes_of("k", True), bytes_of("v", True), bytes_of("k_scale", False), bytes_of("v_scale", False),
            g.slot_mapping, g.k_cache, g.v_cache, *linear, *inside, page_size=g.block_size,
        )  # fmt: skip

    return write


#: name of a cache -> the engine's function, the engine
WRITERS: Mapping[str, Writer] = {
    "vllm.flash_copy": _copied(_as_is, lambda v: (v, 0)),
    "vllm.flash_copy_hnd": _copied(_turned, lambda v: (_turned(v), 0)),
    "vllm.paged_copy": _copied(_as_is, lambda v: (v, 0)),
    "vllm.interleaved_copy": _copied(_as_is, lambda v: (v, v.shape[4])),
    "vllm.int8_token_head": _token_head,
    "vllm.fp8_token_head": _token_head,
    "vllm.int4_token_head": _int4,
    "vllm.indexer_tiled": _indexer(False),
    "vllm.indexer_tiled_ue8m0": _indexer(True),
    "sglang.copy_vectorized": _vectorized,
    "sglang.fp4_block16_eager": _fp4,
    "sglang.nvfp4": _nvfp4(False),
    "sglang.nvfp4_native": _nvfp4(True),
    "sglang.mxfp8": _mxfp8,
    "sglang.mla_copy": _mla,
    "sglang.dsa": _dsa,
}
ENGINES: Mapping[str, Callable[[], Engine]] = {"vllm": vllm, "sglang": sglang}


def tensor(value: Coded) -> Any:
    """A torch tensor of those bits."""
    import torch

    array = np.array(value.data)
    if value.format in ("int32", "float32"):
        return torch.from_numpy(array.view(np.int32 if value.format == "int32" else np.float32))
    whole = torch.from_numpy(array.view(f"int{8 * array.itemsize}"))
    names = {"uint8": torch.uint8, "int8": torch.int8}
    return whole.view(names.get(value.format) or getattr(torch, value.format))


def bits(value: Any, like: Coded) -> Coded:
    """The inverse of ``tensor``."""
    import torch

    whole = value.view({1: torch.int8, 2: torch.int16, 4: torch.int32}[value.element_size()])
    return Coded(like.format, whole.numpy().view(like.data.dtype).reshape(like.shape))


#: columns that share a scale, of those that are kept in fp8
BLOCKS = {"vllm.fp8_token_head": 64, "sglang.mxfp8": 32}
BLOCKS |= dict.fromkeys(("vllm.indexer_tiled", "vllm.indexer_tiled_ue8m0", "sglang.dsa"), 128)


def exact(x: Coded, block: int) -> Input:
    """A call with other keys and values, bfloat16: values of E4M3 times a power of two for each block, of which the
    largest is 448."""

    def made(like: Coded, seed: int) -> Coded:
        rows, columns = like.shape
        codes = scrambled(rows * columns, seed) % np.uint64(0x7F)
        numbers = decode_values(Coded("float8_e4m3fn", codes.astype(np.uint8))).reshape(rows, -1, block)
        numbers[:, :, 0] = 448.0
        numbers *= np.where(codes.reshape(numbers.shape) % 2, -1.0, 1.0)
        numbers *= 2.0 ** ((np.arange(rows)[:, None, None] * 3 + np.arange(columns // block)[:, None]) % 13 - 6.0)
        return Coded("bfloat16", (numbers.reshape(rows, columns).astype(np.float32).view(np.uint32) >> 16).astype("u2"))

    given = dict(given_with(x))
    if "v" in given:
        given["v"] = made(given["v"], 8)
    return Input("bfloat16", made(x, 7).data, given)


def wrong_in(engine: Engine, name: str, source: str, held: str, shape: Shape) -> list[str]:
    """What the reference finds wrong in what the engine's writer leaves."""
    claim = Claim(KvWrite(name), source, held)
    x = call(shape)(claim)
    if held == "float8_e4m3fn":
        x = exact(x, BLOCKS[name])
    sent = memory.to_memory(claim, x)
    assert isinstance(sent, Input)
    numbers = memory.in_memory(claim, x).numbers
    rows = {n: np.array(value.low.data) for n, value in stored_rows(paged_behaviour(claim), x).items()}
    given = Given(x=tensor(sent), rows=rows, **{n: tensor(v) for n, v in sent.given.items()}, **numbers)
    WRITERS[name](engine, given)
    left = {b: bits(getattr(given, b), sent.given[b]) for b in memory.in_memory(claim, x).outputs}
    found, wrong = memory.from_memory(claim, x, left)
    if wrong:
        return list(wrong)
    said = []
    for matrix, interval in paged_outputs(paged_behaviour(claim), x).items():
        got = found[matrix]
        off = differ(got.data, interval.low.data, got.format) & differ(got.data, interval.high.data, got.format)
        if off.any():
            at = tuple(int(i) for i in np.argwhere(off)[0])
            first = f"{got.data[at]:#x} for {interval.low.data[at]:#x}"
            said.append(f"{matrix}{list(at)}: {int(off.sum())} differ, first {first}")
    return said


if __name__ == "__main__":
    loaded: dict[str, Engine] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        owner = asked["cache"].split(".")[0]
        if owner not in loaded:
            loaded[owner] = ENGINES[owner]()
        try:
            answer: Any = wrong_in(
                loaded[owner], asked["cache"], asked["source"], asked["held"], Shape(**asked.get("shape", {}))
            )
        except Exception as error:
            answer = [f"{type(error).__name__}: {error}"]
        print(json.dumps({"cache": asked["cache"], "held": asked["held"], "wrong": answer}), flush=True)
