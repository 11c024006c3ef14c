# SPDX-License-Identifier: Apache-2.0
"""Matrices on which properties of recipes are looked at."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from narrowgauge.reference.noise import noise
from narrowgauge.suites.meta.recipe_properties import Subject

F32 = npt.NDArray[np.float32]
ROWS, COLUMNS = 6, 256


def data(subject: Subject, seed: int) -> F32:
    """Blocks of magnitudes 2^-2 to 2^5: rows and 128 columns of a row each have their own. Of both signs, with zeros.

    Every block of 16 holds an element of at least a quarter of its power of two, and one of the other sign.
    """
    powers = (np.arange(ROWS)[:, None] * 5 + np.arange(COLUMNS)[None] // 128 * 3 + seed) % 7 - 2
    x = noise(ROWS * COLUMNS, seed).reshape(ROWS, COLUMNS)
    x[:, 2::16], x[:, 5::16] = np.abs(x[:, 2::16]) + 0.25, -np.abs(x[:, 5::16]) - 0.25
    x[np.arange(ROWS), 6 + np.arange(ROWS)] = 0  # no column is one of zeros
    return _turned(subject, np.ldexp(x, powers))


def _turned(subject: Subject, x: npt.NDArray[np.float64]) -> F32:
    """As float32; on its side where blocks are columns of 128 elements."""
    blocks = subject.recipe.blocks
    return np.ascontiguousarray(x.T if blocks.rows > blocks.columns > 0 else x, np.float32)


def amax(subject: Subject, x: F32) -> npt.NDArray[np.float64]:
    """The largest magnitude of each element's block."""
    blocks, (height, width) = subject.recipe.blocks, x.shape
    rows, columns = blocks.rows or height, blocks.columns or width
    found = np.zeros((-(-height // rows), -(-width // columns)))
    np.maximum.at(found, (np.arange(height)[:, None] // rows, np.arange(width)[None] // columns), np.abs(x))
    return subject.per_element(found, x.shape)


def edges(subject: Subject) -> F32:
    """Rows whose largest magnitude is the bound times 2^k, one and two ulps above and below, and 1.75 and 2 for it."""
    bound = np.float32(subject.destination.bound)
    tops = [bound, np.float32(1), np.float32(1.75), np.nextafter(np.float32(2), np.float32(1))]
    for top in tops[:3]:
        up, down = np.nextafter(top, np.float32(1e9)), np.nextafter(top, np.float32(0))
        tops += [up, np.nextafter(up, np.float32(1e9)), down, np.nextafter(down, np.float32(0))]
    x = noise(len(tops) * COLUMNS, seed=4).reshape(-1, COLUMNS)
    x = np.clip(x / 4, -1, 1) * np.array(tops, np.float64)[:, None]
    x[:, ::16] = np.array(tops, np.float64)[:, None] * np.where(np.arange(COLUMNS // 16) % 2, -1, 1)
    return _turned(subject, np.ldexp(x, np.arange(len(tops))[:, None] % 5 - int(np.log2(bound))))


def matrices(subject: Subject, seed: int) -> Iterator[F32]:
    """Above the floor, at its edges, far below the floor; and where rows share scales, several blocks down."""
    x = data(subject, seed)
    yield x
    yield edges(subject)
    if subject.floor:
        yield np.asarray(x * (subject.floor / 16 / np.abs(x).max()), np.float32)
    if subject.recipe.blocks.rows > 1:
        yield np.repeat(x, 50, axis=0)
