"""Sets of golden vectors wherever they lie, and those that are not whole."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from narrowgauge.command import main
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.golden import sets
from narrowgauge.golden.export import export
from narrowgauge.golden.manifest import NAME, VECTORS, regenerate
from narrowgauge.suites.meta.golden_changes import NAMES, change, copied, forged, only, parted
from narrowgauge.suites.meta.golden_sets import FAMILIES, FILE, SATURATING, stored

pytestmark = pytest.mark.meta


@pytest.mark.parametrize("name", ["out.tar.gz", "out.zip", "out"])
def test_an_export_is_compared_by_what_it_expects(
    name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its tables are stored otherwise: expanded, and without flags."""
    place = tmp_path / name
    export(folder, place, ["float8_e4m3fn"], ["safetensors"])
    kept = {f"{family.name}.safetensors" for family in FAMILIES.values() if family.format == "float8_e4m3fn"}
    for path in folder.glob("*.safetensors"):
        if path.name not in kept:
            path.unlink()
    said = json.loads((folder / NAME).read_text())
    said["files"] = {n: e for n, e in said["files"].items() if n in kept}
    (folder / NAME).write_text(json.dumps(said))
    assert main(["golden", "diff", str(place), str(folder)]) == 0
    assert "not compared: an export has none" in capsys.readouterr().out
    tensors = dict(stored(SATURATING))
    first = tensors["bfloat16.first"].codes.copy()
    first[1] += 1
    forged(folder, tensors | {"bfloat16.first": Coded("bfloat16", first)})
    file = only(parted(place, folder))
    assert [(claim.claim, claim.changed) for claim in file.claims] == [("cast/ocp_saturate/bfloat16/float8_e4m3fn", 1)]


def git(folder: Path, *words: str) -> None:
    told = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *told, *words], cwd=folder, check=True, capture_output=True)


def test_a_revision_of_git(old: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """OLD is what was committed, whatever lies there now."""
    git(old.parent, "init", "--quiet")
    git(old.parent, "add", "old")
    git(old.parent, "commit", "--quiet", "-m", "first")
    change(monkeypatch, "ocp_saturate", "float8_e4m3fn", overflow="special")
    regenerate(old)
    command = ["golden", "diff", "--golden", str(old), "--json"]
    assert main(command) == 0
    capsys.readouterr()
    assert main([*command, "--git", "HEAD"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert [file["family"] for file in said["files"]] == [NAMES[0]]
    assert main([*command, "--git", "nowhere"]) == 4
    assert "'git rev-parse --verify --end-of-options nowhere^{commit}'" in capsys.readouterr().err
    assert main([*command, "--git", "HEAD", str(old), str(old)]) == 4
    assert "give one set, NEW" in capsys.readouterr().err


Damage = Callable[[Path], object]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / FILE).write_bytes(b"x"), f"{FILE} has other bytes than the manifest's sha256 says"),
        (lambda f: (f / FILE).unlink(), f"{FILE} is missing; its manifest lists it"),
        (lambda f: (f / "more.safetensors").touch(), "more.safetensors is not in the manifest"),
        (lambda f: (f / NAME).write_text("{"), "is not JSON"),
        (lambda f: (f / NAME).unlink(), f"there is no {NAME}"),
        (shutil.rmtree, "expected a folder of vectors, or an export"),
    ],
    ids=["bytes", "missing", "unlisted", "manifest", "no manifest", "no folder"],
)
def test_a_corrupt_set_is_refused_and_named(
    old: Path, damage: Damage, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    new = copied(old)
    damage(old)
    assert main(["golden", "diff", str(old), str(new), "--markdown", str(new / "out.md")]) == 4
    said = capsys.readouterr().err
    assert words in said
    assert str(old) in said
    assert not (new / "out.md").exists()


@pytest.mark.parametrize("name", ["old.tar.gz", "old.zip"])
def test_a_cut_archive_is_refused(name: str, tmp_path: Path) -> None:
    whole = tmp_path / name
    export(VECTORS, whole, ["int4"], ["safetensors"])
    content = whole.read_bytes()
    for length in (0, 1, 100, len(content) // 2):
        whole.write_bytes(content[:length])
        with pytest.raises(BadInput, match=name):
            sets.at(whole)


def test_content_that_the_manifest_vouches_for_is_checked(old: Path) -> None:
    """Steps that do not ascend, lists of two lengths, no result, a format of nobody."""
    tensors, short = dict(stored(SATURATING)), Coded("bfloat16", np.zeros(3, np.uint16))
    swapped = tensors["bfloat16.first"].codes.copy()
    swapped[[5, 6]] = swapped[[6, 5]]
    wrong: list[dict[str, Coded]] = [
        tensors | {"bfloat16.first": Coded("bfloat16", swapped)},
        tensors | {"bfloat16.first": short},
        {"bfloat16.codes": short},
        {"bfloat99.first": short, "bfloat99.code": short},
    ]
    for number, each in enumerate(wrong):
        new = forged(Path(shutil.copytree(old, old.with_name(f"new{number}"))), each)
        with pytest.raises(BadInput, match=FILE):
            parted(old, new)
