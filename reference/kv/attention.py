"""Decode attention over a cache: every result that a right kernel may return.

For one sequence, head h of the query and its head g of keys and values: softmax over keys i of c(scale · q · k_i),
times v_i, where c is the identity or the soft cap. Everything is float32, in any order: split over the sequence,
rescaled by a running maximum, by exp or exp2. What comes out is an interval per element: ``scores`` and ``weighing``
prove it, ``arithmetic`` has the allowances that they count.

Values are taken as they reach the kernel's arithmetic: a cache that is dequantized and rounded first (to the
query's format, say) is rounded by its reader, before this. Scales that a kernel folds into the softmax scale, into
weights or into the result are given here, as scales.

Not covered, on purpose: float32 operands rounded to TF32; a softmax or a sum of it in 16 bits; subnormals of 16 bits
that are flushed (MFMA of MI200).
"""

from __future__ import annotations

import numpy as np

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.interval import Interval
from narrowgauge.reference.kv.arithmetic import F64, Mask, coded, rounding_to
from narrowgauge.reference.kv.rule import Attention
from narrowgauge.reference.kv.scores import scores_of
from narrowgauge.reference.kv.weighing import Values, Weights, weighed, weighed_as_shares, weights_of

#: beyond this float32 may overflow on the way
_LARGEST = 2.0**127
_MOST_KEYS = 2**19


def attend(
    query: F64,
    keys: F64,
    values: F64,
    rule: Attention,
    key_scale: F64 | float = 1.0,
    value_scale: F64 | float = 1.0,
) -> tuple[F64, F64]:
    """Least and greatest result [query heads, columns] of one sequence, as real numbers before the last rounding.

    ``query`` [query heads, d], ``keys`` [keys, kv heads, d], ``values`` [keys, kv heads, columns] are float32 numbers;
    head h reads kv head h // (query heads / kv heads). The scales, positive float32 numbers, are one, one per kv head,
    or [keys, kv heads]. Only keys in use are given: what stands in other slots must not matter.

    No keys at all give zeros. (vLLM's unified kernel does; its split form leaves the row unwritten, and SGLang's and
    vLLM's two-stage kernels give 0 / 0 there. Engines have such rows as padding alone.)

    NaN in a key that is used makes NaN of its heads, and so does a score of +infinity; NaN in a value makes NaN of its
    column, an infinite value infinity, both infinities NaN: NaN at both ends.

    Raises ``BadInput`` for shapes that do not fit, scales that are not positive, and where engines differ or
    nothing is derived: a score of -infinity, an infinite score under a soft cap, an infinite value whose weight may
    vanish, what overflows float32 on the way.
    """
    q, k, codes, of_keys, of_values = _arranged(query, keys, values, key_scale, value_scale)
    if not len(keys):
        return np.zeros((len(query), values.shape[-1])), np.zeros((len(query), values.shape[-1]))
    with np.errstate(all="ignore"):
        poisoned = _poisoned(q, k, rule)
        q, k = np.where(poisoned[..., None], 0.0, q), np.where(np.isfinite(k), k, 0.0)
        v = Values(np.where(np.isfinite(codes), codes, 0.0), of_values)
        _check_range(q, k, v, of_keys * rule.scale, rule)
        scores = scores_of(q, k, of_keys * rule.scale, rule)
        weights = weights_of(scores, rule.tile)
        mean = weighed_as_shares if rule.shares and rule.weights != "float32" else weighed
        low, high = mean(weights, v, rule)
        negative = np.asarray(np.signbit(codes).all(axis=-2))[:, None]
        none = (low == 0) & (high == 0)  # of -0 alone either zero comes; a sum with one 0 is 0
        low, high = np.where(none, np.where(negative, -0.0, 0.0), low), np.where(none, 0.0, high)
        special = _specials(codes, weights, poisoned, rule)
    low, high = (np.where(special == 0, end, special) for end in (low, high))
    low, high = (np.where(poisoned[..., None], np.nan, end) for end in (low, high))
    shape = (len(query), values.shape[-1])
    return low.reshape(shape), high.reshape(shape)


def rounded(low: F64, high: F64, format_name: str) -> Interval:
    """Both ends in the format of the output: rounding is monotone, and an end at NaN is NaN."""
    return Interval(coded(low, format_name), coded(high, format_name))


def _arranged(
    query: F64, keys: F64, values: F64, key_scale: F64 | float, value_scale: F64 | float
) -> tuple[F64, F64, F64, F64, F64]:
    """q [kv heads, queries, d], k [kv heads, keys, d], v [kv heads, keys, columns], scales [kv heads, 1, keys] and
    [kv heads, keys, 1]."""
    shapes = f"query {list(query.shape)}, keys {list(keys.shape)}, values {list(values.shape)}"
    wanted = "expected [query heads, d], [keys, kv heads, d], [keys, kv heads, columns]"
    if (query.ndim, keys.ndim, values.ndim) != (2, 3, 3) or keys.shape[:2] != values.shape[:2]:
        raise BadInput(f"attention: {shapes}; {wanted}")
    count, heads, width = keys.shape
    if query.shape[1] != width or not heads or len(query) % heads or count > _MOST_KEYS:
        raise BadInput(f"attention: {shapes}; {wanted}, query heads a multiple of kv heads, at most {_MOST_KEYS} keys")
    scales = []
    for name, scale in (("key_scale", key_scale), ("value_scale", value_scale)):
        given = np.asarray(scale, np.float64)
        if given.shape not in ((), (1,), (heads,), (count, heads)):
            raise BadInput(f"{name} has shape {list(given.shape)}; expected one, [{heads}] or [{count}, {heads}]")
        if not (np.isfinite(given) & (given > 0)).all():
            raise BadInput(f"{name} has an element that is not positive and finite: what engines make of it differs")
        scales.append(np.broadcast_to(given, (count, heads)).T)
    grouped = query.reshape(heads, len(query) // heads, width)
    k, v = np.moveaxis(keys, 1, 0), np.moveaxis(values, 1, 0)
    return grouped, k, v, scales[0][:, None, :], scales[1][:, :, None]


def _poisoned(q: F64, k: F64, rule: Attention) -> Mask:
    """Heads [kv heads, queries] whose every column is NaN: a score is NaN, or +infinity minus itself."""
    if np.isfinite(q).all() and np.isfinite(k).all():
        return np.zeros(q.shape[:2], np.bool_)
    score = q @ k.swapaxes(-1, -2)
    bad = (np.isnan(score) | (score == np.inf)).any(axis=-1)
    if rule.soft_cap and np.isinf(score).any():
        raise BadInput("attention: an infinite score under a soft cap is not derived; give NaN or finite keys")
    if (np.isneginf(score).any(axis=-1) & ~bad).any():
        raise BadInput("attention: a score of -infinity is a masked key to some kernels, NaN to others; give another")
    return np.asarray(bad)


def _check_range(q: F64, k: F64, v: Values, scale: F64, rule: Attention) -> None:
    product = np.abs(q).max() * np.abs(k).max()
    most = (
        product * q.shape[-1] * max(1, scale.max())
    )  # sums of magnitudes are seldom near: looked at where they may be
    if most > _LARGEST:
        most = (np.abs(q) @ np.abs(k).swapaxes(-1, -2) * np.maximum(1, scale)).max()
    total = (np.abs(v.codes) * np.maximum(1, v.scale)).sum(axis=-2)
    if most > _LARGEST or (total > _LARGEST).any():
        raise BadInput("attention: scores or sums of values may overflow float32; what comes then is not derived")
    for what, name, size in (
        ("a product q · k", rule.products, product),
        ("value_scale times a weight", rule.weights, v.scale.max() * rule.weights_scale),
    ):
        if size > rounding_to(name).largest:
            raise BadInput(f"attention: {what}, {size}, may overflow {name}; what comes then is not derived")


def _specials(codes: F64, weights: Weights, poisoned: Mask, rule: Attention) -> F64:
    """Per head and column 0, or the NaN or infinity that comes of the values that are used."""
    if np.isfinite(codes).all():
        return np.zeros(())
    both = np.isposinf(codes).any(axis=-2) & np.isneginf(codes).any(axis=-2)
    nan = np.asarray(np.isnan(codes).any(axis=-2) | both)[:, None]
    infinite = np.asarray(np.isinf(codes).any(axis=-1))[:, None, :]
    fmt = format_named(rule.weights)
    normal = (1 - fmt.bias) * np.log(2) - np.log(rule.weights_scale) + 1
    vanishing = infinite & (weights.gone | (weights.natural - weights.error < normal)) & ~poisoned[..., None]
    if (vanishing.any(axis=-1)[..., None] & ~nan).any():
        raise BadInput("attention: an infinite value whose weight may be 0 gives infinity or NaN; give it more weight")
    sign = np.where(np.isinf(codes), np.sign(codes), 0.0).sum(axis=-2)[:, None]
    sign = np.broadcast_to(sign, (*weights.exact.shape[:2], codes.shape[-1]))
    return np.where(nan, np.nan, np.where(sign == 0, 0.0, np.copysign(np.inf, sign)))
