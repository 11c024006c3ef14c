"""``golden diff``: a rule is really changed, and what is said of it is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from narrowgauge.command import main
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.golden import manifest, sets
from narrowgauge.golden.comparing import Example
from narrowgauge.golden.contents import FUNCTIONS, Rows, contents
from narrowgauge.golden.difference import difference
from narrowgauge.golden.families import Family
from narrowgauge.golden.manifest import NAME, VECTORS, metadata_for, regenerate
from narrowgauge.golden.reasons import Reasons, read_reasons
from narrowgauge.golden.safetensors_file import content_of, parsed
from narrowgauge.reference.kv import caches
from narrowgauge.suites.meta.golden_changes import FEW, NAMES, change, copied, forged, only, parted
from narrowgauge.suites.meta.golden_sets import FAMILIES, FILE, SATURATING, stored

pytestmark = pytest.mark.meta

#: one file of every operation
ONE_EACH = {family.operation: family for family in FAMILIES.values()}


# --- functions -------------------------------------------------------------------------------------------------------


def test_nothing_changed(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = parted(old)
    assert found.equal
    assert found.version == "none"
    assert main(["golden", "diff", str(old)]) == 0
    assert "the same vectors" in capsys.readouterr().out


def test_a_changed_policy_is_named_with_input_old_and_new(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OFP8 1.0: E4M3's largest is 448 and the next value would be 480, so above their midpoint 464 a cast overflows,
    to 448 in saturating mode and to NaN in the other; 464 itself is a tie, and 448 is even."""
    change(monkeypatch, "ocp_saturate", "float8_e4m3fn", overflow="special")
    file = only(parted(old))
    assert (file.family, file.kind, file.without_reason) == (NAMES[0], "changed", True)
    by_source = {claim.claim: claim for claim in file.claims}
    largest = int(np.float32(np.finfo(np.float32).max).view(np.uint32))
    above = int(np.float32(464).view(np.uint32)) + 1
    of_float32 = by_source["cast/ocp_saturate/float32/float8_e4m3fn"]
    assert of_float32.changed == 2 * (largest - above + 1)
    assert (of_float32.added, of_float32.removed, of_float32.places) == (0, 0, 2)
    plus, minus = of_float32.examples
    assert plus.input == f"464.000031 ({above:#x}) to 3.40282347e+38 ({largest:#x})"
    assert (plus.old, plus.new, plus.inputs) == ("448 (0x7e)", "nan (0x7f)", of_float32.changed // 2)
    assert (minus.old, minus.new) == ("-448 (0xfe)", "nan (0xff)")
    # bfloat16 has 8 significant bits: above 464 comes 466; its largest finite pattern is 0x7f7f
    assert by_source["cast/ocp_saturate/bfloat16/float8_e4m3fn"].changed == 2 * (0x7F7F - 0x43E9 + 1)


def test_one_code_is_one_input(old: Path) -> None:
    """bfloat16's 1 (0x3f80) becomes 1.125: the run that it lies in is parted, and what is beside it stays."""
    tensors = dict(stored(SATURATING))
    first, code = tensors["bfloat16.first"].codes, tensors["bfloat16.code"].codes
    place = int(np.searchsorted(first, 0x3F80, side="right"))
    parted_first = np.insert(first, place, [0x3F80, 0x3F81]).astype(np.uint16)
    parted_code = np.insert(code, place, [0x39, 0x38]).astype(np.uint8)
    changed = {
        "bfloat16.first": Coded("bfloat16", parted_first),
        "bfloat16.code": Coded(SATURATING.format, parted_code),
    }
    (claim,) = only(parted(old, forged(copied(old), tensors | changed))).claims
    assert (claim.changed, claim.places) == (1, 1)
    assert claim.examples == (Example("", "1 (0x3f80)", 1, "1 (0x38)", "1.125 (0x39)"),)


def test_the_same_steps_parted_otherwise_are_the_same(old: Path) -> None:
    """Bytes that say the same are no changed expectation, and need no reason."""
    tensors = dict(stored(SATURATING))
    place = int(np.searchsorted(tensors["bfloat16.first"].codes, 0x3F80, side="right"))
    first = np.insert(tensors["bfloat16.first"].codes, place, 0x3F81).astype(np.uint16)
    code = np.insert(tensors["bfloat16.code"].codes, place, 0x38).astype(np.uint8)
    changed = {"bfloat16.first": Coded("bfloat16", first), "bfloat16.code": Coded(SATURATING.format, code)}
    file = only(parted(old, forged(copied(old), tensors | changed)))
    assert (file.kind, file.claims, file.without_reason) == ("stored otherwise", (), False)
    assert file.before == file.after


def test_a_wide_destination_is_compared_by_its_stairs(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ties away from zero differ from ties to even at every second tie. Float16 has 0x7c00 codes of finite positive
    numbers, and above each one tie, the last of which overflows either way: those above even codes change, of both
    signs; all ties are float32 numbers."""
    change(monkeypatch, "ieee", "float16", rounding="nearest_away")
    file = only(parted(old))
    of_float32 = next(claim for claim in file.claims if "/float32/" in claim.claim)
    assert of_float32.changed == 0x7C00
    assert of_float32.places == 0x7C00
    assert of_float32.examples[0].input == "2.98023224e-08 (0x33000000)"  # 2^-25, half of the least subnormal
    assert (of_float32.examples[0].old, of_float32.examples[0].new) == ("0 (0x0000)", "5.96046448e-08 (0x0001)")
    assert file.flags["cast.ties_away"][0] > 0
    assert file.flags["cast.ties_away"][1] == 0


def test_neighbours_are_one_stretch(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller limit changes all inputs above it: one stretch of each sign, with its codes from first to last."""
    change(monkeypatch, "ocp_saturate", "float8_e4m3fn", limit=240.0)
    claim = only(parted(old)).claims[0]
    assert claim.places == 2
    assert claim.examples[0].old == "256 (0x78) to 448 (0x7e)"
    assert claim.examples[0].new == "240 (0x77)"


# --- lists and calls -------------------------------------------------------------------------------------------------


def test_a_list_is_compared_by_its_inputs(old: Path) -> None:
    """A row that went, one that came, one whose code is another; the order says nothing."""
    family = next(f for f in FEW if f.operation == "stochastic")
    tensors = dict(stored(family))
    source = next(iter(tensors)).partition(".")[0]
    x, bits, code = (tensors[f"{source}.{part}"].codes.copy() for part in ("x", "bits", "code"))
    code[5:10] ^= 1
    bits[7] = 1  # asked of nobody: that row is new, and the old one gone
    order = np.arange(x.size)[::-1]
    parts = {"x": x, "bits": bits, "code": code}
    changed = {f"{source}.{n}": Coded(tensors[f"{source}.{n}"].format, a[order]) for n, a in parts.items()}
    file = only(parted(old, forged(copied(old), changed, family)))
    (claim,) = file.claims
    assert (claim.changed, claim.added, claim.removed) == (4, 1, 1)  # the seventh row is another row
    assert len(claim.examples) == 3
    example = next(e for e in claim.examples if f"({int(x[5]):#010x})" in e.input)
    assert f"({int(x[5]):#010x}), bits = " in example.input
    assert example.old.endswith(f"({code[5] ^ 1:#x})")
    assert example.new.endswith(f"({code[5]:#x})")


@pytest.mark.parametrize("operation", sorted(ONE_EACH.keys() - {*FUNCTIONS, "stochastic"}))
def test_every_operation_has_results_that_are_told_from_inputs(operation: str) -> None:
    """One bit of a result is one changed expectation; one bit of an input makes another call, or another row."""
    family = ONE_EACH[operation]
    raw = (VECTORS / f"{family.name}.safetensors").read_bytes()
    same = contents(raw, "here")
    claim, content = next(iter(same.claims.items()))
    assert isinstance(content, Rows)
    result, given = next(iter(content.outputs)), next(iter(content.inputs))
    prefix = "" if operation == "unit" else f"{claim.split('/')[2]}."
    for name, expected in ((result, (1, 0)), (given, (0, content.expectations if operation != "unit" else None))):
        changed, gone = _counts_with_a_bit(raw, f"{prefix}{name}", family)
        assert changed == expected[0], name
        assert gone == (expected[1] if expected[1] is not None else len(content.outputs)), name


def _counts_with_a_bit(raw: bytes, name: str, family: Family) -> tuple[int, int]:
    """Expectations that changed, and that are gone, where one bit of a tensor is another."""
    tensors = {n: Coded("uint32", t.data) for n, t in parsed(raw, Path("here")).tensors.items()}
    data = tensors[name].data.copy()
    data.flat[0] ^= 1
    bodies = raw, _content(family, {n: t.data for n, t in tensors.items()} | {name: data})
    old, new = (_one(family, body) for body in bodies)
    file = only(difference(old, new, Reasons(), 1))
    return file.changed, file.removed


def _one(family: Family, raw: bytes) -> sets.VectorSet:
    about = {"schema": manifest.SCHEMA}
    return sets.VectorSet("here", "0" * 64, about, {family.name: {}}, {family.name: raw})


def _content(family: Family, arrays: dict[str, Any]) -> bytes:
    formats = {1: "uint8", 2: "float16", 4: "float32"}
    tensors = {name: Coded(formats[array.itemsize], array) for name, array in arrays.items()}
    return content_of(Path("here"), tensors, metadata_for(family), typed=False)


def test_every_file_has_results_and_no_two_are_alike() -> None:
    """Each is read; a reader's results are the parts of its cache's tokens."""
    digests = set()
    for family in FAMILIES.values():
        found = contents((VECTORS / f"{family.name}.safetensors").read_bytes(), family.name)
        digests.add(found.digest)
        assert all(content.expectations for content in found.claims.values())
        if family.operation == "kv_read":
            (content,) = found.claims.values()
            assert isinstance(content, Rows)
            assert set(content.outputs) == {part.name for part in caches.CACHES[family.rule].parts}
    assert len(digests) == len(FAMILIES)


# --- files and flags -------------------------------------------------------------------------------------------------


def test_added_and_removed_files(old: Path, few: list[Family]) -> None:
    """A vector that came is a minor version and needs no reason; one that went is a major one and does."""
    came = FAMILIES["decode-uint4"]
    few.append(came)
    found = parted(old)
    assert (only(found).family, only(found).kind, only(found).added) == (came.name, "added", 16)
    assert (found.version, only(found).without_reason) == ("minor", False)
    few.remove(came)
    few.remove(FAMILIES["decode-int4"])
    found = parted(old)
    assert (only(found).family, only(found).kind, only(found).removed) == ("decode-int4", "removed", 16)
    assert (found.version, only(found).without_reason) == ("major", True)


def test_regenerating_takes_away_what_is_no_family(old: Path, few: list[Family]) -> None:
    few.remove(FAMILIES["decode-int4"])
    (old / "mine.txt").touch()
    assert regenerate(old) == ["decode-int4.safetensors", NAME]
    assert sorted(path.name for path in old.iterdir()) == sorted(
        [*(f"{f.name}.safetensors" for f in few), NAME, "mine.txt"]
    )


def test_a_flag_and_a_note_of_a_file(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = copied(old)
    said = json.loads((new / NAME).read_text())
    flags = said["files"][FILE]["flags"]
    was = flags.pop("cast.ties_away"), flags["cast.truncates"]
    flags |= {"cast.invented": 3, "cast.truncates": was[1] + 1}
    said["files"][FILE]["authority"] = "somebody"
    said["generator"] = 99
    (new / NAME).write_text(json.dumps(said))
    found = parted(old, new)
    assert (found.version, only(found).kind, only(found).without_reason) == ("patch", "notes", False)
    assert only(found).flags == {
        "cast.ties_away": (was[0], 0), "cast.invented": (0, 3), "cast.truncates": (was[1], was[1] + 1),
    }  # fmt: skip
    assert only(found).notes["authority"][1] == "somebody"
    assert found.about == {"generator": ("1", "99")}
    assert main(["golden", "diff", str(old), str(new)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert f"shows no more cast.ties_away ({was[0]} -> 0)" in out
    assert "now shows cast.invented (0 -> 3)" in out


# --- reasons ---------------------------------------------------------------------------------------------------------


def test_a_reason_holds_for_its_change_and_no_other(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed as missing, with a sentence, is what explains the change; and not the next one."""
    change(monkeypatch, "ocp_saturate", "float8_e4m3fn", overflow="special")
    command = ["golden", "diff", str(old), "--explained", "--reasons", str(tmp_path / "reasons.toml")]
    (tmp_path / "reasons.toml").write_text("")
    assert main(command) == 1
    out = capsys.readouterr().out
    assert "no reason given for 1 file" in out
    lines = out[out.index("[[change]]") :]
    (tmp_path / "reasons.toml").write_text(lines)
    assert main(command) == 4
    assert "expected a sentence" in capsys.readouterr().err
    (tmp_path / "reasons.toml").write_text(lines.replace('why = ""', 'why = "because of the test"'))
    assert main(command) == 0
    assert "because of the test" in capsys.readouterr().out
    assert main([word for word in command if word != "--explained"]) == 1
    capsys.readouterr()
    change(monkeypatch, "ocp_saturate", "float8_e4m3fn", infinity="special")
    assert main(command) == 1


def test_reasons_go_on_from_each_other() -> None:
    told = Reasons((("a", "1", "2", "one"), ("a", "2", "3", "two"), ("b", "3", "4", "of b"), ("a", "2", "1", "back")))
    assert told.of("a", "1", "3") == ("one", "two")
    assert told.of("a", "2", "3") == ("two",)
    assert told.of("a", "1", "4") == ()
    assert told.of("a", "1", "1") == ()
    assert told.of("b", "1", "2") == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x", "are not TOML"),
        ("[changes]", "have keys changes"),
        ("change = 3", "have keys change"),
        ("change = [3]", "change 1: expected"),
        ('[[change]]\nwhy = "a b c"', "change 1: expected"),
        ('[[change]]\nwhy = "so"\n[change.files]\na = "none -> 0123456789ab"', "expected a sentence"),
        ('[[change]]\nwhy = "a b c"\n[change.files]\na = "none"', "a = 'none'; expected two digests"),
        ('[[change]]\nwhy = "a b c"\n[change.files]\na = "none -> none"', "expected two digests"),
        ('[[change]]\nwhy = "a b c"\n[change.files]\na = 3', "a = 3; expected two digests"),
    ],
)
def test_bad_reasons_are_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "reasons.toml"
    path.write_text(text)
    with pytest.raises(BadInput) as raised:
        read_reasons(path)
    assert words in str(raised.value)
    assert str(path) in str(raised.value)


# --- files that are written ------------------------------------------------------------------------------------------


def test_markdown_and_page_say_the_same(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a stranger's manifest says is text in both."""
    change(monkeypatch, "ocp_saturate", "float8_e4m3fn", overflow="special")
    new = old.with_name("new")
    regenerate(new)
    said = json.loads((new / NAME).read_text())
    said["files"][FILE]["authority"] = "<script>a | b</script>"
    (new / NAME).write_text(json.dumps(said))
    table, page = old.parent / "t.md", old.parent / "t.html"
    assert main(["golden", "diff", str(old), str(new), "--markdown", str(table), "--html", str(page)]) == 1
    for text in (table.read_text(), page.read_text()):
        assert "<script>" not in text
        for told in (
            "464.000031 (0x43e80001)",
            "448 (0x7e)",
            "nan (0x7f)",
            "no reason given",
            "cast.overflow_saturates",
        ):
            assert told in text
    rows = [line for line in table.read_text().splitlines() if line.startswith("|")]
    assert "&lt;script>a \\| b&lt;/script>" in table.read_text()
    assert {len(line.replace("\\|", "").split("|")) for line in rows} == {8, 6}  # two kinds of tables, none broken


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--html", "a.txt"], "expected a file that ends in .html"),
        (["--markdown", "a.txt"], "expected a file that ends in .md"),
        (["--first", "-1"], "expected a number of examples"),
        (["--reasons", "nowhere.toml"], "cannot read reasons nowhere.toml"),
        (["--git", "HEAD", "a", "b"], "--git HEAD is OLD: give one set, NEW, or none; given a b"),
        (["nowhere"], "no golden vectors at nowhere; expected a folder of vectors, or an export (.tar.gz, .tgz, .zip)"),
        ([__file__], f"not golden vectors: {__file__}; expected a folder"),
    ],
)
def test_bad_options_are_refused_before_anything_is_generated(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sets, "generated", lambda: pytest.fail("generated"))
    assert main(["golden", "diff", *words]) == 4
    assert said in capsys.readouterr().err
