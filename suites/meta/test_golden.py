"""Golden vectors: right by a second derivation, the same bytes every time, whole or refused, readable by anybody."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import safetensors
import safetensors.numpy

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.contracts.operations import Cast, Claim
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.golden import safetensors_file
from narrowgauge.golden.families import SOURCES, Family, as_case, expanded, families, family_of, flags, step_table
from narrowgauge.golden.manifest import (
    NAME,
    SCHEMA,
    VECTORS,
    drift,
    export,
    load,
    load_manifest,
    problems,
    regenerate,
    stored_case,
)
from narrowgauge.golden.safetensors_file import read, write
from narrowgauge.reference.behaviour import behaviour_of
from narrowgauge.reference.fast_codec import cast
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.suites.meta import second_derivation as second

pytestmark = pytest.mark.meta

Ints = npt.NDArray[np.integer[Any]]
FAMILIES = {family.name: family for family in families()}
CASTS = [f for f in FAMILIES.values() if f.operation == "cast"]
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
    return second.cast_codes(np.arange(1 << 16), source, family.format, policy_of(family))


def policy_of(family: Family) -> dict[str, object]:
    return dataclasses.asdict(behaviour_of(family.claims[0]).policy)


def nan_as_one(codes: Ints, format_name: str) -> Ints:
    """Codes with one number in the place of every NaN, by the second derivation's reading of the format."""
    known = {code: second.decode(code, format_name).kind for code in np.unique(codes).tolist()}
    nans = [code for code, kind in known.items() if kind == "nan"]
    wide: Ints = np.where(np.isin(codes, nans), -1, codes.astype(np.int64))
    return wide


def assert_same(got: Ints, want: Ints, format_name: str) -> None:
    np.testing.assert_array_equal(nan_as_one(got, format_name), nan_as_one(want, format_name))


# --- what the vectors say --------------------------------------------------------------------------------------------


def test_families_are_the_files() -> None:
    """A family without a file, or a file without a family, would be verified by nobody."""
    assert {p.name for p in VECTORS.iterdir()} == {NAME, *(f"{name}.safetensors" for name in FAMILIES)}
    assert load_manifest(VECTORS)["files"].keys() == {f"{name}.safetensors" for name in FAMILIES}
    assert len(CASTS) >= 5
    assert len(QUANTIZERS) >= 4


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
        assert_same(code, second.cast_codes(patterns, source, family.format, policy_of(family)), family.format)
    # What the suites are given says the same.
    claim = Claim(Cast(family.rule), source, family.format)
    x, want = as_case(family, claim, stored(family))
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
    codes, scales = second.quantize_codes(x, source, family.rule, family.format)
    assert x.shape[0] > 70, "rows of every kind"
    assert_same(tensors[f"{source}.codes"].codes, codes, family.format)
    assert_same(tensors[f"{source}.scale"].codes[:, 0], scales, "float32")


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


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda f: f.name)
def test_flags_are_faults_and_their_counts_are_reproduced(family: Family) -> None:
    flagged = load_manifest(VECTORS)["files"][f"{family.name}.safetensors"]["flags"]
    assert flagged.keys() <= FAULTS.keys()
    assert len(flagged) >= 8
    assert flagged == flags(family)


@pytest.mark.parametrize("family", CASTS, ids=lambda f: f.name)
def test_counts_of_policy_faults_agree_with_exact_fractions(family: Family) -> None:
    """How many vectors a fault changes, counted without the reference's cast or comparison."""
    flagged = load_manifest(VECTORS)["files"][f"{family.name}.safetensors"]["flags"]
    right, counted = behaviour_of(family.claims[0]), 0
    for name, fault in FAULTS.items():
        wrong = fault.applied_to(right)
        if wrong is None or wrong.before or wrong.after:
            continue  # not an edit of the policy
        count = 0
        for claim in family.claims:
            x, want = as_case(family, claim, stored(family))
            got = second.cast_codes(x.codes, claim.source, family.format, dataclasses.asdict(wrong.policy))
            parts = nan_as_one(got, family.format) != nan_as_one(want["codes"].low.codes, family.format)
            count += int(parts.sum())
        assert flagged.get(name, 0) == count, name
        counted += 1
    assert counted >= 6


def test_authority_stands_with_every_file() -> None:
    for name, entry in load_manifest(VECTORS)["files"].items():
        assert FAMILIES[name.removesuffix(".safetensors")].rule in entry["authority"]
        assert entry["bytes"] == (VECTORS / name).stat().st_size


@pytest.mark.parametrize(
    ("claim", "family"),
    [
        ("cast/ml_dtypes/float32/float8_e4m3fn", "cast-ocp_nonsaturate-float8_e4m3fn"),
        ("cast/torch_from_2_13/float16/float8_e4m3fn", "cast-ocp_saturate-float8_e4m3fn"),
        ("cast/torch_from_2_13/bfloat16/float8_e4m3fnuz", "cast-fnuz_nonsaturate-float8_e4m3fnuz"),
        ("cast/triton_amd_fnuz/float32/float8_e4m3fnuz", "cast-triton_amd_fnuz-float8_e4m3fnuz"),
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
    assert {name: i.low.format for name, i in want.items()} == parsed.outputs


def test_a_claim_without_vectors_is_refused() -> None:
    own = Claim(Cast(CastPolicy(rounding="up")), "float32", "float8_e4m3fn")
    assert family_of(own) is None
    with pytest.raises(BadInput, match="cast/own/float32/float8_e4m3fn: no golden family"):
        stored_case(own, VECTORS)


# --- the same bytes --------------------------------------------------------------------------------------------------


def test_generator_reproduces_the_bytes(tmp_path: Path) -> None:
    """Two folders, one of them by way of damaged files, and what is in the checkout: equal to the last byte."""
    first, again = tmp_path / "first", tmp_path / "again"
    everything = sorted([NAME, *(f"{name}.safetensors" for name in FAMILIES)])
    assert sorted(regenerate(first)) == everything
    shutil.copytree(first, again)
    assert regenerate(again) == []
    (again / FILE).write_bytes(b"damaged")
    assert regenerate(again) == [FILE]
    for folder in (first, again):
        assert sorted(p.name for p in folder.iterdir()) == everything
        for name in everything:
            assert (folder / name).read_bytes() == (VECTORS / name).read_bytes(), name


def test_ours_are_intact_and_current() -> None:
    assert problems(VECTORS) == []
    assert drift(VECTORS) == []


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the vectors that a test may damage."""
    copy = tmp_path / "vectors"
    shutil.copytree(VECTORS, copy)
    return copy


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x01
    path.write_bytes(content)


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((folder / NAME).read_text())
    change(manifest)
    (folder / NAME).write_text(json.dumps(manifest))


def forge(folder: Path, tensors: Mapping[str, Coded], metadata: object, typed: bool = False) -> None:
    """Put another file in place of ``FILE``, with a manifest that agrees."""
    write(folder / FILE, tensors, metadata, typed=typed)  # type: ignore[arg-type]
    vouch(folder)


def vouch(folder: Path) -> None:
    content = (folder / FILE).read_bytes()
    entry = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    change_manifest(folder, lambda m: m["files"][FILE].update(entry))


METADATA = {"schema": SCHEMA, "operation": "cast", "rule": "ocp_saturate", "format": "float8_e4m3fn"}


@pytest.mark.parametrize(
    ("damage", "problem", "error"),
    [
        (lambda f: flip(f / FILE, -1), f"{FILE} has other bytes than the manifest's sha256 says", "other bytes"),
        (lambda f: flip(f / FILE, 12), f"{FILE} has other bytes than the manifest's sha256 says", FILE),
        (lambda f: os.truncate(f / FILE, 3000), f"{FILE} has 3000 bytes; the manifest says", r"not a whole .*\(3000 b"),
        (lambda f: os.truncate(f / FILE, 0), f"{FILE} has 0 bytes; the manifest says", r"not a whole .*\(0 bytes"),
        (lambda f: (f / FILE).unlink(), f"{FILE} is missing", "cannot read"),
        (
            lambda f: ((f / FILE).unlink(), (f / FILE).mkdir()),
            f"{FILE} cannot be read: Is a directory",
            "cannot read",
        ),
        (
            lambda f: change_manifest(f, lambda m: m["files"][FILE].update(sha256="0" * 64)),
            f"{FILE} has other bytes than the manifest's sha256 says",
            "other bytes",
        ),
        (
            lambda f: change_manifest(f, lambda m: m["files"][FILE].update(bytes=7)),
            f"{FILE} has 3416 bytes; the manifest says 7",
            None,
        ),
        (lambda f: change_manifest(f, lambda m: m["files"].pop(FILE)), f"{FILE} is not in the manifest", "golden"),
        (lambda f: (f / "more.txt").touch(), "more.txt is not in the manifest", None),
    ],
    ids=["byte of a code", "byte of the header", "truncated", "empty", "missing", "folder in its place", "hash",
         "length", "not listed", "extra file"],
)  # fmt: skip
def test_damage_is_named(folder: Path, damage: Callable[[Path], object], problem: str, error: str | None) -> None:
    """By ``problems`` and, where the family's own file is concerned, to whoever loads it."""
    damage(folder)
    found = problems(folder)
    assert len(found) == 1
    assert found[0].startswith(problem)
    if error is None:
        load(SATURATING, folder)
        return
    with pytest.raises(BadInput, match=error) as raised:
        load(SATURATING, folder)
    assert SATURATING.name in str(raised.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no golden manifest: cannot read"),
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe{}", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "has schema None"),
        (b"3", "has schema None"),
        (b"{}", "has schema None"),
        (b'{"schema": "narrowgauge.golden/99", "files": {}}', "has schema 'narrowgauge.golden/99'"),
        (b'{"schema": "narrowgauge.golden/1"}', "has no table 'files'"),
        (b'{"schema": "narrowgauge.golden/1", "files": []}', "has no table 'files'"),
        (b'{"schema": "narrowgauge.golden/1", "files": {"a.safetensors": 1}}', "a.safetensors has no sha256 and bytes"),
        (
            b'{"schema": "narrowgauge.golden/1", "files": {"a.safetensors": {"bytes": 1}}}',
            "a.safetensors has no sha256 and bytes",
        ),
        (b'{"schema": "narrowgauge.golden/1", "files": {"../a.safetensors": {}}}', "lists '../a.safetensors'"),
        (b'{"schema": "narrowgauge.golden/1", "files": {"": {}}}', "lists ''"),
    ],
)
def test_a_bad_manifest_is_named(folder: Path, content: bytes | None, words: str) -> None:
    (folder / NAME).unlink()
    if content is not None:
        (folder / NAME).write_bytes(content)
    uses: list[Callable[[], object]] = [
        lambda: load_manifest(folder),
        lambda: problems(folder),
        lambda: load(SATURATING, folder),
        lambda: stored_case(SATURATING.claims[0], folder),
        lambda: export(folder, folder / "out"),
    ]
    for use in uses:
        with pytest.raises(BadInput) as raised:
            use()
        assert words in str(raised.value)
        assert str(folder / NAME) in str(raised.value)


def test_an_unlisted_family_gets_near_names(folder: Path) -> None:
    change_manifest(folder, lambda m: m["files"].pop(FILE))
    with pytest.raises(BadInput, match=r"unknown golden family .* did you mean cast-ocp_nonsaturate"):
        load(SATURATING, folder)


Tensors = dict[str, Coded]
FIRST, CODE = "bfloat16.first", "bfloat16.code"


def with_codes(tensors: Tensors, **changed: Ints) -> Tensors:
    """The tensors with other codes for the first patterns or the codes of bfloat16."""
    return tensors | {f"bfloat16.{part}": Coded(tensors[f"bfloat16.{part}"].format, c) for part, c in changed.items()}


@pytest.mark.parametrize(
    ("change", "metadata", "words"),
    [
        (dict, METADATA | {"schema": "narrowgauge.golden/99"}, "has schema 'narrowgauge.golden/99'"),
        (dict, {}, "has schema None"),
        (dict, [], "not written by narrowgauge"),
        (dict, METADATA | {"rule": "ocp_nonsaturate"}, "says that it holds"),
        (lambda t: {n: c for n, c in t.items() if n != FIRST}, METADATA, f"expected ['{CODE}', '{FIRST}'"),
        (lambda t: {}, METADATA, "holds no tensors"),
        (lambda t: t | {"bfloat16.last": t[FIRST]}, METADATA, "holds bfloat16.code, bfloat16.first, bfloat16.last"),
        (lambda t: with_codes(t, code=t[CODE].codes[1:]), METADATA, f"tensor '{CODE}' [255] is not what"),
        (lambda t: with_codes(t, first=t[FIRST].codes[:0]), METADATA, "is not what"),
        (lambda t: with_codes(t, first=np.roll(t[FIRST].codes[1:], 1)), METADATA, "is not what"),
        (lambda t: with_codes(t, first=np.minimum(t[FIRST].codes, 1000)), METADATA, "is not what"),
        (lambda t: with_codes(t, first=t[FIRST].codes + 1), METADATA, "is not what"),
        (
            lambda t: with_codes(t, first=t[FIRST].codes.reshape(1, -1), code=t[CODE].codes.reshape(1, -1)),
            METADATA,
            "[1, 256] is not what",
        ),
        (lambda t: t | {FIRST: Coded(SATURATING.format, np.arange(256, dtype=np.uint8))}, METADATA, "is not what"),
    ],
    ids=["schema", "no schema", "metadata is a list", "of another family", "tensor missing", "no tensors",
         "tensor too many", "lengths part", "empty", "shorter", "not ascending", "does not start at 0", "a matrix",
         "wrong type"],
)  # fmt: skip
def test_a_file_that_the_manifest_vouches_for_is_still_checked(
    folder: Path, change: Callable[[Tensors], Tensors], metadata: object, words: str
) -> None:
    """Somebody's own folder of vectors: hashes agree, and the content is still not what is expected there."""
    forge(folder, change(stored(SATURATING)), metadata)
    assert problems(folder) == []
    with pytest.raises(BadInput) as raised:
        load(SATURATING, folder)
    assert words in str(raised.value)
    assert str(folder / FILE) in str(raised.value)


def test_typed_tensors_of_another_format_are_refused(folder: Path) -> None:
    wrong = stored(SATURATING) | {CODE: Coded("float8_e4m3fnuz", stored(SATURATING)[CODE].codes)}
    forge(folder, wrong, METADATA, typed=True)
    with pytest.raises(BadInput, match=r"tensor 'bfloat16.code' .* is not what cast-ocp_saturate"):
        load(SATURATING, folder)
    forge(folder, stored(SATURATING), METADATA, typed=True)
    np.testing.assert_array_equal(load(SATURATING, folder)[FIRST].codes, stored(SATURATING)[FIRST].codes)


def test_drift_names_a_code_that_this_version_would_not_write(folder: Path) -> None:
    """A damage that the hashes agree to: only generating anew finds it."""
    flip(folder / FILE, -1)
    vouch(folder)
    assert problems(folder) == []
    load(SATURATING, folder)
    assert drift(folder) == [FILE, NAME]


def test_no_damage_raises_anything_but_bad_input(folder: Path) -> None:
    """Bytes changed at random, in the manifest and in a file that the manifest vouches for."""
    rng = random.Random(1)
    manifest, content = (folder / NAME).read_bytes(), (folder / FILE).read_bytes()
    refusals = []
    for number in range(160):
        damaged = bytearray(manifest if number % 2 else content)
        reach = len(damaged) if number % 4 < 2 else 700  # half of them in the header of a file
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(reach)] = rng.choice([rng.randrange(256), *b'0123456789",:[]{}'])
        (folder / (NAME if number % 2 else FILE)).write_bytes(damaged)
        try:
            if number % 2:
                problems(folder)
            else:
                vouch(folder)
            load(SATURATING, folder)
        except BadInput as error:
            refusals.append(str(error))
        (folder / NAME).write_bytes(manifest)
        (folder / FILE).write_bytes(content)
    assert 40 < len(refusals) < 160
    assert [text for text in refusals if str(folder) not in text] == []


# --- for others to read ----------------------------------------------------------------------------------------------


def by_hand(path: Path) -> dict[str, Ints]:
    """A safetensors reader as anybody would write it: 8 bytes of length, a JSON header, the data."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    types = {"U8": np.uint8, "U16": np.uint16, "U32": np.uint32}
    tensors: dict[str, Ints] = {}
    for name, entry in header.items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            assert start % np.dtype(types[entry["dtype"]]).itemsize == 0, "a reader may map the file without copying"
            raw = np.frombuffer(content[8 + length :][start:end], types[entry["dtype"]])
            tensors[name] = raw.reshape(entry["shape"])
    return tensors


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exported tables, in a folder that did not exist."""
    target = tmp_path_factory.mktemp("golden") / "a" / "b"
    written = export(VECTORS, target)
    assert sorted(p.name for p in written) == sorted(p.name for p in target.iterdir())
    return target


def test_exported_tables_need_no_library_of_ours(tables: Path) -> None:
    for family in FAMILIES.values():
        path = tables / f"{family.name}.safetensors"
        plain, own = safetensors.numpy.load_file(path), by_hand(path)
        assert plain.keys() == own.keys()
        for name, tensor in own.items():
            np.testing.assert_array_equal(plain[name], tensor)
        kept = {n: t.codes for n, t in stored(family).items()}
        if family.operation == "cast":
            assert own.keys() == {"bfloat16.codes", "float16.codes", "float32.first", "float32.code"}
            for source in NARROW:
                assert_same(own[f"{source}.codes"], whole_space(family, source), family.format)
            kept = {n: t for n, t in kept.items() if n.startswith("float32.")}
        for name, kept_codes in kept.items():
            np.testing.assert_array_equal(own[name], kept_codes)


#: what the specifications say of single inputs, looked up by hand; bfloat16 and float16 patterns of one value
KNOWN = [
    ("ocp_saturate-float8_e4m3fn", 1.0, 0x3F80, 0x3C00, 0x38),
    ("ocp_saturate-float8_e4m3fn", -1.0, 0xBF80, 0xBC00, 0xB8),
    ("ocp_saturate-float8_e4m3fn", 448.0, 0x43E0, 0x5F00, 0x7E),
    ("ocp_saturate-float8_e4m3fn", 1000.0, 0x447A, 0x63D0, 0x7E),
    ("ocp_saturate-float8_e4m3fn", -1000.0, 0xC47A, 0xE3D0, 0xFE),
    ("ocp_saturate-float8_e4m3fn", np.inf, 0x7F80, 0x7C00, 0x7E),
    ("ocp_saturate-float8_e4m3fn", -0.0, 0x8000, 0x8000, 0x80),
    ("ocp_saturate-float8_e4m3fn", 2.0**-6, 0x3C80, 0x2400, 0x08),
    ("ocp_saturate-float8_e4m3fn", 2.0**-9, 0x3B00, 0x1800, 0x01),
    ("ocp_saturate-float8_e4m3fn", 2.0**-10, 0x3A80, 0x1400, 0x00),  # the tie to zero
    ("ocp_saturate-float8_e4m3fn", 1.0625, 0x3F88, 0x3C40, 0x38),  # a tie: the even code is below
    ("ocp_saturate-float8_e4m3fn", 1.1875, 0x3F98, 0x3CC0, 0x3A),  # a tie: the even code is above
    ("ocp_nonsaturate-float8_e4m3fn", 1000.0, 0x447A, 0x63D0, 0x7F),
    ("ocp_nonsaturate-float8_e4m3fn", np.inf, 0x7F80, 0x7C00, 0x7F),
    ("ocp_nonsaturate-float8_e4m3fn", 464.0, 0x43E8, 0x5F40, 0x7E),  # the tie to what would be 480
    ("ocp_nonsaturate-float8_e4m3fn", 466.0, 0x43E9, 0x5F48, 0x7F),
    ("ocp_nonsaturate-float8_e4m3fn", 448.0, 0x43E0, 0x5F00, 0x7E),
    ("fnuz_saturate-float8_e4m3fnuz", 1.0, 0x3F80, 0x3C00, 0x40),
    ("fnuz_saturate-float8_e4m3fnuz", -0.0, 0x8000, 0x8000, 0x00),
    ("fnuz_saturate-float8_e4m3fnuz", 240.0, 0x4370, 0x5B80, 0x7F),
    ("fnuz_saturate-float8_e4m3fnuz", 1000.0, 0x447A, 0x63D0, 0x7F),
    ("fnuz_nonsaturate-float8_e4m3fnuz", 1000.0, 0x447A, 0x63D0, 0x80),
    ("fnuz_nonsaturate-float8_e4m3fnuz", -np.inf, 0xFF80, 0xFC00, 0x80),
    ("triton_amd_fnuz-float8_e4m3fnuz", 1000.0, 0x447A, 0x63D0, 0x7F),
    ("triton_amd_fnuz-float8_e4m3fnuz", np.inf, 0x7F80, 0x7C00, 0x80),
]


@pytest.mark.parametrize(("table", "value", "bfloat16", "float16", "code"), KNOWN)
def test_codes_that_the_specifications_give(
    tables: Path, table: str, value: float, bfloat16: int, float16: int, code: int
) -> None:
    as_float32 = np.array(bfloat16 << 16, np.uint32).view(np.float32)
    as_float16 = np.array(float16, np.uint16).view(np.float16)
    for pattern in (as_float32, as_float16):
        assert pattern == value
        assert np.signbit(pattern) == np.signbit(value)
    tensors = by_hand(tables / f"cast-{table}.safetensors")
    assert tensors["bfloat16.codes"][bfloat16] == code
    assert tensors["float16.codes"][float16] == code
    run = np.searchsorted(tensors["float32.first"], bfloat16 << 16, side="right") - 1
    assert tensors["float32.code"][run] == code


@pytest.mark.parametrize(
    ("format_name", "nan"),
    [("float8_e4m3fn", {0x7F, 0xFF}), ("float8_e4m3fnuz", {0x80})],
)
def test_nan_stays_nan_in_every_table(tables: Path, format_name: str, nan: set[int]) -> None:
    for family in (f for f in CASTS if f.format == format_name):
        tensors = by_hand(tables / f"{family.name}.safetensors")
        for source, infinity in (("bfloat16", 0x7F80), ("float16", 0x7C00)):
            codes = tensors[f"{source}.codes"]
            of_nan = np.concatenate([codes[infinity + 1 : 0x8000], codes[0x8000 + infinity + 1 :]])
            assert set(of_nan.tolist()) <= nan


def test_export_does_not_overwrite_the_vectors(folder: Path) -> None:
    with pytest.raises(BadInput, match="would overwrite the vectors"):
        export(folder, folder / ".." / folder.name)
    assert problems(folder) == []


# --- the writer ------------------------------------------------------------------------------------------------------

DTYPES = {
    "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3", "float8_e4m3fnuz": "F8_E4M3FNUZ",
}  # fmt: skip


def one_of_each() -> dict[str, Coded]:
    made = {
        name: Coded(name, (np.arange(6) * 7919 % FORMATS[name].code_count).astype(FORMATS[name].storage).reshape(2, 3))
        for name in FORMATS
    }
    made["empty"] = Coded("float8_e4m3fn", np.zeros((0, 5), np.uint8))
    made["one"] = Coded("float8_e4m3fn", np.array(7, np.uint8))
    made["turned"] = Coded("float32", np.arange(6, dtype=np.uint32).reshape(2, 3).T)
    return made


@pytest.mark.parametrize("typed", [True, False])
def test_written_files_are_read_by_the_library(tmp_path: Path, typed: bool) -> None:
    path, tensors = tmp_path / "x.safetensors", one_of_each()
    write(path, tensors, {"a": 1}, typed=typed)
    found = dict(safetensors.deserialize(path.read_bytes()))  # type: ignore[no-untyped-call]
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        entry = found[name]
        assert entry["dtype"] == (DTYPES[tensor.format] if typed else f"U{8 * tensor.codes.dtype.itemsize}")
        assert entry["shape"] == list(tensor.shape)
        assert bytes(entry["data"]) == tensor.codes.tobytes()
        back = read(path).tensors[name].as_format(tensor.format)
        assert back.format == tensor.format
        np.testing.assert_array_equal(back.codes, tensor.codes)
    assert read(path).metadata == {"narrowgauge": '{"a": 1}'}
    if not typed:
        for name, array in safetensors.numpy.load_file(path).items():
            np.testing.assert_array_equal(array, tensors[name].codes)


def test_every_format_has_a_dtype_of_its_own(tmp_path: Path) -> None:
    assert {f.name: f.safetensors for f in FORMATS.values()} == DTYPES


def test_bytes_follow_from_the_content(tmp_path: Path) -> None:
    """Not from the order in which tensors or metadata were put together."""
    tensors = one_of_each()
    write(tmp_path / "a", tensors, {"x": 1, "y": 2}, typed=False)
    write(tmp_path / "b", dict(reversed(tensors.items())), {"y": 2, "x": 1}, typed=False)
    content = (tmp_path / "a").read_bytes()
    assert content == (tmp_path / "b").read_bytes()
    assert struct.unpack("<Q", content[:8])[0] % 8 == 0
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("before", [None, b"what was there"])
@pytest.mark.parametrize(
    ("error", "raised"), [(OSError(28, "No space left on device"), BadInput), (KeyboardInterrupt(), KeyboardInterrupt)]
)
def test_a_write_that_fails_leaves_no_part_of_a_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: bytes | None,
    error: BaseException,
    raised: type[BaseException],
) -> None:
    path = tmp_path / "x.safetensors"
    if before is not None:
        path.write_bytes(before)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(safetensors_file.os, "replace", fail)  # type: ignore[attr-defined]
    with pytest.raises(raised) as caught:
        write(path, one_of_each(), {}, typed=False)
    if raised is BadInput:
        assert str(caught.value) == f"cannot write {path}: No space left on device"
    assert [p.name for p in tmp_path.iterdir()] == ([] if before is None else [path.name])
    assert before is None or path.read_bytes() == before


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "taken").mkdir()
    for path in (tmp_path / "file" / "x.safetensors", tmp_path / "taken"):
        with pytest.raises(BadInput, match="cannot write") as raised:
            write(path, one_of_each(), {}, typed=False)
        assert str(path) in str(raised.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "taken"]


# --- the reader ------------------------------------------------------------------------------------------------------


def raw_file(path: Path, header: object, body: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


@pytest.mark.parametrize("dtype", ["BOOL", "F64", "F8_E5M2"])
def test_a_type_that_is_not_read_is_named(tmp_path: Path, dtype: str) -> None:
    width = 8 if dtype == "F64" else 1
    header = {"t": {"dtype": dtype, "shape": [1], "data_offsets": [0, width]}}
    with pytest.raises(BadInput, match=f"tensor 't' has dtype {dtype}; this version reads U8, .*F8_E4M3FNUZ") as raised:
        read(raw_file(tmp_path / "x", header, bytes(width)))
    assert str(tmp_path / "x") in str(raised.value)


@pytest.mark.parametrize("metadata", [None, {}, {"other": "1"}])
def test_a_file_of_somebody_else_is_read_and_has_no_metadata_of_ours(
    tmp_path: Path, metadata: dict[str, str] | None
) -> None:
    file = read(raw_file(tmp_path / "x", {"__metadata__": metadata}))
    assert file.tensors == {}
    with pytest.raises(BadInput, match="was not written by narrowgauge"):
        safetensors_file.metadata_of(file, tmp_path / "x")


@pytest.mark.parametrize("text", ["", "{", "3", "null", "[1]", '"a"', "[" * 100_000])
def test_unreadable_metadata_of_ours(tmp_path: Path, text: str) -> None:
    path = raw_file(tmp_path / "x", {"__metadata__": {"narrowgauge": text}})
    with pytest.raises(BadInput, match="was not written by narrowgauge"):
        safetensors_file.metadata_of(read(path), path)


@pytest.mark.parametrize("integer", sorted(safetensors_file.INTEGERS))
def test_every_integer_type_keeps_its_numbers(tmp_path: Path, integer: str) -> None:
    numbers = np.array([0, 1, 100, 127], f"<{integer[0].lower()}{int(integer[1:]) // 8}")
    header = {"t": {"dtype": integer, "shape": [2, 2], "data_offsets": [0, numbers.nbytes]}}
    tensor = read(raw_file(tmp_path / "x", header, numbers.tobytes())).tensors["t"]
    assert tensor.format == ""
    assert tensor.data.tolist() == [[0, 1], [100, 127]]
