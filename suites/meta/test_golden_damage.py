"""Golden vectors that are not whole are refused, and the file is named."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.golden.export import export
from narrowgauge.golden.manifest import (
    NAME,
    SCHEMA,
    drift,
    load,
    load_manifest,
    problems,
    stored_case,
)
from narrowgauge.golden.safetensors_file import write
from narrowgauge.suites.meta.golden_sets import (
    FILE,
    SATURATING,
    Ints,
    stored,
)

pytestmark = pytest.mark.meta

# --- damage ----------------------------------------------------------------------------------------------------------


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
    with pytest.raises(BadInput, match=r"unknown golden family .* did you mean .*cast-ocp_nonsaturate-float8_e4m3fn"):
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


def test_drift_names_a_code_that_this_version_would_not_write(old: Path) -> None:
    """A damage that the hashes agree to: only generating anew finds it."""
    flip(old / FILE, -1)
    vouch(old)
    assert problems(old) == []
    load(SATURATING, old)
    assert drift(old) == [FILE, NAME]


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
