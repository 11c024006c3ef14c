"""What a kernel of a product checks before anything is launched: a bad call raises ``ValueError`` with what was given
and what was expected. That scales are finite is looked at, which waits for the device."""

from __future__ import annotations

import torch

from narrowgauge.kernels_under_test.claiming import ALL_SOURCES
from narrowgauge.kernels_under_test.kv_checks import check_format

#: formats of results
RESULTS = (*ALL_SOURCES, "int32")


def check_shape(name, value, *allowed):
    """One of some shapes."""
    if tuple(value.shape) not in allowed:
        expected = " or ".join(str(list(shape)) for shape in dict.fromkeys(allowed))
        raise ValueError(f"{name} is {list(value.shape)}; expected {expected}")


def check_finite(name, value):
    """float32 numbers without infinities and NaN."""
    if value.dtype != torch.float32:
        return
    wrong = ~torch.isfinite(value)
    if wrong.any():
        at = wrong.nonzero()[0].tolist()
        raise ValueError(f"{name}{at} is {float(value[tuple(at)])}; expected a finite number")


def check_operand(name, operand, rows, depth):
    """Scales and zero points of an operand: one for each of its blocks."""
    grid = -(-rows // operand.block_rows), -(-depth // operand.block_columns)
    if operand.groups is not None:
        check_shape(f"{name}_group_index", operand.groups, (1, depth))
        check_within(f"{name}_group_index", operand.groups, grid[1])
    if operand.scale is not None:
        check_shape(f"{name}_scale, as rows by columns of {name}'s blocks,", operand.scale, grid)
        check_finite(f"{name}_scale", operand.scale)
    if operand.zero is not None:
        check_shape(f"{name}_zero_point, in words of eight,", operand.zero, (grid[1], grid[0] // 8))
    if operand.whole is not None:
        check_finite(f"{name}_global_scale", operand.whole)


def check_within(name, value, count):
    """Numbers of so many."""
    wrong = (value < 0) | (value >= count)
    if wrong.any():
        at = wrong.nonzero()[0].tolist()
        raise ValueError(f"{name}{at} is {int(value[tuple(at)])}; expected 0 to {count - 1}")


def check_product(a, b, shape, format, end, experts):
    """All that a product is given."""
    rows, columns, depth = shape
    check_format(format, RESULTS)
    for_all = columns
    if experts is not None:
        check_shape("experts", experts, (1, rows))
        for_all = max(columns, b.codes.shape[0])
        check_experts(experts, for_all // columns if columns else 0)
    check_operand("a", a, rows, depth)
    check_operand("b", b, for_all, depth)
    for name, value, count in (("a_scale", end.a_scale, rows), ("b_scale", end.b_scale, for_all)):
        if value is not None:
            check_shape(name, value, (1, 1), (count, 1))
            check_finite(name, value)
    if end.zero is not None:
        check_shape("a_zero_point", end.zero, (1, 1), (rows, 1))
    if end.bias is not None:
        check_shape("bias", end.bias, (for_all // columns if columns else 1, columns))


def check_experts(experts, count):
    """Numbers of experts, -1 for rows that have none."""
    wrong = (experts < -1) | (experts >= count)
    if wrong.any():
        at = wrong.nonzero()[0].tolist()
        raise ValueError(f"experts{at} is {int(experts[tuple(at)])}; expected -1 to {count - 1}")


def check_words(b, depth, each):
    """Words of a weight [K, N]: as many rows as K has, or eighths of it."""
    if b.ndim != 2 or b.shape[0] * each != depth:
        raise ValueError(f"b is {list(b.shape)} words; expected {depth} / {each} rows, as x has {depth} columns")


def depth_of(x, b, name="b"):
    """K, where both matrices have it."""
    if x.ndim != 2 or b.ndim != 2 or x.shape[1] != b.shape[1]:
        raise ValueError(f"x is {list(x.shape)} and {name} {list(b.shape)}; expected [M, K] and [N, K]")
    return x.shape[1]


def columns_of(b, count, block=0):
    """N, where the matrices of so many experts stand below one another."""
    count = int(count)
    if count < 1 or b.shape[0] % count or (block and (b.shape[0] // count) % block and count > 1):
        of_blocks = f" of whole blocks of {block}" if block else ""
        raise ValueError(f"b has {b.shape[0]} rows; expected a multiple of {count}, the number of experts{of_blocks}")
    return b.shape[0] // count
