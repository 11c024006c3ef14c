"""Golden vectors for other languages: every kind of file by a reader of its own, archives, and what is refused."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.golden.archive import put_away
from narrowgauge.golden.export import KINDS, SCHEMA, contents, export, npy
from narrowgauge.golden.families import Family
from narrowgauge.golden.manifest import NAME, VECTORS
from narrowgauge.suites.meta import second_derivation as second
from narrowgauge.suites.meta.command_sets import as_json, ends, refused, said
from narrowgauge.suites.meta.golden_sets import (
    CASTS,
    DECODES,
    FAMILIES,
    FILE,
    SATURATING,
    WIDE,
    Ints,
    exact_codes,
    nan_as_one,
    policy_of,
    stored,
)
from narrowgauge.suites.meta.killer_policies import MEANT
from narrowgauge.suites.meta.second_derivation import DEFAULTS

pytestmark = pytest.mark.meta

#: families that are no function of a code
#: families without json and header
BY_CALLS = [family for family in FAMILIES.values() if family.operation not in ("cast", "decode")]
SMALL = ["float8_e4m3fn"]


@pytest.fixture(scope="module")
def everything() -> dict[str, bytes]:
    """All files of an export of everything."""
    return contents(VECTORS)


# --- what is in it ---------------------------------------------------------------------------------------------------


def test_every_family_has_a_file_of_every_kind(everything: dict[str, bytes]) -> None:
    listed = json.loads(everything[NAME])["files"]
    for family in FAMILIES.values():
        kinds = {name.split("/")[0] for name, entry in listed.items() if entry["family"] == family.name}
        assert kinds == set(KINDS) - ({"json", "header"} if family in BY_CALLS else set())
    assert {name for name in everything if "/" not in name} == {"README.txt", NAME}


def test_the_manifest_of_an_export(everything: dict[str, bytes]) -> None:
    manifest = json.loads(everything[NAME])
    assert manifest["schema"] == SCHEMA
    assert manifest["golden_manifest_sha256"] == hashlib.sha256((VECTORS / NAME).read_bytes()).hexdigest()
    assert manifest["files"].keys() == {name for name in everything if "/" in name}
    for name, entry in manifest["files"].items():
        assert entry["sha256"] == hashlib.sha256(everything[name]).hexdigest()
        assert entry["bytes"] == len(everything[name])
        family = FAMILIES[entry["family"]]
        assert (family.format if family in DECODES else family.rule) in entry["authority"]


def test_raw_npy_and_safetensors_hold_the_same(everything: dict[str, bytes]) -> None:
    """numpy's own reader is asked for .npy; the safetensors reader's turn is in test_golden_files.py."""
    raw = {name: content for name, content in everything.items() if name.startswith("raw/")}
    assert len(raw) > 200
    for name, content in raw.items():
        place, _, kind = name.removeprefix("raw/").rpartition(".")
        array = np.load(io.BytesIO(everything[f"npy/{place}.npy"]), allow_pickle=False)
        assert array.dtype == np.dtype(f"<u{int(kind[1:]) // 8}")
        assert array.tobytes() == content
        family, table = place.split("/")
        body = everything[f"safetensors/{family}.safetensors"]
        length = int.from_bytes(body[:8], "little")
        start, end = json.loads(body[8 : 8 + length])[table]["data_offsets"]
        assert body[8 + length :][start:end] == content
    assert len(raw["raw/cast-ocp_saturate-float8_e4m3fn/bfloat16.codes.u8"]) == 1 << 16
    assert len(raw["raw/decode-float8_e8m0fnu/float8_e8m0fnu.values.u32"]) == 4 * 256
    assert len(raw["raw/cast-ieee-tfloat32/float16.codes.u32"]) == 4 << 16


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5), (1000000,)])
@pytest.mark.parametrize("name", ["uint8", "bfloat16", "float32", "float64"])
def test_npy_is_what_numpy_writes(shape: tuple[int, ...], name: str) -> None:
    """Its reader is content, its mapping of files too; the data begins at a multiple of 64."""
    tensor = Coded(name, np.arange(np.prod(shape, dtype=int), dtype=FORMATS[name].storage).reshape(shape))
    content = npy(tensor)
    back = np.load(io.BytesIO(content), allow_pickle=False)
    assert (back.dtype, back.shape) == (tensor.data.dtype, shape)
    np.testing.assert_array_equal(back, tensor.data)
    assert (len(content) - tensor.data.nbytes) % 64 == 0


@pytest.mark.parametrize("family", [*CASTS, *WIDE], ids=lambda f: f.name)
def test_every_edge_case_agrees_with_exact_fractions(family: Family, everything: dict[str, bytes]) -> None:
    data = json.loads(everything[f"json/{family.name}.json"])
    assert (data["operation"], data["rule"], data["format"]) == ("cast", family.rule, family.format)
    assert data["cases"].keys() == {claim.source for claim in family.claims}
    for source, cases in data["cases"].items():
        patterns: Ints = np.array([int(case["pattern"], 16) for case in cases], FORMATS[source].storage)
        got = np.array([int(case["code"], 16) for case in cases], FORMATS[family.format].storage)
        assert len(set(patterns.tolist())) == len(cases)
        want = exact_codes(patterns, source, family.format, policy_of(family))
        if family in CASTS:  # their NaN codes are told apart by the second derivation's reading
            got, want = nan_as_one(got, family.format), nan_as_one(want, family.format)
        else:
            assert {case["gives"] for case, same in zip(cases, got == want, strict=True) if not same} <= {"nan"}
            got, want = got[got == want], want[got == want]
        np.testing.assert_array_equal(got, want)
        for case, pattern in zip(cases, patterns.tolist(), strict=True):
            number = second.decode(pattern, source)
            assert (case["value"] == "nan") == (number.kind == "nan")
            assert number.kind != "finite" or abs(float(case["value"])) == float(number.magnitude)


@pytest.mark.parametrize(
    ("source", "pattern", "value", "code", "gives", "why"),
    [
        ("float32", "0x3a800000", "0.0009765625", "0x00", "0.0", "tie of 0x00 and 0x01"),
        ("float32", "0x3a800001", "0.0009765626164153218", "0x01", "0.001953125", "one pattern above the tie of 0x00"),
        ("float32", "0x43e80000", "464.0", "0x7e", "448.0", "tie of 0x7e and what would come next"),
        ("float32", "0xc3e80000", "-464.0", "0xfe", "-448.0", "tie of 0x7e and what would come next, negative"),
        ("float32", "0x43f00000", "480.0", "0x7e", "448.0", "overflow: what would come after the largest value"),
        ("bfloat16", "0x7f80", "inf", "0x7e", "448.0", "infinity"),
        ("float16", "0x8000", "-0.0", "0x80", "-0.0", "zero, negative"),
        ("float32", "0x3f880000", "1.0625", "0x38", "1.0", "tie of 0x38 and 0x39"),
    ],
)
def test_edge_cases_by_name(
    source: str, pattern: str, value: str, code: str, gives: str, why: str, everything: dict[str, bytes]
) -> None:
    """What the specification says of the saturating cast to e4m3fn, looked up by hand."""
    cases = json.loads(everything[f"json/{SATURATING.name}.json"])["cases"][source]
    case = next(case for case in cases if case["pattern"] == pattern)
    assert (case["value"], case["code"], case["gives"]) == (value, code, gives)
    assert case["why"].startswith(why)


def test_decoded_values_by_name(everything: dict[str, bytes]) -> None:
    cases = json.loads(everything["json/decode-float8_e5m2.json"])["cases"]["float8_e5m2"]
    assert [int(case["pattern"], 16) for case in cases] == list(range(256))
    found = {case["pattern"]: (case["value"], case["code"], case["why"]) for case in cases}
    assert found["0x3c"] == ("1.0", "0x3f800000", "a value")
    assert found["0x7b"] == ("57344.0", "0x47600000", "end of the range")
    assert found["0xfc"] == ("-inf", "0xff800000", "infinity")
    assert found["0x80"] == ("-0.0", "0x80000000", "zero")
    assert found["0x7d"][::2] == ("nan", "NaN")
    for family in DECODES:
        data = json.loads(everything[f"json/{family.name}.json"])
        assert len(data["cases"][family.format]) == FORMATS[family.format].code_count


def test_the_readme_says_how_to_look_up(everything: dict[str, bytes]) -> None:
    text = everything["README.txt"].decode()
    for kind in KINDS:
        assert f"{kind}/" in text
    assert max(len(line) for line in text.splitlines()) <= 120
    # The rule for stairs, as it is written there, gives the code of each of these patterns.
    stairs = [stored(FAMILIES["cast-ieee-float16"])[f"float32.{part}"].codes.tolist() for part in
              ("first", "stride", "count", "code", "rise")]  # fmt: skip
    for value, want in ((1.0, 0x3C00), (65519.0, 0x7BFF), (65520.0, 0x7C00), (2.0**-24, 1), (-1.0 - 2.0**-11, 0xBC00)):
        pattern, best, expected = int(np.float32(value).view(np.uint32)), 0, None
        for first, stride, count, code, rise in zip(*stairs, strict=True):
            k = min((pattern - first) // stride, count - 1)
            if first <= pattern and first + k * stride >= best:
                best, expected = first + k * stride, code + k * rise
        assert expected == want


# --- archives --------------------------------------------------------------------------------------------------------


def unpacked(path: Path) -> dict[str, bytes]:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    with tarfile.open(path) as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}  # type: ignore[union-attr]


def test_every_rule_finds_its_family(everything: dict[str, bytes]) -> None:
    """Each policy at each destination is listed with just one family, which makes the same choices."""
    files = json.loads(everything["manifest.json"])["files"]
    listed = {(f["family"], rule) for f in files.values() for rule in f["rules"] if f["family"].startswith("cast-")}
    pairs = [(rule, name) for rule, by_format in MEANT.items() for name in by_format]
    found = {(rule, name): [f for f, r in listed if r == rule and f.endswith(f"-{name}")] for rule, name in pairs}
    assert sum(map(len, found.values())) == len(listed) == len(pairs)
    for (rule, name), (family,) in found.items():
        first = family.removeprefix("cast-").removesuffix(f"-{name}")
        assert {**DEFAULTS, **MEANT[first][name]} == {**DEFAULTS, **MEANT[rule][name]}
        place = everything["README.txt"].decode().split(f"\n{family}\n    ")[1].split("\ncast-")[0]
        assert rule in place.replace("\n", " ").replace(",", "").split()


def test_a_folder_of_an_older_export_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was exported before would stand there without being in the manifest. The same again is no harm."""
    place = str(tmp_path / "out")
    first = ["golden", "export", "-o", place, "--format", "e4m3fn", "--kind", "header"]
    for _ in range(2):
        assert ends(first) == 0
    before = {p: p.read_bytes() for p in Path(place).rglob("*") if p.is_file()}
    capsys.readouterr()
    message = refused(["golden", "export", "-o", place, "--format", "e5m2", "--kind", "raw"], capsys)
    assert "other files, for example header/cast-" in message
    assert before == {p: p.read_bytes() for p in Path(place).rglob("*") if p.is_file()}


@pytest.mark.parametrize("suffix", [".tar.gz", ".tgz", ".zip"])
def test_an_archive_holds_the_folder_and_is_the_same_every_time(suffix: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    written = export(VECTORS, folder, SMALL)
    on_disk = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert written == sorted(on_disk)
    for place in ("one", "two"):
        export(VECTORS, tmp_path / place / f"golden{suffix}", SMALL)
    first = tmp_path / "one" / f"golden{suffix}"
    assert unpacked(first) == {f"golden/{name}": content for name, content in on_disk.items()}
    assert first.read_bytes() == (tmp_path / "two" / first.name).read_bytes()
    (again,) = list(first.parent.iterdir())
    assert again == first, "nothing else is left beside it"


def test_entries_of_an_archive_have_no_time_and_no_owner(tmp_path: Path) -> None:
    files = {"b": b"2", "a/c": b"1"}
    for name in ("x.tar.gz", "x.zip"):
        put_away(tmp_path / name, files)
        put_away(tmp_path / f"turned{name}", dict(reversed(files.items())))
    with tarfile.open(tmp_path / "x.tar.gz") as tar:
        assert [(e.name, e.mtime, e.uid, e.gid, e.uname, e.mode) for e in tar] == [
            ("x/a/c", 0, 0, 0, "", 0o644),
            ("x/b", 0, 0, 0, "", 0o644),
        ]
    assert (tmp_path / "x.tar.gz").read_bytes()[4:8] == bytes(4), "gzip's own time"
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert [(e.filename, e.date_time, e.external_attr >> 16) for e in archive.infolist()] == [
            ("x/a/c", (1980, 1, 1, 0, 0, 0), 0o644),
            ("x/b", (1980, 1, 1, 0, 0, 0), 0o644),
        ]


# --- the command, and what is refused --------------------------------------------------------------------------------


def test_formats_and_kinds_are_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "few.zip"
    arguments = ["golden", "export", "-o", str(out), "--format", "fp8e4nv", "--format", "e2m1", "--kind", "header,json"]
    data = as_json(arguments, capsys)
    assert data["output"] == str(out)
    assert {f"few/{name}" for name in data["files"]} == unpacked(out).keys()
    assert {name.split("/")[0] for name in data["files"]} == {"header", "json", "README.txt", NAME}
    assert {name.rsplit("-", 1)[1] for name in data["files"] if "/" in name} == {
        f"{name}{suffix}" for name in ("float8_e4m3fn", "float4_e2m1fn") for suffix in (".h", ".json")
    }
    assert said(arguments, capsys).startswith(f"{out}: {len(data['files'])} files; README.txt in it says")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--kind", "headers"], "unknown kind of file 'headers'; did you mean header?"),
        (["--kind", "raw,npz"], "unknown kind of file 'npz'; did you mean npy?"),
        (["--format", "float8_e4m3fm"], "unknown format 'float8_e4m3fm'; did you mean float8_e4m3fn"),
        (["--format", "float64"], "no golden family has destination float64"),
    ],
)
def test_a_choice_that_does_not_exist(
    more: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refused(["golden", "export", "-o", str(tmp_path / "out"), *more], capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["golden.rar", "golden.tar", "golden.gz", "golden.zipp", "golden-1.0"])
def test_a_suffix_that_is_no_archive(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / name
    text = refused(["golden", "export", "-o", str(place), "--kind", "header"], capsys)
    assert f"cannot write {place}: {place.suffix!r} is no archive that is written here; give .tar.gz, .tgz or" in text
    assert list(tmp_path.iterdir()) == []
    place.mkdir()  # a folder that is there is meant
    export(VECTORS, place, SMALL, ["header"])
    assert (place / "README.txt").exists()


@pytest.mark.parametrize("name", ["out", "out.tar.gz", "out.zip"])
def test_damaged_vectors_leave_nothing_behind(name: str, folder: Path, tmp_path: Path) -> None:
    content = bytearray((folder / FILE).read_bytes())
    content[-1] ^= 1
    (folder / FILE).write_bytes(content)
    with pytest.raises(BadInput, match=f"{FILE} has other bytes than the manifest's sha256 says"):
        export(folder, tmp_path / name)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["x.tar.gz", "x.zip", "x"])
def test_a_place_that_cannot_be_written(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot write"):
        export(VECTORS, tmp_path / "file" / name, SMALL, ["header"])
