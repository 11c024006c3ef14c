"""Random small Triton kernels, run by Triton's interpreter and compiled for an emulated target, compared bit by bit.

``python -m narrowgauge.suites.meta.emulator_fuzz --count 300 --seed 1 --target sm_90`` prints each kernel that differs
with what explains it, and a count. A difference is explained only by a run in which it is gone:

* "contraction": compiled with TRITON_DEFAULT_FP_FUSION=0 the kernel gives what the interpreter gives. The compiler may
  join a multiplication and an addition (fma), which rounds once;
* "flush": so it does where, besides, the interpreter takes subnormals for zeros in floor and ceil, as the code does
  that Triton emits (cvt.rmi.ftz.f32.f32);
* "reciprocal": so it does where, besides, the interpreter multiplies by 1 / c instead of dividing by a constant c;
* "approximation": so it does where, besides, the interpreter flushes and rounds correctly in exp2, sqrt and rsqrt,
  which is the first answer of the models of ex2.approx.ftz, sqrt.approx.ftz and rsqrt.approx.ftz;
* "not settled": the emulator refuses to guess what AMD's code generator fused, and without fusion one of these holds.

Left out, because the code does not claim to give what the interpreter does: ``log2`` (a polynomial of libdevice),
clamps of a NaN between -a and a (min.xorsign.abs gives an a with a sign, the interpreter -a), sums of floats that
round.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from narrowgauge.devices.targets import TARGETS

#: what the interpreter is taught, one after the other, until it gives what the compiled code does without contraction.
#: AMD's code neither flushes in floor and ceil nor multiplies by reciprocals.
RUNGS = {
    "cuda": ("contraction", "flush", "reciprocal", "approximation"),
    "hip": ("contraction", "approximation"),
}
#: said of a kernel of which the LLVM IR does not say what was fused
UNSETTLED = "fused with a sum is not settled"
CONSTANTS = ("0.1", "3.0", "-1.5", "1e-20", "448.0", "1e30")
HEAD = """import os
import sys
import numpy as np
import torch
import triton
import triton.language as tl

"""
KERNEL = """
@triton.jit
def k{number}(fx, ix, fo, io, n, rounds, B: tl.constexpr):
    pid = tl.program_id(0)
    at = pid * B + tl.arange(0, B)
    inside = at < n
    f0 = tl.load(fx + at, inside, other=1.5)
    f1 = tl.load(fx + n + at, inside, other=0.0)
    i0 = tl.load(ix + at, inside, other=7)
    i1 = tl.load(ix + n + at, inside, other=-3)
{body}
    tl.store(fo + at, {real}, inside)
    tl.store(io + at, {whole}, inside)
"""
#: runs every kernel of the file; what it gave, or the error, by number
TAIL = """
KERNELS = [{names}]
CONSTANTS = np.array([{constants}], np.float32)
EDGES = np.array([0, 0x80000000, 1, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000,
                  0x3F800000, 0xBF800000, 0x3FC00000, 0x34000000, 0x4B800000], np.uint32)


def inputs(number):
    random = np.random.default_rng(number)
    f = (random.standard_normal(600) * 10.0 ** random.integers(-3, 4, 600)).astype(np.float32)
    f = np.where(random.random(600) < 0.1, random.choice(EDGES, 600).view(np.float32), f)
    i = random.integers(-(2**31), 2**31, 600).astype(np.int32)
    small = random.random(600) < 0.6
    i[small] = random.integers(-100, 100, 600)[small]
    return torch.from_numpy(f), torch.from_numpy(i)


def rounded(function):
    def of_float32(x):
        x = np.asarray(x)
        if x.dtype != np.float32:
            return function(x)
        with np.errstate(all="ignore"):
            return function(x.astype(np.float64)).astype(np.float32)

    return of_float32


def flushed(x):
    bits = np.atleast_1d(x).view(np.uint32)
    return np.where(bits & 0x7F800000 == 0, bits & 0x80000000, bits).astype(np.uint32).view(np.float32).reshape(x.shape)


def divided(x, y):
    y = np.asarray(y)
    if y.size and (y == y.flat[0]).all() and y.flat[0] in CONSTANTS:
        return x * (np.float32(1) / y)
    return x / y


if __name__ == "__main__":
    how, path = sys.argv[1:]
    if how.startswith("contraction"):
        from triton.runtime.interpreter import InterpreterBuilder as Builder

        taught = how.split(",")
        if "flush" in taught:
            Builder.create_floor = lambda self, x: self.unary_op(x, lambda v: np.floor(flushed(v)))
            Builder.create_ceil = lambda self, x: self.unary_op(x, lambda v: np.ceil(flushed(v)))
        if "reciprocal" in taught:
            Builder.create_fdiv = lambda self, x, y: self.binary_op(x, y, divided)
        if "approximation" in taught:
            for name, exact in (("exp2", np.exp2), ("sqrt", np.sqrt), ("rsqrt", lambda v: 1 / np.sqrt(v))):
                replaced = lambda self, x, exact=exact: self.unary_op(x, lambda v: flushed(rounded(exact)(flushed(v))))
                setattr(Builder, f"create_{{name}}", replaced)
    else:
        from narrowgauge.devices import fresh_memory, triton_driver

        fresh_memory.watch()
        triton_driver.install(how)
        exec(os.environ.get("NARROWGAUGE_FUZZ_SPOILT", ""))
    found = {{}}
    for number, (kernel, block, warps) in KERNELS:
        f, i = inputs(number)
        fo, io = torch.zeros(300), torch.zeros(300, dtype=torch.int32)
        try:
            with np.errstate(all="ignore"):
                kernel[(triton.cdiv(300, block),)](f, i, fo, io, 300, 3, B=block, num_warps=warps)
            found[f"f{{number}}"], found[f"i{{number}}"] = fo.numpy(), io.numpy()
        except BaseException as error:
            found[f"e{{number}}"] = np.array(f"{{type(error).__name__}}: {{error}}"[:400])
    np.savez(path, **found)
"""


class Writer:
    """One kernel: statements over the float32 and int32 values that are there so far."""

    def __init__(self, number: int, seed: int) -> None:
        self.number, self.random = number, random.Random(f"{seed}/{number}")
        self.floats, self.ints = ["f0", "f1"], ["i0", "i1"]
        self.lines: list[str] = []
        self.block, self.warps = self.random.choice([(64, 1), (64, 2), (128, 1), (128, 4), (256, 4)])

    def text(self) -> str:
        for _ in range(self.random.randint(3, 9)):
            self.random.choice([self.value, self.value, self.value, self.reduction, self.loop, self.branch])("    ")
        # Each of the last values reaches an output.
        whole = " ^ ".join(self.ints[-3:])
        real = " + ".join(self.floats[-2:])
        return KERNEL.format(number=self.number, body="\n".join(self.lines), real=real, whole=whole)

    def value(self, indent: str) -> None:
        if self.random.random() < 0.5:
            self.new(self.floats, "f", self.real(), indent)
        else:
            self.new(self.ints, "i", self.whole(), indent)

    def new(self, pool: list[str], kind: str, expression: str, indent: str) -> None:
        name = f"{kind}{len(pool)}"
        self.lines.append(f"{indent}{name} = {expression}")
        pool.append(name)

    def real(self) -> str:
        """A float32 expression."""
        a, b = (self.random.choice(self.floats) for _ in range(2))
        constant = self.random.choice(CONSTANTS)
        return self.random.choice([
            f"{a} + {b}", f"{a} - {b}", f"{a} * {b}", f"{a} * {constant}", f"{a} + {constant}",
            f"{a} * {b} + {constant}",
            f"tl.minimum({a}, {b})", f"tl.maximum({a}, {b})", f"tl.abs({a})", f"-{a}", f"tl.floor({a})",
            f"tl.ceil({a})", f"tl.where({a} < {b}, {a}, {constant})", f"tl.div_rn({a}, {b})", f"{a} / {b}",
            f"{a} / {constant}", f"tl.sqrt_rn(tl.abs({a}))", f"tl.sqrt(tl.abs({a}))", f"tl.rsqrt(tl.abs({a}) + 1.0)",
            f"tl.exp2(tl.minimum({a}, 20.0))", f"{a}.to(tl.float16).to(tl.float32)",
            f"tl.clamp({a}, -100.0, 99.0)", f"{self.random.choice(self.ints)}.to(tl.float32)",
            f"{self.random.choice(self.ints)}.to(tl.uint32, bitcast=True).to(tl.float32)",
            f"tl.where({self.predicate()}, {a}, {b})",
        ])  # fmt: skip

    def whole(self) -> str:
        """An int32 expression."""
        a, b = (self.random.choice(self.ints) for _ in range(2))
        f = self.random.choice(self.floats)
        narrow = self.random.choice(["int8", "int16", "uint8", "uint16"])
        small = f"(({b} & 15) + 1)"
        unsigned = f"{a}.to(tl.uint32, bitcast=True)"
        return self.random.choice([
            f"{a} + {b}", f"{a} - {b}", f"{a} * {b}", f"{a} & {b}", f"{a} | {b}", f"{a} ^ {b}", f"~{a}", f"-{a}",
            f"{a} << ({b} & 31)", f"{a} >> ({b} & 31)", f"({unsigned} >> ({b} & 31)).to(tl.int32)",
            f"{a} // {small}", f"{a} % {small}", f"({unsigned} // {small}.to(tl.uint32)).to(tl.int32)",
            f"({unsigned} % 13).to(tl.int32)", f"{a} // 7", f"{a} % 10", f"tl.minimum({a}, {b})",
            f"tl.maximum({a}, {b})", f"tl.abs({a})", f"tl.where({a} < {b}, {a}, {b})",
            f"{a}.to(tl.{narrow}).to(tl.int32)",
            f"({a}.to(tl.int64) * {b}.to(tl.int64) >> 13).to(tl.int32)", f"tl.umulhi({a}, {b})",
            f"({a}.to(tl.int64) // ({b}.to(tl.int64) * 2 + 1)).to(tl.int32)",
            f"({unsigned} < {b}.to(tl.uint32, bitcast=True)).to(tl.int32)", f"({f} > 0.5).to(tl.int32)",
            f"tl.where({f} == {f}, tl.clamp({f}, -1e6, 1e6), 5.0).to(tl.int32)",
            f"tl.where({self.predicate()}, {a}, {b})", f"(({a} >> 3) & 255) * {b}",
        ])  # fmt: skip

    def predicate(self) -> str:
        f, i = self.random.choice(self.floats), self.random.choice(self.ints)
        one = self.random.choice([f"({f} >= 0.25)", f"({f} != {self.random.choice(self.floats)})", f"({i} > 3)"])
        return f"{one} {self.random.choice('&|^')} ({self.random.choice(self.ints)} % 2 == 0)"

    def reduction(self, indent: str) -> None:
        """Of the whole block, of rows of it, or a running sum. Float sums are of whole numbers: any order is exact."""
        i, f = self.random.choice(self.ints), self.random.choice(self.floats)
        rows = self.random.choice([4, 16, self.block // 8])
        by_row, back = f"(B // {rows}, {rows})", f"tl.zeros((B // {rows}, {rows}), tl."
        exact = f"tl.floor(tl.where({f} == {f}, tl.clamp({f}, -999.0, 999.0), 1.0))"
        how = self.random.choice(["sum", "max", "min", "xor_sum"])
        kind, pool, expression = self.random.choice([
            ("i", self.ints, f"{i} + tl.{how}({i}, axis=0)"),
            ("i", self.ints,
             f"tl.reshape(tl.{how}(tl.reshape({i}, {by_row}), axis=1)[:, None] + {back}int32), (B,))"),
            ("f", self.floats, f"{f} + tl.sum({exact}, axis=0)"),
            ("f", self.floats, f"{f} - tl.max({exact}, axis=0)"),
            ("f", self.floats,
             f"tl.reshape(tl.min(tl.reshape({exact}, {by_row}), axis=1)[:, None] + {back}float32), (B,))"),
            ("i", self.ints, f"tl.cumsum({i}, axis=0)"),
        ])  # fmt: skip
        self.new(pool, kind, expression, indent)

    def loop(self, indent: str) -> None:
        """A loop whose count the compiler does not know; one value of each kind is carried."""
        self.new(self.floats, "f", f"{self.random.choice(self.floats)} * 1.0", indent)
        self.new(self.ints, "i", f"{self.random.choice(self.ints)} + 1", indent)
        f, i = self.floats[-1], self.ints[-1]
        self.lines.append(f"{indent}for step in range({self.random.choice(['rounds', 'pid + 1', '5'])}):")
        self.lines.append(f"{indent}    {i} = ({self.whole()}) + {i} * 3 + step")
        self.lines.append(f"{indent}    {f} = tl.clamp({self.real()} + {f}, -1e4, 2e4)")

    def branch(self, indent: str) -> None:
        """Taken by some blocks."""
        self.new(self.ints, "i", f"{self.random.choice(self.ints)} ^ 1", indent)
        i = self.ints[-1]
        self.lines.append(f"{indent}if pid % 2 == {self.random.choice('01')}:")
        self.lines.append(f"{indent}    {i} = {self.whole()}")


def program(count: int, seed: int) -> tuple[str, list[str]]:
    """The text of a program with ``count`` kernels, and that of each kernel."""
    writers = [Writer(number, seed) for number in range(count)]
    kernels = [writer.text() for writer in writers]
    names = ", ".join(f"({w.number}, (k{w.number}, {w.block}, {w.warps}))" for w in writers)
    return HEAD + "".join(kernels) + TAIL.format(names=names, constants=", ".join(CONSTANTS)), kernels


@dataclass(frozen=True)
class Found:
    """A kernel whose results differ. ``why`` is "" where nothing explains it."""

    kernel: str
    why: str
    what: str


def compare(count: int, seed: int, target: str, folder: Path, spoilt: str = "") -> list[Found]:
    """The kernels that differ between the interpreter and an emulated target.

    ``spoilt`` is a statement that makes the emulator wrong, to see whether that is found.
    """
    text, kernels = program(count, seed)
    path = folder / "kernels.py"
    path.write_text(text)
    rungs = RUNGS[TARGETS[target].backend]
    plain, compiled = run(path, rungs[0], folder), run(path, target, folder, spoilt=spoilt)
    differing = {n: what for n in range(count) if (what := difference(plain, compiled, n))}
    if not differing:
        return []
    errors = {n: str(compiled[f"e{n}"]) for n in differing if f"e{n}" in compiled}
    unfused = run(path, target, folder, fusion=False, spoilt=spoilt)
    why = dict.fromkeys(differing, "")
    for place, rung in enumerate(rungs):
        taught = plain if place == 0 else run(path, ",".join(rungs[: place + 1]), folder)
        why |= {n: rung for n, known in why.items() if not known and not difference(taught, unfused, n)}
        if all(why.values()):
            break
    for number, error in errors.items():  # no rung explains an error, but that the emulator refuses to guess
        why[number] = "not settled" if why[number] and UNSETTLED in error else ""
    return [Found(kernels[n], why[n], what) for n, what in differing.items()]


def run(path: Path, how: str, folder: Path, fusion: bool = True, spoilt: str = "") -> dict[str, Any]:
    """What every kernel of a program gave: in the interpreter, taught up to a rung, or compiled for a target."""
    out = folder / f"{how}.npz"
    environment = {**os.environ, "TRITON_DEFAULT_FP_FUSION": str(int(fusion)), "CUDA_VISIBLE_DEVICES": ""}
    environment["NARROWGAUGE_FUZZ_SPOILT"] = spoilt
    environment.pop("TRITON_INTERPRET", None)
    if how.startswith("contraction"):
        environment["TRITON_INTERPRET"] = "1"
    subprocess.run([sys.executable, str(path), how, str(out)], env=environment, check=True)
    with np.load(out) as found:
        return dict(found)


def difference(one: Mapping[str, Any], other: Mapping[str, Any], number: int) -> str:
    """Where two runs of a kernel part, "" where they agree. A NaN equals every NaN; the sign of zero counts."""
    for found in (one, other):
        if f"e{number}" in found:
            return str(found[f"e{number}"])
    for kind in "if":
        a, b = one[f"{kind}{number}"], other[f"{kind}{number}"]
        apart = a.view(np.uint32) != b.view(np.uint32)
        if kind == "f":
            apart &= ~(np.isnan(a) & np.isnan(b))
        if apart.any():
            at = int(np.argmax(apart))
            return f"{np.count_nonzero(apart)} of {a.size} {kind} differ, first [{at}]: {a[at]!r} and {b[at]!r}"
    return ""


def main() -> None:
    """Compare, print what differs, and exit with 1 where something is not explained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", default="sm_90")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = compare(given.count, given.seed, given.target, Path(folder))
    for one in found:
        if not one.why:
            print(f"NOT EXPLAINED: {one.what}\n{one.kernel}")
    counts = Counter(one.why or "not explained" for one in found)
    print(json.dumps({"kernels": given.count, "equal": given.count - len(found), **counts}))
    sys.exit(1 if counts["not explained"] else 0)


if __name__ == "__main__":
    main()
