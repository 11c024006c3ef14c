"""Portraits of simulated kernels are what their schedules say. Expected values are those of facts about the units."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from narrowgauge.reference.probes.portrait import portrait
from narrowgauge.reference.probes.probe import Finding
from narrowgauge.reference.probes.rows import Key
from narrowgauge.reference.probes.setting import Setting
from narrowgauge.suites.meta.probe_sets import (
    BF16,
    E4M3,
    E5M2,
    F16,
    F32,
    answers,
    rounded_to,
    setting,
    toy_answers,
)
from narrowgauge.suites.meta.probe_units import TOYS, Plan, Toy, cut, factor, last, nearest, value

pytestmark = pytest.mark.meta

#: of MMA-Sim's and the recordings' units: bits by distance (places 2, 4, 8, 16, 32 of -U, both ends of K), and what is
#: said; the columns were computed by another program
SIGNATURES = {
    ("volta", F16, F32): ("23 23 23 23 23 23", "cut+0", "chain of 4"),
    ("ampere", BF16, BF16): ("24 24 23 23 23 23", "cut+1", "chain of 8"),
    ("ampere", F16, F32): ("24 24 23 23 23 23", "cut+1", "chain of 8"),
    ("hopper", F16, F16): ("25 25 25 23 23 23", "cut+2", "chain of 16"),
    ("ada fp8", E4M3, F32): ("13 13 13 13 13 13", "cut+0", "chain of 16"),
    ("qgmma", E5M2, BF16): ("13 13 13 13 13 13", "cut+0", "chain of 32"),
    ("mma.sync fp8", E4M3, F32): ("23 25 25 25 23 23", "cut+2", "chain of (16 then 16)"),
    ("tcgen05", E4M3, F32): ("25 25 25 25 23 23", "cut+2", "chain of 32"),
    ("mi300", BF16, F32): ("24 24 23 23 23 23", "cut+1, nearest", "chain of 8"),
    ("mi250", BF16, F32): ("23 23 23 23 23 23", "nearest_even", "chain of (2 + 2)"),
    ("fma", F32, F32): ("23 23 23 23 23 23", "nearest_even", "chain of 1"),
    ("mi100", F16, F32): (">=33 23 23 23 23 23", "nearest_even", "chain of 4"),
}


def findings(asked: Setting, got: dict[Key, float]) -> dict[str, Finding]:
    return dict(portrait(asked, got).findings)


@pytest.mark.parametrize(("name", "source", "out"), SIGNATURES)
def test_each_unit_has_its_signature(name: str, source: str, out: str) -> None:
    columns, rounding, order = SIGNATURES[name, source, out]
    found = findings(setting(source, out), toy_answers(name, source, out))
    bits = [part.partition(": ")[2] for part in found["width"].seen["bits"].split(", ")]
    assert " ".join(bits[:6]) == columns
    said = {n: found[n].value for n in ("rounding", "order", "subnormals", "range")}
    subnormals = "flushed" if name == "mi250" else "kept"
    assert said == {"rounding": rounding, "order": order, "subnormals": subnormals, "range": "float32"}
    assert found["k_order"].value == ("other" if name in ("mma.sync fp8",) else "ascending")
    stretch = "32" if name == "mma.sync fp8" else "none"  # its halves are added up in float32
    assert found["promotion"].value == stretch
    assert found["split_k"].value == "none"
    if out != F32:
        assert "once" in found["output"].value


@pytest.mark.parametrize(
    ("promote", "split"), [(32, 0), (64, 0), (128, 0), (0, 2), (0, 4)], ids=["p32", "p64", "p128", "split2", "split4"]
)
@pytest.mark.parametrize(("name", "source"), [("qgmma", E4M3), ("ampere", BF16)])
def test_promotion_and_split_k_are_what_the_schedule_says(name: str, source: str, promote: int, split: int) -> None:
    found = findings(setting(source, F32), toy_answers(name, source, F32, promote, split))
    assert found["promotion"].value == (str(promote) if promote else "none")
    assert found["split_k"].value == (str(split) if split else "none")
    assert found["carried"].value == {"qgmma": "13", "ampere": "23"}[name]
    if name == "qgmma" and promote:
        assert found["kept_from"].value == str(promote)
    if split != 2:  # of three terms two share a part then
        assert (found["adding"].value, found["apart"].value) == ("nearest_even", "23")


def test_an_order_of_k_is_told() -> None:
    """Pairs whose second product is added first, as AVX-512's vdpbf16ps has it."""

    def total(terms: Sequence[tuple[int, float, float]], k: int) -> int:
        return Plan(TOYS["fma"]).total(sorted((at ^ 1, x, y) for at, x, y in terms), k)

    found = findings(setting(BF16, F32), answers(setting(BF16, F32), total))
    assert (found["order"].value, found["k_order"].value) == ("chain of 1", "other")
    assert "0 1 3 2 5 4 7 6" in found["k_order"].words
    varying = findings(setting(BF16, F32), {
        key: value
        for at, each in enumerate((answers(setting(BF16, F32), total), toy_answers("fma", BF16, F32)))
        for key, value in each.items()
        if len(repr(key)) % 2 == at
    })  # fmt: skip
    assert not varying["order"].value


def test_a_float16_accumulator_is_told() -> None:
    toy = toy_answers("ampere to float16", F16, F16)
    found = findings(setting(F16, F16), toy)
    assert (found["carried"].value, found["rounding"].value, found["kept_from"].value) == (
        "10",
        "nearest_even",
        "never",
    )

    def overflows(out: str, x: int) -> float:
        return rounded_to(out, x)

    def total(terms: Sequence[tuple[int, float, float]], k: int) -> int:
        """A chain in float16, infinity beyond it: it stays away from 0."""
        held, gone = 0, False
        for _, x, y in terms:
            held += factor(x) * factor(y)
            held = nearest(held, last(held, 10, -14))
            gone = gone or abs(value(held)) >= 65520
        return held + gone * (factor(2.0**15) * factor(1.0))

    narrow = findings(setting(F16, F32), answers(setting(F16, F32), total, overflows))
    assert (narrow["range"].value, narrow["carried"].value) == ("float16", "10")


ROUNDED: dict[str, Callable[[int, int], int]] = {
    "down": lambda x, place: x >> place << place,
    "up": lambda x, place: -(-x >> place << place),
    "toward_zero": cut,
    "nearest_away": lambda x, place: (abs(x) + (1 << place - 1) >> place << place) * (1 if x > 0 else -1),
}


@pytest.mark.parametrize("rule", ROUNDED)
def test_every_rounding_of_sums_is_told(rule: str) -> None:
    def step(terms: Sequence[tuple[int, int]], c: int) -> int:
        total = sum(product for _, product in terms) + c
        return ROUNDED[rule](total, last(total, 23)) if total else 0

    found = findings(setting(BF16, F32), answers(setting(BF16, F32), Plan(Toy(1, step)).total))
    assert (found["rounding"].value, found["adding"].value) == (rule, rule)
    assert found["carried"].value == "23"


ENDS = {
    "through float16": lambda out, x: rounded_to(out, nearest(x, last(x, 10, -14))),
    "toward zero": lambda out, x: value(cut(x, last(x, 7))),
    "ties away": lambda out, x: (
        value((abs(x) + (1 << last(x, 7) - 1) >> last(x, 7) << last(x, 7)) * (1 if x > 0 else -1)) if x else 0.0
    ),
}


@pytest.mark.parametrize("way", ENDS)
def test_a_second_rounding_of_the_result_is_told(way: str) -> None:
    found = findings(setting(BF16, BF16), answers(setting(BF16, BF16), Plan(TOYS["ampere"]).total, ENDS[way]))
    assert found["output"].value == way
