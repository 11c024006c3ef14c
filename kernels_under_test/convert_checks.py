"""What our converters refuse before they write: shapes, scales and widths that do not belong together."""

from __future__ import annotations

import torch


def check_codes(x):
    """Codes are a matrix."""
    if x.ndim != 2:
        raise ValueError(f"codes are {list(x.shape)}; expected [rows, columns]")


def check_scale(name, scale, shape, dtype=torch.float32):
    """A scale has one value for each block, and the type that it is stored in."""
    if scale.dtype != dtype or tuple(scale.shape) != tuple(shape):
        raise ValueError(f"{name} is {scale.dtype} {list(scale.shape)}; expected {dtype} {list(shape)}")


def check_widths(widths, shards, rows):
    """The rows of shards are all rows."""
    if tuple(widths.shape) != (shards, 1) or widths.dtype != torch.int32:
        raise ValueError(f"widths are {widths.dtype} {list(widths.shape)}; expected torch.int32 {[shards, 1]}")
    if bool((widths < 0).any()) or int(widths.sum()) != rows:
        raise ValueError(f"widths are {widths.flatten().tolist()}; expected {rows} rows in all, none below 0")


def of_rows(name, value, widths, x):
    """A number of each fused shard as one of each of its rows of x, [rows, 1]."""
    check_codes(x)
    check_scale(name, value, (widths.shape[0], 1))
    check_widths(widths, widths.shape[0], x.shape[0])
    return torch.repeat_interleave(value, widths.flatten().long(), dim=0)


def grid_of(x, rows, columns):
    """How many blocks a matrix has each way, the last ones ragged. 0 rows or columns: all of them."""
    return tuple(-(-size // each) if each else 1 for size, each in zip(x.shape, (rows, columns), strict=True))
