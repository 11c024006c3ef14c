"""Hold the reference to the second derivation: what kills a mutant of the reference.

``Killer()`` computes the second derivation's answers once. ``disagreements()`` imports whatever reference is in place
and compares. Nothing here takes an expectation from the reference.
"""

from __future__ import annotations

import dataclasses
import importlib
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.suites.meta import second_derivation as second
from narrowgauge.suites.meta import second_quantizers
from narrowgauge.suites.meta.killer_blocks import wrong_blocks
from narrowgauge.suites.meta.killer_policies import (
    DESTINATIONS,
    IN_FULL,
    MEANT,
    PLAIN,
    SOURCES,
    SPECIAL,
    WIDER,
    Policy,
    key_of,
    policies_of,
)
from narrowgauge.suites.meta.killer_recipes import answers, wrong_recipes
from narrowgauge.suites.meta.killer_refusals import wrong_refusals
from narrowgauge.suites.meta.killer_steps import wrong_steps
from narrowgauge.suites.meta.killer_variants import wrong_variants

Integers = npt.NDArray[np.uint32]
RECIPES = ("vllm.fp8_per_token_dynamic", "sglang.fp8_per_token_cta")


def ties_and_neighbours(source: str, destination: str) -> Integers:
    """Source patterns around every value and midpoint of a destination, and every special; both signs."""
    layout, target = second.LAYOUTS[source], second.LAYOUTS[destination]
    found: set[int] = {0, 1, 2, layout.largest, layout.largest + 1, layout.largest + 2, layout.sign_bit - 1}
    toward_zero = second.bind(SPECIAL | {"rounding": "toward_zero"}, source)
    last = target.largest
    # All values of a narrow format; of a wide one the ends and the smallest normal.
    normal = 1 << target.mantissa_bits
    chosen = [*range(4), *range(normal - 2, normal + 3), *range(last - 3, last + 1)]
    grid = [second.decode(c, destination).magnitude for c in (range(last + 1) if last < 256 else chosen)]
    grid.append(2 * grid[-1] - grid[-2])
    grid.append(2 * grid[-1] - grid[-2])
    if target.is_integer:  # a zero point moves the ends of the range
        grid += [grid[-1] + k for k in range(1, 8)]
    for value in (*grid, *((a + b) / 2 for a, b in pairwise(grid))):
        code = second.cast_bound(second.Number("finite", False, value), toward_zero)
        found |= {c for c in range(code - 2, code + 3) if 0 <= c < layout.sign_bit}
    codes = np.array(sorted(found), np.uint32)
    return np.concatenate([codes, codes | np.uint32(layout.sign_bit)])


def rows_of(source: str) -> Integers:
    """Rows for the quantizers: specials in every place, every kind of amax; float32 patterns chosen by hand."""
    layout = second.LAYOUTS[source]
    one = second.cast(second.Number("finite", False, second.decode(0x38, "float8_e4m3fn").magnitude), source, SPECIAL)
    infinity, nan = layout.largest + 1, layout.nan
    steps = [one + k * (1 << max(0, layout.mantissa_bits - 6)) for k in range(64)]
    rows = [
        [0] * 8, [layout.sign_bit] * 8, [one] * 8, [0, one, 0, 0, one | layout.sign_bit, 1, 2, 3],
        [one, nan, one + 1, 0, one | layout.sign_bit, 5, 6, 7], [nan] * 8,
        [infinity, one, 0, layout.sign_bit, nan, 1, 2, 3],
        [infinity | layout.sign_bit, one, 0, 1, 2, 3, 4, 5], [1, 2, 3, 0, layout.sign_bit | 1, 1, 1, 1],
        [layout.largest, one, 0, 1, 2, layout.largest - 1, 4, layout.sign_bit | layout.largest],
        [infinity | 1, one, one - 1, 0, 1, 2, 3, layout.sign_bit | one],
    ]  # fmt: skip
    rows += [[s, s // 2, s - 3, s - 9, (s - 20) | layout.sign_bit, 3, s - (1 << 9) % s, 0] for s in steps]
    return np.array(rows, np.uint32)


class Killer:
    """The second derivation's answers, computed once."""

    def __init__(self) -> None:
        self.inputs = {(s, d): ties_and_neighbours(s, d) for s in SOURCES for d in (*DESTINATIONS, *WIDER)}
        self.casts = {
            (source, destination, key_of(policy)): second.cast_codes(
                self.inputs[source, destination], source, destination, policy
            )
            for source in SOURCES
            for destination in (*DESTINATIONS, *WIDER)
            for policy in policies_of(source, destination)
        }
        # In no order, so that neighbours differ in format, source and policy alike.
        order = sorted(self.casts, key=lambda key: zlib.crc32(repr(key).encode()))
        self.casts = {key: self.casts[key] for key in order}
        self.rows = {source: rows_of(source) for source in SOURCES}
        self.quantized = {
            (source, recipe, destination): second_quantizers.quantize_codes(
                self.rows[source], source, recipe, destination
            )
            for source in SOURCES
            for recipe in RECIPES
            for destination in IN_FULL
        }
        self.stochastic = list(_stochastically())
        self.of_recipes = answers()

        #: what saw the last mutant of a function: likely to see the next one
        self._saw: dict[str, int] = {}

    def disagreements(self) -> Iterator[str]:
        """Every way in which the reference that is importable now parts from the second derivation."""
        for part in self._parts():
            yield from part()

    def first_disagreement(self, function: str) -> str | None:
        """The first one found, or None; an error is one. ``function`` is where a mutant was changed."""
        parts = self._parts()
        last = self._saw.get(function, 0)
        for place in (last, *(i for i in range(len(parts)) if i != last)):
            try:
                found = next(parts[place](), None)
            except Exception as error:
                found = f"{type(error).__name__}: {error}"
            if found is not None:
                self._saw[function] = place
                return found
        return None

    def _parts(self) -> list[Callable[[], Iterator[str]]]:
        """What is compared, each part by itself. What is quick comes first."""
        return [
            self._names,
            _layouts,
            lambda: wrong_refusals(_module, RECIPES[0]),
            _steps,
            self._values,
            lambda: wrong_blocks(
                _module("reference.quantize"), _module("contracts.recipe"), _module("contracts.coded")
            ),
            self._quantizers,
            _to_float32,
            _long_tensors,
            self._casts,
            self._stochastic,
            lambda: wrong_recipes(
                self.of_recipes, _module("reference.quantize"), _module("reference.recipes"), _module("contracts.coded")
            ),
        ]

    def _values(self) -> Iterator[str]:
        formats, codec = _module("contracts.formats"), _module("reference.codec")
        fast, coded = _module("reference.fast_codec"), _module("contracts.coded")
        if set(formats.FORMATS) != set(second.LAYOUTS):
            yield "the list of formats"
        for name, layout in second.LAYOUTS.items():
            fmt = formats.FORMATS[name]
            codes = np.arange(layout.codes) if layout.codes <= 256 else _some_codes(layout)
            stored = codes.astype(fmt.storage)
            want = np.array([_real(second.decode(int(c), name)) for c in codes])
            for got in (codec.decode(stored, fmt), fast.decode_values(coded.Coded(name, stored))):
                if not np.array_equal(got, want, equal_nan=True) or _signs_part(got, want):
                    yield f"values of {name}"
            if layout.is_integer and (codec.largest(fmt), codec.nan_code(fmt)) != (layout.largest, -1):
                yield f"ends of {name}"
            with np.errstate(invalid="ignore", over="ignore"):
                narrow = want.astype(np.float32)
                longer = np.resize(stored, 32768 + 3) if layout.codes <= 256 else stored
                got32 = fast.to_float32(coded.Coded(name, longer))
            if not np.array_equal(got32, np.resize(narrow, got32.shape), equal_nan=True):
                yield f"float32 values of {name}"

    def _names(self) -> Iterator[str]:
        policies = _module("reference.policies")
        if set(policies.POLICIES) != set(MEANT):
            yield "the list of policies"
        for name, by_format in MEANT.items():
            if set(policies.POLICIES[name].by_format) != set(by_format):
                yield f"formats of policy {name}"
            for destination, want in by_format.items():
                got = policies.resolve(name, destination)
                full = {"negative": "smallest", "zero": "smallest"} | want
                if {choice: getattr(got, choice) for choice in full} != full:
                    yield f"policy {name} of {destination}"

    def _casts(self) -> Iterator[str]:
        coded, policy_type = _module("contracts.coded"), _module("contracts.policy").CastPolicy
        codec, fast, formats = _module("reference.codec"), _module("reference.fast_codec"), _module("contracts.formats")
        policies = _module("reference.policies")
        for (source, destination, key), want in self.casts.items():
            x = coded.Coded(source, self.inputs[source, destination].astype(formats.FORMATS[source].storage))
            policy, fmt = policy_type(**dict(key)), formats.FORMATS[destination]
            policies.check_fits(policy, fmt)  # a mutant that refuses it is noticed by the error
            by_definition = codec.encode(codec.decode(x.data, formats.FORMATS[source]), fmt, policy)
            ways = {"fast": fast.cast(x, destination, policy).data, "definition": by_definition}
            if source == "float32" and fmt.family not in ("exponent", "integer"):
                ways["integer"] = fast.encode_float32(x.data, fmt, policy)
            for way, got in ways.items():
                if codes_part(got, want, destination):
                    yield f"{way} cast {source} to {destination} by {key}"

    def _quantizers(self) -> Iterator[str]:
        coded, formats = _module("contracts.coded"), _module("contracts.formats")
        quantizer, recipes = _module("reference.quantize"), _module("reference.recipes")
        for (source, recipe, destination), (codes, scale) in self.quantized.items():
            x = coded.Coded(source, self.rows[source].astype(formats.FORMATS[source].storage))
            got = quantizer.quantize(x, recipes.RECIPES[recipe], destination)
            if codes_part(got["codes"].data, codes, destination) or codes_part(
                got["scale"].data[:, 0], scale, "float32"
            ):
                yield f"recipe {recipe} {source} to {destination}"

    def _stochastic(self) -> Iterator[str]:
        """Random bits that come with x: every boundary with every few of them, signed float formats."""
        coded, codec, fast = _module("contracts.coded"), _module("reference.codec"), _module("reference.fast_codec")
        policy_type = _module("contracts.policy").CastPolicy
        for destination, choices, patterns, width, bits, want in self.stochastic:
            policy = policy_type(**{**choices, "rounding": "stochastic"})
            random = codec.RandomBits(np.array(bits, np.uint32), width)
            got = fast.cast(coded.Coded("bfloat16", patterns.astype("<u2")), destination, policy, random).data
            if codes_part(got, want, destination):
                yield f"stochastic rounding to {destination} by {bits} of {width} bits"


# --- what the two recipes do not reach, from the words in which each thing is defined --------------------------------


def _steps() -> Iterator[str]:
    steps, quantizer = _module("reference.steps"), _module("reference.quantize")
    recipes = _module("reference.recipes")
    yield from wrong_steps(steps)
    yield from wrong_variants(steps)
    row = np.array([[1.0, float("nan"), -3.0]], np.float32)
    recipe = recipes.resolve("sglang.fp8_per_token_cta")
    keeping = dataclasses.replace(recipe, amax_nan="keep")
    if not np.isnan(quantizer.statistics(row, keeping).found["amax"]).all():
        yield "an amax that keeps NaN"
    if quantizer.statistics(np.ascontiguousarray(row[:, ::2]), keeping).found["amax"].tolist() != [[3.0]]:
        yield "an amax without NaN"
    by_constant = dataclasses.replace(recipe, steps=(("scale", ("amax", ("mul", "1/bound"))), *recipe.steps[1:]))
    seen = quantizer.Statistics((1, 1), {"amax": np.full((1, 1), 3.0, np.float32)})
    scale = quantizer.block_values(seen, by_constant, "float8_e4m3fn", "float32", {})["scale"]
    third = second_quantizers.multiply(
        second.decode(0x40400000, "float32"), second_quantizers.divide(*_numbers(0x3F800000, 0x43E00000))
    )
    if int(scale.view(np.uint32)[0, 0]) != second.cast(third, "float32", SPECIAL):
        yield "the rounded constant 1/bound"


def _numbers(*codes: int) -> tuple[second.Number, ...]:
    return tuple(second.decode(code, "float32") for code in codes)


def _to_float32() -> Iterator[str]:
    """float32 as a destination: exact from narrower formats, one rounding from float64."""
    coded, fast, formats = _module("contracts.coded"), _module("reference.fast_codec"), _module("contracts.formats")
    policy = _module("contracts.policy").CastPolicy(overflow="special", infinity="special")
    wide = [0x3FF0000010000000, 0x3FF0000030000000, 0x47EFFFFFF0000000, 0x47EFFFFFEFFFFFFF, 0x8000000000000001]
    for source, codes in {"float8_e5m2": range(256), "bfloat16": range(0, 65536, 37), "float64": wide}.items():
        x = coded.Coded(source, np.array(codes, formats.FORMATS[source].storage))
        want = second.cast_codes(list(codes), source, "float32", SPECIAL)
        if codes_part(fast.cast(x, "float32", policy).data, want, "float32"):
            yield f"{source} to float32"
    # 1.0625 is a tie of e4m3fn; its neighbours in float64 are none in float32.
    fine = [0x3FF1000000000000, 0x3FF1000000000001, 0x3FF0FFFFFFFFFFFF, 0x407D000000000000, 0x407D000000000001]
    got = fast.cast(coded.Coded("float64", np.array(fine, "<u8")), "float8_e4m3fn", policy).data
    if codes_part(got, second.cast_codes(fine, "float64", "float8_e4m3fn", SPECIAL), "float8_e4m3fn"):
        yield "float64 to a narrow format"


def _long_tensors() -> Iterator[str]:
    """More elements than are handled at once, of an odd number: each as it is alone."""
    coded, fast = _module("contracts.coded"), _module("reference.fast_codec")
    policy = _module("contracts.policy").CastPolicy(overflow="special", infinity="special")
    bits = np.resize(ties_and_neighbours("float32", "float8_e4m3fn")[::11], 100_003)
    few = second.cast_codes(bits[:200], "float32", "float8_e4m3fn", SPECIAL)
    got = fast.cast(coded.Coded("float32", bits), "float8_e4m3fn", policy).data
    period = ties_and_neighbours("float32", "float8_e4m3fn")[::11].size
    if not np.array_equal(got, np.resize(got[:period], got.shape)) or codes_part(got[:200], few, "float8_e4m3fn"):
        yield "a long tensor to codes"
    for name in ("float8_e4m3fn", "float4_e2m1fn"):
        codes = np.resize(np.arange(second.LAYOUTS[name].codes, dtype=np.uint8), 100_003)
        want = np.array([_real(second.decode(c, name)) for c in range(second.LAYOUTS[name].codes)], np.float32)
        if not np.array_equal(fast.to_float32(coded.Coded(name, codes)), want[codes], equal_nan=True):
            yield f"a long tensor of {name} to values"
    codes16 = _some_codes(second.LAYOUTS["bfloat16"])
    real = np.array([_real(second.decode(int(c), "bfloat16")) for c in codes16], np.float32)
    got32 = fast.to_float32(coded.Coded("bfloat16", np.resize(codes16.astype("<u2"), 100_003)))
    if not np.array_equal(got32, np.resize(real, 100_003), equal_nan=True):
        yield "a long tensor of bfloat16 to values"


#: width of the random bits, and some of that width
RANDOM: tuple[tuple[int, tuple[int, ...]], ...] = ((0, (0,)), (1, (0, 1)), (8, (0, 1, 127, 128, 129, 255)))


def _stochastically() -> Iterator[tuple[str, Policy, Integers, int, int, Integers]]:
    """By destination and policy: every boundary as bfloat16, width and value of the random bits, and the codes."""
    for destination, choices in {"float8_e4m3fn": SPECIAL, "float8_e5m2fnuz": PLAIN, "float4_e2m1fn": FINITE}.items():
        patterns = ties_and_neighbours("bfloat16", destination)[::3]
        numbers = [second.decode(int(p), "bfloat16") for p in patterns]
        for width, few in RANDOM:
            for bits in few:
                want = [second.stochastic(n, destination, choices, bits, width) for n in numbers]
                yield destination, choices, patterns, width, bits, np.array(want, np.uint32)


FINITE = PLAIN | {"nan": "max"}


def _layouts() -> Iterator[str]:
    """Widths and storage: the bytes that one code takes, from the formats' names."""
    formats, codec, coded = _module("contracts.formats"), _module("reference.codec"), _module("contracts.coded")
    for name, layout in second.LAYOUTS.items():
        fmt, last = formats.FORMATS[name], layout.codes - 1
        size = next(s for s in (1, 2, 4, 8) if 256**s >= layout.codes)
        if fmt.storage.itemsize != size or fmt.code_count != layout.codes or 1 << fmt.bits != layout.codes:
            yield f"width of {name}"
        if size < 8 and formats.as_codes(name, [0, last]).tolist() != [0, last]:
            yield f"codes of {name}"
        if formats.as_codes(name, []).size != 0:
            yield f"no codes of {name}"
        if size < 4 and codec.nan_code(fmt) != (-1 if layout.nan is None else layout.nan):
            yield f"the NaN of {name}"
        if size < 4 and codec.values(fmt).flags.writeable:
            yield f"the table of {name} can be written to"
    if (
        _module("reference.fast_codec").cast(coded.Coded("bfloat16", np.zeros(1, "<u2")), "float16", _policy()).data[0]
        != 0
    ):
        yield "a 16-bit destination"


def _policy(**choices: Any) -> Any:
    return _module("contracts.policy").CastPolicy(**choices)


def _module(name: str) -> Any:
    return importlib.import_module(f"narrowgauge.{name}")


def _some_codes(layout: second.Layout) -> npt.NDArray[np.uint64]:
    """Codes of a wide format: the ends of every range, specials, and a few between; both signs."""
    if layout.is_integer:
        some = [*range(5), *range(layout.largest - 2, layout.largest + 1), *(layout.largest // k for k in range(2, 40))]
        return np.array([*some, *(c + layout.sign_bit for c in some)], np.uint64)
    assert layout.infinity is not None
    assert layout.nan is not None
    normal = 1 << layout.mantissa_bits
    codes = [*range(5), *range(normal - 2, normal + 3), *range(layout.largest - 2, layout.largest + 4), layout.nan]
    codes += [layout.largest // k for k in range(2, 40)]
    return np.array([*codes, *(c + layout.sign_bit for c in codes)], np.uint64)


def _real(number: second.Number) -> float:
    if number.kind == "nan":
        return float("nan")
    magnitude = float("inf") if number.kind == "inf" else float(number.magnitude)
    return -magnitude if number.negative else magnitude


def _signs_part(got: npt.NDArray[np.float64], want: npt.NDArray[np.float64]) -> bool:
    return bool((np.signbit(got) != np.signbit(want))[~np.isnan(want)].any())


def codes_part(got: npt.NDArray[Any], want: Integers, format_name: str) -> bool:
    """Whether two arrays of codes differ, NaN compared as a class."""
    return bool((_one_nan(got, format_name) != _one_nan(want, format_name)).any())


def _one_nan(codes: npt.NDArray[Any], format_name: str) -> npt.NDArray[np.int64]:
    """Codes, with -1 for every NaN."""
    layout = second.LAYOUTS[format_name]
    if layout.codes <= 256:
        # A number that is no code of the format stays what it is: it is no NaN.
        inside = np.minimum(codes, layout.codes - 1)
        return np.where(_is_nan(format_name)[inside] & (codes < layout.codes), -1, codes.astype(np.int64))
    assert layout.infinity is not None
    return np.where((codes & np.uint32(layout.sign_bit - 1)) > layout.infinity, -1, codes.astype(np.int64))


@cache
def _is_nan(format_name: str) -> npt.NDArray[np.bool_]:
    """Of each code of a narrow format, whether it is a NaN."""
    codes = range(second.LAYOUTS[format_name].codes)
    return np.array([second.decode(c, format_name).kind == "nan" for c in codes])
