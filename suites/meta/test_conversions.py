# SPDX-License-Identifier: Apache-2.0
"""The conversions of the catalogue against their second derivation: on the suite's calls, on every code and scale."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.behaviour import converting_of
from narrowgauge.reference.convert.catalogue import CONVERSIONS
from narrowgauge.reference.convert.memory import pack_outputs, to_memory
from narrowgauge.reference.convert.run import converted
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.inputs import cases_for
from narrowgauge.suites.meta.conversion_sets import Array
from narrowgauge.suites.meta.converter_sets import calls
from narrowgauge.suites.meta.second_converters import NAMES, second

pytestmark = pytest.mark.meta

CLAIMS = tuple(Claim.parse(f"convert/{name}/{one}/{to}") for name, c in CONVERSIONS.items() for one, to in c.formats)


def images(claim: Claim, x: Coded) -> dict[str, Coded]:
    """What a converter is given, as it stands in memory."""
    sent = to_memory(CONVERSIONS[claim.rule], x)
    return {"codes": Coded(sent.format, sent.data), **given_with(sent)}


def one_nan(value: Coded) -> Array:
    """The bytes, with every NaN alike: its sign and payload are nobody's business."""
    fmt, data = format_named(value.format), value.data.ravel()
    if fmt.name in ("int32", "uint8", "int8"):
        return data
    nan = np.isnan(decode_values(Coded(fmt.name, data)))
    return np.where(nan, data[nan][:1] if nan.any() else data, data)


def differ(claim: Claim, x: Coded) -> Iterator[str]:
    """What the reference and the second derivation make of a call."""
    conversion = CONVERSIONS[claim.rule]
    right = pack_outputs(conversion, converted(converting_of(claim), x))
    taken = {name: value.data for name, value in images(claim, x).items()}
    found = second(claim.rule, taken, claim.source, claim.format, (x.shape[0], x.shape[1]))
    assert right.keys() <= found.keys()
    for name, value in right.items():
        unsigned = np.ascontiguousarray(found[name]).view(value.data.dtype).reshape(value.data.shape)
        got, want = one_nan(Coded(value.format, unsigned)), one_nan(value)
        if (got != want).any():
            at = int(np.flatnonzero(got != want)[0])
            place = np.unravel_index(at, value.data.shape)
            yield f"{name} at {place}: {want[at]:#x}, second {got[at]:#x}; {(got != want).sum()} of {got.size}"


def test_every_conversion_has_a_second_derivation() -> None:
    assert set(NAMES) == set(CONVERSIONS)


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_calls_of_the_suite(claim: Claim) -> None:
    """But for the empty one, of which no number is asked."""
    for name, x in cases_for(claim, "smoke").items():
        assert not x.data.size or list(differ(claim, x)) == [], name


def usable(claim: Claim, x: Coded) -> bool:
    """Whether a fused call's largest scale is one by which something can be divided."""
    if "widths" not in claim_inputs(claim) or claim.format.startswith("float4"):
        return True
    largest = decode_values(given_with(x)["scale"]).max()
    return bool(0 < largest < np.inf)


def claim_inputs(claim: Claim) -> tuple[str, ...]:
    return tuple(held.name for held in CONVERSIONS[claim.rule].takes)


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_every_code_and_scale(claim: Claim) -> None:
    """Fused shards whose largest scale is zero, negative, infinite or NaN are refused."""
    count = 0
    for x in calls(claim.rule, claim.source):
        if usable(claim, x):
            assert list(differ(claim, x)) == []
            count += 1
        else:
            with pytest.raises(BadInput, match="by a scale that is zero, negative, infinite or NaN"):
                converted(converting_of(claim), x)
    assert count
