"""Claims about matrix units and fp8 products, by the models of units and by the products that engines compute."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.operations import Claim, Matmul
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.expected import expected
from narrowgauge.reference.fast_codec import cast, decode_values
from narrowgauge.reference.matmul.products import PRODUCTS
from narrowgauge.reference.units.families import Truncating, TruncatingGroups
from narrowgauge.reference.units.registry import unit_named
from narrowgauge.reference.units.running import dot
from narrowgauge.reference.units.schedule import Schedule, gemm
from narrowgauge.suites.meta.claims.claim import FALSE, TRUE, Found, claim

_E4M3, _E5M2 = "float8_e4m3fn", "float8_e5m2"


def _coded(numbers: Mapping[int, float], depth: int, name: str) -> Coded:
    """A row [1, depth] that is 0 but in some places."""
    row = np.zeros((1, depth))
    for place, number in numbers.items():
        row[0, place] = number
    return cast(Coded("float64", row.view(np.uint64)), name, CastPolicy(overflow="special", infinity="special"))


def _sum(unit: str, name: str) -> float:
    """256 and 2^-6 by one step of a unit."""
    a, b = _coded({0: 16.0, 1: 0.125}, 32, name), _coded({0: 16.0, 1: 0.125}, 32, name)
    return float(decode_values(dot(unit_named(unit), a, b))[0])


@claim(
    "000:84", "Matrix units multiply fp8, fp16 and bf16 and add up in float32", FALSE,
    "256 + 2^-6: 256.016 of fp16 and bf16 by Hopper, of fp8 by Blackwell and MI300; 256 of fp8 by Hopper and Ada"
)  # fmt: skip
def units_accumulate_in_float32() -> Found:
    wide = [("hopper.hgmma", "float16"), ("hopper.hgmma", "bfloat16"), ("blackwell.tcgen05_fp8", _E4M3)]
    full = [_sum(*each) for each in (*wide, ("cdna3.mfma_fp8", "float8_e4m3fnuz"))]
    narrow = [_sum(unit, _E4M3) for unit in ("hopper.qgmma", "ada.qmma")]
    text = (
        f"256 + 2^-6: {_one(full)} of fp16 and bf16 by Hopper, of fp8 by Blackwell and MI300; {_one(narrow)} of fp8 by "
        "Hopper and Ada"
    )
    return Found(all(v == 256 + 2.0**-6 for v in full + narrow), text)


def _one(numbers: list[float]) -> str:
    assert len(set(numbers)) == 1
    return f"{numbers[0]:g}"


@claim("000:84", "Matrix units add up int8 in int32", TRUE, "2^17 products of -128 and 127 are -2130706432")
def int8_in_int32() -> Found:
    depth = 1 << 17
    ones = (np.full((1, depth), number, np.int8) for number in (-128, 127))
    a, b = (Coded("int8", each.view(np.uint8)) for each in ones)
    total = int(decode_values(dot(unit_named("nvidia.imma"), a, b))[0])
    return Found(total == -128 * 127 * depth, f"2^17 products of -128 and 127 are {total}")


@claim(
    "002:42", "Matrix units add fp8 products with too few bits for long sums, so partial sums are promoted", TRUE,
    "8192 products of 1/32 and 3, which are 768: Hopper 683, promoted each 128 of K 768; Blackwell 768 as it is"
)  # fmt: skip
def fp8_accumulation_is_too_narrow() -> Found:
    def total(unit: str, promote_every: int = 0) -> float:
        rows = (_coded(dict.fromkeys(range(8192), number), 8192, _E5M2) for number in (1 / 32, 3.0))
        return float(decode_values(gemm(Schedule(unit_named(unit), promote_every=promote_every), *rows))[0, 0])

    hopper, promoted, blackwell = (
        total("hopper.qgmma"), total("hopper.qgmma", 128), total("blackwell.tcgen05_fp8")
    )  # fmt: skip
    text = f"8192 products of 1/32 and 3, which are 768: Hopper {hopper:g}, promoted each 128 of K {promoted:g}"
    return Found(hopper != 768 == promoted, f"{text}; Blackwell {blackwell:g} as it is")


def _where(name: str) -> str:
    return {"sum": "the sum", "stretches": "the sum of each stretch of K"}[PRODUCTS[name].scaled]


@claim(
    "000:391", "An fp8 product of per-token activations folds its scales in along K", FALSE,
    "vLLM scales the sum where scales are of tokens and channels, the sum of each stretch of K where of blocks"
)  # fmt: skip
def scales_are_folded_in_along_k() -> Found:
    token, block = _where("vllm.fp8_token_channel"), _where("vllm.fp8_block")
    text = f"vLLM scales {token} where scales are of tokens and channels, {block} where of blocks"
    return Found(token == block, text)


@claim(
    "000:391", "It narrows once, at the end", TRUE,
    "1 + 2^-8 + 2^-18 becomes 1.00781 in bf16; over float16 it would become 1"
)  # fmt: skip
def one_narrowing_cast() -> Found:
    numbers = {0: 1.0, 1: 2.0**-4, 2: 2.0**-9}
    a, b = _coded(numbers, 3, _E4M3), _coded(numbers, 3, _E4M3)
    one = Coded("float32", np.full((1, 1), 0x3F800000, np.uint32))
    call = Input(_E4M3, a.data, {"b": b, "a_scale": one, "b_scale": one})
    given = expected(Claim(Matmul("vllm.fp8_token_channel", "float32"), _E4M3, "bfloat16"), call)["codes"]
    assert given.exact
    got = float(decode_values(given.low)[0, 0])
    exact = Coded("float64", np.array([1 + 2.0**-8 + 2.0**-18]).view(np.uint64))
    special = CastPolicy(overflow="special", infinity="special")
    twice = float(decode_values(cast(cast(exact, "float16", special), "bfloat16", special))[0])
    return Found(got != twice, f"1 + 2^-8 + 2^-18 becomes {got:g} in bf16; over float16 it would become {twice:g}")


@claim(
    "003:48", "fp8 and fp4 operands are added up in float32, scaled, and written as bf16", FALSE,
    "fp8 by Hopper keeps 13 bits behind the first of the largest, fp4 by Blackwell 35, float32 has 23"
)  # fmt: skip
def fp8_is_added_in_float32() -> Found:
    hopper, blackwell = unit_named("hopper.qgmma").family, unit_named("blackwell.mxf4").family
    assert isinstance(hopper, Truncating)
    assert isinstance(blackwell, TruncatingGroups)
    text = (
        f"fp8 by Hopper keeps {hopper.fraction} bits behind the first of the largest, fp4 by Blackwell "
        f"{blackwell.fraction}, float32 has 23"
    )
    return Found(hopper.fraction == blackwell.fraction == 23, text)
