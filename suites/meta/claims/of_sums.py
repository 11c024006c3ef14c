"""Claims about sums, norms and products: what rounding, infinity and NaN do in them."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from narrowgauge.reference.noise import noise
from narrowgauge.suites.meta.claims.claim import FALSE, TRUE, Found, claim
from narrowgauge.suites.meta.claims.measuring import finite, number, one

F32 = np.float32
F32s = npt.NDArray[np.float32]
#: an array of any floating type, ml_dtypes' among them
Floats = npt.NDArray[Any]


def bf16(x: npt.ArrayLike) -> Floats:
    return np.asarray(x, np.float32).astype(ml_dtypes.bfloat16)


def serial(x: Floats) -> float:
    """The sum in the array's own type, one term after another."""
    return float(reduce(lambda total, term: (total + term).astype(x.dtype), x[1:], x[0]))


def pairwise(x: Floats) -> float:
    """The sum in the array's own type, halves first; for a power of two of terms."""
    while x.size > 1:
        x = (x[0::2] + x[1::2]).astype(x.dtype)
    return float(x[0])


# --- sums ------------------------------------------------------------------------------------------------------------


@claim(
    "000:107",
    "A serial bf16 sum of 4096 ones stops at 256, where the spacing is 2",
    TRUE,
    "256; 256 + 2 is the next value",
)
def bf16_sum_of_ones_stops() -> Found:
    total = serial(bf16(np.ones(4096)))
    after = next(v for v in finite("bfloat16") if v > 256)
    return Found(total == 256 and after == 258, f"{total:g}; 256 + {after - 256} is the next value")


@claim("000:107", "float32 represents that sum exactly", TRUE, "4096")
def float32_sum_of_ones() -> Found:
    total = serial(np.ones(4096, F32))
    return Found(total == 4096, f"{total:g}")


@claim("000:107", "4096 terms do not lose 12 bits as such", TRUE, "summed in pairs in bf16, 4096 ones are 4096")
def pairs_of_ones() -> Found:
    total = pairwise(bf16(np.ones(4096)))
    return Found(total == 4096, f"summed in pairs in bf16, 4096 ones are {total:g}")


@claim(
    "000:107", "A serial sum errs by at most gamma(n-1) sum|x|, gamma(k) = k u / (1 - k u), where (n-1) u < 1", TRUE,
    "35 sums of 2 to 256 terms in bf16: at most 0.204149 of the bound; 4096 terms are beyond it"
)  # fmt: skip
def the_serial_bound() -> Found:
    u, worst = Fraction(1, 256), Fraction(0)
    for n in (2, 16, 64, 200, 256):
        gamma = (n - 1) * u / (1 - (n - 1) * u)
        rows = [noise(n, seed) for seed in range(4)] + [np.ones(n), np.full(n, 0.1), 1.0 / np.arange(1, n + 1)]
        for row in map(bf16, rows):
            exact = [Fraction(float(v)) for v in row]
            error = abs(Fraction(serial(row)) - sum(exact))
            worst = max(worst, error / (gamma * sum(map(abs, exact))))
    text = f"35 sums of 2 to 256 terms in bf16: at most {number(worst)} of the bound"
    return Found(worst <= 1, f"{text}; 4096 terms are beyond it")


@claim(
    "000:107",
    "Summing in pairs does not repair inputs that are rounded already",
    TRUE,
    "4096 times bf16's 0.1 is 410 in pairs, not 409.6",
)
def pairs_of_tenths() -> Found:
    total = pairwise(bf16(np.full(4096, 0.1)))
    return Found(
        total != 409.6 and total == 4096 * one(0.1, "bfloat16"),
        f"4096 times bf16's 0.1 is {total:g} in pairs, not 409.6",
    )


# --- scales and products ---------------------------------------------------------------------------------------------


@claim(
    "000:164", "Scales per row of the one operand and per column of the other factor out of a product", TRUE,
    "to the last bit in exact arithmetic"
)  # fmt: skip
def outer_scales_factor_out() -> Found:
    a, b, rows, columns = _integers(3, 8, 1), _integers(8, 3, 2), [3, 5, 7], [2, 9, 11]
    holds = all(
        sum(a[i][k] * rows[i] * b[k][j] * columns[j] for k in range(8))
        == rows[i] * columns[j] * sum(a[i][k] * b[k][j] for k in range(8))
        for i in range(3)
        for j in range(3)
    )
    return Found(holds, "to the last bit in exact arithmetic")


@claim(
    "000:164", "Scales per group along K do not factor out", TRUE,
    "groups scaled by 3 and 5: one column is 99/19 times the unscaled one, the next 137/29"
)  # fmt: skip
def group_scales_do_not_factor_out() -> Found:
    """The product is no multiple of the unscaled one, and of another scale for another column."""
    a, b = _integers(1, 8, 1), _integers(8, 2, 2)
    scales = [3] * 4 + [5] * 4
    quotients = [
        Fraction(sum(a[0][k] * scales[k] * b[k][j] for k in range(8)), sum(a[0][k] * b[k][j] for k in range(8)))
        for j in range(2)
    ]
    text = f"groups scaled by 3 and 5: one column is {quotients[0]} times the unscaled one, the next {quotients[1]}"
    return Found(quotients[0] != quotients[1], text)


def _integers(rows: int, columns: int, seed: int) -> list[list[int]]:
    return [[round(8 * v) for v in row] for row in noise(rows * columns, seed).reshape(rows, columns).tolist()]


# --- infinity and NaN ------------------------------------------------------------------------------------------------


def _with(value: float) -> F32s:
    row = np.ones(8, F32)
    row[3] = value
    return row


def rms_norm(x: F32s) -> F32s:
    """Without the small term under the root, which changes nothing beside an infinity."""
    with np.errstate(all="ignore"):
        return np.asarray(x / np.sqrt((x * x).mean()), F32)


def _shown(row: F32s) -> str:
    return ", ".join("NaN" if np.isnan(v) else f"{v:g}" for v in row.tolist())


@claim(
    "000:74", "After one infinity in a row, RMSNorm makes the whole row NaN", FALSE,
    "0, 0, 0, NaN, 0, 0, 0, 0: the others are divided by infinity; LayerNorm gives NaN throughout"
)  # fmt: skip
def rms_norm_of_infinity() -> Found:
    assert rms_norm(np.array([2, -2], F32)).tolist() == [1, -1]
    got = rms_norm(_with(np.inf))
    with np.errstate(all="ignore"):
        x = _with(np.inf)
        layer = (x - x.mean()) / np.sqrt(((x - x.mean()) ** 2).mean() + F32(1e-5))
    assert np.isnan(layer).all()
    text = f"{_shown(got)}: the others are divided by infinity; LayerNorm gives NaN throughout"
    return Found(bool(np.isnan(got).all()), text)


@claim("000:74", "A soft cap bounds logits", TRUE, "50 tanh(x / 50) of 1e4 is 50, of 1e30 50, of 10 9.86877")
def a_soft_cap_bounds() -> Found:
    got = [50 * float(np.tanh(x / 50)) for x in (1e4, 1e30, 10)]
    text = f"50 tanh(x / 50) of 1e4 is {number(got[0])}, of 1e30 {number(got[1])}, of 10 {number(got[2])}"
    return Found(max(got) <= 50, text)


def _attention(x: F32s) -> F32s:
    """Causal self-attention of tokens [n, d] with themselves, scores masked by -inf as engines do."""
    scores = np.where(np.tri(len(x), dtype=np.bool_), x @ x.T, F32(-np.inf))
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray((weights / weights.sum(axis=1, keepdims=True)) @ x, F32)


@claim(
    "002:36", "One NaN in a hidden state reaches the whole sequence through the next matrix product", FALSE,
    "a linear layer makes 1 of 8 tokens NaN; attention, unfused and causal, then all 8, the earlier by 0 x NaN"
)  # fmt: skip
def a_nan_spreads() -> Found:
    x = noise(64, 5).reshape(8, 8).astype(F32)
    x[4, 2] = np.nan
    with np.errstate(all="ignore"):
        linear = np.isnan(x @ np.ones((8, 8), F32)).any(axis=1).sum()
        attended = np.isnan(_attention(x)).any(axis=1).sum()
    text = f"a linear layer makes {linear} of 8 tokens NaN; attention, unfused and causal, then all {attended}"
    return Found(linear == 8, f"{text}, the earlier by 0 x NaN")
