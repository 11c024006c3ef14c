"""Softmax, samplers and routers in Triton: a program has whole rows of logits, and all is float32.

The largest is found by numbers, and then its column as the least of those that have it, so that of equal ones the lower
stands first on every target.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge.kernels_under_test.claiming import BFLOAT16, FLOAT32, INT32, TWO_SOURCES, wide
from narrowgauge.kernels_under_test.triton_attention import capped
from narrowgauge.kernels_under_test.triton_codec import load_float32_bits, store_float32_bits
from narrowgauge.kernels_under_test.triton_kv_gather import patterns_for
from narrowgauge.kernels_under_test.triton_steps import bits, over, real
from narrowgauge.kernels_under_test.triton_tiling import elements_of, groups_of

#: how many experts are chosen
CHOSEN = 4


@triton.jit
def logits_of(x, row, column, rows, columns, BF16: tl.constexpr):
    """Rows of logits, beyond the last column -infinity."""
    mask = (row < rows) & (column < columns)
    return tl.where(column < columns, real(load_float32_bits(x, row * columns + column, mask, BF16)), float("-inf"))


@triton.jit
def shares_of(score):
    """exp(score - largest) over the sum of that."""
    power = tl.exp(score - tl.max(score, 1)[:, None])
    return over(power, tl.sum(power, 1)[:, None])


@triton.jit
def largest_of(value, column, columns):
    """The largest of a row, and its lowest column; the first column of a row that is nothing but NaN."""
    best = tl.max(value, 1)[:, None]
    place = tl.min(tl.where(value == best, column, columns), 1)[:, None]
    return best, tl.where(place == columns, 0, place)


@triton.jit(do_not_specialize=["rows", "columns"])
def share_rows(
    x, lengths, y, rows, columns, cap, LOG: tl.constexpr, CAPPED: tl.constexpr, BF16: tl.constexpr, TO: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    score = logits_of(x, row, column, rows, columns, BF16)
    if CAPPED:
        length = tl.load(lengths + row, row < rows, other=1)
        score = tl.where(column < tl.minimum(length, columns), capped(score, cap), float("-inf"))
    if LOG:
        below = score - tl.max(score, 1)[:, None]
        value = below - tl.log(tl.sum(tl.exp(below), 1))[:, None]
    else:
        value = shares_of(score)
    store_float32_bits(y, row * columns + column, bits(value), (row < rows) & (column < columns), TO)


@triton.jit(do_not_specialize=["rows", "columns"])
def pick_tokens(
    x, temperature, noise, token, rows, columns, BF16: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    value = logits_of(x, row, column, rows, columns, BF16)
    if noise is not None:
        share = shares_of(over(value, tl.load(temperature + row, row < rows, other=1.0)))
        drawn = tl.load(noise + row * columns + column, (row < rows) & (column < columns), other=1.0)
        value = tl.where(column < columns, over(share, drawn), float("-inf"))
    _, place = largest_of(value, column, columns)
    tl.store(token + row, place.to(tl.int32), row < rows)


@triton.jit(do_not_specialize=["rows", "columns"])
def route_rows(
    x, bias, weights, experts, rows, columns, factor, SCORE: tl.constexpr, RENORMALISED: tl.constexpr,
    BF16: tl.constexpr, CHOSEN: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """``SCORE``: "shares" of all, "sigmoid", or "chosen", whose shares are those of what is chosen."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    score = logits_of(x, row, column, rows, columns, BF16)
    if SCORE == "shares":
        score = shares_of(score)
    if SCORE == "sigmoid":
        score = over(1.0, 1.0 + tl.exp(-score))
    order = score
    if bias is not None:
        order = score + tl.load(bias + column, column < columns, other=0.0)
    order = tl.where(column < columns, order, float("-inf"))
    slot = tl.arange(0, CHOSEN)[None, :]
    weight, expert = tl.zeros((ROWS, CHOSEN), tl.float32), tl.zeros((ROWS, CHOSEN), tl.int32)
    for number in range(CHOSEN):
        _, place = largest_of(order, column, columns)
        # NaN of a row in which all is NaN arrives in the weight
        found = tl.sum(tl.where(column == place, score, 0.0), 1)[:, None]
        weight, expert = tl.where(slot == number, found, weight), tl.where(slot == number, place.to(tl.int32), expert)
        order = tl.where(column == place, float("-inf"), order)
    if SCORE == "chosen":
        weight = shares_of(weight)
    if RENORMALISED:
        weight = over(weight, tl.sum(weight, 1)[:, None])
    at = row * CHOSEN + slot
    tl.store(weights + at, weight * factor, row < rows)
    tl.store(experts + at, expert, row < rows)


def _tiled(x):
    width = triton.next_power_of_2(x.shape[1])
    tile, _ = groups_of(x.shape[0], width)
    return (triton.cdiv(x.shape[0], tile),), tile, width


def shared(x, format, *, log=False, cap=0.0, lengths=None):
    y, to = patterns_for(format, x.shape, x.device)
    (loaded, bf16), (grid, tile, width) = elements_of(x.contiguous()), _tiled(x)
    share_rows[grid](loaded, lengths, y, *x.shape, cap or 1.0, log, bool(cap), bf16, to, tile, width)
    return y


def picked(x, temperature=None, noise=None):
    token = torch.empty((x.shape[0], 1), dtype=torch.int32, device=x.device)
    (loaded, bf16), (grid, tile, width) = elements_of(x.contiguous()), _tiled(x)
    pick_tokens[grid](loaded, temperature, noise, token, *x.shape, bf16, tile, width)
    return token


def routed(x, score, *, renormalised=False, bias=None, factor=1.0):
    weights = torch.empty((x.shape[0], CHOSEN), dtype=torch.float32, device=x.device)
    experts = torch.empty((x.shape[0], CHOSEN), dtype=torch.int32, device=x.device)
    (loaded, bf16), (grid, tile, width) = elements_of(x.contiguous()), _tiled(x)
    route_rows[grid](
        loaded, bias, weights, experts, *x.shape, factor, score, renormalised, bf16, CHOSEN, tile, width
    )  # fmt: skip
    return weights, experts


@wide("softmax", FLOAT32)
def triton_wide_softmax(x, format):
    return shared(x, format)


@wide("log_softmax", FLOAT32)
def triton_wide_log_softmax(x, format):
    return shared(x, format, log=True)


@wide("capped_softmax", BFLOAT16)
def triton_wide_capped_softmax(x, format, lengths):
    return shared(x, format, cap=50.0, lengths=lengths)


@wide("greedy", TWO_SOURCES, INT32)
def triton_wide_greedy(x, format):
    return picked(x)


@wide("sample", FLOAT32, INT32)
def triton_wide_sample(x, format, temperature, noise):
    return picked(x, temperature, noise)


@wide("router_softmax", FLOAT32)
def triton_wide_router_softmax(x, format):
    return routed(x, "shares")


@wide("router_softmax_renormalised", BFLOAT16, FLOAT32)
def triton_wide_router_softmax_renormalised(x, format):
    return routed(x, "shares", renormalised=True)


@wide("router_chosen_softmax", BFLOAT16, FLOAT32)
def triton_wide_router_chosen_softmax(x, format):
    return routed(x, "chosen")


@wide("router_sigmoid", FLOAT32)
def triton_wide_router_sigmoid(x, format, bias):
    return routed(x, "sigmoid", renormalised=True, bias=bias, factor=2.5)
