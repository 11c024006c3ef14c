"""narrowgauge explain NAME --plot: the numbers in the picture, by hand and by ml_dtypes, and the picture itself."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from narrowgauge.command import panels, pictures, plot
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.landmarks import PLACES, places, smallest_normal, top_code
from narrowgauge.reference.number_line import (
    at_the_top,
    magnitudes,
    parting_codes,
    shown_codes,
    sibling,
    spacings,
    top_points,
)
from narrowgauge.suites.meta.command_sets import as_json, ends, refused, said
from narrowgauge.suites.meta.marks import needs_matplotlib

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]

E4, E5 = FORMATS["float8_e4m3fn"], FORMATS["float8_e5m2"]

# --- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "largest", "smallest"),
    [
        ("float8_e4m3fn", 448, 2**-6), ("float8_e4m3fnuz", 240, 2**-7), ("float8_e5m2", 57344, 2**-14),
        ("float8_e8m0fnu", 2.0**127, 2.0**-127), ("float4_e2m1fn", 6, 1), ("int8", 127, 1), ("uint4", 15, 1),
        ("float16", 65504, 2**-14), ("float32", float(np.finfo(np.float32).max), 2.0**-126),
    ],
)  # fmt: skip
def test_landmarks(name: str, largest: float, smallest: float) -> None:
    fmt = FORMATS[name]
    assert magnitudes(np.array([top_code(fmt), smallest_normal(fmt)]), fmt).tolist() == [largest, smallest]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float6_e2m3fn", "float4_e2m1fn"])
def test_every_positive_value_is_shown(name: str) -> None:
    fmt = FORMATS[name]
    theirs = np.arange(fmt.code_count, dtype=np.uint8).view(getattr(ml_dtypes, name)).astype(np.float64)
    positive = np.sort(theirs[(theirs > 0) & np.isfinite(theirs)])
    x, apart = spacings(fmt)
    assert x.tolist() == positive.tolist()
    assert apart[:-1].tolist() == np.diff(positive).tolist()
    assert apart[-1] == positive[-1] - positive[-2]


@pytest.mark.parametrize("name", ["float32", "float16", "tfloat32", "bfloat16"])
def test_of_wide_formats_a_few_values_are_shown_with_the_ends_and_every_power_of_two(name: str) -> None:
    fmt = FORMATS[name]
    codes = shown_codes(fmt)
    x = magnitudes(codes, fmt)
    low, high = 1 - fmt.bias - fmt.mantissa, fmt.bias
    assert set(2.0 ** np.arange(low, high + 1)) <= set(x)
    assert codes[-1] == top_code(fmt)
    assert codes.size < 4096


def test_places_by_hand() -> None:
    """e4m3fn: subnormals from 2^-9 to 7 x 2^-9, the largest 448; 432 and 464 are ties."""
    x = np.array([0, -0.0, 2**-10, 2**-11, 2**-9, 2**-9 * 1.25, 1, 1.01, 432, 448, 449, 464, np.inf, -np.nan, -1.0625])
    expected = [
        "zero", "zero", "ties", "below the smallest", "values of the format", "subnormal range", "values of the format",
        "between values", "ties", "values of the format", "beyond the largest", "beyond the largest", "infinity", "NaN",
        "ties",
    ]  # fmt: skip
    assert [PLACES[n] for n in places(x, E4)] == expected
    integers = places(np.array([-128.0, 128.0, 127.5, 0.25]), FORMATS["int8"])
    assert [PLACES[n] for n in integers] == [
        "values of the format", "beyond the largest", "beyond the largest", "below the smallest",
    ]  # fmt: skip


def test_who_gives_what_beyond_448() -> None:
    assert top_points(E4) == [400, 416, 432, 448, 464, 480, 496]
    by_name = {name: lane for lane in at_the_top(E4) for name in lane.names}
    theirs = by_name["ml_dtypes"]
    assert [(s.low, s.high) for s in theirs.stretches] == [(400, 432), (432, 464), (464, 496)]
    for stretch in theirs.stretches:
        x = np.array([(stretch.low + stretch.high) / 2, stretch.high], np.float32)
        given = x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
        assert np.array_equal([stretch.gives, stretch.tie], given, equal_nan=True)
    assert np.isnan(theirs.of_infinity)
    saturating = by_name["ocp_saturate"]
    assert [(s.low, s.high, s.gives) for s in saturating.stretches] == [(400, 432, 416), (432, 496, 448)]
    assert saturating.of_infinity == 448
    clamped = by_name["amd_native_clamped"]
    assert (clamped.stretches[-1].gives, str(clamped.of_infinity)) == (448, "nan")
    upward = by_name["e4m3_ceil"]  # every number above 416 becomes 448
    assert [(s.low, s.high, s.gives) for s in upward.stretches][:1] == [(400, 416, 416)]
    assert upward.stretches[-1].gives == 448
    assert len(at_the_top(E4)) == 4
    assert sum(len(lane.names) for lane in at_the_top(E4)) == len(by_name)


def test_where_ocp_and_fnuz_part() -> None:
    """The same byte is worth twice as much in OCP; but for -0, and for OCP's infinities and NaN, which FNUZ uses."""
    pairs = {"float8_e4m3fn": "float8_e4m3fnuz", "float8_e5m2": "float8_e5m2fnuz"}
    for ocp, fnuz in pairs.items():
        assert sibling(FORMATS[ocp]) is FORMATS[fnuz]
        assert sibling(FORMATS[fnuz]) is FORMATS[ocp]
    assert [f.name for f in FORMATS.values() if sibling(f)] == [name for pair in pairs.items() for name in pair]
    for one, ratio in ((E4, 2.0), (FORMATS["float8_e4m3fnuz"], 0.5)):
        other = sibling(one)
        assert other is not None
        found, codes = parting_codes(one, other)
        assert (found, codes.tolist()) == (ratio, [0x7F, 0x80, 0xFF])
    other = sibling(E5)
    assert other is not None
    assert parting_codes(E5, other)[1].tolist() == [0x7C, 0x7D, 0x7E, 0x7F, 0x80, 0xFC, 0xFD, 0xFE, 0xFF]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (448, "448"), (2**-9, "$2^{-9}$"), (0.5, "0.5"), (0.75 * 2**-9, "1.5·$2^{-10}$"), (2.0**127, "$2^{127}$"),
        (-240, "-240"), (-0.0, "-0"), (np.nan, "NaN"), (-np.inf, "-inf"), (65504, "65504"),
        (float(np.finfo(np.float32).max), "3.40282347e+38"),
        (2.0**31 - 1, "2147483647"), (1.5 * 2**-20, "1.5·$2^{-20}$"), (-(2.0**33) - 1, "-8.58993459e+09"),
    ],
)  # fmt: skip
def test_numbers_in_few_letters(value: float, text: str) -> None:
    assert panels.number(value) == text


# --- pictures --------------------------------------------------------------------------------------------------------


@needs_matplotlib
@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn", "float32", "tfloat32", "bfloat16"])
def test_no_text_is_cut(name: str) -> None:
    """Everything that is written lies on the picture, and no two labels of the panel of policies on one another."""
    import matplotlib.style

    fmt = FORMATS[name]
    with matplotlib.style.context(pictures.STYLE, after_reset=True):
        figure = pictures.figure_of(plot.height(fmt), lambda drawn: plot.draw(drawn, fmt))
        figure.set_dpi(pictures.DPI)
        figure.draw_without_rendering()
    canvas = figure.bbox
    texts = [t for axes in figure.axes for t in axes.texts if t.get_text()]
    assert len(texts) > 8
    for text in [*texts, *(axes.title for axes in figure.axes), *figure.texts]:
        box = text.get_window_extent()
        assert canvas.x0 <= box.x0 <= box.x1 <= canvas.x1, text.get_text()
        assert canvas.y0 <= box.y0 <= box.y1 <= canvas.y1, text.get_text()
    assert _overlaps(figure.axes[2].texts) == []


def _overlaps(texts: list[Any]) -> list[tuple[str, str]]:
    boxes = [(t.get_text(), t.get_window_extent()) for t in texts]
    return [(a, b) for i, (a, one) in enumerate(boxes) for b, two in boxes[:i] if one.overlaps(two)]


@needs_matplotlib
def test_a_picture_where_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = said(["explain", "E4M3FNUZ", "--plot"], capsys)
    assert text == "float8_e4m3fnuz: picture written to float8_e4m3fnuz.png"
    content = (tmp_path / "float8_e4m3fnuz.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert struct.unpack(">I", content[16:20]) == (1200,)
    assert b"matplotlib" not in content, "no version, which would make other bytes"
    assert [p.name for p in tmp_path.iterdir()] == ["float8_e4m3fnuz.png"]


@needs_matplotlib
def test_the_same_picture_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the user has set for pictures of their own, and without a date."""
    import matplotlib

    one, two = tmp_path / "one.svg", tmp_path / "new" / "two.SVG"
    assert as_json(["explain", "float4_e2m1fn", "--plot", str(one)], capsys) == {
        "name": "float4_e2m1fn", "picture": str(one),
    }  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setitem(matplotlib.rcParams, "axes.facecolor", "black")
        assert ends(["explain", "float4_e2m1fn", "--plot", str(two)]) == 0
    assert one.read_bytes() == two.read_bytes()
    text = one.read_text()
    assert text.startswith("<?xml")
    assert "<dc:date>" not in text


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "matplotlib" else real(name))
    assert ends(["explain", "int8", "--plot"]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("narrowgauge: --plot needs matplotlib, which is not installed")
    assert "'.[plot]'" in captured.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["float8_e4m3fn", "--plot", "picture.jpg"], "--plot picture.jpg: expected a file that ends in .png or .svg"),
        (["float8_e4m3fn", "--plot", "picture"], "expected a file that ends in .png or .svg"),
        (["ocp_saturate", "--plot"], "--plot draws a format, and 'ocp_saturate' is none; there are float64, float32"),
        (["float64", "--plot"], "--plot draws formats of at most 32 bits; float64 has 64"),
    ],
)
def test_what_cannot_be_drawn(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in refused(["explain", *arguments], capsys)
    assert list(tmp_path.iterdir()) == []


@needs_matplotlib
def test_a_place_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    text = refused(["explain", "uint4", "--plot", str(tmp_path / "file" / "a.svg")], capsys)
    assert "cannot write" in text
