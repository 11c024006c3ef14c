"""LLVM instructions on every pair of edge values, by the words of the language reference in Python's integers.

What the reference leaves open (poison) is the fill of the launch. AMD's intrinsics are by the words of the ISA.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable
from fractions import Fraction

import pytest

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.suites.meta.llvm_program import apply, inputs, output, run
from narrowgauge.suites.meta.test_emulator_ptx_words import ORDER, TWO, clamp, edges, pairs, read, signed

pytestmark = pytest.mark.meta

FILL = 0x3C
WIDTHS = (8, 16, 32, 64)


def fill(width: int) -> int:
    return int.from_bytes(bytes([FILL] * (width // 8)), "little")


# --- integers --------------------------------------------------------------------------------------------------------

SIGNED: dict[str, tuple[str, str]] = {
    "add": ("add", "u"), "sub": ("sub", "u"), "mul": ("mul.lo", "u"), "udiv": ("div", "u"), "urem": ("rem", "u"),
    "sdiv": ("div", "s"), "srem": ("rem", "s"),
}  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("opcode", SIGNED)
def test_two_integers(opcode: str, width: int) -> None:
    """Poison where the divisor is zero, or the smallest integer is divided by -1."""
    name, sign = SIGNED[opcode]
    kind = f"{sign}{width}"
    want = []
    for a, b in zip(*pairs(width), strict=True):
        x, y = read(a, kind), read(b, kind)
        lost = opcode[1:] in ("div", "rem") and (y == 0 or (sign == "s" and y == -1 and a == 1 << width - 1))
        want.append(fill(width) if lost else TWO[name](x, y) % (1 << width))
    assert apply(f"{opcode} i{width} %a, %b", f"i{width}", *pairs(width), fill=FILL) == want


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("opcode", ["shl", "lshr", "ashr"])
def test_shifts(opcode: str, width: int) -> None:
    rows = list(itertools.product(edges(width), (0, 1, width // 2, width - 1, width, width + 1, (1 << width) - 1)))
    want = []
    for a, n in rows:
        moved = {"shl": lambda a, n: a << n, "lshr": lambda a, n: a >> n, "ashr": lambda a, n: signed(a, width) >> n}
        want.append(fill(width) if n >= width else moved[opcode](a, n) % (1 << width))
    columns = [list(c) for c in zip(*rows, strict=True)]
    assert apply(f"{opcode} i{width} %a, %b", f"i{width}", *columns, fill=FILL) == want


INTRINSICS: dict[str, Callable[[int, int, int], int]] = {
    "smax": lambda a, b, w: max(signed(a, w), signed(b, w)), "smin": lambda a, b, w: min(signed(a, w), signed(b, w)),
    "umax": lambda a, b, w: max(a, b), "umin": lambda a, b, w: min(a, b),
    "uadd.sat": lambda a, b, w: clamp(a + b, f"u{w}"), "usub.sat": lambda a, b, w: clamp(a - b, f"u{w}"),
    "sadd.sat": lambda a, b, w: clamp(signed(a, w) + signed(b, w), f"s{w}"),
    "ssub.sat": lambda a, b, w: clamp(signed(a, w) - signed(b, w), f"s{w}"),
}  # fmt: skip


#: saturating arithmetic of 64 bits is refused
CALLED = [(name, width) for name in INTRINSICS for width in WIDTHS if width < 64 or not name.endswith("sat")]


@pytest.mark.parametrize(("name", "width"), CALLED)
def test_intrinsics_of_two_integers(name: str, width: int) -> None:
    line = f"call i{width} @llvm.{name}.i{width}(i{width} %a, i{width} %b)"
    want = [INTRINSICS[name](a, b, width) % (1 << width) for a, b in zip(*pairs(width), strict=True)]
    assert apply(line, f"i{width}", *pairs(width)) == want


def test_funnel_shifts() -> None:
    rows = list(itertools.product(edges(32)[::2], edges(32)[1::2], (0, 1, 16, 31, 32, 33, 0xFFFFFFFF)))
    columns = [list(c) for c in zip(*rows, strict=True)]
    left = [((a << 32 | b) << n % 32 >> 32) % (1 << 32) for a, b, n in rows]
    right = [((a << 32 | b) >> n % 32) % (1 << 32) for a, b, n in rows]
    for name, want in (("fshl", left), ("fshr", right)):
        assert apply(f"call i32 @llvm.{name}.i32(i32 %a, i32 %b, i32 %c)", "i32", *columns) == want


@pytest.mark.parametrize("width", WIDTHS)
def test_intrinsics_of_one_integer(width: int) -> None:
    values = [*edges(width), *(1 << i for i in range(width)), *((1 << i) - 1 for i in range(width))]
    kind, whole = f"i{width}", 1 << width

    def called(name: str, more: str = "") -> list[int]:
        return apply(f"call {kind} @llvm.{name}.{kind}({kind} %a{more})", kind, values)

    assert called("abs", ", i1 false") == [abs(signed(x, width)) % whole for x in values]
    assert called("ctpop") == [x.bit_count() for x in values]
    assert called("bitreverse") == [int(f"{x:0{width}b}"[::-1], 2) for x in values]
    if width >= 32:
        assert called("cttz", ", i1 false") == [(x & -x).bit_length() - 1 if x else width for x in values]
    if width == 32:
        assert called("ctlz", ", i1 false") == [width - x.bit_length() for x in values]


@pytest.mark.parametrize("width", WIDTHS)
def test_comparisons(width: int) -> None:
    for sign, name in itertools.product("us", ("gt", "ge", "lt", "le")):
        kind = f"{sign}{width}"
        want = [int(ORDER[name](read(a, kind), read(b, kind))) for a, b in zip(*pairs(width), strict=True)]
        assert apply(f"icmp {sign}{name} i{width} %a, %b", f"i{width}", *pairs(width), to="i1") == want
    for name in ("eq", "ne"):
        want = [int(ORDER[name](a, b)) for a, b in zip(*pairs(width), strict=True)]
        assert apply(f"icmp {name} i{width} %a, %b", f"i{width}", *pairs(width), to="i1") == want


@pytest.mark.parametrize("to", WIDTHS)
@pytest.mark.parametrize("source", WIDTHS)
def test_widths(source: int, to: int) -> None:
    values = edges(source)
    if to > source:
        assert apply(f"zext i{source} %a to i{to}", f"i{source}", values, to=f"i{to}") == values
        want = [signed(x, source) % (1 << to) for x in values]
        assert apply(f"sext i{source} %a to i{to}", f"i{source}", values, to=f"i{to}") == want
    if to < source:
        want = [x % (1 << to) for x in values]
        assert apply(f"trunc i{source} %a to i{to}", f"i{source}", values, to=f"i{to}") == want
    if to == source:  # parts of a vector: the first is the lowest
        for parts in (w for w in WIDTHS if w < source):
            count = source // parts
            order = ", ".join(f"i32 {i}" for i in reversed(range(count)))
            body = f"""{inputs(f"i{source}", 1)}
  %v = bitcast i{source} %a to <{count} x i{parts}>
  %s = shufflevector <{count} x i{parts}> %v, <{count} x i{parts}> poison, <{count} x i32> <{order}>
  %r = bitcast <{count} x i{parts}> %s to i{source}
{output(f"i{source}")}"""
            turned = [
                sum((x >> parts * i) % (1 << parts) << parts * (count - 1 - i) for i in range(count)) for x in values
            ]
            assert run(body, values).tolist() == turned


REFUSED = [
    "icmp foo i32 %a, %b",
    "icmp xgt i32 %a, %b",
    "icmp sgtt i32 %a, %b",
    "icmp slt i1 true, false",
    "icmp sgt ptr addrspace(1) %from, %to",
    "bitcast i32 %a to i64",
    "bitcast <32 x i1> zeroinitializer to i32",
    "ptrtoint ptr addrspace(1) %from to i32",
    "extractelement <2 x i32> zeroinitializer, i64 2",
    "extractelement <2 x i32> zeroinitializer, i32 %a",
    "insertelement <2 x i32> zeroinitializer, i32 1, i64 2",
    "select <2 x i1> zeroinitializer, <4 x i8> zeroinitializer, <4 x i8> zeroinitializer",
    "add i1 true, false",
    "shl i1 true, false",
    "sdiv i1 true, true",
    "call i64 @llvm.ctlz.i64(i64 5, i1 false)",
    "call i16 @llvm.cttz.i16(i16 5, i1 false)",
    "call i16 @llvm.fshl.i16(i16 5, i16 5, i16 1)",
    "call i64 @llvm.uadd.sat.i64(i64 5, i64 5)",
    "call i1 @llvm.smax.i1(i1 true, i1 false)",
    "fcmp foo float 1.0, 2.0",
    "fcmp xeq float 1.0, 2.0",
    "fadd reassoc float 1.0, 2.0",
    "fadd arcp float 1.0, 2.0",
    "frem half 1.0, 2.0",
    "fpext half 1.0 to bfloat",
    "fptrunc double 1.0 to bfloat",
    "fptosi float 1.0 to i1",
    "call half @llvm.floor.f16(half 1.0)",
    "call half @llvm.sin.f16(half 1.0)",
]


@pytest.mark.parametrize("line", REFUSED)
def test_what_nobody_modelled_is_refused(line: str) -> None:
    with pytest.raises(NotExecuted):
        run(f"{inputs('i32', 2)}\n  %r = {line}", [1], [2])


def test_one_condition_chooses_all_parts() -> None:
    body = f"""{inputs("i32", 2)}
  %c = icmp ugt i32 %a, 5
  %v = bitcast i32 %a to <4 x i8>
  %u = bitcast i32 %b to <4 x i8>
  %s = select i1 %c, <4 x i8> %v, <4 x i8> %u
  %r = bitcast <4 x i8> %s to i32
{output("i32")}"""
    assert run(body, [0x01020304, 5], [9, 0x05060708]).tolist() == [0x01020304, 0x05060708]


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


# --- AMD -------------------------------------------------------------------------------------------------------------


def test_bytes_are_permuted() -> None:
    """V_PERM_B32: 0-3 the second source, 4-7 the first, 8-11 signs of its halves, 12 is 0x00, above 0xff."""
    first, second = 0x83426180, 0x07F5E4C3
    selectors = [0x03020100, 0x07060504, 0x0B0A0908, 0x0F0E0D0C, 0xFF800C00, 0x00040105]
    parts = [(first << 32 | second) >> 8 * i & 0xFF for i in range(8)]
    want = []
    for selector in selectors:
        word = 0
        for i in range(4):
            s = selector >> 8 * i & 0xFF
            byte = parts[s] if s < 8 else 0xFF * (parts[2 * (s - 8) + 1] >> 7) if s < 12 else 0 if s == 12 else 0xFF
            word |= byte << 8 * i
        want.append(word)
    line = "call i32 @llvm.amdgcn.perm(i32 %a, i32 %b, i32 %c)"
    assert apply(line, "i32", [first] * 6, [second] * 6, selectors) == want


@pytest.mark.parametrize(("target", "warp"), [("gfx942", 64), ("gfx1200", 32)])
def test_lanes_are_counted_below(target: str, warp: int) -> None:
    """V_MBCNT_LO and HI: bits of a mask below the lane's own, of lanes 0-31 and 32-63."""
    body = f"""
  %low = call i32 @llvm.amdgcn.mbcnt.lo(i32 -1431655766, i32 100)
  %r = call i32 @llvm.amdgcn.mbcnt.hi(i32 -252645136, i32 %low)
{output("i32")}"""
    found = run(body, target=target, threads=2 * warp).tolist()
    want = []
    for i in range(2 * warp):
        lane = i % warp
        mask = 0xF0F0F0F0 << 32 | 0xAAAAAAAA
        want.append(100 + (mask & (1 << lane) - 1).bit_count())
    assert found == want[: len(found)]
