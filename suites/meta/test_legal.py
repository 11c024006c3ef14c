"""docs/legal.md: every verdict is computed twice, by the reference and in exact fractions."""

from __future__ import annotations

import json
import re
from fractions import Fraction

import pytest

from narrowgauge.command import explain, legal_words
from narrowgauge.reference.legal.operations import NO, OPERATIONS, YES
from narrowgauge.suites.meta.second_legal import ANSWERS, Number, rounded

pytestmark = pytest.mark.meta
ROWS = [(name, fmt) for name, of in OPERATIONS.items() for fmt in of.verdicts]


@pytest.mark.parametrize(("name", "format_name"), ROWS)
def test_a_verdict_is_what_the_trial_and_exact_fractions_give(name: str, format_name: str) -> None:
    of = OPERATIONS[name]
    seen, (verdict, numbers) = of.trial(format_name), ANSWERS[name](format_name)
    assert (seen.verdict, verdict) == (of.verdicts[format_name],) * 2
    shown = [float(n) for n in re.findall(r"(?<![\w.])-?(?:inf|NaN|[\d.]+(?:e[+-]?\d+)?)(?![\w])", seen.shown)]
    assert shown[: len(numbers)] == pytest.approx([_six(n) for n in numbers], abs=0, rel=0, nan_ok=True)


def _six(number: Number) -> float:
    """Of six digits, as the page shows it."""
    return float(f"{float(number):.6g}")


def test_the_rule_of_the_page() -> None:
    """What sums, exponentiates, divides or chooses is computed in no format of 16 bits; bfloat16 stores everything."""
    for of in OPERATIONS.values():
        if of.does == "stores":
            assert of.verdicts["bfloat16"] == YES
        else:
            assert [of.verdicts[f] for f in ("float32", "bfloat16", "float16")] == [YES, NO, NO]


def test_the_second_rounding_knows_ties_and_ends() -> None:
    assert [rounded(Fraction(x), "bfloat16") for x in (257, 259)] == [256, 260]
    assert rounded(Fraction(65520), "float16") == float("inf")
    assert rounded(Fraction(65519), "float16") == 65504
    assert rounded(Fraction(10**6), "float8_e4m3fn") == 448
    assert rounded(Fraction(1, 1024), "float8_e4m3fn") == 0


def test_explain_shows_the_table_and_an_operation() -> None:
    data, lines = explain.explanation(legal_words.LEGAL, 100)
    assert [d["name"] for d in data] == list(OPERATIONS)
    text = "\n".join(line.plain for line in lines)
    assert "scale of float8_e4m3fn" in text
    assert "rounded up: float8_e8m0fnu" in text
    one, lines = explain.explanation("sum of a product", 80)
    assert one["trials"]["bfloat16"] == {"verdict": "no", "shown": "256"}
    assert json.loads(json.dumps(one)) == one
    assert "bfloat16       no       256" in [line.plain for line in lines]
