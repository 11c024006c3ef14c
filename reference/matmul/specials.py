"""NaN and infinity in a product: what they make of the result, whatever is finite in it."""

from __future__ import annotations

import numpy as np

from narrowgauge.reference.matmul.multiplying import F64, Terms

#: rows or columns with specials that are multiplied at once
_AT_ONCE = 64


def specials_of(terms: Terms) -> F64:
    """NaN or an infinity in each element [M, N] of the result that is one, 0 elsewhere.

    Only signs and zeros of finite numbers matter: 0 times infinity is NaN, and so are infinities of both signs.
    """
    shape = (len(terms.a), len(terms.b))
    found = np.zeros(shape)
    for place, where in enumerate(terms.slices):
        a = _signs(terms.a[:, where]) * _signs(terms.a_scale[:, place, None])
        b = _signs(terms.b[:, where]) * _signs(terms.b_scale[:, place, None])
        rows, columns = (np.flatnonzero(~np.isfinite(each).all(axis=1)) for each in (a, b))
        for first in range(0, len(rows), _AT_ONCE):
            some = rows[first : first + _AT_ONCE]
            found[some] += _only_special((a[some, None, :] * b[None]).sum(axis=-1))
        clean = np.setdiff1d(np.arange(shape[0]), rows)
        for first in range(0, len(columns), _AT_ONCE):
            some = columns[first : first + _AT_ONCE]
            products = (a[clean][:, None, :] * b[some][None]).sum(axis=-1)
            found[np.ix_(clean, some)] += _only_special(products)
    for factor in (*terms.factors, *(1 / d if d else np.inf for d in terms.divisors)):
        found = np.where(found == 0, 0.0 if np.isfinite(factor) else factor, found * _signs(np.asarray(factor)))
    if terms.bias is not None:
        found = found + _only_special(np.broadcast_to(terms.bias, shape))
    return found


def _signs(value: F64) -> F64:
    """The sign of what is finite; NaN and infinities as they are."""
    return np.where(np.isfinite(value), np.sign(value), value)


def _only_special(value: F64) -> F64:
    return np.where(np.isfinite(value), 0.0, value)
