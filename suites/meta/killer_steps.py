"""What every step of a recipe gives, written down once more from the words in which it is defined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

NAN, INF = float("nan"), float("inf")
#: the float32 next to a whole number, below and above
BELOW_1, ABOVE_1, BELOW_4, BELOW_16, ABOVE_16 = 1 - 2.0**-24, 1 + 2.0**-23, 4 - 2.0**-22, 16 - 2.0**-20, 16 + 2.0**-19
LEAST, TINY = 2.0**-149, 2.0**-126

#: step, its operands, and what becomes of what
STEPS: tuple[tuple[str, tuple[Any, ...], dict[float, float]], ...] = (
    ("add", (2.0,), {1.0: 3.0, -2.0: 0.0, 2.0**24: 2.0**24 + 2, INF: INF}),
    (
        "add_within_int8",
        (100.0,),
        {-3.0: 97.0, 27.0: 127.0, 28.0: 127.0, -228.0: -128.0, -229.0: -128.0, NAN: 100.0, INF: 127.0, -INF: -128.0},
    ),
    ("sub", (2.0,), {1.0: -1.0, 5.0: 3.0}),
    ("rsub", (2.0,), {1.0: 1.0, 5.0: -3.0}),
    ("mul", (448.0,), {2.0: 896.0, -0.0: -0.0, INF: INF}),
    ("div", (448.0,), {896.0: 2.0, -0.0: -0.0}),
    ("div", (0.0,), {1.0: INF, 0.0: NAN}),
    ("rdiv", (448.0,), {2.0: 224.0, 0.0: INF, INF: 0.0}),
    ("recip", (), {4.0: 0.25, 0.0: INF}),
    ("recip", (), {-0.0: -INF}),
    ("recip_or_zero", (), {4.0: 0.25, 0.0: 0.0, 2.0**-149: INF, NAN: NAN}),
    (
        "recip_approx",
        (),
        {4.0: 0.25, -0.0: -INF, LEAST: INF, 2.0**126: TINY, 2.0**127: 0.0, -(2.0**127): -0.0, INF: 0.0},
    ),
    ("at_least", (2.0,), {1.0: 2.0, 3.0: 3.0, NAN: 2.0}),
    ("at_most", (2.0,), {1.0: 1.0, 3.0: 2.0, NAN: 2.0}),
    ("at_least_or_nan", (2.0,), {1.0: 2.0, 3.0: 3.0, NAN: NAN}),
    ("at_most_or_nan", (2.0,), {1.0: 1.0, 3.0: 2.0, NAN: NAN}),
    ("zero_to", (7.0,), {-0.0: 7.0, LEAST: LEAST, NAN: NAN}),
    ("zero_where_zero", (0.0,), {3.0: 0.0, INF: 0.0}),
    ("zero_where_zero", (LEAST,), {3.0: 3.0, INF: INF}),
    ("nan_to", (7.0,), {NAN: 7.0, INF: INF, 1.0: 1.0}),
    ("not_finite_to", (7.0,), {NAN: 7.0, INF: 7.0, -INF: 7.0, 1.0: 1.0}),
    (
        "round",
        ("bfloat16",),
        {1 + 2.0**-8: 1.0, 1 + 3 * 2.0**-8: 1 + 2.0**-6, 3.4e38: INF, INF: INF, NAN: NAN, -0.0: -0.0},
    ),
    ("round", ("float16",), {1 + 2.0**-11: 1.0, 65520.0: INF, 65519.0: 65504.0}),
    ("round", ("float8_e4m3fn",), {2.0**-10: 0.0, 1.5 * 2.0**-10: 2.0**-9, 464.0: 448.0, 480.0: NAN, 17.0: 16.0}),
    ("round", ("float32",), {ABOVE_1: ABOVE_1}),
    ("ceil_pow2", (), {1.0: 1.0, ABOVE_1: 2.0, 3.0: 4.0, BELOW_4: 4.0, 0.0: 0.0, LEAST: TINY, INF: INF}),
    ("floor_pow2", (), {1.0: 1.0, BELOW_1: 0.5, 3.0: 2.0, BELOW_4: 2.0, 0.0: 0.0, LEAST: 0.0, INF: INF}),
    # half of the last of so many mantissa bits: 1.75 and above go up for one bit, 1.9375 for three
    ("even_pow2", (1,), {1.0: 1.0, 1.75: 2.0, 1.75 - 2.0**-23: 1.0, 3.5: 4.0, 0.0: 0.0, INF: INF}),
    ("even_pow2", (3,), {1.9375: 2.0, 1.9375 - 2.0**-23: 1.0}),
    # the float32 logarithm of 16 + 2^-19 is 4, that of 1 + 2^-23 is not 0
    (
        "exp2_ceil_log2",
        (),
        {1.0: 1.0, ABOVE_1: 2.0, 3.0: 4.0, ABOVE_16: 16.0, 0.0: 0.0, NAN: NAN, LEAST: LEAST},
    ),
    ("exp2_floor_log2", (), {1.0: 1.0, BELOW_1: 0.5, 3.0: 2.0, BELOW_4: 2.0, BELOW_16: 16.0, 0.0: 0.0, NAN: NAN}),
    # the float32 logarithm of 4 + 2^-6 is above 2, in bfloat16 it is 2
    ("exp2_ceil_log2_in", ("bfloat16",), {4.015625: 4.0, 4.03125: 8.0, 1.0: 1.0, 3.0: 4.0, 0.0: 0.0, NAN: NAN}),
    ("exp2_ceil_log2_in", ("float32",), {4.015625: 8.0, ABOVE_16: 16.0}),
    # that of 4 - 2^-7 is below 2, in bfloat16 it is 2
    ("exp2_floor_log2_in", ("bfloat16",), {3.9921875: 4.0, 3.984375: 2.0, 1.0: 1.0, 5.0: 4.0, 0.0: 0.0, NAN: NAN}),
    ("exp2_floor_log2_in", ("float32",), {3.9921875: 2.0, BELOW_16: 16.0}),
    ("abs", (), {-2.0: 2.0, 3.0: 3.0, -0.0: 0.0, -INF: INF, NAN: NAN}),
    ("rint", (), {0.5: 0.0, 1.5: 2.0, 2.5: 2.0, -0.5: -0.0, 0.49999997: 0.0}),
    ("half_away", (), {0.5: 1.0, 1.5: 2.0, 2.5: 3.0, -0.5: -1.0, -2.5: -3.0, 0.49999997: 0.0, 8388609.0: 8388609.0}),
    ("add_half_and_cut", (), {0.5: 1.0, 2.5: 3.0, -0.5: -1.0, 0.49999997: 1.0, 0.25: 0.0}),
    ("trunc", (), {0.99: 0.0, -1.99: -1.0, 2.0: 2.0}),
    ("clamp_fmin_first", (448.0,), {500.0: 448.0, -500.0: -448.0, 3.0: 3.0, INF: 448.0, -INF: -448.0, NAN: 448.0}),
    ("clamp_fmax_first", (448.0,), {500.0: 448.0, -500.0: -448.0, 3.0: 3.0, INF: 448.0, -INF: -448.0, NAN: -448.0}),
    ("clamp_keep_nan", (448.0,), {500.0: 448.0, -500.0: -448.0, 3.0: 3.0, INF: 448.0, -INF: -448.0, NAN: NAN}),
)


def wrong_steps(steps: Any) -> Iterator[str]:
    """What the module of the steps gives otherwise, and a step that stands in one of the two lists alone."""
    for name in {name for name, _, _ in STEPS} ^ set(steps.STEPS):
        yield f"step {name} is in one list only"
    with np.errstate(all="ignore"):
        for name, operands, table in STEPS:
            given, want = (np.array(list(side), np.float32) for side in (table, table.values()))
            context = {"x": given} | {o: o for o in operands if isinstance(o, str)}
            got = np.asarray(steps.run_chain(("x", (name, *operands)), context), np.float32)
            same = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
            for value in given[~same]:
                yield f"step {name} of {value}"
