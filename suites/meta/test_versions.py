"""What released versions of libraries gave (versions.json) is what the named policies say, and what they still give."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from packaging.specifiers import SpecifierSet

import narrowgauge
from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.policies import POLICIES, NamedPolicy, resolve
from narrowgauge.suites.meta import measure_torch, proof, versions
from narrowgauge.suites.meta.marks import needs_torch
from narrowgauge.suites.meta.version_tables import change_table, version_table, wheel_table
from narrowgauge.suites.meta.versions import Key, Measured, Wheel, digest, digest_of_policy, exceptions, news

pytestmark = pytest.mark.meta

DATA = versions.load()
PAGE = Path(narrowgauge.__file__).parents[1] / "docs" / "proof.md"
#: what gfloat gives in E8M0 is partly no code (reference/deviations.py), which no policy can say
SAYABLE = [a for a in DATA.answers if not (a.kernel.startswith("gfloat") and a.format == "float8_e8m0fnu")]
RANGED = [p for p in POLICIES.values() if p.applies.split(" ")[0] in versions.KERNELS]


@pytest.mark.parametrize("format_name", sorted({a.format for a in SAYABLE}))
def test_every_version_gave_what_its_policy_says(format_name: str) -> None:
    """For each input, by the digest of all of them: but for what is listed as a disagreement, which is also exact."""
    for answer in (a for a in SAYABLE if a.format == format_name):
        for v in answer.versions:
            policy = versions.policy_of(answer.kernel, v, format_name)
            known = tuple(exceptions(answer.kernel, v, format_name))
            want = digest_of_policy(resolve(policy, format_name), answer.source, format_name, known)
            assert answer.digest == want, f"{answer.key} of {v} is not {policy}"


def test_another_policy_is_another_digest() -> None:
    """Or the test above could not fail: what parts the versions of torch, and of ml_dtypes."""
    for name, pair in (
        ("float8_e4m3fn", ("torch_until_2_12", "torch_from_2_13")),
        ("float8_e8m0fnu", ("ml_dtypes", "ml_dtypes_0_5_0")),
    ):
        for source in ("float32", "bfloat16", "float16"):
            assert len({digest_of_policy(resolve(p, name), source, name, ()) for p in pair}) == 2


@pytest.mark.parametrize("policy", RANGED, ids=lambda p: p.name)
def test_a_policy_says_for_which_versions_it_was_measured(policy: NamedPolicy) -> None:
    """Its range has the measured versions that follow it and no others, and its authority names the first and last."""
    library, spec = policy.applies.split(" ")
    listed = DATA.versions_of(library)
    names = {(k, a.format) for k in versions.KERNELS[library] for a in DATA.answers if a.kernel == k}
    mine = [v for v in listed if any(versions.policy_of(k, v, name) == policy.name for k, name in names)]
    assert mine == [v for v in listed if SpecifierSet(spec).contains(v)] != []
    assert not SpecifierSet(spec).contains("99"), "a version that was never measured is no part of the range"
    assert mine[0] in policy.authority
    assert mine[-1] in policy.authority


@pytest.mark.parametrize("library", versions.KERNELS)
def test_the_data_is_whole(library: str) -> None:
    """Every version has each source of a format or none; every kernel has a version; a cast one answer a version."""
    for v in DATA.versions_of(library):
        found = [a for a in DATA.answers if a.kernel in versions.KERNELS[library] and v in a.versions]
        assert len({a.key for a in found}) == len(found) > 0
        for a in found:
            wide = library == "gfloat" or (library == "torch" and a.format in measure_torch.WIDE)
            assert sum(b.format == a.format and b.kernel == a.kernel for b in found) == (1 if wide else 3)
    answers = [a for a in DATA.answers if a.kernel in versions.KERNELS[library]]
    assert {v for a in answers for v in a.versions} == set(DATA.versions_of(library))


# --- the versions that are installed ---------------------------------------------------------------------------------


@needs_torch
def test_the_torch_that_is_installed_gives_what_was_recorded_of_it(tmp_path: Path) -> None:
    """A version that was never measured fails, and is told how to be recorded: it is not trusted to be as the last."""
    patterns, folder = tmp_path / "float32.bin", tmp_path / "codes"
    versions.main(["inputs", str(patterns)])
    command = [sys.executable, measure_torch.__file__, str(patterns), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    told = json.loads(done.stdout)
    found = {(key, layout): digest(codes, key[2]) for key, layout, codes in versions.of_folder(folder)}
    assert len(found) == 2 * len(told["casts"])
    once = {key: d for (key, layout), d in found.items() if layout == "contiguous"}
    assert {key: d for (key, layout), d in found.items() if layout == "strided"} == once
    assert news(DATA, "torch", told["version"].split("+")[0], once) == ""


@pytest.mark.parametrize("library", ["ml_dtypes", "gfloat"])
def test_the_library_that_is_installed_gives_what_was_recorded_of_it(library: str) -> None:
    found = {key: digest(codes, key[2]) for key, _, codes in versions.of_installed(library)}
    assert news(DATA, library, version(library), found) == ""


def digests(library: str, v: str) -> dict[Key, str]:
    return {key: a.digest for key, a in DATA.of(library, v).items()}


def test_news_is_told() -> None:
    found = digests("torch", "2.14.1")
    assert news(DATA, "torch", "2.14.1", found) == ""
    first = next(iter(found))
    for changed in (
        found | {first: "0"},
        {k: d for k, d in found.items() if k != first},
        found | {("k", "s", "f"): "0"},
    ):
        assert "torch 2.14.1 does not give what was recorded of it" in news(DATA, "torch", "2.14.1", changed)
    assert "float8_e4m3fn" in news(DATA, "torch", "2.12.1", found)
    same = news(DATA, "torch", "9.9", found)
    assert "torch 9.9 was never measured" in same
    assert "Its casts are those of 2.13.0 to 2.14.1. Record it" in same
    assert "those of no version that was" in news(DATA, "torch", "9.9", found | {first: "0"})


# --- recording -------------------------------------------------------------------------------------------------------

KEY = ("torch_eager", "bfloat16", "float8_e4m3fn")
EMPTY = Measured((), ())
Asked = list[tuple[Key, str, proof.Codes]]


def wheel(v: str) -> Wheel:
    return Wheel("torch", v, f"torch-{v}.whl", "2026-11-30", "here")


def of(codes: Mapping[str, proof.Codes]) -> Asked:
    return [(KEY, layout, c) for layout, c in codes.items()]


def test_versions_of_one_answer_stand_together() -> None:
    """NaN is one class: of both signs, of every payload."""
    plain = np.zeros(1 << 16, np.uint8)
    plain[5] = 0x7F
    other, changed = plain.copy(), plain.copy()
    other[5], changed[7] = 0xFF, 1
    data = EMPTY
    for v, codes in (("2.9.1", plain), ("2.10.0", other), ("2.11.0", changed)):
        data = versions.recorded(data, wheel(v), iter(of({"contiguous": codes})))
    assert [a.versions for a in data.answers] == [("2.9.1", "2.10.0"), ("2.11.0",)]
    assert data.versions_of("torch") == ["2.9.1", "2.10.0", "2.11.0"]
    again = versions.recorded(data, wheel("2.10.0"), iter(of({"contiguous": changed})))
    assert [a.versions for a in again.answers] == [("2.9.1",), ("2.10.0", "2.11.0")]
    assert len(again.wheels) == 3


def test_a_cast_that_depends_on_the_layout_is_not_recorded() -> None:
    plain = np.zeros(1 << 16, np.uint8)
    changed = plain.copy()
    changed[7] = 1
    with pytest.raises(BadInput, match="strided gives other codes"):
        versions.recorded(EMPTY, wheel("2.9.1"), iter(of({"contiguous": plain, "strided": changed})))


def test_codes_of_another_set_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bfloat16-float8_e5m2-contiguous").write_bytes(bytes(100))
    with pytest.raises(BadInput, match="has 100 codes, not 65,536"):
        list(versions.of_folder(tmp_path))


# --- the page --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [wheel_table, version_table, change_table], ids=lambda t: t.__name__)
def test_the_page_shows_what_was_measured(table: Callable[[Measured], str]) -> None:
    assert table(DATA) in PAGE.read_text(), (
        f"docs/proof.md has another table than this, of versions.json:\n{table(DATA)}"
    )
