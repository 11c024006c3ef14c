"""Opcodes of PTX on floating-point numbers, comparisons and conversions, by the words of the PTX ISA.

On every pair of edge values; what is expected is exact arithmetic in Python's fractions, rounded once.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.suites.meta.test_emulator_ptx import apply, run
from narrowgauge.suites.meta.test_emulator_ptx_words import ORDER, clamp, edges, pairs, read

pytestmark = pytest.mark.meta

# --- comparisons and floats ------------------------------------------------------------------------------------------

NAN, INF, SIGN = 0x7FC00001, 0x7F800000, 0x80000000
FLOATS = [0, SIGN, 1, SIGN | 1, 0x3F800000, 0xBF800000, 0x40000000, 0x7F7FFFFF, INF, SIGN | INF, NAN, 0xFFFFFFFF]


def number(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def pattern(x: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", x))[0])


def flushed(bits: int) -> int:
    return bits & SIGN if bits & INF == 0 else bits


def decided(test: str, a: int, b: int, ftz: bool = False) -> bool:
    """9.7.6: ordered comparisons are false with a NaN, those with u are true; num and nan ask for it."""
    x, y = (number(flushed(v) if ftz else v) for v in (a, b))
    nan = math.isnan(x) or math.isnan(y)
    if test in ("num", "nan"):
        return nan == (test == "nan")
    if test in ORDER:
        return not nan and ORDER[test](x, y)
    return nan or ORDER[test[:-1]](x, y)


def predicate(line: str, kind: str, width: int, columns: Sequence[list[int]]) -> list[int]:
    name = "%r" if width == 32 else "%d" if width == 64 else "%h"
    body = f"""
	ld.global.b{width} {name}5, [%d0];
	ld.global.b{width} {name}6, [%d0+8];
	setp.ne.u32 %p2, %r0, %r0;
	{line.format(a=f"{name}5", b=f"{name}6")}
	selp.b64 %d9, 1, 0, %p1;
	st.global.b64 [%d1], %d9;"""
    return [int(v) for v in run(body, *columns)]


@pytest.mark.parametrize("ftz", [False, True])
def test_float_comparisons(ftz: bool) -> None:
    columns = [list(c) for c in zip(*itertools.product(FLOATS, repeat=2), strict=True)]
    for test in [*ORDER, *(f"{name}u" for name in ORDER), "num", "nan"]:
        want = [decided(test, a, b, ftz) for a, b in zip(*columns, strict=True)]
        suffix = ".ftz.f32" if ftz else ".f32"
        assert predicate(f"setp.{test}{suffix} %p1, {{a}}, {{b}};", "f32", 32, columns) == want, test
        if not ftz:
            assert apply(f"set.{test}.u32.f32", *columns) == [0xFFFFFFFF * w for w in want], test
            assert apply(f"set.{test}.f32.f32", *columns) == [0x3F800000 * w for w in want], test


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_integer_comparisons(kind: str) -> None:
    """lo, ls, hi, hs are lt, le, gt, ge of unsigned words."""
    width = int(kind[1:])
    columns = pairs(width)
    names = {name: name for name in ORDER} | (
        {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"} if kind[0] == "u" else {}
    )
    for name, test in names.items():
        want = [ORDER[test](read(a, kind), read(b, kind)) for a, b in zip(*columns, strict=True)]
        assert predicate(f"setp.{name}.{kind} %p1, {{a}}, {{b}};", kind, width, columns) == want, name


def test_a_comparison_is_joined_to_a_predicate() -> None:
    columns = [[0, 0, 1, 1], [0, 1, 0, 1]]
    yes = "setp.eq.u32 %p3, %r0, %r0;\n\t"
    for how, join in (("and", int.__and__), ("or", int.__or__), ("xor", int.__xor__)):
        for name, other in (("%p2", 0), ("%p3", 1), ("!%p2", 1)):
            line = f"{yes}setp.eq.{how}.s32 %p1, {{a}}, {{b}}, {name};"
            assert predicate(line, "s32", 32, columns) == [
                join(int(a == b), other) for a, b in zip(*columns, strict=True)
            ], how


def same(found: int, want: float) -> bool:
    """A result of float32: the value and its sign, or the canonical NaN."""
    return found == 0x7FFFFFFF if math.isnan(want) else found == pattern(want)


def rounded(exact: Fraction) -> float:
    """To float32, to nearest even; an overflow is infinite."""
    if exact == 0:
        return 0.0
    size = abs(exact)
    exponent = max(math.floor(math.log2(size)) - 23, -149) if size < 2**128 else 105
    while size >= Fraction(2) ** (exponent + 24):
        exponent += 1
    unit = Fraction(2) ** exponent
    count = round(size / unit)  # to even
    if count * unit >= Fraction(2) ** 128:
        return math.copysign(math.inf, exact)
    return math.copysign(float(count * unit), exact)


def ieee(a: float, b: float, opcode: str) -> float:
    """IEEE 754 without NumPy: exact, then rounded once."""
    if math.isnan(a) or math.isnan(b):
        return math.nan
    if opcode == "sub":
        return ieee(a, -b, "add")
    if opcode == "add":
        if math.isinf(a) or math.isinf(b):
            return a + b
        return rounded(Fraction(a) + Fraction(b)) if a + b or a != -b else (-0.0 if str(a) == str(b) == "-0.0" else 0.0)
    sign = math.copysign(1, a) * math.copysign(1, b)
    if opcode == "mul":
        if math.isinf(a) or math.isinf(b):
            return math.nan if 0 in (a, b) else sign * math.inf
        return math.copysign(rounded(Fraction(a) * Fraction(b)), sign)
    if b == 0 or math.isinf(a):
        return math.nan if a == 0 or (math.isinf(b) and math.isinf(a)) else sign * math.inf
    return math.copysign(0.0 if math.isinf(b) else rounded(Fraction(a) / Fraction(b)), sign)


MANY = [
    *FLOATS,
    0x00800000,
    0x807FFFFF,
    0x34000000,
    0x33800000,
    0x3F800001,
    0x3EAAAAAB,
    0xC3E00000,
    0x4B800001,
    0x00000003,
]


@pytest.mark.parametrize("ftz", [False, True])
@pytest.mark.parametrize("opcode", ["add", "sub", "mul", "div"])
def test_float_arithmetic(opcode: str, ftz: bool) -> None:
    columns = [list(c) for c in zip(*itertools.product(MANY, repeat=2), strict=True)]
    suffix = ".rn" if opcode == "div" else ""
    found = apply(f"{opcode}{suffix}{'.ftz' if ftz else ''}.f32", *columns)
    for a, b, got in zip(*columns, found, strict=True):
        x, y = (number(flushed(v) if ftz else v) for v in (a, b))
        want = ieee(x, y, opcode)
        assert same(got, number(flushed(pattern(want))) if ftz else want), (hex(a), hex(b), hex(got))


@pytest.mark.parametrize("opcode", ["min", "max"])
@pytest.mark.parametrize("flags", ["", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs", ".ftz"])
def test_extremes(opcode: str, flags: str) -> None:
    """A NaN gives way to a number, unless .NaN; -0 is below +0; .xorsign.abs: of magnitudes, and both signs."""
    columns = [list(c) for c in zip(*itertools.product(FLOATS, repeat=2), strict=True)]
    for a, b, got in zip(*columns, apply(f"{opcode}{flags}.f32", *columns), strict=True):
        x, y = (flushed(v) if "ftz" in flags else v for v in (a, b))
        sign = (x ^ y) & SIGN
        if "abs" in flags:
            x, y = x & ~SIGN, y & ~SIGN
        nans = [v & ~SIGN > INF for v in (x, y)]
        if all(nans) or (any(nans) and "NaN" in flags):
            assert got == 0x7FFFFFFF, (hex(a), hex(b))
            continue
        key = [(number(v), v & SIGN == 0) for v in (x, y)]
        first = nans[1] or (not nans[0] and (key[0] <= key[1] if opcode == "min" else key[0] >= key[1]))
        want = x if first else y
        assert got == (want | sign if "abs" in flags else want), (hex(a), hex(b), hex(got))


def test_signs_saturation_and_roots() -> None:
    assert apply("abs.f32", FLOATS) == [x & ~SIGN for x in FLOATS]
    assert apply("neg.f32", FLOATS) == [x ^ SIGN for x in FLOATS]
    assert apply("neg.ftz.f32", [1, SIGN | 1, 0x3F800000]) == [SIGN, 0, 0xBF800000]
    pairs_of = [list(c) for c in zip(*itertools.product(FLOATS, repeat=2), strict=True)]
    assert apply("copysign.f32", *pairs_of) == [a & SIGN | b & ~SIGN for a, b in zip(*pairs_of, strict=True)]
    given = [0, SIGN, 1, 0x3F000000, 0x3F800000, 0x3F800001, 0xBF800000, INF, SIGN | INF, NAN]
    want = [0, 0, 1, 0x3F000000, 0x3F800000, 0x3F800000, 0, 0x3F800000, 0, 0]
    assert apply("add.sat.f32", given, [SIGN] * 10) == want
    assert apply("mul.sat.f32", given, [0x3F800000] * 10) == want
    assert apply("fma.rn.sat.f32", given, [0x3F800000] * 10, [SIGN] * 10) == want
    for bits, got in zip(MANY, apply("sqrt.rn.f32", MANY), strict=True):
        x = number(bits)
        assert same(got, x if x == 0 else math.sqrt(x) if math.isinf(x) and x > 0 else nearest_root(x)), hex(bits)
    for bits, got in zip(MANY, apply("rcp.rn.f32", MANY), strict=True):
        assert same(got, ieee(1.0, number(bits), "div")), hex(bits)


def nearest_root(x: float) -> float:
    """The square root rounded once: an integer root of 80 bits is far from any tie, or exact."""
    if not x >= 0:
        return math.nan
    exact = Fraction(x)
    return rounded(Fraction(math.isqrt(int(exact * 2**400)), 2**200))


def widened(bits: int, kind: str) -> float:
    """A float16 or bfloat16."""
    return number(bits << 16) if kind == "bf16" else float(struct.unpack("<e", struct.pack("<H", bits))[0])


HALVES = [0, 0x8000, 1, 0x3C00, 0x3C01, 0xBF80, 0x3F81, 0x7BFF, 0x7C00, 0xFC00, 0x7F80, 0x0080, 0x4000, 0xC248]


def mixed(opcode: str, count: int, columns: Sequence[list[int]]) -> list[int]:
    """``count`` operands of 16 bits, then one of float32."""
    loads = "".join(f"\tld.global.b16 %h{i}, [%d0+{8 * i}];\n" for i in range(count))
    names = ", ".join([*(f"%h{i}" for i in range(count)), "%r5"])
    body = f"""{loads}
	ld.global.b32 %r5, [%d0+{8 * count}];
	{opcode} %r6, {names};
	cvt.u64.u32 %d9, %r6;
	st.global.b64 [%d1], %d9;"""
    return [int(v) for v in run(body, *columns)]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_narrow_operands_of_wide_arithmetic(kind: str) -> None:
    """9.7.5, mixed precision: the narrow operands are converted first, which is exact."""
    rows = list(itertools.product(HALVES, FLOATS))
    columns = [list(c) for c in zip(*rows, strict=True)]
    for opcode in ("add", "sub"):
        for (a, c), got in zip(rows, mixed(f"{opcode}.f32.{kind}", 1, columns), strict=True):
            assert same(got, ieee(widened(a, kind), number(c), opcode)), (opcode, hex(a), hex(c))
    triples = [(a, b, c) for a, b in itertools.product(HALVES[:9], repeat=2) for c in FLOATS[:8]]
    found = mixed(f"fma.rn.f32.{kind}", 2, [list(c) for c in zip(*triples, strict=True)])
    for (a, b, c), got in zip(triples, found, strict=True):
        assert same(got, fused(widened(a, kind), widened(b, kind), number(c))), (hex(a), hex(b), hex(c))


def fused(a: float, b: float, c: float) -> float:
    """a * b + c rounded once."""
    if not all(map(math.isfinite, (a, b, c))):
        return ieee(ieee(a, b, "mul") if not (math.isfinite(a) and math.isfinite(b)) else 1.0, c, "add")
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:  # the sign of an exact zero is that of the sum of two zeros
        product = math.copysign(0.0, math.copysign(1, a) * math.copysign(1, b))
        return product + c if a * b == c == 0 or 0 in (a, b) else 0.0
    return math.copysign(rounded(exact), exact)


@pytest.mark.parametrize("how", ["rz", "rm", "rp"])
def test_directed_fma(how: str) -> None:
    """The neighbours of the exact result; an exact zero of a sum is -0 when rounding down (IEEE 754, 6.3)."""
    some = [0x3F800000, 0xBF800001, 0x3EAAAAAB, 0x40490FDB, 0xC3E00001, 0x2F800001, 0xB3800000]
    triples = list(itertools.product(some, some, some))
    for (a, b, c), got in zip(triples, apply(f"fma.{how}.f32", *map(list, zip(*triples, strict=True))), strict=True):
        exact = Fraction(number(a)) * Fraction(number(b)) + Fraction(number(c))
        if exact == 0:
            assert got == (SIGN if how == "rm" else 0)
            continue
        value = Fraction(number(got))
        if how == "rz":
            assert abs(value) <= abs(exact) < abs(Fraction(number(got + 1)))
        elif how == "rp":
            assert value >= exact > Fraction(number(got - 1 if exact > 0 else got + 1))
        else:
            assert value <= exact < Fraction(number(got + 1 if exact > 0 else got - 1))


def test_bfloat16() -> None:
    """One rounding from the exact result to 8 bits: ties to even."""
    half = [[0x3F80, 0x3F81, 0x3F83, 0xBF80], [0x3B80, 0x3B80, 0x3B80, 0x3F80]]
    assert apply("add.rn.bf16", *half, kind="h") == [0x3F80, 0x3F82, 0x3F84, 0]
    assert apply("mul.rn.bf16", [0x3F81, 0x3F83], [0x3F81, 0x3F83], kind="h") == [0x3F82, 0x3F86]
    assert apply("fma.rn.bf16", [0x3F81], [0x3F81], [0xBF82], kind="h") == [0x3880]
    assert apply("neg.bf16x2", [0x3F80BF80]) == [0xBF803F80]
    assert apply("abs.bf16x2", [0xBF81BF81]) == [0x3F813F81]
    assert apply("neg.f16x2", [0x3C00BC01]) == [0xBC003C01]
    assert apply("set.eq.s32.f32", [0x3F800000, 0], [0x3F800000, 1]) == [0xFFFFFFFF, 0]
    for name, want in (("lt", [1, 0, 0]), ("geu", [0, 1, 1])):
        columns = [[0x3F80, 0x3F80, 0x7FC0], [0x3F81, 0x3F80, 0x3F80]]
        assert predicate(f"setp.{name}.bf16 %p1, {{a}}, {{b}};", "bf16", 16, columns) == want


# --- conversions -----------------------------------------------------------------------------------------------------

ROUND: dict[str, Callable[[Fraction], int]] = {
    "rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil,
}  # fmt: skip
REALS = [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, 127.5, -128.5, 255.5, 32767.5, 65535.5, 2.0**31,
         -(2.0**31), 2147483520.0, 4294967040.0, 2.0**32, 1e10, -1e10, 2.0**63, -(2.0**63), 2.0**64, 3e38, 1e-40,
         -1e-40, math.inf, -math.inf, math.nan]  # fmt: skip


@pytest.mark.parametrize("how", ROUND)
@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_floats_to_integers_clamp(kind: str, how: str) -> None:
    """9.7.9.21, cvt: beyond the range the nearest end; a NaN is 0, in 64 bits the topmost bit alone."""
    width = int(kind[1:])
    name = {16: "%h6", 32: "%r6", 64: "%d6"}[width]
    body = f"""
	ld.global.b32 %r5, [%d0];
	cvt.{how}.{kind}.f32 {name}, %r5;
	mov.b64 %d9, 0;
	st.global.b64 [%d1], %d9;
	st.global.b{width} [%d1], {name};"""
    bits = [pattern(x) for x in REALS]
    want = []
    for x in map(number, bits):
        if math.isnan(x):
            want.append(1 << 63 if width == 64 else 0)
        elif math.isinf(x):
            want.append(clamp(1 << 80 if x > 0 else -(1 << 80), kind) % (1 << width))
        else:
            want.append(clamp(ROUND[how](Fraction(x)), kind) % (1 << width))
    assert run(body, bits).tolist() == want


@pytest.mark.parametrize("how", ROUND)
def test_floats_to_whole_floats(how: str) -> None:
    """The sign stays, of zeros too."""
    bits = [pattern(x) for x in REALS]
    found = apply(f"cvt.{how}.f32.f32", bits)
    for b, got in zip(bits, found, strict=True):
        x = number(b)
        if math.isfinite(x):
            assert got == pattern(math.copysign(float(ROUND[how](Fraction(x))), x)), hex(b)
        else:
            assert same(got, x), hex(b)
    small = [1, SIGN | 1, 0x3F000000]
    want = {"rpi": [0, SIGN, 0x3F800000], "rmi": [0, SIGN, 0], "rni": [0, SIGN, 0], "rzi": [0, SIGN, 0]}[how]
    assert apply(f"cvt.{how}.ftz.f32.f32", small) == want


@pytest.mark.parametrize("kind", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
def test_integers_to_floats_round_to_even(kind: str) -> None:
    width = int(kind[1:])
    name = {8: "%h5", 16: "%h5", 32: "%r5", 64: "%d5"}[width]
    values = [*edges(width), *(v for v in (0x1000001, 0x1000003, 0xFF000001, (1 << 39) + (1 << 15)) if v < 1 << width)]
    body = f"""
	ld.global.b{max(width, 16)} {name}, [%d0];
	cvt.rn.f32.{kind} %r6, {name};
	cvt.u64.u32 %d9, %r6;
	st.global.b64 [%d1], %d9;"""
    assert run(body, values).tolist() == [pattern(rounded(Fraction(read(v, kind)))) for v in values]


@pytest.mark.parametrize("source", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("to", ["u16", "s16", "u32", "s32", "u64", "s64", "sat.s8", "sat.u8", "sat.s16", "sat.u32"])
def test_integers_to_integers(to: str, source: str) -> None:
    """Extended by the sign of the source, cut off, or clamped; a result narrower than its register is extended."""
    narrow, width, kind = int(source[1:]), int(to.rpartition(".")[2][1:]), to.rpartition(".")[2]
    register = {8: "%h", 16: "%h", 32: "%r", 64: "%d"}
    held = max(width, 16)
    body = f"""
	ld.global.b{max(narrow, 16)} {register[narrow]}5, [%d0];
	cvt.{to}.{source} {register[width]}6, {register[narrow]}5;
	mov.b64 %d9, 0;
	st.global.b64 [%d1], %d9;
	st.global.b{held} [%d1], {register[width]}6;"""
    values = edges(narrow)
    exact = [read(v, source) for v in values]
    results = [clamp(x, kind) if to.startswith("sat") else x for x in exact]
    want = [read(x % (1 << width), kind) % (1 << held) for x in results]
    assert run(body, values).tolist() == want


def narrowed(opcode: str, values: list[int]) -> list[int]:
    """A conversion of 32-bit words to 16 bits."""
    body = f"\tld.global.b32 %r5, [%d0];\n\t{opcode} %h5, %r5;\n\tcvt.u64.u16 %d9, %h5;\n\tst.global.b64 [%d1], %d9;"
    return [int(v) for v in run(body, values)]


def test_other_conversions() -> None:
    """Ties to even; .ftz takes and gives no subnormal float32; .sat clamps to [0, 1]."""
    assert narrowed("cvt.rn.f16.s32", [2049, 2051, 65519, 65520, 0xFFFFFFFF]) == [
        0x6800,
        0x6802,
        0x7BFF,
        0x7C00,
        0xBC00,
    ]
    assert narrowed("cvt.rn.bf16.s32", [257, 259, 0xFFFFFFFF]) == [0x4380, 0x4382, 0xBF80]
    assert apply("cvt.sat.f32.f32", [0xBF800000, 0x3F000000, 0x40000000, NAN, 1]) == [0, 0x3F000000, 0x3F800000, 0, 1]
    assert apply("cvt.ftz.f32.f32", [1, SIGN | 1, 0x00800000]) == [0, SIGN, 0x00800000]
    assert apply("cvt.ftz.sat.f32.f32", [1, 0x3F000000]) == [0, 0x3F000000]
    assert apply("cvt.rni.ftz.s32.f32", [0x3FC00000, 1]) == [2, 0]
    assert apply("cvt.rpi.s32.f32", [1]) == [1]
    assert apply("cvt.rpi.ftz.s32.f32", [1]) == [0]


@pytest.mark.parametrize("opcode", ["cvt.f32.s32", "cvt.rz.f32.s32", "cvt.rn.f32.b32", "cvt.rni.b32.f32",
                                    "cvt.rn.sat.bf16.f16", "cvt.ftz.f16.f16", "cvt.rn.f32.f32"])  # fmt: skip
def test_conversions_that_do_not_exist(opcode: str) -> None:
    with pytest.raises(NotExecuted):
        apply(opcode, [1])
