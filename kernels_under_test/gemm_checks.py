"""What a kernel of a product checks before anything is launched: a bad call raises ``ValueError`` with what was given
and what was expected. Numbers are looked at too, which waits for the device: scales are finite, experts and groups are
those that there are."""

from __future__ import annotations

import torch

from narrowgauge.kernels_under_test.claiming import ALL_SOURCES
from narrowgauge.kernels_under_test.kv_checks import check_format, types_of

#: formats of results
RESULTS = (*ALL_SOURCES, "int32")


def check_stored(name, value, *shapes, format="float32"):
    """One of some shapes, of the type that holds a format."""
    types = types_of(format)
    if value.dtype not in types or tuple(value.shape) not in shapes:
        shaped = " or ".join(str(list(shape)) for shape in dict.fromkeys(shapes))
        raise ValueError(f"{name} is {value.dtype} {list(value.shape)}; expected {types[0]} {shaped}")


def check_finite(name, value):
    """float32 numbers without infinities and NaN."""
    _first(name, value, ~torch.isfinite(value), "a finite number")


def check_within(name, value, low, count):
    """Whole numbers from ``low``, below ``count``."""
    _first(name, value, (value < low) | (value >= count), f"{low} to {count - 1}")


def _first(name, value, wrong, expected):
    if wrong.any():
        at = wrong.nonzero()[0].tolist()
        raise ValueError(f"{name}{at} is {value[tuple(at)].item()}; expected {expected}")


def check_scale(name, value, *shapes, format="float32"):
    """Scales; those of float32 are finite."""
    check_stored(name, value, *shapes, format=format)
    if format == "float32":
        check_finite(name, value)


def check_operand(name, operand, rows, depth):
    """The codes of an operand, and one scale and zero point for each of its blocks. Codes of four bits are words or
    bytes of several."""
    format = operand.format if operand.format != "uint4" else "int32"
    if operand.codes.dtype not in types_of(format):
        raise ValueError(f"{name} is {operand.codes.dtype}; expected {' or '.join(map(str, types_of(format)))}")
    grid = -(-rows // operand.block_rows), -(-depth // operand.block_columns)
    if operand.scale is not None:
        # a weight [K, N] is handed the other way round
        check_scale(f"{name}_scale{operand.turned}", operand.scale, grid, format=operand.scale_format)
    if operand.zero is not None:
        check_stored(f"{name}_zero_point", operand.zero, (grid[1], grid[0] // 8), format="int32")
    if operand.groups is not None:
        check_stored(f"{name}_group_index", operand.groups, (1, depth), format="int32")
        check_within(f"{name}_group_index", operand.groups, 0, grid[1])
    if operand.whole is not None:
        check_scale(f"{name}_global_scale", operand.whole, (1, 1))


def check_product(a, b, shape, format, end, experts):
    """All that a product is given."""
    rows, columns, depth = shape
    check_format(format, RESULTS)
    for_all = columns
    if experts is not None:
        for_all = b.codes.shape[0]
        check_stored("experts", experts, (1, rows), format="int32")
        check_within("experts", experts, -1, for_all // columns if columns else 0)
    check_operand("a", a, rows, depth)
    check_operand("b", b, for_all, depth)
    for name, value, count in (("a_scale", end.a_scale, rows), ("b_scale", end.b_scale, for_all)):
        if value is not None:
            check_scale(name, value, (1, 1), (count, 1))
    for name, value in (("a_global_scale", end.a_whole), ("b_global_scale", end.b_whole)):
        if value is not None:
            check_scale(name, value, (1, 1))
    if end.zero is not None:
        check_stored("a_zero_point", end.zero, (1, 1), (rows, 1), format="int32")
    if end.bias is not None:
        check_stored("bias", end.bias, (for_all // columns if columns else 1, columns), format=format)


def check_matrix(name, x):
    """Two axes."""
    if x.ndim != 2:
        raise ValueError(f"{name} is {list(x.shape)}; expected a matrix")


def check_words(x, b, each):
    """Words of a weight [K, N]: as many rows as x has columns, or eighths of it."""
    check_matrix("x", x)
    check_matrix("b", b)
    if b.shape[0] * each != x.shape[1]:
        raise ValueError(f"b is {list(b.shape)} words; expected {x.shape[1]} / {each} rows, as x is {list(x.shape)}")


def depth_of(x, b, of_x=1, of_b=1):
    """K, where both matrices have it; so many codes stand in a byte."""
    check_matrix("x", x)
    check_matrix("b", b)
    if x.shape[1] * of_x != b.shape[1] * of_b:
        raise ValueError(
            f"x is {list(x.shape)} and b {list(b.shape)}; expected [M, K / {of_x}] and [N, K / {of_b}] of one K"
        )
    return x.shape[1] * of_x


def check_whole(depth, group):
    """K in whole groups, where the format has no others."""
    if depth % group:
        raise ValueError(f"K is {depth}; expected a multiple of {group}, as many as share a scale")


def columns_of(b, count, block=0):
    """N, where the matrices of so many experts stand below one another, in whole blocks."""
    check_stored("expert_count", count, (1, 1), format="int32")
    count = int(count)
    if count < 1 or b.shape[0] % (count * (block if count > 1 and block else 1)):
        of_blocks = f" · {block}" if block else ""
        raise ValueError(f"b has {b.shape[0]} rows; expected a multiple of {count}{of_blocks}, one matrix an expert")
    return b.shape[0] // count
