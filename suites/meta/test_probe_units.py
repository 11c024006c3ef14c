"""Known units are found again by their own answers; and what formats cannot say is said to be so."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import narrowgauge
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.probes import integers
from narrowgauge.reference.probes.claimed import differences, findings_named
from narrowgauge.reference.probes.matching import answers_of, known_units
from narrowgauge.reference.probes.portrait import PROBES, Portrait, portrait, stages
from narrowgauge.reference.probes.probe import rows_of
from narrowgauge.reference.probes.rows import Key
from narrowgauge.reference.probes.setting import Setting, Side
from narrowgauge.reference.probes.trees import Node, exact_chain, leaves_of, tree
from narrowgauge.reference.units.families import Truncating
from narrowgauge.reference.units.registry import UNITS, unit_named
from narrowgauge.reference.units.running import dot
from narrowgauge.reference.units.unit import Unit
from narrowgauge.suites.meta.probe_sets import BF16, E4M3, F16, F32, FNUZ, answers, setting
from narrowgauge.suites.meta.probe_units import TOYS, Plan

pytestmark = pytest.mark.meta


def model_answers(unit: Unit, asked: Setting, stretch: int = 0, entering: str = "") -> dict[Key, float]:
    """A unit's answers to all probes at K."""
    named = {(probe.name, *key): row for probe in PROBES for key, row in rows_of(probe, asked).items()}
    found = answers_of(unit, entering, asked, named, stretch)
    assert found is not None
    return found


#: units, a format that they take, and that of the result; and the others that compute the same
KNOWN = {
    ("hopper.qgmma", E4M3, BF16): {"hopper.qgmma"},
    ("ada.qmma", E4M3, BF16): {"ada.qmma"},
    ("hopper.mma_fp8", E4M3, BF16): {"hopper.mma_fp8", "blackwell.mma_fp8"},
    ("blackwell.tcgen05_fp8", E4M3, BF16): {"blackwell.tcgen05_fp8", "rtx_blackwell.qmma"},
    ("cdna3.mfma_of_ocp", E4M3, BF16): {"cdna3.mfma_of_ocp", "cdna3.mfma"},
    ("cdna3.mfma_fp8", FNUZ, BF16): {"cdna3.mfma_fp8"},
    ("cdna1.mfma_bf16", BF16, F32): {"cdna1.mfma_bf16"},
    ("cdna2.mfma", BF16, F32): {"cdna2.mfma"},
    ("cdna3.mfma", BF16, F32): {"cdna3.mfma"},
    ("ampere.hmma", BF16, F32): {"ampere.hmma", "ada.hmma", "turing.hmma"},
    ("hopper.hmma", BF16, F32): {f"{n}.hmma" for n in ("hopper", "blackwell", "rtx_blackwell")}
    | {"hopper.hgmma", "blackwell.tcgen05"},
    ("ampere.hmma_tf32", F32, F32): {"ampere.hmma_tf32", "ada.hmma_tf32"},
    ("cdna3.mfma_xf32", F32, F32): {"cdna3.mfma_xf32"},
}


@pytest.mark.parametrize(("name", "source", "out"), KNOWN)
def test_a_unit_is_known_by_its_answers(name: str, source: str, out: str) -> None:
    asked, unit = setting(source, out), unit_named(name)
    got = model_answers(unit, asked)
    made = portrait(asked, got)
    known = known_units(made, got)
    assert {match.unit for match in known.fits} <= KNOWN[name, source, out] | {"volta.hmma"}
    assert not known.nearest
    assert name in {match.unit for match in known.fits}
    assert {m.unit for m in known.fits if not m.entering} == {
        n for n in KNOWN[name, source, out] if unit_named(n).takes(source, source)
    }
    if isinstance(unit.family, Truncating):
        assert made.findings["width"].value == str(unit.family.fraction)
        assert made.findings["carried"].value == str(unit.family.stored)
        assert made.findings["fused"].value == str(unit.family.length)


def test_a_toy_is_the_unit_of_the_registry_under_its_promotion() -> None:
    """By two programs that share nothing."""
    asked = setting(E4M3, F32)
    got = answers(asked, Plan(TOYS["qgmma"], promote=128).total)
    known = known_units(portrait(asked, got), got)
    assert [match.unit for match in known.fits] == ["hopper.qgmma"]


def test_a_unit_that_nobody_knows_is_told_by_what_it_differs_in() -> None:
    asked, unit = setting(E4M3, F32), unit_named("hopper.qgmma")
    assert isinstance(unit.family, Truncating)
    for family, apart in (
        (replace(unit.family, fraction=14, stored=14), {"width", "carried"}),
        (replace(unit.family, length=64), {"fused", "order"}),
        (replace(unit.family, stored=12), {"carried"}),
    ):
        got = model_answers(replace(unit, family=family), asked)
        known = known_units(portrait(asked, got), got)
        assert not known.fits
        assert apart <= set(known.nearest[0].apart) | {"fused", "order"}, known.nearest[0]
        assert known.nearest[0].parts


@pytest.mark.parametrize("name", ["hopper.qgmma", "hopper.mma_fp8", "cdna3.mfma_fp8", "cdna1.mfma_f16", "cdna2.mfma"])
def test_places_that_are_zero_change_nothing(name: str) -> None:
    """What models leave out is asked in full of some rows."""
    unit = unit_named(name)
    source = {"cdna3.mfma_fp8": FNUZ}.get(name, E4M3 if E4M3 in unit.formats else F16)
    asked = setting(source, F32)
    every = {(probe.name, *key): row for probe in PROBES[:4] for key, row in rows_of(probe, asked).items()}
    rows = dict(random.Random(1).sample(sorted(every.items(), key=repr), 48))
    numbers = np.zeros((2, len(rows), asked.k))
    for n, row in enumerate(rows.values()):
        for k, x, y in row.terms:
            numbers[:, n, k] = x, y
    full: Coded = dot(unit, asked.a.codes(numbers[0]), asked.b.codes(numbers[1]))
    model = answers_of(unit, "", asked, rows)
    assert model == dict(zip(rows, decode_values(full).tolist(), strict=True))


# --- other findings --------------------------------------------------------------------------------------------------


def test_scaled_units_are_found() -> None:
    mx = Side("float4_e2m1fn", rows=1, along=16, scales=E4M3)
    asked = Setting(mx, mx, F32, 512, "unit")
    got = model_answers(unit_named("blackwell.mxf4nvf4"), asked)
    made = portrait(asked, got)
    assert "blackwell.mxf4nvf4" in {match.unit for match in known_units(made, got).fits}
    assert made.findings["scale_block"].value == "16"
    assert not made.findings["order"].value
    assert "swallow" in made.findings["order"].words


def test_an_order_is_seen_where_elements_are_wide_enough_and_across_blocks_elsewhere() -> None:
    wide = Side(E4M3, rows=1, along=32, scales="float8_e8m0fnu")
    asked = Setting(wide, wide, F32, 256, "unit")
    assert (
        portrait(asked, model_answers(unit_named("blackwell.mxf8f6f4"), asked)).findings["order"].value == "chain of 32"
    )
    narrow = Side("float4_e2m1fn", rows=1, along=32, scales="float8_e8m0fnu")
    asked = Setting(narrow, narrow, F32, 512, "unit")
    found = portrait(asked, model_answers(unit_named("blackwell.mxf8f6f4"), asked, 128)).findings
    assert not found["order"].value
    assert found["stretch"].value == "128"


@pytest.mark.parametrize(
    ("way", "value"), [("wraps", "wraps"), ("saturates", "saturates"), ("float32", "wide or saturates")]
)
def test_integers(way: str, value: str) -> None:
    asked = Setting(Side("int8"), Side("int8"), "int32" if way != "float32" else F32, 512)

    def total(row: tuple[tuple[int, float, float], ...]) -> float:
        if way == "float32":
            kept = np.float32(0)
            for _, x, y in row:
                kept += np.float32(x * y)
            return float(kept)
        whole = int(sum(x * y for _, x, y in row))
        return min(whole, 2**31 - 1) if way == "saturates" else (whole + 2**31) % 2**32 - 2**31

    long = asked.of_length(integers.LONG)
    got = {("integers", *key): total(row.terms) for key, row in integers.PROBE.rows(long).items()}
    found = portrait(asked, got).findings
    assert found["overflow"].value == value
    assert found["integers"].value == ("inexact" if way == "float32" else "exact")
    assert not found["width"].value  # nothing else was answered


SPLIT_WAYS = {
    "tf32 cut": lambda x: (x.view(np.uint32) & 0xFFFFE000).view(np.float32),
    "tf32 away": lambda x: ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32),
    "float32 or bf16x6": lambda x: x,
}


@pytest.mark.parametrize("way", SPLIT_WAYS)
def test_operands_that_lose_bits_are_told(way: str) -> None:
    asked = setting(F32, F32)

    def kept(x: float) -> float:
        return float(SPLIT_WAYS[way](np.array([x], np.float32))[0])

    got = {
        (probe.name, *key): float(sum(kept(x) * kept(y) for _, x, y in row.terms))
        for probe in PROBES
        for key, row in rows_of(probe, asked).items()
    }
    assert portrait(asked, got).findings["operands"].value == way


def test_results_that_change_between_launches_are_told() -> None:
    asked = setting(E4M3, F32)
    got = answers(asked, Plan(TOYS["qgmma"]).total)
    other = {key: value + (key == ("width", "far", 3)) for key, value in got.items()}
    assert portrait(asked, got, [got, other]).findings["repeats"].value == "differ"
    assert portrait(asked, got, [got]).findings["repeats"].value == "same"


def test_what_a_format_cannot_say_is_said() -> None:
    asked = setting("float4_e2m1fn", BF16)
    found = portrait(asked, answers(asked, Plan(TOYS["fma"]).total)).findings
    assert found["width"].value.startswith(">=")
    assert not found["order"].value
    assert "float4_e2m1fn" in found["order"].words
    assert not any(found[name].value for name in ("operands", "scales", "integers"))
    with pytest.raises(BadInput, match="multiple of 128"):
        stages(setting(E4M3, F32, 200))


# --- a claimed portrait ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def qgmma() -> Portrait:
    asked = setting(E4M3, F32)
    return portrait(asked, answers(asked, Plan(TOYS["qgmma"], promote=128).total))


def test_a_claimed_portrait_is_held_to_what_was_found(qgmma: Portrait) -> None:
    assert not differences({"width": "13", "promotion": "128", "order": "chain of 32", "apart": "23"}, qgmma)
    (wrong,) = differences({"width": "13", "promotion": "64"}, qgmma)
    assert "promotion is claimed to be 64; found: 128" in wrong
    (unseen,) = differences({"output": "once"}, qgmma)
    assert "was not to be seen" in unseen
    with pytest.raises(BadInput, match="unknown finding 'widht' in portrait of a contract; did you mean width"):
        differences({"widht": "13"}, qgmma)


def test_factors_are_normal_numbers_where_there_are_any() -> None:
    """A unit that flushes subnormal operands is asked the same products."""
    assert Setting(Side(E4M3), Side(BF16), F32, 128).factors(2.0**-24) == (2.0**-6, 2.0**-18)
    assert Setting(Side(E4M3), Side(E4M3), F32, 128).factors(2.0**-18) == (2.0**-9, 2.0**-9)
    assert Setting(Side(E4M3), Side(E4M3), F32, 128).factors(2.0**-19) is None


def test_every_finding_is_explained() -> None:
    page = (Path(narrowgauge.__file__).parents[1] / "docs" / "probes.md").read_text()
    table = [line.split("|")[1] for line in page.splitlines() if line.startswith("| ")][1:]
    assert {name.strip() for cell in table for name in cell.split(",")} == set(findings_named())


def test_the_summary_is_a_line(qgmma: Portrait) -> None:
    assert qgmma.summary == "13 bits, sums of 128 added up, chain of 32"


# --- trees -----------------------------------------------------------------------------------------------------------


def _drawn_tree(random_: random.Random, leaves: list[int]) -> Node | int:
    if len(leaves) == 1:
        return leaves[0]
    cuts = sorted(random_.sample(range(1, len(leaves)), random_.randint(1, min(4, len(leaves) - 1))))
    groups = [leaves[a:b] for a, b in zip([0, *cuts], [*cuts, len(leaves)], strict=True)]
    return Node(tuple(_drawn_tree(random_, group) for group in groups))


def _sizes(node: Node) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    parts = [leaves_of(part) for part in node.parts]
    for n, one in enumerate(parts):
        found |= {(min(i, j), max(i, j)): node.size for other in parts[n + 1 :] for i in one for j in other}
    for part in node.parts:
        if isinstance(part, Node):
            found |= _sizes(part)
    return found


def test_any_tree_is_recovered_from_its_sizes_and_no_other() -> None:
    for seed in range(60):
        drawn = _drawn_tree(random.Random(seed), list(range(2 + seed % 20)))
        assert isinstance(drawn, Node)
        sizes = _sizes(drawn)
        count = drawn.size
        assert tree(range(count), sizes) == drawn
        for pair in sizes if count < 9 else ():
            assert tree(range(count), sizes | {pair: sizes[pair] - 1}) != drawn
    assert exact_chain(4, {(i, j): 2 for i in range(4) for j in range(i + 1, 4)}) == Node((0, 1, 2, 3))
    assert len(UNITS) > 40
