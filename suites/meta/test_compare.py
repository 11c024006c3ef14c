"""What is said of rows beside each other. Expected answers follow from what the rows were made to be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.ci.comparison.beside import Column, Rules
from narrowgauge.ci.comparison.comparing import Comparison, compare
from narrowgauge.ci.comparison.findings import KINDS, SECTIONS, Finding, kind_of
from narrowgauge.ci.comparison.sides import read_sides
from narrowgauge.ci.ledger import Row
from narrowgauge.command.compare import leaves_only_nan
from narrowgauge.command.compare_why import why
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.verdict import OpenAnswers
from narrowgauge.reference.claims_apart import claims_apart, followers, left_open
from narrowgauge.reference.expected import expected
from narrowgauge.reference.inputs import case_named
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites.meta.compare_sets import E4M3, FNUZ, failed, ledger, results, row, unexecuted

pytestmark = pytest.mark.meta

ONE, OTHER = Column("sm_90", 0, "sm_90"), Column("gfx942", 1, "gfx942")
PACKED = ("nibbles_low_first", "nibbles_high_first")
RULES = Rules({}, leaves_only_nan)


def compared(folder: Path, *sides: list[Row], **changes: Any) -> Comparison:
    """Each list of rows a ledger of its own; ``changes`` are of the last one."""
    paths = [ledger(folder / f"{n}.json", rows) for n, rows in enumerate(sides[:-1])]
    paths.append(ledger(folder / f"{len(sides) - 1}.json", sides[-1], **changes))
    return compare(read_sides(paths), leaves_only_nan)


def said(found: Comparison) -> list[tuple[str, str]]:
    return [(f.section, f.kind) for f in found.findings]


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (row("sm_90"), row("gfx942"), "agree"),
        (failed("sm_90"), failed("gfx942"), "agree"),
        (row("sm_90"), row("gfx942", "d9"), "nan"),
        (row("sm_90", rule="own"), row("gfx942", "d9", rule="own"), "codes"),
        (row("sm_90"), row("gfx942", "d9", claim="cast/ocp_nonsaturate/float32/float8_e4m3fn"), "codes"),
        (row("sm_90", operation="wide", rule="softmax", format="float32"),
         row("gfx942", "d9", operation="wide", rule="softmax", format="float32"), "codes"),
        (row("sm_90"), failed("gfx942"), "verdicts"),
        (row("sm_90", "d2"), failed("gfx942", "d2"), "verdicts"),
        (failed("sm_90"), failed("gfx942", result="waived"), "verdicts"),
        (failed("sm_90"), failed("gfx942", "d3"), "failures"),
        (failed("sm_90"), failed("gfx942", "", outcome="crashed", elements=0), "failures"),
        (failed("sm_90", "", outcome="hung"), failed("gfx942", "", outcome="hung"), "no_codes"),
        (row("sm_90", case="property"), row("gfx942", case="property"), "incomparable"),
        (row("sm_90", case="property"), failed("gfx942", case="property"), "verdicts"),
        (row("sm_90"), row("gfx942", elements=11), "incomparable"),
    ],
)  # fmt: skip
def test_what_is_said_of_two_verdicts(one: Row, other: Row, kind: str) -> None:
    assert kind_of({ONE: one, OTHER: other}, RULES) == kind
    assert kind_of({OTHER: other, ONE: one}, RULES) == kind


def test_three_columns_are_put_into_classes_of_equal_codes(tmp_path: Path) -> None:
    found = compared(tmp_path, [row("host"), row("sm_90", "d9"), row("gfx942")])
    (finding,) = found.findings
    assert finding.kind == "nan"
    assert set(finding.classes) == {("gfx942", "host"), ("sm_90",)}
    assert found.parts


def test_emulated_against_hardware_is_a_section_of_its_own(tmp_path: Path) -> None:
    """And where the hardware ran, its emulation stands in no other section."""
    rows = [row("sm_90", "d1"), row("emulated-sm_90", "d9", models={"ex2": True}), row("gfx942", "d1")]
    assert said(compared(tmp_path, rows)) == [("emulator", "nan"), ("targets", "agree")]
    rows[0] = unexecuted("sm_90")
    found = compared(tmp_path, rows)
    assert said(found) == [("emulator", "unexecuted"), ("targets", "nan"), ("targets", "unexecuted")]
    assert found.findings[1].classes == (("gfx942",), ("emulated-sm_90",))


def test_the_last_night_stands_for_a_target_and_nights_are_told_apart(tmp_path: Path) -> None:
    first, second = [row("sm_90", "d1"), row("gfx942", "d1")], [row("sm_90", "d9")]
    newer = {"sm_90": {"versions": {"torch": "2.14.0", "triton": "3.9.0"}, "torch": {"git": "abc"}}}
    found = compared(tmp_path, first, second, devices=newer)
    assert [c.label for c in found.columns] == ["gfx942", "sm_90 @ 0", "sm_90 @ 1"]
    assert [(f.section, f.kind, f.classes) for f in found.findings] == [
        ("drift", "nan", (("sm_90 @ 0",), ("sm_90 @ 1",))),
        ("targets", "nan", (("gfx942",), ("sm_90 @ 1",))),
    ]
    assert found.changed == {"sm_90 @ 0 -> sm_90 @ 1": {"torch": ("2.13.0", "2.14.0")}}
    cut = compared(tmp_path, first, second, devices={"sm_90": {"versions": {"torch": "2.13.0"}}})
    assert cut.changed == {}  # of the git sha and of Triton the second night knows nothing


def test_two_runs_of_one_day_are_told_apart_by_their_times(tmp_path: Path) -> None:
    for number, started in enumerate(("2026-11-30T02:00:00+00:00", "2026-11-30T14:05:00+00:00", "2026-11-29T02:00:00")):
        results(tmp_path / str(number), [row("sm_90")], started=started)
    found = compare(read_sides(sorted(tmp_path.iterdir())), leaves_only_nan)
    days = ["2026-11-30 02:00", "2026-11-30 14:05", "2026-11-29"]
    assert sorted(side.name for side in found.sides) == sorted(f"cuda/sm_90 {day}" for day in days)


def test_a_cell_of_one_night_alone_is_told(tmp_path: Path) -> None:
    found = compared(tmp_path, [row("sm_90"), row("sm_90", case="stratified")], [row("sm_90")])
    assert said(found) == [("drift", "unplanned"), ("drift", "agree")]
    assert found.findings[0].cases == ["float32 stratified"]
    assert not found.parts


@pytest.mark.parametrize("change", [{"narrowgauge": "0.2.0"}, {"golden_manifest_sha256": "1" * 64}])
def test_codes_of_other_inputs_are_not_compared_but_verdicts_are(tmp_path: Path, change: dict[str, str]) -> None:
    found = compared(tmp_path, [row("sm_90")], [row("gfx942")], **change)
    assert said(found) == [("targets", "incomparable")]
    assert not found.compared
    assert [note for note in found.notes if "not compared" in note and next(iter(change.values()))[:6] in note]
    assert all(t.compared == 0 for line in found.lines for t in line.tallies.values())
    assert said(compared(tmp_path, [row("sm_90")], [failed("gfx942")], **change)) == [("targets", "verdicts")]


def test_a_golden_manifest_that_is_not_known_forbids_nothing(tmp_path: Path) -> None:
    """An offline judgement has none."""
    assert said(compared(tmp_path, [row("sm_90")], [row("gfx942")], golden_manifest_sha256="")) == [
        ("targets", "agree")
    ]


def test_formats_of_one_width_stand_beside_each_other_and_never_agree(tmp_path: Path) -> None:
    found = compared(tmp_path, [row("sm_90")], [row("gfx942", format=FNUZ, rule="fnuz_saturate")])
    assert said(found) == [("targets", "formats")]
    assert (found.findings[0].words, found.findings[0].classes) == ((E4M3, FNUZ), (("sm_90",), ("gfx942",)))
    assert not found.compared
    both = [row(t, format=f) for t in ("sm_90", "gfx942") for f in (E4M3, FNUZ)]
    assert said(compared(tmp_path, both)) == [("targets", "agree")] * 2


def test_the_matrix_shows_what_was_not_executed(tmp_path: Path) -> None:
    rows = [row("host"), row("host", case="stratified"), row("sm_90", "d9"), unexecuted("sm_90", case="stratified")]
    (line,) = compared(tmp_path, [*rows, unexecuted("gfx942")]).lines
    assert (line.kernel, line.operation, line.format) == ("k", "cast", E4M3)
    host, sm, gfx = line.tallies["host"], line.tallies["sm_90"], line.tallies["gfx942"]
    assert (host.results, host.unexecuted, host.with_label) == ({"passed": 2}, 0, "")
    assert (sm.results, sm.unexecuted, sm.compared, sm.apart, sm.nan, sm.with_label) == (
        {"passed": 1},
        1,
        1,
        1,
        1,
        "host",
    )
    assert (gfx.results, gfx.unexecuted, gfx.compared) == ({}, 1, 0)
    (line,) = compared(tmp_path, [row("host"), row("sm_90")]).lines
    assert (line.tallies["sm_90"].compared, line.tallies["sm_90"].apart) == (1, 0)


def test_units_and_checkpoints_are_no_kernels(tmp_path: Path) -> None:
    rows = [row("sm_90"), row("gfx942"), row("sm_80", operation="unit"), row("host", operation="audit")]
    rows += [row(target, operation="unit", case="recorded") for target in ("sm_90", "gfx942")]
    found = compared(tmp_path, rows)
    assert [c.label for c in found.columns] == ["gfx942", "sm_90"]
    assert [f.operation for f in found.findings] == ["cast"]


def test_kinds_and_sections_are_in_the_document() -> None:
    import narrowgauge

    text = (Path(narrowgauge.__file__).parents[1] / "docs" / "compare.md").read_text()
    for name in (*KINDS, *SECTIONS.values()):
        assert name in text


# --- why -------------------------------------------------------------------------------------------------------------


def explained(folder: Path, *rows: Row) -> dict[str, str]:
    finding: Finding = compared(folder, list(rows)).findings[0]
    return dict(why(finding))


def test_a_failure_is_explained_by_fault_and_edge(tmp_path: Path) -> None:
    """OFP8: saturating gives 448 for infinity, non-saturating NaN."""
    edge = {"inf": "448", "1000": "448"}
    found = compared(tmp_path, [row("sm_90", portrait=edge), failed("gfx942", portrait={**edge, "inf": "nan"})])
    told = why(found.findings[0])
    assert any(name == "gfx942" and text.startswith("failed: 2 nan of 10 elements differ") for name, text in told)
    assert any(name == "gfx942" and "cast.infinity_to_nan: only finite values are clamped" in t for name, t in told)
    edges = {name: text for name, text in told if text.startswith("at the edge")}
    assert "inf gives 448; as ocp_saturate" in edges["sm_90"]
    assert "inf gives nan; as amd_native_clamped" in edges["gfx942"]
    assert "1000" not in edges["gfx942"]  # there they do not part


def test_waivers_reasons_and_other_answers_are_told(tmp_path: Path) -> None:
    waived = failed("gfx942", result="waived", reason="known", waiver="https://example.org/1")
    assert "known; https://example.org/1" in explained(tmp_path, row("sm_90"), waived)["gfx942"]
    crash = row("gfx942", "", result="failed", outcome="crashed", reason="crashed: signal 11", elements=0)
    assert "crashed: signal 11" in explained(tmp_path, row("sm_90"), crash)["gfx942"]
    disputed = failed("gfx942", result="disputed", faults=(), open_answers=OpenAnswers(("first",), 2, 0))
    assert explained(tmp_path, row("sm_90"), disputed)["gfx942"].endswith("allow explain all of them")
    disputed = failed("gfx942", result="disputed", faults=(), open_answers=OpenAnswers(("first",), 2, 1))
    assert "explain 2 of them, and not 1" in explained(tmp_path, row("sm_90"), disputed)["gfx942"]
    assert "no known fault" in explained(tmp_path, row("sm_90"), failed("gfx942", faults=()))["gfx942"]


def test_equal_codes_under_two_verdicts_are_said_to_be_equal(tmp_path: Path) -> None:
    rows = row("sm_90", "d2"), failed("gfx942")
    assert explained(tmp_path, *rows)["codes"].startswith("equal")
    assert compared(tmp_path, list(rows)).findings[0].classes == (("gfx942",), ("sm_90",))


def test_verdicts_on_drawn_inputs_are_said_to_be_of_such(tmp_path: Path) -> None:
    drawn = explained(tmp_path, row("sm_90", case="property"), failed("gfx942", case="property"))
    assert "drawn anew" in drawn["inputs"]
    assert "inputs" not in explained(tmp_path, row("sm_90"), failed("gfx942"))


def test_open_models_of_the_emulator_are_named(tmp_path: Path) -> None:
    rows = row("sm_90"), row("emulated-sm_90", "d9", models={"ex2.approx": True, "cvt": False})
    told = explained(tmp_path, *rows)["emulated-sm_90"]
    assert "ex2.approx" in told
    assert "cvt" not in told


def test_observed_kernels_are_told_by_what_they_follow(tmp_path: Path) -> None:
    rows = (
        row("sm_90", rule="?", follows=("ocp_saturate",)),
        row("gfx942", "d9", rule="?", follows=("ocp_nonsaturate",)),
    )
    told = explained(tmp_path, *rows)
    assert told["sm_90"] == "follows ocp_saturate"
    assert "ocp_nonsaturate" in told["policies part"]
    assert "overflow: special and max" in told["policies part"]
    assert "nothing is claimed" in told["left open"]


def test_two_claims_are_told_by_the_first_choice_that_parts(tmp_path: Path) -> None:
    other = "cast/ocp_nonsaturate/float32/float8_e4m3fn"
    told = explained(tmp_path, row("gfx942"), row("sm_90", "d9", rule="ocp_nonsaturate", claim=other))
    assert (
        told["claims part"]
        == "ocp_saturate on gfx942, ocp_nonsaturate on sm_90; overflow: max and special (and 1 more)"
    )


def test_a_rule_that_came_as_data_is_said_to_be_unknown(tmp_path: Path) -> None:
    own = "cast/own/float32/float8_e4m3fn"
    told = explained(tmp_path, row("sm_90", claim=own), row("gfx942", "d9", claim=own))
    assert told["left open"].startswith("what the claim leaves open is not known")


def test_claims_part_at_a_choice_or_a_step() -> None:
    """Read off the catalogue by hand: vLLM bounds its scale from below at 1 / (512 * 448), SGLang does not."""
    vllm, sglang = (Claim.parse(f"quantize/{r}/float32/{E4M3}") for r in (
        "vllm.fp8_per_token_dynamic", "sglang.fp8_per_token_cta"))  # fmt: skip
    assert claims_apart(vllm, vllm) == ""
    assert claims_apart(vllm, sglang).startswith(
        "step 1: minimum = bound, mul 512.0, recip and scale = amax, div bound"
    )
    group = [Claim.parse(f"quantize/vllm.fp8_native_group{r}/float32/{E4M3}") for r in ("", "_ue8m0")]
    second = "scale = amax, div bound, at_least_or_nan minimum"
    assert claims_apart(*group) == f"step 2: {second} and {second}, exp2_ceil_log2"
    last = [Claim.parse(f"quantize/microxcaling.mx_{r}/float32/{E4M3}") for r in ("nearest", "even")]
    assert (
        claims_apart(*last) == "rounding: nearest_away and nearest_even"
    )  # its round="nearest" is half away from zero
    packed = [Claim.parse(f"quantize/ocp.mxfp4@codes:{w}/float32/float4_e2m1fn") for w in PACKED]
    assert claims_apart(*packed) == f"layouts: (('codes', '{PACKED[0]}'),) and (('codes', '{PACKED[1]}'),)"
    observed = Claim.parse(f"cast/?/float32/{E4M3}")
    assert claims_apart(observed, Claim.parse(f"cast/ocp_saturate/float32/{E4M3}")).startswith("nothing is claimed")
    attend = [Claim.parse(f"attend/vllm.flash_fp8{w}/{E4M3}/float32") for w in ("", "+soft_cap:0.5")]
    assert claims_apart(*attend) == "soft_cap: 0.0 and 0.5"
    sums = [Claim.parse(f"matmul/vllm.fp8_token_channel+{a}/{E4M3}/bfloat16") for a in ("float32", "tensor_core_13")]
    assert claims_apart(*sums).startswith("family: any and fused")
    names = [Claim.parse(f"cast/{p}/float32/{E4M3}") for p in ("ocp_saturate", "onnx_saturate")]
    assert claims_apart(*names) == "two names of one rule"


def test_an_edge_names_the_policies_that_give_it() -> None:
    """By OFP8 and ONNX: saturating casts give 448 for infinity; e4m3fn has no infinity, so the others give NaN."""
    saturating = followers({"inf": "448", "1000": "448", "nan": "nan"}, E4M3)
    assert {"ocp_saturate", "onnx_saturate"} <= set(saturating)
    assert not {"ocp_nonsaturate", "onnx_nonsaturate", "amd_native_clamped"} & set(saturating)
    assert "amd_native_clamped" in followers({"inf": "nan", "1000": "240"}, FNUZ)
    assert followers({"inf": "12"}, E4M3) == ()


@pytest.mark.parametrize("name", RECIPES)
def test_only_nan_is_left_open_where_every_expectation_is_a_point(name: str) -> None:
    """What ``left_open`` says of a recipe's steps, held to the intervals that the reference works out."""
    recipe = RECIPES[name]
    claim = Claim.parse(f"quantize/{name}/float32/{recipe.destinations[0].format}")
    case = next((c for c in ("rows_128", "blocks", "large_blocks") if case_named(c, "quantize").suits(claim)), "")
    assert case, "none of the small cases divides into its blocks"
    want = expected(claim, case_named(case, "quantize").inputs(claim))
    if left_open(claim).freedom == "nan":
        assert all(interval.exact for interval in want.values())


def test_some_recipes_leave_bits_open() -> None:
    """PTX gives rcp.approx one ulp; so a scale by it is not one number."""
    claim = Claim.parse("quantize/vllm.nvfp4/bfloat16/float4_e2m1fn")
    assert left_open(claim).freedom == "interval"
    assert "recip_approx" in left_open(claim).said
    assert left_open(Claim.parse(f"cast/ocp_saturate/float32/{E4M3}")).freedom == "nan"


def test_a_row_of_another_version_is_no_nan(tmp_path: Path) -> None:
    assert leaves_only_nan(row("sm_90"))
    assert not leaves_only_nan(replace(row("sm_90"), claim="cast/of_tomorrow/float32/float8_e4m3fn"))
