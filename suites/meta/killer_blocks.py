"""What blocks, statistics, given values and stored values give, computed by hand on matrices of a few numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

NAN, INF = float("nan"), float("inf")
Chain = tuple[Any, ...]
Table = list[list[float]]
QUARTERS: Chain = ("amax", ("mul", 0.25))
OVER: Chain = ("x", ("div", "scale"))

#: rows, columns, ragged; matrix; the scale of each block, its largest magnitude over 4; codes
BLOCKS: tuple[tuple[tuple[int, int, bool], Table, Table, Table], ...] = (
    ((0, 0, False), [[1, -2], [4, 8]], [[2]], [[0, -1], [2, 4]]),
    ((1, 0, False), [[1, -2], [4, 8]], [[0.5], [2]], [[2, -4], [2, 4]]),
    ((0, 1, False), [[1, -2], [4, 8]], [[1, 2]], [[1, -1], [4, 4]]),
    ((1, 2, False), [[1, 2, 4, 8], [16, 4, 1, 1]], [[0.5, 2], [4, 0.25]], [[2, 4, 2, 4], [4, 1, 4, 4]]),
    ((2, 2, False), [[1, 2, 4, 8], [-4, 4, 1, 1]], [[1, 2]], [[1, 2, 2, 4], [-4, 4, 0, 0]]),
    (
        (2, 2, True),
        [[1, 2, 4], [4, 1, 16], [-8, 2, -1]],
        [[1, 4], [2, 0.25]],
        [[1, 2, 1], [4, 1, 4], [-4, 1, -4]],
    ),
    (
        (3, 0, False),
        [[1, 2], [4, 8], [0, 1], [2, 1], [1, 1], [0, 0]],
        [[2], [0.5]],
        [[0, 1], [2, 4], [0, 0], [4, 2], [2, 2], [0, 0]],
    ),
    ((0, 0, False), [], [[0]], []),
    ((1, 0, False), [], [], []),
)  # fmt: skip

#: of which rows the least and the largest are sought; what they are, NaN apart; of blocks of 2, the last one smaller
EXTREMES: tuple[tuple[Table, Table, Table], ...] = (
    ([[3, 1, 2], [-1, -5, -2]], [[1, 2], [-5, -2]], [[3, 2], [-1, -2]]),
    ([[1], [5], [3]], [[1], [5], [3]], [[1], [5], [3]]),
    ([[NAN, 4, 5], [INF, -INF, 0]], [[4, 5], [-INF, 0]], [[4, 5], [INF, 0]]),
)


def wrong_blocks(quantizer: Any, contracts: Any, coded: Any) -> Iterator[str]:
    """What ``reference.quantize`` gives otherwise; in bands of every size, which nobody must see."""
    usual = quantizer._BAND
    for band in (usual, 1, 3, 8):
        quantizer._BAND = band
        try:
            yield from _blocks(quantizer, contracts, coded)
            yield from _extremes(quantizer, contracts)
            yield from _alone(quantizer, contracts)
        finally:
            quantizer._BAND = usual
    yield from _of_tensor(quantizer, contracts, coded)
    yield from _of_source(quantizer, contracts, coded)
    yield from _stored(quantizer, contracts, coded)
    yield from _given(quantizer, contracts, coded)


def _recipe(
    contracts: Any, blocks: Any, steps: Any = (("scale", QUARTERS),), element: Chain = OVER, **more: Any
) -> Any:
    destination = (contracts.Destination("int8", 127.0, "integer_nearest"),)
    return contracts.Recipe("one of ours", blocks, destination, steps, element, "", **more)


def _coded(coded: Any, numbers: Any, columns: int = 2) -> Any:
    array = np.array(numbers, np.float32)
    return coded.Coded("float32", (array if array.size else array.reshape(0, columns)).view(np.uint32))


def _blocks(quantizer: Any, contracts: Any, coded: Any) -> Iterator[str]:
    for (rows, columns, ragged), matrix, scales, codes in BLOCKS:
        got = quantizer.quantize(
            _coded(coded, matrix), _recipe(contracts, contracts.Blocks(rows, columns, ragged)), "int8"
        )
        scale, want = (
            got["scale"].data.view(np.float32),
            np.array(scales, np.float32).reshape(-1, len(scales[0]) if scales else 1),
        )
        if scale.shape != want.shape or (scale != want).any():
            yield f"scales of blocks of {rows} x {columns}"
        if got["codes"].data.astype(np.int8).reshape(-1).tolist() != np.array(codes).reshape(-1).tolist():
            yield f"codes of blocks of {rows} x {columns}"


def _extremes(quantizer: Any, contracts: Any) -> Iterator[str]:
    steps = (("scale", ("max", ("sub", "min"))),)
    for matrix, least, most in EXTREMES:
        x = np.array(matrix, np.float32)
        whole = [[[min(map(min, least))]], [[max(map(max, most))]]]
        for blocks, (low, high) in (((1, 2, True), (least, most)), ((0, 0, False), whole)):
            found = quantizer.statistics(x, _recipe(contracts, contracts.Blocks(*blocks), steps)).found
            if {name: value.tolist() for name, value in found.items()} != {"min": low, "max": high}:
                yield f"the least and the largest of blocks {blocks}"
    for of in (NAN, 0.0):
        row, recipe = np.full((1, 2), of, np.float32), _recipe(contracts, contracts.TOKEN)
        if quantizer.statistics(row, recipe).found["amax"].tolist() != [[0.0]]:
            yield f"the largest magnitude of {of} alone"
    nothing = quantizer.statistics(np.full((1, 2), NAN, np.float32), _recipe(contracts, contracts.TOKEN, steps)).found
    if nothing["min"].tolist() != [[0.0]]:
        yield "the least of nothing"


#: of which rows the largest magnitude is sought, without a seed; what it is of blocks of 2, and of all
UNSEEDED: tuple[tuple[Table, Table, float], ...] = (
    ([[NAN, NAN, 1, NAN], [NAN, -3, NAN, NAN]], [[NAN, 1], [3, NAN]], 3),
    ([[NAN, NAN]] * 3, [[NAN]] * 3, NAN),
    ([[INF, INF], [0, 0], [INF, NAN]], [[INF], [0], [INF]], INF),
)


def _alone(quantizer: Any, contracts: Any) -> Iterator[str]:
    """NaN, where nothing else is; of no elements 0."""
    for matrix, of_blocks, of_all in UNSEEDED:
        for blocks, want in ((contracts.Blocks(1, 2), of_blocks), (contracts.TENSOR, [[of_all]])):
            recipe = _recipe(contracts, blocks, amax_nan="all")
            found = quantizer.statistics(np.array(matrix, np.float32), recipe).found["amax"]
            if not np.array_equal(found, np.array(want, np.float32), equal_nan=True):
                yield f"the largest magnitude without a seed, of {blocks}"
    nothing = quantizer.statistics(np.zeros((0, 2), np.float32), _recipe(contracts, contracts.TENSOR, amax_nan="all"))
    if nothing.found["amax"].tolist() != [[0.0]]:
        yield "the largest magnitude of nothing, without a seed"


def _of_tensor(quantizer: Any, contracts: Any, coded: Any) -> Iterator[str]:
    """A value of the whole tensor beside those of its rows, and x's own format."""
    steps = (("global_scale", ("tensor_amax", ("mul", 0.5))), ("scale", ("amax", ("div", "global_scale"))))
    got = quantizer.quantize(_coded(coded, [[1, -2], [4, 8]]), _recipe(contracts, contracts.TOKEN, steps), "int8")
    if got["global_scale"].data.view(np.float32).tolist() != [[4.0]] or list(got) != ["codes", "global_scale", "scale"]:
        yield "a scale of the tensor"
    if got["scale"].data.view(np.float32).tolist() != [[0.5], [2.0]] or got["codes"].data.tolist() != [
        [2, 252],
        [2, 4],
    ]:
        yield "scales below one of the tensor"
    rounding = _recipe(contracts, contracts.TOKEN, (("scale", ("amax", ("add", 2.0**-12), ("round", "source"))),))
    for source, want in (("bfloat16", 1.0), ("float32", 1.0 + 2.0**-12)):
        one = coded.Coded(
            source,
            np.array([[0x3F80 if source == "bfloat16" else 0x3F800000]], "<u2" if source == "bfloat16" else "<u4"),
        )
        if quantizer.quantize(one, rounding, "int8")["scale"].data.view(np.float32).tolist() != [[want]]:
            yield f"rounded to {source}"


def _of_source(quantizer: Any, contracts: Any, coded: Any) -> Iterator[str]:
    """The distance from 1 to the next number, and the least normal one, of x's own format."""
    for source, storage, epsilon, least in (
        ("bfloat16", "<u2", 2.0**-7, 2.0**-126),
        ("float16", "<u2", 2.0**-10, 2.0**-14),
        ("float32", "<u4", 2.0**-23, 2.0**-126),
    ):
        x = coded.Coded(source, np.zeros((1, 1), storage))
        for name, want in (("epsilon", epsilon), ("least_normal", least)):
            recipe = _recipe(contracts, contracts.TOKEN, (("scale", ("amax", ("add", name))),))
            if quantizer.quantize(x, recipe, "int8")["scale"].data.view(np.float32).tolist() != [[want]]:
                yield f"{name} of {source}"


def _stored(quantizer: Any, contracts: Any, coded: Any) -> Iterator[str]:
    """A scale in a format of its own, of which the value that was stored is used; zero points at both ends."""
    recipe = _recipe(
        contracts, contracts.TOKEN, (("scale", ("amax",)), ("half", ("stored", ("mul", 0.5)))), ("x", ("div", "half")),
        scale_format="float8_e8m0fnu", scale_cast="e8m0_floor",
    )  # fmt: skip
    got = quantizer.quantize(_coded(coded, [[3, 1]]), recipe, "int8")
    if (
        got["scale"].format != "float8_e8m0fnu"
        or got["scale"].data.tolist() != [[128]]
        or got["codes"].data.tolist() != [[3, 1]]
    ):
        yield "a scale that is stored in a narrow format"
    steps = (("scale", ("amax",)), ("zero_point", ("max",)))
    for most, want in ((5.0, 5), (-3.0, 2**32 - 3), (3e9, 2**31 - 1), (-3e9, 2**31), (INF, 2**31 - 1)):
        zero = quantizer.quantize(_coded(coded, [[most, most]]), _recipe(contracts, contracts.TOKEN, steps), "int8")[
            "zero_point"
        ]
        if zero.format != "int32" or zero.data.dtype != np.uint32 or zero.data.tolist() != [[want]]:
            yield f"a zero point of {most}"
    held = _recipe(
        contracts, contracts.TOKEN, (("scale", ("amax",)), ("zero_point", ("max", ("mul", 2.0**30)))),
        ("x", ("mul", 0.0), ("add", "zero_point"), ("mul", 2.0**-30)),
    )  # fmt: skip
    if quantizer.quantize(_coded(coded, [[4, 1]]), held, "int8")["codes"].data.tolist() != [[2, 2]]:
        yield "a zero point of 2^32, which int32 does not hold, is added as what is stored"


def _given(quantizer: Any, contracts: Any, coded: Any) -> Iterator[str]:
    """Values beside x: one for each block or one for all; what cannot be is refused."""
    x, rows = _coded(coded, [[1, -2], [4, 8]]), contracts.TOKEN
    static = _recipe(contracts, rows, (), ("x", ("div", "stored")), inputs=("scale",))
    for scale, want in (([[0.5], [2.0]], [[2, 252], [2, 4]]), ([[0.5]], [[2, 252], [8, 16]])):
        got = quantizer.quantize(x, static, "int8", None, {"scale": _coded(coded, scale)})
        if list(got) != ["codes"] or got["codes"].data.tolist() != want:
            yield f"a given scale {scale}"
    shifted = _recipe(
        contracts, rows, (("scale", ("amax",)),), ("x", ("add", "zero_point")), inputs=("zero_point", "upper_bound")
    )
    ones, zero = _coded(coded, [[1.0]]), coded.Coded("int32", np.array([[2**32 - 1], [3]], np.uint32))
    got = quantizer.quantize(x, shifted, "int8", None, {"zero_point": zero, "upper_bound": ones})
    if got["codes"].data.tolist() != [[0, 253], [7, 11]]:
        yield "a given zero point"
    refused: dict[str, Callable[[], Any]] = {
        f"a scale {bad}": lambda bad=bad: quantizer.quantize(
            x, static, "int8", None, {"scale": _coded(coded, [[1.0], [bad]])}
        )  # type: ignore[misc]
        for bad in (0.0, -1.0, INF, NAN)
    }
    refused |= {
        "no scale": lambda: quantizer.quantize(x, static, "int8"),
        "a scale for each column": lambda: quantizer.quantize(
            x, static, "int8", None, {"scale": _coded(coded, [[1.0, 1.0]])}
        ),
        "a scale of another format": lambda: quantizer.quantize(
            x, static, "int8", None, {"scale": coded.Coded("bfloat16", np.array([[0x3F80]], "<u2"))}
        ),
        "an upper bound for each row": lambda: quantizer.quantize(
            x, shifted, "int8", None, {"zero_point": zero, "upper_bound": _coded(coded, [[1.0], [1.0]])}
        ),
        "rows that blocks do not divide": lambda: quantizer.quantize(
            _coded(coded, [[1, 2]]), _recipe(contracts, contracts.Blocks(2, 0)), "int8"
        ),
        "columns that blocks do not divide": lambda: quantizer.quantize(
            _coded(coded, [[1, 2, 3]]), _recipe(contracts, contracts.group(2)), "int8"
        ),
    }
    for what, call in refused.items():
        try:
            call()
        except Exception as error:
            if type(error).__name__ != "BadInput":
                yield f"{what} raises {type(error).__name__}"
        else:
            yield f"{what} is not refused"
