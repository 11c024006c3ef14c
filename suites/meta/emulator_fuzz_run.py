"""What a program of random kernels does in its own process: run each kernel in each of several ways.

A way is "interpreter" or a target, and after a comma what is changed besides. Changes of the interpreter stay: each way
after the first adds one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
CONSTANTS = (0.1, 3.0, -1.5, 1e-20, 448.0, 1e30)
EDGES = np.array(
    [0, 0x80000000, 1, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000,
     0x3F800000, 0xBF800000, 0x3FC00000, 0x34000000, 0x4B800000], np.uint32,
)  # fmt: skip
COUNT, ROUNDS = 300, 3  #: elements of a kernel; how often its loops turn
Kernels = Sequence[tuple[int, tuple[Any, int, int]]]  #: number, then the kernel, its block and its warps


def main(kernels: Kernels) -> None:
    """``PROGRAM OUT WAY…``: what each kernel gave in each way, or its error, to a file of arrays."""
    out, *ways = sys.argv[1:]
    found: dict[str, Array] = {}
    installed = False
    for way in ways:
        where, _, change = way.partition(",")
        if where == "interpreter":
            if change:
                _TAUGHT[change]()
        else:
            from narrowgauge.devices import fresh_memory, triton_driver

            if not installed:
                fresh_memory.watch()
                triton_driver.install(where)
                installed = True
            _computed_by(_FUSED.get(change))
        found |= {f"{way}/{name}": array for name, array in _results(kernels).items()}
    np.savez(out, **found)  # type: ignore[arg-type]  # NumPy's stub takes the names for those of its own parameters


def _results(kernels: Kernels) -> Mapping[str, Array]:
    import torch

    found: dict[str, Array] = {}
    for number, (kernel, block, warps) in kernels:
        f, i = (torch.from_numpy(x) for x in inputs(number))
        fo, io = torch.zeros(COUNT), torch.zeros(COUNT, dtype=torch.int32)
        try:
            with np.errstate(all="ignore"):
                kernel[(-(-COUNT // block),)](f, i, fo, io, COUNT, ROUNDS, B=block, num_warps=warps)
            found[f"f{number}"], found[f"i{number}"] = fo.numpy(), io.numpy()
        except BaseException as error:
            found[f"e{number}"] = np.array(f"{type(error).__name__}: {error}"[:400])
    return found


def inputs(number: int) -> tuple[Array, Array]:
    """Two columns each of float32 and int32: of every magnitude, with edges, and small integers."""
    random = np.random.default_rng(number)
    f = (random.standard_normal(2 * COUNT) * 10.0 ** random.integers(-3, 4, 2 * COUNT)).astype(np.float32)
    f = np.where(random.random(2 * COUNT) < 0.1, random.choice(EDGES, 2 * COUNT).view(np.float32), f)
    i = random.integers(-(2**31), 2**31, 2 * COUNT).astype(np.int32)
    small = random.random(2 * COUNT) < 0.6
    i[small] = random.integers(-100, 100, 2 * COUNT)[small]
    return f, i


# --- fma in other ways -----------------------------------------------------------------------------------------------


def _computed_by(fma: Callable[[Array, Array, Array], Array] | None) -> None:
    """From now on the emulator's fma is this function, or its own where None."""
    from narrowgauge.devices.emulator import launching
    from narrowgauge.devices.emulator.models import ptx_arithmetic

    own = _OWN.setdefault("fma", ptx_arithmetic.fma)
    setattr(ptx_arithmetic, "fma", fma or own)  # noqa: B010  a type checker takes it for a constant
    for front in (launching.nvidia, launching._amd):  # instructions keep the function that they were built with
        front.cache_clear()  # type: ignore[union-attr]


_OWN: dict[str, Callable[[Array, Array, Array], Array]] = {}


def parted(a: Array, b: Array, c: Array) -> Array:
    """The product rounded, then the sum: what the interpreter does where the compiler fused."""
    found: Array = a * b + c
    return found


def exact(a: Array, b: Array, c: Array) -> Array:
    """The sum rounded once, by fractions: nothing in common with the emulator's own."""
    return np.asarray(np.frompyfunc(_exact, 3, 1)(a, b, c)).astype(a.dtype)


def _exact(a: Any, b: Any, c: Any) -> Any:
    plain = float(a) * float(b) + float(c)  # zeros' signs, infinities and NaN are right in float64
    if plain != plain or abs(plain) == float("inf"):
        return type(a)(plain)
    total = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if not total:
        return type(a)(plain)
    info = np.finfo(type(a))
    up, down = abs(total.numerator), total.denominator  # down is a power of two
    exponent = up.bit_length() - down.bit_length()
    unit = Fraction(2) ** (max(exponent, info.minexp) - info.nmant)
    whole = round(total / unit)  # to even
    value = whole * unit
    return type(a)(
        np.copysign(float(value) if abs(value) < Fraction(2) ** info.maxexp else np.inf, 1 if total > 0 else -1)
    )


_FUSED = {"parted": parted, "exact": exact}


# --- what the interpreter is taught ----------------------------------------------------------------------------------


def _rounded(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of float64 as one of float32 that rounds once, nearly always."""

    def of_float32(x: Any) -> Any:
        x = np.asarray(x)
        if x.dtype != np.float32:
            return function(x)
        with np.errstate(all="ignore"):
            return function(x.astype(np.float64)).astype(np.float32)

    return of_float32


def _flushed(x: Any) -> Any:
    bits = np.atleast_1d(x).view(np.uint32)
    return np.where(bits & 0x7F800000 == 0, bits & 0x80000000, bits).astype(np.uint32).view(np.float32).reshape(x.shape)


def _divided(x: Any, y: Any) -> Any:
    y = np.asarray(y)
    if y.size and (y == y.flat[0]).all() and y.flat[0] in np.array(CONSTANTS, np.float32):
        return x * (np.float32(1) / y)
    return x / y


def _flush() -> None:
    builder = _builder()
    builder.create_floor = lambda self, x: self.unary_op(x, lambda v: np.floor(_flushed(v)))
    builder.create_ceil = lambda self, x: self.unary_op(x, lambda v: np.ceil(_flushed(v)))


def _reciprocal() -> None:
    _builder().create_fdiv = lambda self, x, y: self.binary_op(x, y, _divided)


def _approximation() -> None:
    for name, function in (("exp2", np.exp2), ("sqrt", np.sqrt), ("rsqrt", lambda v: 1 / np.sqrt(v))):

        def replaced(self: Any, x: Any, function: Any = function) -> Any:
            return self.unary_op(x, lambda v: _flushed(_rounded(function)(_flushed(v))))

        setattr(_builder(), f"create_{name}", replaced)


def _builder() -> Any:
    from triton.runtime.interpreter import InterpreterBuilder

    return InterpreterBuilder


_TAUGHT = {"flush": _flush, "reciprocal": _reciprocal, "approximation": _approximation}
