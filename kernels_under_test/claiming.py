"""What our own quantizers claim, in a word: ``soft`` ones encode by integers, ``native`` ones leave the last conversion
to the hardware, and are there to test that. Of products, ``native`` ones leave them to the matrix unit."""

from __future__ import annotations

from functools import partial

from narrowgauge import Matmul, Quantize, WideOp, kernel

E4M3, FNUZ, E5M2 = ("float8_e4m3fn",), ("float8_e4m3fnuz",), ("float8_e5m2",)
FP4 = ("float4_e2m1fn",)
FLOAT32, BFLOAT16, FLOAT16 = ("float32",), ("bfloat16",), ("float16",)
ALL_SOURCES = ("float32", "bfloat16", "float16")
INT32 = ("int32",)
TWO_SOURCES, SIXTEEN = ALL_SOURCES[:2], ALL_SOURCES[1:]


def _quantizer(conversion, recipe, formats=E4M3, sources=FLOAT32):
    return kernel(Quantize(recipe), formats, sources, owner="narrowgauge", conversion=conversion)


soft, native = partial(_quantizer, "soft"), partial(_quantizer, "native")


def soft_product(product, formats, sources, accumulator="float32"):
    """``formats`` of the result, ``sources`` of a."""
    return kernel(Matmul(product, accumulator), formats, sources, owner="narrowgauge", conversion="soft")


def native_product(product, formats, sources, accumulator="promoted_128"):
    return kernel(Matmul(product, accumulator), formats, sources, owner="narrowgauge", conversion="native")


def wide(name, sources, formats=None, backend="triton"):
    """A wide operation, of some sources, in their own format if no other is named."""
    return kernel(
        WideOp(name), formats or sources, sources, owner="narrowgauge", backend=backend,
        conversion="soft" if backend == "triton" else "auto",
    )  # fmt: skip
