"""Layouts of scales: column-major, packed UE8M0, and the swizzles of NVFP4 and MX scales."""

from __future__ import annotations

from functools import partial

from narrowgauge.contracts.layout import Layout, dense

# fmt: off
_COLUMN_MAJOR = (
    Layout(
        name="scales_column_major",
        holds="scales", bits=32, rows="M", columns="G", storage=("G", "M"), word=dense(32, 1),
        padding="refused", storage_dtype="uint32",
        users=("vLLM and SGLang group-quantized fp8: float32 [M, G] with stride (1, M)",),
        source="vLLM fp8_utils.py per_token_group_quant_fp8, column_major_scales: allocated [G, M] and permuted",
    ),
    Layout(
        name="scales_tma_aligned",
        holds="scales", bits=32, rows="M", columns="G", storage=("G", "M"), word=dense(32, 1),
        padding="unwritten", storage_dtype="uint32", align=(4, 1),
        users=("DeepGEMM: float32 [M, G] with stride (1, M rounded up to 4)",),
        source="vLLM fp8_utils.py per_token_group_quant_fp8, tma_aligned_scales: empty_strided, padding unwritten",
    ),
    Layout(
        name="ue8m0_int32",
        holds="scales", bits=8, rows="M", columns="K g:4", storage=("K", "M"), slots="g", word=dense(8, 4),
        padding="zero", storage_dtype="int32", align=(4, 1),
        users=("DeepGEMM on Blackwell: int32 [M, ceil(G/4)] with stride (1, M rounded up to 4)",),
        source="vLLM csrc per_token_group_quant.cu :633-642: byte g % 4 of a word is group g, little-endian, padding 0",
    ),
)
# fmt: on

_tile = partial(Layout, holds="scales", bits=8, word=dense(8, 1))

# fmt: off
_TILES = (
    _tile(
        name="scales_128x4", columns="K c:4", rows="M q:4 r:32", storage=("M", "K", "r", "q c"), padding="zero",
        users=("NVFP4, MXFP4 and MXFP8 on Blackwell: cuBLAS, CUTLASS, vLLM, FlashInfer, torchao to_blocked",),
        source="vLLM nvfp4_utils.cuh:164-200: ((m/128)*ceil(K/4) + k/4)*512 + (m%32)*16 + (m%128)/32*4 + k%4",
    ),
    _tile(
        name="scales_128x4_k8", columns="K c:4", rows="M q:4 p:2 r:16", storage=("M", "K", "p", "r q c"),
        padding="zero", align=(1, 8),
        users=("triton_kernels BlackwellMXScaleLayout (vLLM gpt-oss on B200)",),
        source="triton_kernels blackwell_scale.py: the 128x4 tile, K padded to 8, viewed [1, N/128, K/4, 2, 256]",
    ),
    _tile(
        name="scales_8x4", columns="K c:4", rows="M r:8", storage=("M", "K", "r c"), padding="zero",
        users=("FlashInfer NVFP4 (use_8x4_sf_layout)",),
        source="vLLM tests nvfp4_utils.py:26-35: [M/8, K/4, 8, 4]",
    ),
    _tile(
        name="kv_scales_4x4", columns="q:4 S", rows="T t:4", storage=("T q", "S t"), padding="refused",
        users=("vLLM NVFP4 KV cache, scales of V, on SM100",),
        source="vLLM nvfp4_kv_cache_kernels.cu:34-48: row (t/4)*4 + s/(S/4), column (s%(S/4))*4 + t%4; vllm#50084",
    ),
    _tile(
        name="cdna4_mx_scales", columns="K c:2 k:4", rows="N a:2 r:16", storage=("N", "K k r c a"), padding="refused",
        users=("triton_kernels CDNA4MXScaleLayout (gfx950: MI350, MI355), before called GFX950MXScaleLayout",),
        source="triton_kernels cdna4_scale.py: [N/32, 2, 16, K/8, 2, 4] in the order 0 3 5 2 4 1, as [N/32, K*32]",
    ),
    *(
        _tile(
            name=f"hopper_mx_scales_{warps}_warps", columns="K k:2", rows=f"M a:2 w:{warps} b:2 r:8",
            storage=("M w", "K a r k b"), padding="zero",
            users=(f"triton_kernels HopperMXScaleLayout, num_warps {warps} (vLLM gpt-oss on H100 and H200)",),
            source="triton_kernels hopper_scale.py: [M/(32w), 2, w, 2, 8, K/2, 2], order 0 2 5 1 4 6 3, [M/32, K*32]",
        )
        for warps in (4, 8)
    ),
)
# fmt: on

LAYOUTS = (*_COLUMN_MAJOR, *_TILES)
