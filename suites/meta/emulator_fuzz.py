"""Random small Triton kernels, run by Triton's interpreter and compiled for an emulated target, compared bit by bit.

``python -m narrowgauge.suites.meta.emulator_fuzz --count 300 --seed 1 --target sm_90`` prints each kernel that differs
with what explains it, and a count; without ``--target`` it goes through every target, and ``--record FILE`` keeps the
counts. A difference is explained only by a run in which it is gone, to the last bit:

* "contraction": the compiler joins a multiplication and an addition (fma), which rounds once. The same code, with each
  fma as a product that is rounded and then a sum ("parted"), gives what the interpreter gives;
* "flush": so it does where, besides, the interpreter takes subnormals for zeros in floor and ceil, as the code does
  that Triton emits (cvt.rmi.ftz.f32.f32);
* "reciprocal": so it does where, besides, the interpreter multiplies by 1 / c instead of dividing by a constant c;
* "approximation": so it does where, besides, the interpreter flushes and rounds correctly in exp2, sqrt and rsqrt,
  which is the first answer of the models of ex2.approx.ftz, sqrt.approx.ftz and rsqrt.approx.ftz;
* "not settled": the emulator refuses to guess what AMD's code generator fused, and without fusion
  (TRITON_DEFAULT_FP_FUSION=0) one of these holds.

Parting hides what fma itself does, so there is one more run, in which fma is computed by fractions ("exact"): what the
emulator gave must be that, or nothing explains the kernel. An error explains itself only as "not settled".

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from narrowgauge.devices.targets import EMULATED, TARGETS
from narrowgauge.suites.meta.emulator_fuzz_run import CONSTANTS

#: what the interpreter is taught, one after the other, until it gives what the compiled code does with its fma parted.
#: AMD's code neither flushes in floor and ceil nor multiplies by reciprocals.
RUNGS = {"cuda": ("flush", "reciprocal", "approximation"), "hip": ("approximation",)}
#: said of a kernel of which the LLVM IR does not say what was fused
UNSETTLED = "fused with a sum is not settled"
HEAD = """import triton
import triton.language as tl

from narrowgauge.suites.meta.emulator_fuzz_run import main

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
TAIL = """
KERNELS = [{names}]

if __name__ == "__main__":
    main(KERNELS)
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
        constant = str(self.random.choice(CONSTANTS))
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
    return HEAD + "".join(kernels) + TAIL.format(names=names), kernels


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
    path.write_text(f"{spoilt}\n{text}")
    taught = [f"interpreter,{rung}" for rung in RUNGS[TARGETS[target].backend]]
    found = run(path, ["interpreter", *taught]) | run(path, [target, f"{target},parted", f"{target},exact"])
    ways = dict(zip(("contraction", *RUNGS[TARGETS[target].backend]), ("interpreter", *taught), strict=True))
    differing = {n: what for n in range(count) if (what := difference(found, "interpreter", target, n))}
    refused = {n for n in differing if UNSETTLED in str(found.get(f"{target}/e{n}"))}
    if refused:
        found |= {f"unfused/{key.partition('/')[2]}": x for key, x in run(path, [target], fusion=False).items()}
    result = []
    for n, what in differing.items():
        like = "unfused" if n in refused else f"{target},parted"
        why = next((rung for rung, way in ways.items() if not difference(found, way, like, n)), "")
        if n in refused:
            why = why and "not settled"
        elif f"{target}/e{n}" in found:
            why = ""
        elif wrong := difference(found, f"{target},exact", target, n):
            why, what = "", f"fma is not exact: {wrong}"
        result.append(Found(kernels[n], why, what))
    return result


def run(path: Path, ways: Sequence[str], fusion: bool = True) -> dict[str, Any]:
    """What every kernel of a program gave in each way, in one process: arrays by way, kind and number."""
    out = path.with_name(f"{ways[0]}{'' if fusion else '-unfused'}.npz")
    environment = {**os.environ, "TRITON_DEFAULT_FP_FUSION": str(int(fusion)), "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("TRITON_INTERPRET", None)
    if ways[0] == "interpreter":
        environment["TRITON_INTERPRET"] = "1"
    subprocess.run([sys.executable, str(path), str(out), *ways], env=environment, check=True)
    with np.load(out) as found:
        return dict(found)


def difference(found: Mapping[str, Any], one: str, other: str, number: int) -> str:
    """Where two ways to run a kernel part, "" where they agree. A NaN equals every NaN; the sign of zero counts."""
    for way in (one, other):
        if f"{way}/e{number}" in found:
            return str(found[f"{way}/e{number}"])
    for kind in "if":
        a, b = found[f"{one}/{kind}{number}"], found[f"{other}/{kind}{number}"]
        apart = a.view(np.uint32) != b.view(np.uint32)
        if kind == "f":
            apart &= ~(np.isnan(a) & np.isnan(b))
        if apart.any():
            at = int(np.argmax(apart))
            return f"{np.count_nonzero(apart)} of {a.size} {kind} differ, first [{at}]: {a[at]!r} and {b[at]!r}"
    return ""


def main() -> None:
    """Compare, print what differs, and exit with 1 where something is not explained."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", choices=EMULATED)
    parser.add_argument("--record", type=Path, help="where to keep the counts, as JSON")
    given = parser.parse_args()
    counts: dict[str, dict[str, int]] = {}
    for target in given.target or EMULATED:
        with tempfile.TemporaryDirectory() as folder:
            found = compare(given.count, given.seed, target, Path(folder))
        for one in found:
            if not one.why:
                print(f"NOT EXPLAINED, {target}: {one.what}\n{one.kernel}")
        why = Counter(one.why or "not explained" for one in found)
        counts[target] = {"equal": given.count - len(found), **dict(sorted(why.items()))}
        print(target, json.dumps(counts[target]), flush=True)
    if given.record:
        versions = {name: version(name) for name in ("triton", "torch", "numpy")}
        record = {"kernels": given.count, "seed": given.seed, "versions": versions, "date": str(date.today())}
        given.record.write_text(json.dumps(record | {"targets": counts}, indent=1) + "\n")
    sys.exit(any("not explained" in found for found in counts.values()))


if __name__ == "__main__":
    main()
