"""LLVM instructions on every pair of edge values, by the words of the language reference in Python's integers.

What the reference leaves open (poison) is the fill of the launch. AMD's intrinsics are by the words of the ISA.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

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
