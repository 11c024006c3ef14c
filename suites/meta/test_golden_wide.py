"""Golden vectors of wide destinations and of decodings: right over all inputs, by derivations that share no code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.contracts.operations import Claim
from narrowgauge.golden.families import Family, layout
from narrowgauge.golden.manifest import load, metadata_for
from narrowgauge.golden.safetensors_file import write
from narrowgauge.golden.steps import fold, spaced, unfold
from narrowgauge.golden.using import as_case, expanded, looked_up, steps_of
from narrowgauge.suites.meta import second_derivation as second
from narrowgauge.suites.meta.golden_sets import (
    DECODES,
    FAMILIES,
    WIDE,
    Ints,
    exact_codes,
    policy_of,
    stored,
)
from narrowgauge.suites.meta.killer_policies import MEANT
from narrowgauge.suites.meta.test_golden_damage import change_manifest

pytestmark = pytest.mark.meta
CLAIMS = [(family, claim) for family in WIDE for claim in family.claims]
each_claim = pytest.mark.parametrize(("family", "claim"), CLAIMS, ids=[str(claim) for _, claim in CLAIMS])


def as_float32(patterns: Ints, source: str) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """The values of source patterns, by numpy and ml_dtypes."""
    types = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
    with np.errstate(invalid="ignore"):
        return np.asarray(patterns.astype(FORMATS[source].storage).view(types[source]), np.float32)


def of_upper_19_bits(bits: Ints, rounding: object) -> Ints:
    """tfloat32 by integer arithmetic on float32 patterns: what is added before the lower 13 bits are cut."""
    added = {"nearest_even": 0xFFF + (bits >> 13 & 1), "nearest_away": 0x1000 + 0 * bits, "toward_zero": 0 * bits}
    return np.right_shift(bits + added[str(rounding)], 13)


def by_others(patterns: Ints, claim: Claim) -> Ints:
    """The codes of source patterns by numpy, ml_dtypes or integer arithmetic; NaN of any kind."""
    value = as_float32(patterns, claim.source)
    meant = MEANT[claim.rule][claim.format]
    if claim.format == "tfloat32":
        bits = value.view(np.uint32).astype(np.int64)
        codes = np.where(np.isnan(value), 0x3FE00, of_upper_19_bits(bits, meant["rounding"]))
    else:
        types = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
        with np.errstate(over="ignore", invalid="ignore"):
            codes = value.astype(types[claim.format]).view(FORMATS[claim.format].storage).astype(np.int64)
    if meant["overflow"] == meant["infinity"] == "special":
        return codes
    fmt = FORMATS[claim.format]
    infinite = (codes & (fmt.sign_bit - 1)) == ((1 << fmt.exponent) - 1) << fmt.mantissa
    return np.where(infinite, codes - 1, codes)  # saturating: the code before infinity is the largest


def nan_as_one(codes: Ints, format_name: str) -> Ints:
    fmt = FORMATS[format_name]
    infinity = ((1 << fmt.exponent) - 1) << fmt.mantissa
    return np.where((codes.astype(np.int64) & (fmt.sign_bit - 1)) > infinity, -1, codes.astype(np.int64))


@each_claim
def test_every_run_of_a_wide_cast_agrees_with_other_libraries(family: Family, claim: Claim) -> None:
    """Its first and last pattern, of up to half a million runs: so all inputs, since codes are monotone."""
    first, code = steps_of(claim, stored(family))
    last = np.append(first[1:], FORMATS[claim.source].code_count) - 1
    assert first[0] == 0
    assert (first <= last).all()
    assert (code[1:] != code[:-1]).all(), "two runs of one code are one run"
    assert first.size > 4000
    for patterns in (first, last):
        np.testing.assert_array_equal(
            nan_as_one(code, claim.format), nan_as_one(by_others(patterns, claim), claim.format)
        )


@each_claim
def test_the_ends_of_every_stair_agree_with_exact_fractions(family: Family, claim: Claim) -> None:
    x, want = as_case(claim, stored(family))
    assert x.format == claim.source
    assert 20 < x.data.size < 1500, "runs at the ends and in the middle of each stair, not all of them"
    exact = exact_codes(x.codes, claim.source, claim.format, policy_of(family))
    np.testing.assert_array_equal(nan_as_one(want["codes"].low.codes, claim.format), nan_as_one(exact, claim.format))
    stairs = np.stack([stored(family)[name].codes.astype(np.int64) for name in layout(claim)])
    for place in (np.zeros_like(stairs[2]), stairs[2] - 1):
        assert np.isin(stairs[0] + place * stairs[1], x.codes).all()


@each_claim
def test_stairs_are_few_and_give_the_code_of_any_pattern(family: Family, claim: Claim) -> None:
    source = FORMATS[claim.source]
    rng = np.random.default_rng(1)
    patterns = rng.integers(0, source.code_count, 20_000, dtype=np.uint64).astype(source.storage)
    found = looked_up(claim, stored(family), patterns)
    np.testing.assert_array_equal(nan_as_one(found, claim.format), nan_as_one(by_others(patterns, claim), claim.format))
    assert stored(family)[f"{claim.source}.first"].data.size < 60
    table = expanded(claim, stored(family))
    assert (table is None) == (claim.source == "float32")
    if table is not None:
        np.testing.assert_array_equal(table.codes[patterns], found)


@pytest.mark.parametrize("family", DECODES, ids=lambda f: f.name)
def test_every_decoded_value_agrees_with_exact_fractions(family: Family) -> None:
    values = stored(family)[f"{family.format}.values"]
    assert (values.format, values.shape) == ("float32", (FORMATS[family.format].code_count,))
    for code, bits in enumerate(values.codes.tolist()):
        number, got = second.decode(code, family.format), np.uint32(bits).view(np.float32)
        if number.kind == "nan":
            assert np.isnan(got)
            continue
        want = np.inf if number.kind == "inf" else float(number.magnitude)
        assert abs(float(got)) == want
        assert bool(np.signbit(got)) == number.negative


# --- stairs ----------------------------------------------------------------------------------------------------------


def test_folding_loses_nothing() -> None:
    """Random ascending steps, with stretches of even ones among them; each can be told from the next."""
    rng = np.random.default_rng(2)
    for _ in range(200):
        strides = np.concatenate(
            [np.resize(rng.integers(1, 9, rng.integers(1, 3)), rng.integers(1, 30)) for _ in range(rng.integers(1, 6))]
        )
        first = np.cumsum(strides) - strides[0]
        up = np.arange(first.size)
        code = (up, up[::-1], rng.integers(0, 200, first.size))[rng.integers(3)]
        stairs = fold(first.astype(np.uint32), code.astype(np.uint16))
        assert stairs.min() >= 0, "no stair falls"
        again_first, again_code = unfold(stairs)
        np.testing.assert_array_equal(again_first, first)
        np.testing.assert_array_equal(again_code, code)
        assert spaced(stairs, FORMATS["float32"], FORMATS["float16"])


STAIRS = np.array([[0, 1, 3, 0, 2], [5, 2, 4, 1, 2]]).T


@pytest.mark.parametrize(
    "rows",
    [
        {0: [1, 5]},
        {0: [0, 2]},
        {0: [5, 0]},
        {1: [0, 2]},
        {1: [0, 2], 2: [1, 4]},
        {1: [1, 0xFFFFFFFF]},
        {1: [1, 0x60000000]},
        {2: [0, 4]},
        {2: [3, 0xFFFFFFFF]},
        {1: [1, 1], 2: [3, 1 << 18], 4: [2, 0]},
        {4: [2, 0xFFFF]},
        {4: [2, 0x6000]},
    ],
    ids=["not from 0", "two at one place", "not ascending", "no stride", "no stride, one step", "stride beyond",
         "outside", "no steps", "steps without end", "more steps than codes", "rise beyond", "no codes"],
)  # fmt: skip
def test_what_is_no_step_table_is_told(rows: dict[int, list[int]]) -> None:
    assert spaced(STAIRS, FORMATS["float32"], FORMATS["float16"])
    damaged = STAIRS.copy()
    for row, values in rows.items():
        damaged[row] = values
    assert not spaced(damaged, FORMATS["float32"], FORMATS["float16"])


Change = Callable[[dict[str, Coded]], dict[str, Coded]]


def changed(name: str, change: Callable[[Ints], Ints]) -> Change:
    return lambda tensors: tensors | {name: Coded(tensors[name].format, change(tensors[name].codes))}


@pytest.mark.parametrize(
    ("name", "change", "tensor"),
    [
        ("cast-ieee-bfloat16", changed("float32.first", lambda a: a[::-1].copy()), "float32.first"),
        ("cast-ieee-bfloat16", changed("float32.count", lambda a: a[1:]), "float32.count"),
        ("cast-ieee-bfloat16", changed("float32.count", lambda a: a * 0 + np.uint32(0xFFFFFFFF)), "float32.first"),
        ("cast-ieee-tfloat32", changed("float16.code", lambda a: a + np.uint32(1 << 19)), "float16.code"),
        ("decode-float8_e5m2", changed("float8_e5m2.values", lambda a: a[:255]), "float8_e5m2.values"),
        ("decode-float8_e5m2", changed("float8_e5m2.values", lambda a: a.reshape(16, 16)), "float8_e5m2.values"),
    ],
    ids=["not ascending", "lengths part", "steps without end", "no code", "values missing", "a matrix"],
)  # fmt: skip
def test_damaged_stairs_and_values_are_refused(name: str, change: Change, tensor: str, folder: Path) -> None:
    family, path = FAMILIES[name], folder / f"{name}.safetensors"
    write(path, change(stored(family)), metadata_for(family), typed=False)
    entry = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "bytes": path.stat().st_size}
    change_manifest(folder, lambda m: m["files"][path.name].update(entry))
    with pytest.raises(BadInput, match=f"tensor '{tensor}' .* is not what {name} has there") as raised:
        load(family, folder)
    assert str(path) in str(raised.value)
