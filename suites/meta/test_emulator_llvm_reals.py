"""LLVM instructions on floating-point numbers, by the words of the language reference, on every pair of edge values.

What is expected is exact arithmetic in Python's fractions, rounded once. What is open is the fill of the launch.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable
from fractions import Fraction

import pytest

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.suites.meta.llvm_program import OVFL, apply, inputs, output, run
from narrowgauge.suites.meta.test_emulator_llvm_words import FILL, WIDTHS, fill
from narrowgauge.suites.meta.test_emulator_ptx_words import ORDER, clamp, edges, read

pytestmark = pytest.mark.meta

# --- floats ----------------------------------------------------------------------------------------------------------

#: bits of the significand, the largest exponent, and struct's letter
FORMATS = {"half": (11, 15, "e", 16), "float": (24, 127, "f", 32), "double": (53, 1023, "d", 64)}


def number(bits: int, kind: str) -> float:
    _, _, letter, width = FORMATS[kind]
    return float(struct.unpack(f"<{letter}", bits.to_bytes(width // 8, "little"))[0])


def pattern(x: float, kind: str) -> int:
    """Of a number that the format has."""
    return int.from_bytes(struct.pack(f"<{FORMATS[kind][2]}", x), "little")


def rounded(exact: Fraction, kind: str, sign: float = 1.0) -> int:
    """The pattern nearest to a number, ties to even; of zero with a sign."""
    precision, largest, _, width = FORMATS[kind]
    top = 1 << width - 1
    negative = top if exact < 0 or (exact == 0 and math.copysign(1, sign) < 0) else 0
    if exact == 0:
        return negative
    size = abs(exact)
    near = size.numerator.bit_length() - size.denominator.bit_length() - precision
    exponent = max(near, 1 - largest - (precision - 1))
    while size >= Fraction(2) ** (exponent + precision):
        exponent += 1
    count = round(size / Fraction(2) ** exponent)
    # Patterns of positive numbers are in the order of the numbers: the count carries into the exponent by itself.
    biased = exponent + precision - 1 + largest
    code = count + ((biased - 1) << precision - 1)
    return min(code, infinity(kind)) | negative


def infinity(kind: str) -> int:
    precision, largest, _, _ = FORMATS[kind]
    return (2 * largest + 1) << precision - 1


def specials(kind: str) -> list[int]:
    precision, largest, _, width = FORMATS[kind]
    one, inf = largest << precision - 1, infinity(kind)
    small, step = [0, 1, 3, (1 << precision - 1) - 1, 1 << precision - 1], 1 << precision - 1
    around_one = [one, one + 1, one + step, one + step + step // 2, one - precision * step]
    positive = [*small, *around_one, inf - 1, inf, inf | step >> 1]
    return positive + [x | 1 << width - 1 for x in positive]


def is_nan(bits: int, kind: str) -> bool:
    return bits & ~(1 << FORMATS[kind][3] - 1) > infinity(kind)


def arithmetic(opcode: str, x: float, y: float, kind: str) -> int | None:
    """IEEE 754: exact, rounded once; None for NaN."""
    inf, sign = infinity(kind), math.copysign(1, x) * math.copysign(1, y)
    top = 1 << FORMATS[kind][3] - 1
    if math.isnan(x) or math.isnan(y):
        return None
    if opcode == "fsub":
        return arithmetic("fadd", x, -y, kind)
    if opcode == "fadd":
        if math.isinf(x) or math.isinf(y):
            return None if x == -y else pattern(x if math.isinf(x) else y, kind)
        negative = math.copysign(1, x) < 0 and math.copysign(1, y) < 0
        return rounded(Fraction(x) + Fraction(y), kind, -1 if negative else 1)
    if opcode == "fmul":
        if math.isinf(x) or math.isinf(y):
            return None if 0 in (x, y) else inf | (top if sign < 0 else 0)
        return rounded(Fraction(x) * Fraction(y), kind, sign)
    if opcode == "frem":
        if math.isinf(x) or y == 0:
            return None
        exact = x if math.isinf(y) else math.copysign(float(abs(Fraction(x)) % abs(Fraction(y))), x)
        return pattern(exact, kind)
    if y == 0 or math.isinf(x):
        return None if x == 0 or (math.isinf(x) and math.isinf(y)) else inf | (top if sign < 0 else 0)
    return rounded(Fraction(0) if math.isinf(y) else Fraction(x) / Fraction(y), kind, sign)


#: frem of half is refused
OPCODES = [(o, k) for o in ("fadd", "fsub", "fmul", "fdiv", "frem") for k in FORMATS if (o, k) != ("frem", "half")]


@pytest.mark.parametrize(("opcode", "kind"), OPCODES)
def test_float_arithmetic(opcode: str, kind: str) -> None:
    columns = [list(c) for c in zip(*itertools.product(specials(kind), repeat=2), strict=True)]
    for a, b, got in zip(*columns, apply(f"{opcode} {kind} %a, %b", kind, *columns), strict=True):
        want = arithmetic(opcode, number(a, kind), number(b, kind), kind)
        assert is_nan(got, kind) if want is None else got == want, (hex(a), hex(b), hex(got))


@pytest.mark.parametrize("kind", FORMATS)
def test_float_comparisons(kind: str) -> None:
    """o…: false with a NaN; u…: true."""
    columns = [list(c) for c in zip(*itertools.product(specials(kind), repeat=2), strict=True)]
    for how in [*(p + name for p in "ou" for name in ORDER), "ord", "uno"]:
        want = []
        for a, b in zip(*columns, strict=True):
            nan = is_nan(a, kind) or is_nan(b, kind)
            if how in ("ord", "uno"):
                want.append(int(nan == (how == "uno")))
            elif nan:
                want.append(int(how[0] == "u"))
            else:
                want.append(int(ORDER[how[1:]](number(a, kind), number(b, kind))))
        assert apply(f"fcmp {how} {kind} %a, %b", kind, *columns, to="i1") == want, how


@pytest.mark.parametrize("kind", FORMATS)
def test_signs(kind: str) -> None:
    top = 1 << FORMATS[kind][3] - 1
    values, suffix = specials(kind), {"half": "f16", "float": "f32", "double": "f64"}[kind]
    assert apply(f"fneg {kind} %a", kind, values) == [x ^ top for x in values]
    assert apply(f"call {kind} @llvm.fabs.{suffix}({kind} %a)", kind, values) == [x & ~top for x in values]
    columns = [list(c) for c in zip(*itertools.product(values, repeat=2), strict=True)]
    line = f"call {kind} @llvm.copysign.{suffix}({kind} %a, {kind} %b)"
    assert apply(line, kind, *columns) == [a & ~top | b & top for a, b in zip(*columns, strict=True)]


WHOLE: dict[str, Callable[[Fraction], int]] = {
    "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "rint": round, "roundeven": round,
    "round": lambda x: math.floor(x + Fraction(1, 2)) if x > 0 else math.ceil(x - Fraction(1, 2)),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers(name: str, kind: str) -> None:
    """The sign stays, of zeros too; halves to even (rint, roundeven) or away from zero (round)."""
    values = [*specials(kind), *(pattern(x, kind) for x in (0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 3.75, 8388609.0))]
    suffix = "f32" if kind == "float" else "f64"
    for bits, got in zip(values, apply(f"call {kind} @llvm.{name}.{suffix}({kind} %a)", kind, values), strict=True):
        x = number(bits, kind)
        if math.isfinite(x):
            assert got == pattern(math.copysign(float(WHOLE[name](Fraction(x))), x), kind), hex(bits)
        else:
            assert is_nan(got, kind) if math.isnan(x) else got == bits, hex(bits)


@pytest.mark.parametrize(("source", "to"), list(itertools.permutations(FORMATS, 2)))
def test_floats_to_floats(source: str, to: str) -> None:
    opcode = "fpext" if FORMATS[source][0] < FORMATS[to][0] else "fptrunc"
    values = specials(source)
    if opcode == "fptrunc":  # ties of the destination, and their neighbours
        precision, _, _, _ = FORMATS[to]
        one = pattern(1.0, source)
        step = FORMATS[source][0] - precision
        values = values + [one + (k << step - 1) + d for k in range(5) for d in (-1, 0, 1)]
        values += [
            pattern(number(infinity(to) - 1, to) * (1 + d), source)
            for d in (0, 2.0**-precision, 2.0 ** (1 - precision))
        ]
        values += [pattern(number(1, to) * f, source) for f in (0.5, 0.5001, 1.5, 1.4999)]
    for bits, got in zip(values, apply(f"{opcode} {source} %a to {to}", source, values, to=to), strict=True):
        x = number(bits, source)
        if math.isnan(x):
            assert is_nan(got, to)
        elif math.isinf(x):
            assert got == pattern(x, to)
        else:
            assert got == rounded(Fraction(x), to, x), hex(bits)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("sign", "us")
def test_integers_to_floats(sign: str, width: int, kind: str) -> None:
    if kind == "half" and width == 64:
        with pytest.raises(NotExecuted):
            apply(f"{sign}itofp i64 %a to half", "i64", [0], to="half")
        return
    ties = (0x1000001, 0x1000003, 2049, 2051, 0x1FFFFF, 65519, 65520, (1 << 53) + 1, (1 << 54) + 6)
    values = [*edges(width), *(v for v in ties if v < 1 << width)]
    opcode = "uitofp" if sign == "u" else "sitofp"
    want = [rounded(Fraction(read(v, f"{sign}{width}")), kind) for v in values]
    assert apply(f"{opcode} i{width} %a to {kind}", f"i{width}", values, to=kind) == want


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("sign", "us")
def test_floats_to_integers(sign: str, width: int, kind: str) -> None:
    """Towards zero. Beyond the range .sat clamps, NaN is 0; without it the result is open, but of 32 bits (v_cvt)."""
    values = specials(kind)
    for x in (
        127.5,
        128.0,
        -128.0,
        -128.5,
        -129.0,
        255.5,
        256.0,
        32768.0,
        -0.5,
        -1.0,
        2.0**31,
        -(2.0**31),
        2.0**32,
        2.0**63,
        -(2.0**63),
        2.0**64,
    ):
        if kind != "half" or abs(x) < 65520:
            values.append(pattern(x, kind))
    suffix = {"half": "f16", "float": "f32", "double": "f64"}[kind]
    saturated, open_ = [], []
    for bits in values:
        x = number(bits, kind)
        if math.isnan(x):
            saturated.append(0)
            open_.append(fill(width))
            continue
        exact = math.trunc(Fraction(x)) if math.isfinite(x) else (1 << 90) * (1 if x > 0 else -1)
        inside = clamp(exact, f"{sign}{width}")
        saturated.append(inside % (1 << width))
        open_.append(inside % (1 << width) if inside == exact else fill(width))
    line = f"call i{width} @llvm.fpto{sign}i.sat.i{width}.{suffix}({kind} %a)"
    assert apply(line, kind, values, to=f"i{width}") == saturated
    plain = apply(f"fpto{sign}i {kind} %a to i{width}", kind, values, to=f"i{width}", fill=FILL)
    assert plain == (saturated if width == 32 else open_)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_fractions_and_exponents(kind: str) -> None:
    """frexp: a fraction in [1/2, 1) and a power of two; ldexp puts them together, rounded once."""
    suffix = "f32" if kind == "float" else "f64"
    values = specials(kind)
    result = f"{{ {kind}, i32 }}"
    body = f"""{inputs(kind, 1)}
  %s = call {result} @llvm.frexp.{suffix}.i32({kind} %a)
"""
    fractions = run(f"{body}  %r = extractvalue {result} %s, 0\n{output(kind)}", values).tolist()
    powers = run(f"{body}  %r = extractvalue {result} %s, 1\n{output('i32')}", values).tolist()
    for bits, fraction, power in zip(values, fractions, powers, strict=True):
        x = number(bits, kind)
        if not math.isfinite(x):
            assert power == 0
            assert is_nan(fraction, kind) if math.isnan(x) else fraction == bits
            continue
        part, exponent = math.frexp(x)
        assert (fraction, power) == (pattern(part, kind), exponent % (1 << 32)), hex(bits)
    rows = list(itertools.product(values, (0, 1, -1, 24, -24, 149, -149, 300, -300, 2000, 2**31 - 1, -(2**31))))
    line = f"""{inputs(kind, 1)}
  %pw = getelementptr i64, ptr addrspace(1) %from, i32 1
  %w = load i64, ptr addrspace(1) %pw, align 8
  %n = trunc i64 %w to i32
  %r = call {kind} @llvm.ldexp.{suffix}.i32({kind} %a, i32 %n)
{output(kind)}"""
    found = run(line, [a for a, _ in rows], [n % (1 << 32) for _, n in rows]).tolist()
    for (bits, power), got in zip(rows, found, strict=True):
        x = number(bits, kind)
        if math.isfinite(x):
            scaled = Fraction(x) * Fraction(2) ** max(min(power, 3000), -3000)
            assert got == rounded(scaled, kind, x), (hex(bits), power)
        else:
            assert is_nan(got, kind) if math.isnan(x) else got == bits


# --- bfloat16, float16 under MODE.FP16_OVFL, NaN ---------------------------------------------------------------------


@pytest.mark.parametrize(("target", "want"), [("gfx1250", [0x3F91, 0x3F90]), ("gfx942", [0x3F90, 0x3F90])])
def test_fma_of_bfloat16(target: str, want: list[int]) -> None:
    """1.0625^2 is a tie, and 2^-60 above or below it: gfx1250 rounds once, others in binary32 first."""
    line = "call bfloat @llvm.fma.bf16(bfloat %a, bfloat %b, bfloat %c)"
    columns = [0x3F88, 0x3F88], [0x3F88, 0x3F88], [0x2180, 0xA180]
    assert apply(line, "bfloat", *columns, target=target) == want


@pytest.mark.parametrize("target", ["gfx942", "gfx1250"])
def test_arithmetic_of_bfloat16(target: str) -> None:
    """binary32 has more than twice the digits, so that two roundings are one."""
    a, b = [0x3F80, 0x3F81, 0x7F7F, 0x0001], [0x3B80, 0x3F81, 0x7F7F, 0x3F00]
    want = {"fadd": [0x3F80, 0x4001, 0x7F80, 0x3F00], "fsub": [0x3F7F, 0, 0, 0xBF00],
            "fmul": [0x3B80, 0x3F82, 0x7F80, 0], "fdiv": [0x4380, 0x3F80, 0x3F80, 0x0002]}  # fmt: skip
    for opcode, results in want.items():
        assert apply(f"{opcode} bfloat %a, %b", "bfloat", a, b, target=target) == results, opcode


def test_overflow_of_float16_under_its_mode() -> None:
    """MODE.FP16_OVFL: what overflows is the largest value; infinities that go in stay."""
    top, inf, largest = [0x7BFF, 0xFBFF, 0x3C00], 0x7C00, 0x7BFF
    assert apply("fadd half %a, %a", "half", top) == [inf, 0xFC00, 0x4000]
    assert apply("fadd half %a, %a", "half", top, before=OVFL) == [largest, 0xFBFF, 0x4000]
    assert apply("fmul half %a, %b", "half", [inf, largest], [0x4000, 0x4000], before=OVFL) == [inf, largest]
    assert apply("fmul float %a, %b", "float", [0x7F7FFFFF], [0x40000000], before=OVFL) == [0x7F800000]
    with pytest.raises(NotExecuted):
        apply("fdiv half %a, %a", "half", top, before=OVFL)


@pytest.mark.parametrize(("kind", "nan"), [("half", 0x7E00), ("float", 0x7FC00000), ("double", 0x7FF8 << 48)])
def test_a_nan_that_is_made_is_the_quiet_one(kind: str, nan: int) -> None:
    """One that goes in comes out."""
    infinite, other = infinity(kind), nan | 5
    assert apply(f"fsub {kind} %a, %a", kind, [infinite, other]) == [nan, other]
    with pytest.raises(NotExecuted):
        apply("fadd fp128 %a, %a", kind, [0])


def test_the_larger_of_halves_and_bfloats() -> None:
    for kind, one, two, suffix in (("half", 0x3C00, 0x4000, "f16"), ("bfloat", 0x3F80, 0x4000, "bf16")):
        for name, want in (("maxnum", two), ("minnum", one)):
            assert apply(f"call {kind} @llvm.{name}.{suffix}({kind} %a, {kind} %b)", kind, [one], [two]) == [want]
    with pytest.raises(NotExecuted):
        apply("call double @llvm.amdgcn.fmed3.f64(double %a, double %a, double %a)", "double", [0])
