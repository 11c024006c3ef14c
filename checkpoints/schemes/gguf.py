"""Blocks of GGUF: how many elements and bytes each has, which are dequantized here."""

from __future__ import annotations

from narrowgauge.checkpoints.schemes.scheme import Scheme

#: name of the type, elements, bytes, what a block holds, the element, where float16 stand
_READ = (
    ("Q8_0", 32, 34, "half d, 32 int8", "int8", (0,)),
    ("Q4_0", 32, 18, "half d, 16 bytes; (q - 8) d", "uint4", (0,)),
    ("Q4_1", 32, 20, "half d and m, 16 bytes; q d + m", "uint4", (0, 2)),
    ("Q5_0", 32, 22, "half d, 32 fifth bits, 16 bytes; (q - 16) d", "5 bits", (0,)),
    ("Q5_1", 32, 24, "half d and m, 32 fifth bits, 16 bytes; q d + m", "5 bits", (0, 2)),
    ("Q2_K", 256, 84, "16 nibble pairs of scale and min, 64 bytes, half d and dmin", "2 bits", (80, 82)),
    ("Q3_K", 256, 110, "32 bytes of third bits, 64 bytes, 12 bytes of 6-bit scales, half d", "3 bits", (108,)),
    ("Q4_K", 256, 144, "half d and dmin, 12 bytes of 6-bit scales and mins, 128 bytes", "uint4", (0, 2)),
    ("Q5_K", 256, 176, "half d and dmin, 12 bytes of 6-bit scales and mins, 32 and 128 bytes", "5 bits", (0, 2)),
    ("Q6_K", 256, 210, "128 bytes low, 64 bytes high, 16 int8 scales, half d", "6 bits", (208,)),
    ("MXFP4", 32, 17, "an E8M0 byte, 16 bytes of e2m1", "float4_e2m1fn", ()),
)
_NAMED = tuple(
    (name, size, 0)
    for name, size in (
        ("Q8_1", 32), ("Q8_K", 256), ("IQ1_S", 256), ("IQ1_M", 256), ("IQ2_XXS", 256), ("IQ2_XS", 256),
        ("IQ2_S", 256), ("IQ3_XXS", 256), ("IQ3_S", 256), ("IQ4_NL", 32), ("IQ4_XS", 256), ("TQ1_0", 256),
        ("TQ2_0", 256), ("NVFP4", 64), ("Q1_0", 128), ("Q2_0", 128),
    )
)  # fmt: skip
_SOURCE = "ggml-common.h block_*; ggml-quants.c dequantize_row_*"


def _scheme(
    name: str, says: str, element: str, size: int, count: int, halves: tuple[int, ...] = (), unread: str = ""
) -> Scheme:
    return Scheme(
        name=f"gguf_{name.lower()}", says=says, weights=("",), stored=(name,), element=element, parts=(),
        cuts=("group",), by="llama.cpp", source=_SOURCE, group=size, block_size=size, block_bytes=count,
        unread=unread, halves=halves,
    )  # fmt: skip


SCHEMES = (
    *(
        _scheme(name, f"GGUF {name}: {holds}", element, size, count, halves)
        for name, size, count, holds, element, halves in _READ
    ),
    *(
        _scheme(name, f"GGUF {name}", "", size, count, unread="blocks of this type are not yet dequantized here")
        for name, size, count in _NAMED
    ),
)
