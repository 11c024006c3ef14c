"""Golden vectors: right by a second derivation, and the same bytes every time."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.contracts.operations import Cast, Claim
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.golden.families import (
    ENGINE_RECIPES,
    SOURCES,
    STANDARDS,
    WIDEST,
    Family,
    family_of,
)
from narrowgauge.golden.manifest import (
    NAME,
    VECTORS,
    drift,
    load_manifest,
    problems,
    regenerate,
    stored_case,
)
from narrowgauge.golden.steps import step_table
from narrowgauge.golden.using import as_case, expanded, flags
from narrowgauge.reference.behaviour import behaviour_of, resolved
from narrowgauge.reference.fast_codec import cast
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.reference.units.registry import UNITS
from narrowgauge.suites.meta import second_catalogue
from narrowgauge.suites.meta import second_derivation as second
from narrowgauge.suites.meta.golden_sets import (
    CASTS,
    DECODES,
    DRAWN,
    FAMILIES,
    FILE,
    NARROW,
    QUANTIZERS,
    SATURATING,
    WIDE,
    assert_same,
    exact_codes,
    nan_as_one,
    policy_of,
    stored,
    whole_space,
)
from narrowgauge.suites.meta.killer_policies import MEANT

pytestmark = pytest.mark.meta

# --- what the vectors say --------------------------------------------------------------------------------------------


def test_families_are_the_files() -> None:
    """A family without a file, or a file without a family, would be verified by nobody."""
    assert {p.name for p in VECTORS.iterdir()} == {NAME, *(f"{name}.safetensors" for name in FAMILIES)}
    assert load_manifest(VECTORS)["files"].keys() == {f"{name}.safetensors" for name in FAMILIES}
    narrow = {name for name, fmt in FORMATS.items() if fmt.bits <= WIDEST}
    assert {f.format for f in CASTS} == {f.format for f in DECODES} == narrow
    assert {f.format for f in DRAWN} == {name for name in narrow if second.LAYOUTS[name].sign == "bit"}
    assert {f.format for f in WIDE} == {"float32", "tfloat32", "bfloat16", "float16"}
    assert {f.rule for f in QUANTIZERS if f.rule.startswith(STANDARDS)} == {
        n for n in RECIPES if n.startswith(STANDARDS)
    }
    assert {f.rule for f in QUANTIZERS if not f.rule.startswith(STANDARDS)} == set(ENGINE_RECIPES)


def test_all_vectors_are_less_than_4_mib_in_git() -> None:
    assert sum(path.stat().st_size for path in VECTORS.iterdir()) < 5 << 20


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("family", CASTS, ids=lambda f: f.name)
def test_every_run_of_a_cast_agrees_with_exact_fractions(family: Family, source: str) -> None:
    """Its first and its last pattern: codes are monotone within a sign, so nothing between can differ."""
    first = stored(family)[f"{source}.first"].codes.astype(np.int64)
    code = stored(family)[f"{source}.code"].codes.astype(np.int64)
    last = np.append(first[1:], FORMATS[source].code_count) - 1
    assert first[0] == 0
    assert (first <= last).all()
    assert (code[1:] != code[:-1]).all(), "two runs of one code are one run"
    for patterns in (first, last):
        assert_same(code, exact_codes(patterns, source, family.format, policy_of(family)), family.format)
    # What the suites are given says the same.
    claim = Claim(Cast(family.rule), source, family.format)
    x, want = as_case(claim, stored(family))
    np.testing.assert_array_equal(x.codes.astype(np.int64), np.stack([first, last], axis=1).ravel())
    np.testing.assert_array_equal(want["codes"].low.codes, np.repeat(code, 2))


@pytest.mark.parametrize("source", NARROW)
@pytest.mark.parametrize("family", CASTS, ids=lambda f: f.name)
def test_every_16_bit_pattern_agrees_with_exact_fractions(family: Family, source: str) -> None:
    table = expanded(Claim(Cast(family.rule), source, family.format), stored(family))
    assert table is not None
    assert table.shape == (1 << 16,)
    assert_same(table.codes, whole_space(family, source), family.format)


def test_no_table_is_expanded_for_a_wide_source() -> None:
    assert expanded(SATURATING.claims[SOURCES.index("float32")], stored(SATURATING)) is None


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("family", QUANTIZERS, ids=lambda f: f.name)
def test_every_quantizer_vector_agrees_with_exact_fractions(family: Family, source: str) -> None:
    tensors = stored(family)
    x = tensors[f"{source}.x"].codes
    want = second_catalogue.derive(family.rule, x, source, family.format, {})
    got = {name.removeprefix(f"{source}."): t for name, t in tensors.items() if name.startswith(f"{source}.")}
    outputs = {name: (t.format, t.codes) for name, t in got.items() if name != "x"}
    assert x.shape[0] >= 60, "rows of every kind"
    assert second_catalogue.unlike(outputs, want, second_catalogue.formats_of(family.rule, family.format)) == []


@pytest.mark.parametrize(
    "policy",
    [
        CastPolicy(),
        CastPolicy(overflow="special", infinity="special"),
        CastPolicy(rounding="nearest_away", nan="max"),
        CastPolicy(rounding="nearest_zero", negative_zero="drop"),
        CastPolicy(rounding="up", overflow="special"),
        CastPolicy(rounding="down", nan="zero"),
        CastPolicy(rounding="toward_zero", subnormals="flush", infinity="special"),
        CastPolicy(limit=224.0),
    ],
    ids=lambda p: "-".join(str(choice) for choice in dataclasses.astuple(p)),
)
@pytest.mark.parametrize("source", NARROW)
@pytest.mark.parametrize("format_name", ["float8_e4m3fn", "float8_e4m3fnuz"])
def test_bisection_is_run_length_encoding(format_name: str, source: str, policy: CastPolicy) -> None:
    """Over all 65,536 patterns, one by one; in policies whose families are not stored, too."""
    codes = cast(Coded(source, np.arange(1 << 16, dtype=np.uint16)), format_name, policy).codes
    starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
    first, code = step_table(FORMATS[source], FORMATS[format_name], policy)
    np.testing.assert_array_equal(first, starts)
    np.testing.assert_array_equal(code, codes[starts])


@pytest.mark.parametrize("family", DRAWN, ids=lambda f: f.name)
def test_every_stochastic_vector_agrees_with_exact_fractions(family: Family) -> None:
    """Every tie and neighbour with no bit, all bits, and those about the half: where an off-by-one would show."""
    x, bits, codes = (stored(family)[f"float32.{part}"].codes for part in ("x", "bits", "code"))
    meant = MEANT[family.rule][family.format]
    numbers = [second.decode(pattern, "float32") for pattern in x.tolist()]
    want = [second.stochastic(n, family.format, meant, b, 8) for n, b in zip(numbers, bits.tolist(), strict=True)]
    assert_same(codes, np.array(want, np.int64), family.format)
    assert set(bits.tolist()) == {0, 127, 128, 255}
    changes = np.reshape(codes, (-1, 4))
    assert (changes[:, 1] != changes[:, 2]).sum() > 4, "ties, which 128 of 256 carry over and 127 do not"


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda f: f.name)
def test_flags_are_faults_and_their_counts_are_reproduced(family: Family) -> None:
    flagged = load_manifest(VECTORS)["files"][f"{family.name}.safetensors"]["flags"]
    assert flagged.keys() <= (UNITS if family.operation == "unit" else FAULTS).keys()
    # An integer has no infinity, no NaN, no negative zero and no subnormals to get wrong; E8M0 no zero either.
    # In float32 every value is exact, and no fault of a policy concerns it.
    # Random bits are no choice of a policy.
    # What moves codes alone leaves little to get wrong. Vectors of matrix units tell units apart, where there are some.
    if family.operation == "convert":
        assert flagged
    elif family.operation not in ("decode", "stochastic", "unit") and family.format != "float32":
        assert len(flagged) >= {"integer": 5, "exponent": 7}.get(FORMATS[family.format].family, 8)
    assert flagged == flags(family, stored(family))


@pytest.mark.parametrize("family", CASTS, ids=lambda f: f.name)
def test_counts_of_policy_faults_agree_with_exact_fractions(family: Family) -> None:
    """How many vectors a fault changes, counted without the reference's cast or comparison."""
    flagged = load_manifest(VECTORS)["files"][f"{family.name}.safetensors"]["flags"]
    right, counted = behaviour_of(family.claims[0]), 0
    for name, fault in FAULTS.items():
        wrong = fault.applied_to(right)
        if wrong is None or dataclasses.replace(wrong, policy=right.policy) != right:
            continue  # not an edit of the policy alone
        count = 0
        for claim in family.claims:
            x, want = as_case(claim, stored(family))
            got = exact_codes(x.codes, claim.source, family.format, dataclasses.asdict(wrong.policy))
            parts = nan_as_one(got, family.format) != nan_as_one(want["codes"].low.codes, family.format)
            count += int(parts.sum())
        assert flagged.get(name, 0) == count, name
        counted += 1
    assert counted >= (3 if FORMATS[family.format].family == "integer" else 6)


def test_authority_stands_with_every_file() -> None:
    for name, entry in load_manifest(VECTORS)["files"].items():
        family = FAMILIES[name.removesuffix(".safetensors")]
        assert (family.format if family.operation == "decode" else family.rule) in entry["authority"]
        assert entry["bytes"] == (VECTORS / name).stat().st_size


@pytest.mark.parametrize(
    ("claim", "family"),
    [
        ("cast/ml_dtypes/float32/float8_e4m3fn", "cast-ocp_nonsaturate-float8_e4m3fn"),
        ("cast/torch_from_2_13/float16/float8_e4m3fn", "cast-ocp_saturate-float8_e4m3fn"),
        ("cast/torch_from_2_13/bfloat16/float8_e4m3fnuz", "cast-fnuz_nonsaturate-float8_e4m3fnuz"),
        ("cast/triton_amd_fnuz/float32/float8_e4m3fnuz", "cast-triton_amd_fnuz-float8_e4m3fnuz"),
        ("cast/torch_ieee/float32/bfloat16", "cast-ieee-bfloat16"),
        ("cast/ieee/float16/float32", "cast-ieee-float32"),
        ("cast/ieee/float8_e5m2/float32", "decode-float8_e5m2"),
        (
            "quantize/sglang.fp8_per_token_cta/float16/float8_e4m3fnuz",
            "quantize-sglang.fp8_per_token_cta-float8_e4m3fnuz",
        ),
    ],
)
def test_vectors_hold_for_the_same_choices_under_another_name(claim: str, family: str) -> None:
    parsed = Claim.parse(claim)
    found = family_of(parsed)
    assert found is not None
    assert found.name == family
    x, want = stored_case(parsed, VECTORS)
    assert x.format == parsed.source
    assert {name: i.low.format for name, i in want.items()} == resolved(parsed).outputs


def test_a_claim_without_vectors_is_refused() -> None:
    own = Claim(Cast(CastPolicy(rounding="down")), "float32", "float8_e4m3fn")
    assert family_of(own) is None
    with pytest.raises(BadInput, match="cast/own/float32/float8_e4m3fn: no golden family"):
        stored_case(own, VECTORS)


# --- the same bytes --------------------------------------------------------------------------------------------------


def test_generator_reproduces_the_bytes(tmp_path: Path) -> None:
    """What is generated and what is in the checkout: equal to the last byte."""
    everything = sorted([NAME, *(f"{name}.safetensors" for name in FAMILIES)])
    assert sorted(regenerate(tmp_path)) == everything
    assert problems(VECTORS) == []
    for folder in (tmp_path, VECTORS):
        assert sorted(p.name for p in folder.iterdir()) == everything
    for name in everything:
        assert (tmp_path / name).read_bytes() == (VECTORS / name).read_bytes(), name


def test_generating_again_mends_what_was_damaged(old: Path) -> None:
    assert regenerate(old) == []
    assert drift(old) == []
    (old / FILE).write_bytes(b"damaged")
    assert drift(old) == [FILE]
    assert regenerate(old) == [FILE]
    assert (old / FILE).read_bytes() == (VECTORS / FILE).read_bytes()
