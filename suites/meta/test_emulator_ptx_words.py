"""Opcodes of PTX on every pair of edge values, by the words of the PTX ISA carried out in Python's integers.

Each function below is written from the "Semantics" of an instruction in the PTX ISA (9.7.1 integer arithmetic, 9.7.3
floating point, 9.7.6 comparison, 9.7.8 logic and shift, 9.7.9 data movement), bit by bit where the ISA says it so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.suites.meta.test_emulator_ptx import apply, run

pytestmark = pytest.mark.meta

KINDS = {16: "h", 32: "r", 64: "d"}


def edges(width: int) -> list[int]:
    """Zero, one, both ends of both signs, single bits, patterns."""
    top = 1 << width - 1
    return [0, 1, 2, 7, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2, 2 * top - 7, 0x5A5A5A5A5A5A5A5A % (2 * top)]


def signed(x: int, width: int) -> int:
    return x - (1 << width) if x >> width - 1 else x


def read(x: int, kind: str) -> int:
    return signed(x, int(kind[1:])) if kind[0] == "s" else x


def pairs(width: int, count: int = 2) -> list[list[int]]:
    """Columns of every combination of edges."""
    return [list(column) for column in zip(*itertools.product(edges(width), repeat=count), strict=True)]


def clamp(x: int, kind: str) -> int:
    width = int(kind[1:])
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if kind[0] == "s" else (0, (1 << width) - 1)
    return min(max(x, low), high)


TWO: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
    "div": lambda a, b: -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "rem": lambda a, b: a if b == 0 else (abs(a) % abs(b)) * (-1 if a < 0 else 1),
}
ORDER: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("opcode", TWO)
def test_two_integers(opcode: str, kind: str) -> None:
    """Modulo 2^n. A division by zero is open, and all ones here; its remainder is not looked at."""
    width = int(kind[1:])
    columns = pairs(width)
    rows = [(a, b) for a, b in zip(*columns, strict=True) if opcode != "rem" or b]
    want = [TWO[opcode](read(a, kind), read(b, kind)) % (1 << width) for a, b in rows]
    assert apply(f"{opcode}.{kind}", *map(list, zip(*rows, strict=True)), kind=KINDS[width]) == want


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_upper_halves_of_products(kind: str) -> None:
    width = int(kind[1:])
    a, b = pairs(width)
    product = [read(x, kind) * read(y, kind) for x, y in zip(a, b, strict=True)]
    assert apply(f"mul.hi.{kind}", a, b, kind=KINDS[width]) == [(p >> width) % (1 << width) for p in product]
    c = [x ^ 5 for x in b]
    low, high = (apply(f"mad.{part}.{kind}", a, b, c, kind=KINDS[width]) for part in ("lo", "hi"))
    assert low == [(p + z) % (1 << width) for p, z in zip(product, c, strict=True)]
    assert high == [((p >> width) + z) % (1 << width) for p, z in zip(product, c, strict=True)]


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32"])
def test_wide_products(kind: str) -> None:
    width = int(kind[1:])
    narrow, wide = ("%h", "%r") if width == 16 else ("%r", "%d")
    a, b = pairs(width)
    c = [x * 3 + 1 for x in range(len(a))]
    loads = "".join(f"\tld.global.b{width} {narrow}{5 + i}, [%d0+{8 * i}];\n" for i in range(2))
    body = f"""{loads}
	ld.global.b{2 * width} {wide}8, [%d0+16];
	mad.wide.{kind} {wide}7, {narrow}5, {narrow}6, {wide}8;
	mul.wide.{kind} {wide}6, {narrow}5, {narrow}6;
	mov.b64 %d4, 0;
	st.global.b64 [%d1], %d4;
	st.global.b{2 * width} [%d1], {{}};"""
    product = [read(x, kind) * read(y, kind) % (1 << 2 * width) for x, y in zip(a, b, strict=True)]
    total = [(p + z) % (1 << 2 * width) for p, z in zip(product, c, strict=True)]
    assert run(body.format(f"{wide}6"), a, b, c).tolist() == product
    assert run(body.format(f"{wide}7"), a, b, c).tolist() == total


@pytest.mark.parametrize("kind", ["s16x2", "u16x2"])
@pytest.mark.parametrize("opcode", ["add", "min", "max"])
def test_halves_of_a_word_are_apart(opcode: str, kind: str) -> None:
    part = kind[:3]
    a, b = pairs(16)
    words = [[x << 16 | x ^ 0xFFFF for x in a], [y << 16 | y for y in b]]
    want = []
    for x, y in zip(a, b, strict=True):
        upper = TWO[opcode](read(x, part), read(y, part)) % 65536
        lower = TWO[opcode](read(x ^ 0xFFFF, part), read(y, part)) % 65536
        want.append(upper << 16 | lower)
    assert apply(f"{opcode}.{kind}", *words) == want


@pytest.mark.parametrize("width", [16, 32, 64])
def test_one_integer(width: int) -> None:
    a = edges(width)
    mod = 1 << width
    assert apply(f"abs.s{width}", a, kind=KINDS[width]) == [abs(signed(x, width)) % mod for x in a]
    assert apply(f"neg.s{width}", a, kind=KINDS[width]) == [-signed(x, width) % mod for x in a]
    assert apply(f"not.b{width}", a, kind=KINDS[width]) == [x ^ mod - 1 for x in a]


def counted(opcode: str, width: int, values: list[int]) -> list[int]:
    """An opcode of a word whose result is .u32."""
    source = "%r5" if width == 32 else "%d5"
    body = f"\tld.global.b{width} {source}, [%d0];\n\t{opcode} %r6, {source};\n\tcvt.u64.u32 %d9, %r6;\n"
    return [int(v) for v in run(body + "\tst.global.b64 [%d1], %d9;", values)]


@pytest.mark.parametrize("width", [32, 64])
def test_counts_of_bits(width: int) -> None:
    values = [*edges(width), *(1 << i for i in range(width)), *((1 << i) - 1 for i in range(width))]
    assert counted(f"clz.b{width}", width, values) == [width - x.bit_length() for x in values]
    assert counted(f"popc.b{width}", width, values) == [x.bit_count() for x in values]
    reverse = [int(f"{x:0{width}b}"[::-1], 2) for x in values]
    assert apply(f"brev.b{width}", values, kind=KINDS[width]) == reverse
    for kind in (f"u{width}", f"s{width}"):
        word = [~signed(x, width) if kind[0] == "s" and x >> width - 1 else x for x in values]
        place = [(x.bit_length() - 1) % (1 << 32) for x in word]
        assert counted(f"bfind.{kind}", width, values) == place
        shift = [width - 1 - p if p < width else p for p in place]
        assert counted(f"bfind.shiftamt.{kind}", width, values) == shift


AMOUNTS = (0, 1, 15, 16, 31, 32, 33, 63, 64, 65, 255, 256, 0xFFFFFFFF)


def shifted(opcode: str, width: int, rows: Sequence[tuple[int, int]]) -> list[int]:
    name = {16: "%h", 32: "%r", 64: "%d"}[width]
    body = f"""
	ld.global.b{width} {name}5, [%d0];
	ld.global.b32 %r7, [%d0+8];
	{opcode} {name}6, {name}5, %r7;
	mov.b64 %d9, 0;
	st.global.b64 [%d1], %d9;
	st.global.b{width} [%d1], {name}6;"""
    return [int(v) for v in run(body, [a for a, _ in rows], [n for _, n in rows])]


@pytest.mark.parametrize("width", [16, 32, 64])
def test_shifts_clamp_the_amount(width: int) -> None:
    """9.7.8: amounts beyond the width are taken for the width, and the amount is 32 bits, not signed."""
    rows = list(itertools.product(edges(width), AMOUNTS))
    mod = 1 << width
    assert shifted(f"shl.b{width}", width, rows) == [(a << min(n, width)) % mod for a, n in rows]
    assert shifted(f"shr.u{width}", width, rows) == [a >> min(n, width) for a, n in rows]
    assert shifted(f"shr.b{width}", width, rows) == [a >> min(n, width) for a, n in rows]
    assert shifted(f"shr.s{width}", width, rows) == [(signed(a, width) >> min(n, width)) % mod for a, n in rows]


@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_funnel_shifts(mode: str) -> None:
    rows = list(itertools.product(edges(32)[::2], edges(32)[1::2], AMOUNTS))
    columns = [list(c) for c in zip(*rows, strict=True)]
    left, right = [], []
    for low, high, amount in rows:
        n = amount & 31 if mode == "wrap" else min(amount, 32)
        left.append((((high << 32 | low) << n) >> 32) % (1 << 32))
        right.append(((high << 32 | low) >> n) % (1 << 32))
    assert apply(f"shf.l.{mode}.b32", *columns) == left
    assert apply(f"shf.r.{mode}.b32", *columns) == right


FIELDS = (0, 1, 5, 31, 32, 33, 63, 64, 65, 255, 256 + 4)


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bit_fields(kind: str) -> None:
    """bfe, bfi by the loops of the ISA; only the low eight bits of position and length count."""
    width = int(kind[1:])
    msb = width - 1
    rows = list(itertools.product(edges(width), FIELDS, FIELDS))
    extracted, inserted = [], []
    for a, position, length in rows:
        p, n = position & 0xFF, length & 0xFF
        sign = 0 if kind[0] == "u" or n == 0 else a >> min(p + n - 1, msb) & 1
        extracted.append(sum((a >> p + i & 1 if i < n and p + i <= msb else sign) << i for i in range(width)))
        into = a ^ (1 << width) - 1  # every bit of it shows
        for i in range(n):
            if p + i <= msb:
                into = into & ~(1 << p + i) | (a >> i & 1 if i < width else 0) << p + i
        inserted.append(into)
    name = "%r" if width == 32 else "%d"
    body = f"""
	ld.global.b{width} {name}10, [%d0];
	ld.global.b32 %r8, [%d0+8];
	ld.global.b32 %r9, [%d0+16];
	not.b{width} {name}11, {name}10;
	{{}}
	mov.b64 %d9, 0;
	st.global.b64 [%d1], %d9;
	st.global.b{width} [%d1], {name}12;"""
    columns = [list(c) for c in zip(*rows, strict=True)]
    assert run(body.format(f"bfe.{kind} {name}12, {name}10, %r8, %r9;"), *columns).tolist() == extracted
    insert = body.format(f"bfi.b{width} {name}12, {name}10, {name}11, %r8, %r9;")
    assert run(insert, *columns).tolist() == inserted


def test_bytes_are_permuted() -> None:
    """prmt without a mode: four bits choose each byte, the topmost repeats its sign."""
    a, b = 0x83426180, 0x07F5E4C3
    controls = [0x3210, 0x7654, 0x0123, 0xFEDC, 0xBA98, 0x5410, 0xFFFF3210, 0x8888, 0xF0F0, 0x0808, 0x4B2D]
    both = [(b << 32 | a) >> 8 * i & 0xFF for i in range(8)]
    want = []
    for control in controls:
        word = 0
        for i in range(4):
            nibble = control >> 4 * i & 15
            byte = both[nibble & 7]
            word |= ((0xFF if byte >> 7 else 0) if nibble & 8 else byte) << 8 * i
        want.append(word)
    assert apply("prmt.b32", [a] * len(controls), [b] * len(controls), controls) == want


def test_every_table_of_three() -> None:
    """lop3: bit (4a + 2b + c) of the immediate, for all 256 of them."""
    a, b, c = 0xFF00F0F0, 0xF0F0CCCC, 0xCCAAAA55
    lines = []
    for lut in range(256):
        lines += [f"\tlop3.b32 %r4, %r1, %r2, %r3, {lut};", f"\tst.global.b32 [%d1+{4 * lut}], %r4;"]
    head = "\n".join(f"\tld.global.b32 %r{i + 1}, [%d0+{8 * i}];" for i in range(3))
    only_first = "\tsetp.ne.u32 %p1, %r0, 0;\n\t@%p1 ret;"
    words = run(f"{only_first}\n{head}\n" + "\n".join(lines), [a] * 128, [b] * 128, [c] * 128, threads=128)
    found = [int(w) >> shift & 0xFFFFFFFF for w in words for shift in (0, 32)]
    want = [sum((lut >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i for i in range(32))
            for lut in range(256)]  # fmt: skip
    assert found == want


REFUSED = ["mul.wide.u64", "mul.s32", "mad.s32", "mad.wide.s64", "shf.l.b32", "shf.wrap.b32", "add.u8", "bfe.b32",
           "clz.u32", "abs.u32", "neg.u32", "shl.u32", "and.u32", "rem.f32", "popc.s32", "div.f32", "fma.f32",
           "prmt.f4e.b32", "add.ftz.f64", "add.ftz.s32", "min.ftz.f16", "sqrt.f32", "min.xorsign.f32", "max.NaN.f64",
           "add.sat.f16", "mul.ftz.f16", "cvt.s32.f32", "cvt.rni.ftz.s32.f64", "cvt.sat.bf16.f32", "setp.lo.f32",
           "set.hs.u32.f32", "abs.ftz.f16", "mul.f32.f16", "sub.f32.s32", "fma.rz.f16", "fma.rm.f64",
           "min.f32x2"]  # fmt: skip


@pytest.mark.parametrize("opcode", REFUSED)
def test_what_the_isa_does_not_have_is_refused(opcode: str) -> None:
    """Or what it has and nobody modelled: never a number."""
    kind = "d" if opcode.endswith("64") else "r"
    count = {
        "mad": 3,
        "fma": 3,
        "prmt": 3,
        "shf": 3,
        "bfe": 3,
        "clz": 1,
        "abs": 1,
        "neg": 1,
        "popc": 1,
        "cvt": 1,
        "sqrt": 1,
    }
    operands = [[1]] * count.get(opcode.partition(".")[0], 2)
    with pytest.raises(NotExecuted):
        apply(opcode, *operands, kind=kind)


# --- warps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles_by_the_pseudocode(mode: str) -> None:
    """9.7.9.6, shfl.sync: segments by c[12:8], a bound by c[4:0]; a lane beyond the bound reads itself."""
    for b, c in itertools.product(
        (0, 1, 3, 8, 16, 31), (0x001F, 0x0000, 0x1000, 0x101F, 0x181F, 0x1C1F, 0x1800, 0x0007)
    ):
        body = f"""
	mul.lo.u32 %r3, %r0, 10;
	shfl.sync.{mode}.b32 %r1|%p1, %r3, {b}, {c}, -1;
	selp.b32 %r2, 1, 0, %p1;
	st.global.v2.b32 [%d1], {{%r1, %r2}};"""
        want = []
        for lane in range(32):
            bound, segment = c & 31, c >> 8 & 31
            highest = (lane & segment) | (bound & ~segment)
            lowest = lane & segment
            if mode == "up":
                j = lane - b
                valid = j >= highest
            elif mode == "down":
                j = lane + b
                valid = j <= highest
            elif mode == "bfly":
                j = lane ^ b
                valid = j <= highest
            else:
                j = lowest | (b & ~segment)
                valid = j <= highest
            want.append((j if valid else lane) * 10 | int(valid) << 32)
        assert run(body).tolist() == want, (b, hex(c))
