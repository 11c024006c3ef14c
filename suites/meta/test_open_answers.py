"""A mismatch behind open answers: which answers are tried, and what they explain."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.outcome import CHOICES
from narrowgauge.contracts.verdict import OpenAnswers
from narrowgauge.devices.emulator.modelled import choose
from narrowgauge.devices.emulator.models.answers import Answers, Band
from narrowgauge.reference.judge import judge
from narrowgauge.reference.message import failure_message

pytestmark = pytest.mark.meta

# --- which answers ---------------------------------------------------------------------------------------------------


def words(*values: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
    return np.array(values, np.uint32)


#: from -1 to 1 across zero, one place around 1, a single answer, NaN alone
BAND = Band(
    words(0, 0x3F800000, 0x40000000, 0x7FFFFFFF),
    words(0xBF800000, 0x3F7FFFFF, 0x40000000, 0x7FFFFFFF),
    words(0x3F800000, 0x3F800001, 0x40000000, 0x7FFFFFFF),
)
SET = Answers(words(0x7E, 0x38), (words(0x7F, 0x38),))


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_is_an_allowed_answer(choice: str) -> None:
    for answer in (BAND, SET):
        assert answer.allows(choose(answer, choice)).all()


def test_choices_by_name() -> None:
    assert choose(BAND, "first").tolist() == BAND.first.tolist()
    assert choose(BAND, "low").tolist() == BAND.low.tolist()
    assert choose(BAND, "high").tolist() == BAND.high.tolist()
    assert [choose(SET, c).tolist() for c in ("low", "high")] == [[0x7E, 0x38], [0x7F, 0x38]]


def test_random_choices_reach_every_answer_and_are_the_same_for_equal_lanes() -> None:
    """Else a value that two threads compute alike would be two values, and a race."""
    lanes = (np.arange(1000) * 3 + 0x3F800000).astype(np.uint32)
    band = Band(lanes, lanes - 1, lanes + 1)
    one, two = (choose(band, c).astype(np.int64) - lanes for c in ("random 1", "random 2"))
    assert {*one.tolist()} == {*two.tolist()} == {-1, 0, 1}
    assert (one != two).any()
    twice = Band(*(np.repeat(each, 2) for each in (band.first, band.low, band.high)))
    assert (choose(twice, "random 1").reshape(-1, 2).astype(np.int64) - lanes[:, None] == one[:, None]).all()


# --- what they explain -----------------------------------------------------------------------------------------------

CAST = Claim.parse("cast/ocp_saturate/float32/float8_e4m3fn")
X = Coded("float32", np.array([1.0, -1.0, 0.0, np.nan, 448.0], np.float32).view(np.uint32))
RIGHT = (0x38, 0xB8, 0x00, 0x7F, 0x7E)
OPEN = {"div.full.f32 (PTX 9.1)": True}


def outputs(*codes: int) -> dict[str, Coded]:
    return {"codes": Coded(CAST.format, np.array(codes, np.uint8))}


def found(first: tuple[int, ...], **others: tuple[int, ...]) -> tuple[str, OpenAnswers | None]:
    again: Mapping[str, dict[str, Coded]] = {name: outputs(*codes) for name, codes in others.items()}
    verdict = judge(CAST, X, outputs(*first), models=OPEN, again=lambda: again)
    return verdict.result, verdict.open_answers


@pytest.mark.parametrize(
    ("first", "other", "want"),
    [
        # one code too large, and another answer is one too small: the expected one lies between
        ((0x39, *RIGHT[1:]), (0x37, *RIGHT[1:]), ("disputed", 1, 0, "")),
        ((0x39, *RIGHT[1:]), RIGHT, ("disputed", 1, 0, "low")),
        # it moves, but not so far; it does not move at all
        ((0x3A, *RIGHT[1:]), (0x39, *RIGHT[1:]), ("failed", 0, 1, "")),
        ((0x39, *RIGHT[1:]), (0x39, *RIGHT[1:]), ("failed", 0, 1, "")),
        # one is explained and one is not
        ((0x39, 0xB9, *RIGHT[2:]), (0x37, 0xB9, *RIGHT[2:]), ("failed", 1, 1, "")),
        # the sign of zero, and its way across
        ((0x38, 0xB8, 0x80, *RIGHT[3:]), (0x38, 0xB8, 0x80, *RIGHT[3:]), ("failed", 0, 1, "")),
        ((0x38, 0xB8, 0x81, *RIGHT[3:]), (0x38, 0xB8, 0x01, *RIGHT[3:]), ("disputed", 1, 0, "")),
        # NaN is met by NaN alone, and is not a large number
        ((*RIGHT[:3], 0x7E, 0x7E), (*RIGHT[:3], 0xFE, 0x7E), ("failed", 0, 1, "")),
        ((*RIGHT[:3], 0x7E, 0x7E), (*RIGHT[:3], 0xFF, 0x7E), ("disputed", 1, 0, "low")),
        ((*RIGHT[:4], 0x7F), (*RIGHT[:4], 0x7D), ("failed", 0, 1, "")),
    ],
)
def test_what_other_answers_explain(
    first: tuple[int, ...], other: tuple[int, ...], want: tuple[str, int, int, str]
) -> None:
    result, answers = found(first, low=other)
    assert answers is not None
    assert answers.tried == ("first", "low")
    assert (result, answers.within, answers.beyond, answers.agrees) == want


def test_nobody_asks_again_without_need() -> None:
    """Passing cells, cells without open answers and answers in a wrong form cost one call."""

    def never() -> dict[str, dict[str, Coded]]:
        raise AssertionError

    wrong = outputs(0x39, *RIGHT[1:])
    assert judge(CAST, X, outputs(*RIGHT), models=OPEN, again=never).result == "passed"
    assert judge(CAST, X, wrong, models={"cvt": False}, again=never).result == "failed"
    assert judge(CAST, X, outputs(0x38), models=OPEN, again=never).result == "failed"


def test_answers_that_cannot_be_compared_are_left_out() -> None:
    result, answers = found((0x39, *RIGHT[1:]), low=(0x38,))
    assert (result, answers) == ("disputed", None)


def test_the_message_says_what_was_tried() -> None:
    def text(first: tuple[int, ...], other: tuple[int, ...]) -> str:
        verdict = judge(CAST, X, outputs(*first), models=OPEN, again=lambda: {"low": outputs(*other)})
        return failure_message(verdict, "theirs")

    tried = "2 choices of the open answers of div.full.f32 (PTX 9.1) were tried"
    mixed = text((0x39, 0xB9, *RIGHT[2:]), (0x37, 0xB9, *RIGHT[2:]))
    assert f"\n{tried}; none explains 1 of the codes; they explain 1 more\n" in mixed
    assert "\nbreaks: a specification" in mixed
    assert f"\ndisputed: {tried}; with 'low' nothing differs\n" in text((0x39, *RIGHT[1:]), RIGHT)
    assert f"\ndisputed: {tried}; they explain all 1 of the codes\n" in text((0x39, *RIGHT[1:]), (0x37, *RIGHT[1:]))
