"""Calls of ``exact_case`` for property tests."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.matmul.accumulators import Accumulator, accumulator_named
from narrowgauge.reference.matmul.drawing import Signs
from narrowgauge.reference.matmul.exact import ExactCase, exact_case

#: operands of products; floats of any two kinds may meet, and integers of any two
FLOATS = (
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float6_e2m3fn", "float6_e3m2fn",
    "float4_e2m1fn", "bfloat16", "float16", "tfloat32", "float32",
)  # fmt: skip
INTEGERS = ("int8", "uint8", "int4", "uint4")
ACCUMULATORS = (
    "tensor_core_13",
    "promoted_32",
    "promoted_128",
    "float32",
    "float32_nearest",
    "float16",
    "cdna3",
    "rdna3",
)


@dataclass(frozen=True)
class ExactCall:
    """The arguments of one case."""

    a_format: str
    b_format: str
    m: int
    n: int
    k: int
    accumulator: str
    seed: int
    signs: Signs = "mixed"
    zeros: tuple[int, int] = (0, 0)

    @property
    def held_in(self) -> Accumulator:
        return accumulator_named(self.accumulator)

    def case(self) -> ExactCase:
        return exact_case(
            self.a_format, self.b_format, self.m, self.n, self.k, self.held_in, self.seed,
            signs=self.signs, zeros=self.zeros,
        )  # fmt: skip


@st.composite
def exact_calls(draw: st.DrawFn, most_k: int = 80) -> ExactCall:
    """Any formats that go together, any small shape, any accumulator and signs, zero points of integers."""
    integers = draw(st.booleans())
    names = INTEGERS if integers else FLOATS
    a_format, b_format = draw(st.sampled_from(names)), draw(st.sampled_from(names))
    m, n, k = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, most_k))
    accumulator = "int32" if integers else draw(st.sampled_from(ACCUMULATORS))
    zeros = (draw(_zero_point(a_format)), draw(_zero_point(b_format))) if integers else (0, 0)
    signs: Signs = "mixed" if any(zeros) else draw(st.sampled_from(("mixed", "one", "positive")))
    return ExactCall(a_format, b_format, m, n, k, accumulator, draw(st.integers(0, 10**6)), signs, zeros)


def _zero_point(format_name: str) -> st.SearchStrategy[int]:
    fmt = format_named(format_name)
    low = -fmt.sign_bit if fmt.signed else 0
    return st.integers(low, low + fmt.code_count - 1)
