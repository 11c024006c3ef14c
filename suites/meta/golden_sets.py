"""What the tests of golden vectors share."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.golden.families import WIDEST, Family, families
from narrowgauge.golden.manifest import (
    VECTORS,
    load,
)
from narrowgauge.reference.behaviour import behaviour_of
from narrowgauge.suites.meta import second_derivation as second

Ints = npt.NDArray[np.integer[Any]]
FAMILIES = {family.name: family for family in families()}
#: casts that are stored as steps, and those that are stored as stairs
CASTS = [f for f in FAMILIES.values() if f.operation == "cast" and FORMATS[f.format].bits <= WIDEST]
WIDE = [f for f in FAMILIES.values() if f.operation == "cast" and FORMATS[f.format].bits > WIDEST]
DECODES = [f for f in FAMILIES.values() if f.operation == "decode"]
DRAWN = [f for f in FAMILIES.values() if f.operation == "stochastic"]
CALLS = [f for f in FAMILIES.values() if f.operation.startswith("kv_")]
CONVERSIONS = [f for f in FAMILIES.values() if f.operation == "convert"]
QUANTIZERS = [f for f in FAMILIES.values() if f.operation == "quantize"]
SATURATING = FAMILIES["cast-ocp_saturate-float8_e4m3fn"]
FILE = f"{SATURATING.name}.safetensors"
NARROW = ("bfloat16", "float16")


@cache
def stored(family: Family) -> dict[str, Coded]:
    return load(family, VECTORS)


@cache
def whole_space(family: Family, source: str) -> Ints:
    """The code of every pattern of a 16-bit source, by exact fractions."""
    return exact_codes(np.arange(1 << 16), source, family.format, policy_of(family))


def exact_codes(patterns: Ints, source: str, format_name: str, policy: dict[str, object]) -> Ints:
    """The codes of patterns by exact fractions."""
    return second.cast_codes(patterns, source, format_name, policy)


def policy_of(family: Family) -> dict[str, object]:
    return dataclasses.asdict(behaviour_of(family.claims[0]).policy)


def nan_as_one(codes: Ints, format_name: str) -> Ints:
    """Codes with one number in the place of every NaN, by the second derivation's reading of the format."""
    nans = [code for code in np.unique(codes).tolist() if second.decode(code, format_name).kind == "nan"]
    wide: Ints = np.where(np.isin(codes, nans), -1, codes.astype(np.int64))
    return wide


def assert_same(got: Ints, want: Ints, format_name: str) -> None:
    np.testing.assert_array_equal(nan_as_one(got, format_name), nan_as_one(want, format_name))
