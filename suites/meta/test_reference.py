"""The reference against derivations that share no code with it, and each of its mutations noticed by one of them."""

from __future__ import annotations

import itertools
import re
from typing import get_args

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.contracts.operations import Cast, Claim
from narrowgauge.contracts.policy import (
    Beyond,
    CastPolicy,
    OfNaN,
    OfNegative,
    OfNegativeZero,
    OfSubnormals,
    OfZero,
    Rounding,
)
from narrowgauge.reference.codec import encode, largest, nan_code, values
from narrowgauge.reference.fast_codec import cast, encode_float32
from narrowgauge.reference.inputs import case_named
from narrowgauge.reference.policies import check_fits
from narrowgauge.suites.meta import second_derivation
from narrowgauge.suites.meta.killer import Killer, codes_part
from narrowgauge.suites.meta.killer_policies import PLAIN, SPECIAL
from narrowgauge.suites.meta.mutation import MODULES, Mutant, mutants, survives

pytestmark = pytest.mark.meta

FP8 = ("float8_e4m3fn", "float8_e4m3fnuz")
NONSATURATE = CastPolicy(overflow="special", infinity="special")
#: mutations that change nothing: the reason why no input can show them, and the modules and changes it covers
EQUIVALENT_FOR: dict[str, dict[str, tuple[str, ...]]] = {
    "no format has so many bits, or storage of such a width": {
        "contracts.formats": ("8 becomes 9 in 8 * w",),
        "reference.fast_codec": (
            "source.bits <= WIDEST_TABLE becomes source.bits < WIDEST_TABLE",
            "fmt.bits > WIDEST_TABLE becomes fmt.bits >= WIDEST_TABLE",
            "fmt.bits <= WIDEST_TABLE becomes fmt.bits < WIDEST_TABLE",
            "fmt.bits <= 8 becomes fmt.bits < 8",
            "8 becomes 9 in fmt.bits <= 8",
        ),
    },
    "float64 is read as itself, and an integer has no exponent: these numbers are not looked at": {
        "contracts.formats": (
            *(
                f"{what} in Format('float64', 11, 52, 1023, 'ieee', f'{{_IEEE}} binary64', 'F64', "
                "('fp64', 'f64', 'double'))"
                for what in ("1023 becomes 1024", "'ieee' becomes 'fn'", "'ieee' becomes 'fnuz'")
            ),
            "0 becomes 1 in Format('int8', 0, 7, 0, 'integer', \"two's complement\", 'I8', ('i8', 's8'), ('integer',))",
            "0 becomes 1 in Format('uint8', 0, 8, 0, 'integer', 'unsigned', 'U8', ('u8',), ('integer',), signed=False)",
            """0 becomes 1 in Format('int4', 0, 3, 0, 'integer', "two's complement", '', ('i4', 's4'), ('integer',))""",
            """0 becomes 1 in Format('int32', 0, 31, 0, 'integer', "two's complement", 'I32', ('i32', 's32'), ())""",
            "0 becomes 1 in Format('uint4', 0, 4, 0, 'integer', 'unsigned', '', ('u4',), ('integer',), signed=False)",
        ),
    },
    "another way to the same codes is taken, by definition instead of by a table, or the other way round": {
        "reference.fast_codec": (
            "if source.bits <= WIDEST_TABLE is never so",
            "if fmt.bits <= 8 and fmt.family != 'integer' is never so",
            "if fmt.bits <= 8 and policy.negative != 'magnitude' and (abs(policy.zero_point) <= _LARGEST_ZERO_POINT) "
            "is never so",
            "abs(policy.zero_point) <= _LARGEST_ZERO_POINT becomes abs(policy.zero_point) < _LARGEST_ZERO_POINT",
            "1 << 16 becomes 1 >> 16",
            "1 becomes 2 in 1 << 16",
            "16 becomes 17 in 1 << 16",
            "if fmt.family in ('ieee', 'fn', 'fnuz', 'finite') is never so",
            *(
                f"'{a}' becomes '{b}' in ('ieee', 'fn', 'fnuz', 'finite')"
                for a in ("ieee", "fn", "fnuz")
                for b in ("ieee", "fn", "fnuz")
                if a != b
            ),
            "if fmt.name == 'float32' is never so",
            "if fmt.storage.itemsize == 1 and x.data.size >= _BLOCK is never so",
            "x.data.size >= _BLOCK becomes x.data.size > _BLOCK",
        ),
    },
    "a block may have any size, and what is not taken in pairs is taken one by one": {
        "reference.fast_codec": ("32768 becomes 32769 in (17, 32768)", "2 becomes 3 in flat.size // 2"),
    },
    "a table longer than its indices reach is no other table": {
        "reference.fast_codec": ("1 becomes 2 in 1 << 32 - _CUT", "32 becomes 33 in 32 - _CUT"),
    },
    "the lowest bit of the upper bits is set where it is, too": {
        "reference.fast_codec": ("1 becomes 2 in 1 << _CUT",),
    },
    "a shift of 26 leaves no more of 24 bits than one of 25 does": {
        "reference.fast_codec": ("2 becomes 3 in _F32_MANTISSA + 2",),
    },
    "rows may be handled in bands of any size, and nothing has no blocks however it is cut": {
        "reference.quantize": (
            "1 << 18 becomes 1 >> 18",
            "1 becomes 2 in 1 << 18",
            "18 becomes 19 in 1 << 18",
            "1 becomes 2 in blocks.rows or 1",
            "1 becomes 2 in max(1, _BAND // max(1, each * columns))",
            "1 becomes 2 in max(1, each * columns)",
            "1 becomes 2 in max(rows, 1)",
            "1 becomes 2 in max(columns, 1)",
            "1 becomes 2 in max(band.shape[0], 1)",
            "1 becomes 2 in max(band.shape[1], 1)",
            "1 becomes 2 in slice(0, 1)",
        ),
    },
    "to repeat once, to pad by nothing, or to cast float32 to float32 changes nothing; a NaN is any NaN": {
        "reference.quantize": (
            "part.shape[0] > 1 and blocks.rows > 1 becomes part.shape[0] > 1 or blocks.rows > 1",
            "part.shape[1] > 1 and blocks.columns > 1 becomes part.shape[1] > 1 or blocks.columns > 1",
            "part.shape[0] > 1 becomes part.shape[0] >= 1",
            "part.shape[1] > 1 becomes part.shape[1] >= 1",
            "blocks.rows > 1 becomes blocks.rows >= 1",
            "blocks.columns > 1 becomes blocks.columns >= 1",
            "down * r becomes down / r",
            "grid_columns * c becomes grid_columns / c",
            "if recipe.scale_format == 'float32' is never so",
            "2143289344 becomes 2143289345 in found[(found > _INFINITY) | (nan == 'all') & (least > _INFINITY)] = "
            "2143289344",
        ),
        "reference.steps": ("if format_name == 'float32' is never so",),
    },
    "all powers beyond float32's are alike, a NaN's exponent is not looked at, and int8 ends long before int32": {
        "reference.steps": (
            "200 becomes 201 in np.clip(np.where(np.isnan(e), 0, e), -200, 200)",
            "200 becomes 201 in -200",
            "0 becomes 1 in np.where(np.isnan(e), 0, e)",
            "2.0 ** 31 - 1 becomes 2.0 ** 31 + 1",
            "1 becomes 2 in 2.0 ** 31 - 1",
            "2.0 becomes 3.0 in 2.0 ** 31",
            "31 becomes 32 in 2.0 ** 31",
        ),
    },
    "code 0 is no infinity and no NaN in any format": {
        "reference.policies": (
            "special_code(fmt) < 0 becomes special_code(fmt) <= 0",
            "nan_code(fmt) < 0 becomes nan_code(fmt) <= 0",
            "0 becomes 1 in special_code(fmt) < 0",
            "0 becomes 1 in nan_code(fmt) < 0",
        ),
    },
}
EQUIVALENT = {
    f"{m}: {what}" for covered in EQUIVALENT_FOR.values() for m, changes in covered.items() for what in changes
}


@pytest.fixture(scope="module")
def killer() -> Killer:
    return Killer()


def test_agrees_with_exact_fractions(killer: Killer) -> None:
    """Values, casts in every policy, both recipes, steps, refusals."""
    assert list(killer.disagreements()) == []


@pytest.mark.parametrize("module", MODULES)
def test_every_mutation_is_noticed(module: str, killer: Killer) -> None:
    """What survives must be listed as equivalent, with its reason. What is listed may survive, and is not run."""
    made = [m for m in mutants(module) if _key(m) not in EQUIVALENT]
    assert len(made) > 10, "a module without mutants proves nothing"
    assert [str(m) for m in made if survives(m, killer)] == []


def test_equivalent_mutations_still_exist() -> None:
    """A stale entry would excuse something else later."""
    made = {_key(m) for module in MODULES for m in mutants(module)}
    assert EQUIVALENT - made == set()


def _key(mutant: Mutant) -> str:
    return re.sub(r":\d+: ", ": ", str(mutant))


@pytest.mark.parametrize("policy", [PLAIN, SPECIAL], ids=["saturate", "nonsaturate"])
@pytest.mark.parametrize("source", ["bfloat16", "float16"])
@pytest.mark.parametrize("format_name", FP8)
def test_every_16_bit_input_agrees_with_exact_fractions(
    source: str, format_name: str, policy: dict[str, object]
) -> None:
    codes = np.arange(1 << 16, dtype=np.uint16)
    want = second_derivation.cast_codes(codes, source, format_name, policy)
    got = cast(Coded(source, codes), format_name, CastPolicy(**policy)).data  # type: ignore[arg-type]
    assert not codes_part(got, want, format_name)


@pytest.mark.parametrize("format_name", ["int8", "int4", "uint8", "uint4"])
def test_whole_numbers_in_float32_are_the_definition(format_name: str) -> None:
    """Every rounding and NaN rule, with zero points on both sides of what float32 takes: halves, ends, specials."""
    fmt = FORMATS[format_name]
    halves = np.arange(-600, 601, dtype=np.float32) / 2
    x = np.concatenate([halves, np.nextafter(halves, np.float32(0)), np.nextafter(halves, np.float32(np.inf))])
    bits = np.concatenate(
        [x.view(np.uint32), case_named("stratified").make(Claim(Cast("ieee"), "float32", "float16")).codes[::37]]
    )
    with np.errstate(invalid="ignore"):
        real = bits.view(np.float32).astype(np.float64)
    for rounding, nan in itertools.product(get_args(Rounding), get_args(OfNaN)):
        for zero_point, negative in (
            (0, "smallest"),
            (3, "smallest"),
            (-(1 << 16), "smallest"),
            (1 << 25, "smallest"),
            (0, "magnitude"),
        ):
            policy = CastPolicy(rounding, nan=nan, zero_point=zero_point, negative=negative)  # type: ignore[arg-type]
            try:
                check_fits(policy, fmt)
            except BadInput:
                continue
            if rounding == "stochastic":
                continue
            want = encode(real, fmt, policy)
            np.testing.assert_array_equal(
                cast(Coded("float32", bits), format_name, policy).data, want, err_msg=str(policy)
            )


@pytest.mark.parametrize(
    "format_name", [*(f.name for f in FORMATS.values() if f.bits <= 8 and f.family != "integer"), "bfloat16", "float16"]
)
def test_fast_path_is_the_definition(format_name: str) -> None:
    """Every combination of choices that fits, on a stratified set of float32 patterns: integer operations, look-up."""
    bits = case_named("stratified").make(Claim(Cast("ml_dtypes"), "float32", FP8[0])).codes
    bits = bits[::7] if format_name in FP8 else bits[::101]
    fmt = FORMATS[format_name]
    limit = 224.0 if 224.0 in values(fmt) else float(values(fmt)[largest(fmt) - 1])
    choices: dict[str, tuple[object, ...]] = {
        "rounding": tuple(r for r in get_args(Rounding) if r != "stochastic"),  # that one has the definition alone
        "overflow": get_args(Beyond),
        "infinity": get_args(Beyond),
        "nan": get_args(OfNaN),
        "negative_zero": get_args(OfNegativeZero),
        "subnormals": get_args(OfSubnormals),
        "negative": get_args(OfNegative),
        "zero": get_args(OfZero),
        "limit": (None, limit),
    }
    with np.errstate(invalid="ignore"):
        real = bits.view(np.float32).astype(np.float64)
    tried = 0
    for combination in itertools.product(*choices.values()):
        policy = CastPolicy(**dict(zip(choices, combination, strict=True)))  # type: ignore[arg-type]
        try:
            check_fits(policy, fmt)
        except BadInput:
            continue
        tried += 1
        want = encode(real, fmt, policy)
        # A look-up table costs a hundred times what the comparison does: all pairs of choices, not all combinations.
        if sum(a != b[0] for a, b in zip(combination, choices.values(), strict=True)) <= 2 + (nan_code(fmt) < 0):
            got = cast(Coded("float32", bits), format_name, policy).data
            np.testing.assert_array_equal(got, want, err_msg=f"cast, {policy}")
        if fmt.family != "exponent":
            np.testing.assert_array_equal(encode_float32(bits, fmt, policy), want, err_msg=f"integers, {policy}")
    # E8M0 has neither flushing nor limits, and three NaN rules; a finite format's only rule of overflow is the largest.
    assert tried >= 6 * (3 * 4 if fmt.family == "exponent" else 4 * 8)
