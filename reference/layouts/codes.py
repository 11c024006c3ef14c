"""Layouts of codes of 4, 6 and 8 bits: nibbles, six-bit packings, 32-bit words, MXFP4 values of triton_kernels."""

from __future__ import annotations

from functools import partial

from narrowgauge.contracts.layout import Layout, Word, dense

#: awq_pack of vLLM quant_utils.py: nibble p of a word holds column AWQ[p] of its eight; of bytes, AWQ_8BIT[p] of four
AWQ = (0, 2, 4, 6, 1, 3, 5, 7)
AWQ_8BIT = (0, 2, 1, 3)


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(i) for i in range(len(order)))


def _two_planes() -> Word:
    """24 bits: a byte with the upper 2 bits of four codes, then two bytes with the lower 4; the first code on top."""
    low = (12, 8, 20, 16)
    return tuple((*range(low[i], low[i] + 4), 6 - 2 * i, 7 - 2 * i) for i in range(4))


def _hopper_word() -> Word:
    """32 bits of the Hopper values: byte pairs of nibbles spread so that each AND gives bfloat16 bits.

    In the half-word of its nibble (low nibbles below) the code of byte 0 has its magnitude at bits 6 to 8 and its sign
    at 15; bytes 1 and 2 the same, 3 and 6 lower; byte 3 takes what is left.
    """
    spread = [tuple(place - 3 * byte for place in (6, 7, 8, 15)) for byte in range(3)] + [(13, 10, 11, 14)]
    return tuple(tuple(16 * nibble + place for place in spread[byte]) for byte in range(4) for nibble in range(2))


# fmt: off
_NIBBLES = (
    Layout(
        name="nibbles_low_first",
        holds="codes", bits=4, rows="R", columns="C h:2", storage=("R", "C"), slots="h", word=dense(4, 2),
        padding="refused",
        users=("NVFP4 and MXFP4 of every engine", "torch.float4_e2m1fn_x2", "gpt-oss blocks"),
        source="torchao pack_uint4, vLLM nvfp4_utils.cuh: element 2i in the low nibble, 2i+1 in the high one",
    ),
    Layout(
        name="nibbles_high_first",
        holds="codes", bits=4, rows="R", columns="C h:2", storage=("R", "C"), slots="h", word=dense(4, 2, (1, 0)),
        padding="refused",
        users=("Triton's dot_scaled before triton#5197",),
        source="triton#5197: element 0 stood in the high nibble",
    ),
    Layout(
        name="nibbles_planar_32",
        holds="codes", bits=4, rows="R", columns="B h:2 i:16", storage=("R", "B i"), slots="h", word=dense(4, 2),
        padding="refused",
        users=("GGUF MXFP4, Q4_0, Q4_1 (the bytes after each block's scale)",),
        source="gguf quants.py: byte i of a block of 32 holds element i low and element i+16 high",
    ),
    Layout(
        name="nibbles_planar_16",
        holds="codes", bits=4, rows="R", columns="B h:2 i:8", storage=("R", "B i"), slots="h", word=dense(4, 2),
        padding="refused",
        users=("GGUF NVFP4 (the 32 bytes after the four scales of each 64 values)",),
        source="gguf quants.py NVFP4: byte i of a block of 16 holds element i low and element i+8 high",
    ),
)
# fmt: on

# fmt: off
_SIX_BITS = (
    Layout(
        name="fp6_planes",
        holds="codes", bits=6, rows="R", columns="C i:4", storage=("R", "C"), slots="i", word=_two_planes(),
        padding="refused",
        users=("AMD Quark, dtype mx with fp6 elements",),
        source="Quark utils/pack.py Pack_mxfp6: per four codes one byte of bits 4 and 5, two bytes of bits 0 to 3",
    ),
    Layout(
        name="fp6_dense",
        holds="codes", bits=6, rows="R", columns="C i:4", storage=("R", "C"), slots="i", word=dense(6, 4),
        padding="refused",
        users=("AMD Quark, dtype fp6_e2m3 and fp6_e3m2", "mfma_scale_f32_16x16x128_f8f6f4 (gfx950)"),
        source="Quark utils/pack.py Pack_fp6: four codes in 24 bits, the first lowest, bytes little-endian",
    ),
)
# fmt: on


_word32 = partial(Layout, slots="i", storage=("R", "C"), storage_dtype="int32")


def _int32_family(bits: int, awq: tuple[int, ...]) -> tuple[Layout, ...]:
    count = 32 // bits
    along_rows = partial(_word32, bits=bits, rows=f"R i:{count}", columns="C", word=dense(bits, count))
    along_columns = partial(_word32, bits=bits, rows="R", columns=f"C i:{count}")
    # fmt: off
    return (
        along_columns(
            name=f"compressed_tensors_{bits}bit", holds="codes", word=dense(bits, count), padding="zero",
            users=("compressed-tensors pack-quantized: weight_packed of [N, K]",),
            source="compressed_tensors pack_to_int32, packed_dim 1: code i of a row at bit i * bits; offset-binary",
        ),
        along_rows(
            name=f"compressed_tensors_zeros_{bits}bit", holds="zero points", padding="zero",
            users=("compressed-tensors pack-quantized: weight_zero_point of [N, groups]",),
            source="compressed_tensors pack_to_int32, packed_dim 0: code i of a column at bit i * bits of its words",
        ),
        along_rows(
            name=f"gptq_{bits}bit", holds="codes", padding="refused",
            users=("GPTQ qweight of [K, N], v1 and v2",),
            source=f"vLLM quant_utils.py gptq_pack: row k at place k % {count} of its word, the lowest bits first",
        ),
        along_columns(
            name=f"gptq_zeros_{bits}bit", holds="zero points", word=dense(bits, count), padding="refused",
            users=("GPTQ qzeros of [groups, N], v1 and v2",),
            source=f"vLLM q_gemm.cu: column n at place n % {count} of its word, the lowest bits first",
        ),
        along_columns(
            name=f"awq_{bits}bit", holds="codes", word=dense(bits, count, _inverse(awq)), padding="refused",
            users=("AWQ gemm qweight of [K, N] and qzeros of [groups, N]",)
            + (("AMD Quark int4 with reorder",) if bits == 4 else ()),
            source=f"vLLM quant_utils.py awq_pack: place p of a word holds column {list(awq)}[p]",
        ),
    )
    # fmt: on


# fmt: off
_MXFP4_VALUES = (
    Layout(
        name="hopper_mxfp4_values",
        holds="codes", bits=4, rows="N w:2 t:4 s:2", columns="K k:4 v:2 u:4 h:2", storage=("N t", "K s u k"),
        slots="v w h", word=_hopper_word(), padding="zero",
        users=("triton_kernels HopperMXValueLayout, mma_version 3 (vLLM gpt-oss on H100 and H200)",),
        source="vLLM third_party/triton_kernels hopper_value.py: tiles of 16 rows and 32 bytes, then _pack_bits",
    ),
    Layout(
        name="hopper_mxfp4_values_mma2",
        holds="codes", bits=4, rows="N w:2 t:4 s:2", columns="K v:2 u:4 c:4 h:2", storage=("N t", "K s u v w"),
        slots="c h", word=_hopper_word(), padding="zero",
        users=("triton_kernels HopperMXValueLayout, mma_version 2",),
        source="vLLM third_party/triton_kernels hopper_value.py: a thread's four bytes of k are neighbours",
    ),
    Layout(
        name="blackwell_mxfp4_values",
        holds="codes", bits=4, rows="R", columns="C h:2", storage=("R", "C"), slots="h", word=dense(4, 2),
        padding="zero", align=(1, 256),
        users=("triton_kernels BlackwellMXValueLayout (vLLM gpt-oss on B200)",),
        source="vLLM third_party/triton_kernels blackwell_value.py: no swizzle, K padded to 128 bytes",
    ),
)
# fmt: on

LAYOUTS = (*_NIBBLES, *_SIX_BITS, *_int32_family(4, AWQ), *_int32_family(8, AWQ_8BIT), *_MXFP4_VALUES)
