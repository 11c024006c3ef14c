"""How far codes are off, what saturates, and what a picture of a mismatch shows: by hand, and by ml_dtypes' order."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from narrowgauge.ci.ledger import Row
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.contracts.verdict import Mismatch
from narrowgauge.plugin.mismatches import Differing, page
from narrowgauge.reference.compare import Difference, compare
from narrowgauge.reference.distance import figures, is_finite, rank, saturated
from narrowgauge.reference.inputs import case_named
from narrowgauge.reference.interval import Interval
from narrowgauge.reference.pictured import as_matrix, code_of_rank, lanes, overview, shrunk
from narrowgauge.suites.judging import Judged, run_cell
from narrowgauge.suites.meta.marks import needs_matplotlib, needs_torch
from narrowgauge.suites.offline import inputs_content, judge_files, outputs_content
from narrowgauge.suites.planning import plan_cases
from narrowgauge.suites.run import Run

pytestmark = pytest.mark.meta

E4 = "float8_e4m3fn"
#: those that ml_dtypes has with one code to a byte
NARROW = [
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e4m3", "float8_e3m4",
    "float8_e4m3b11fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn",
]  # fmt: skip


def codes(*values: int, name: str = E4) -> Coded:
    return Coded(name, np.array(values, FORMATS[name].storage))


def floats(*values: float) -> Coded:
    return Coded("float32", np.array(values, np.float32).view(np.uint32))


# --- ranks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NARROW)
def test_ranks_are_the_order_of_values(name: str) -> None:
    """ml_dtypes' values, sorted: neighbours are one apart, both zeros are at 0, and a rank leads back to its code."""
    fmt = FORMATS[name]
    every = np.arange(fmt.code_count, dtype=fmt.storage)
    values = every.view(getattr(ml_dtypes, name)).astype(np.float64)
    finite = is_finite(every, fmt)
    assert finite.tolist() == np.isfinite(values).tolist()
    ranks = rank(every[finite], fmt)
    distinct = np.unique(values[finite])
    zero = int(np.searchsorted(distinct, 0.0)) if 0.0 in distinct else 0
    assert ranks.tolist() == (np.searchsorted(distinct, values[finite]) - zero).tolist()
    back = code_of_rank(np.unique(ranks), fmt).view(getattr(ml_dtypes, name)).astype(np.float64)
    assert back.tolist() == distinct.tolist()


def test_ranks_of_wide_formats_and_integers() -> None:
    x = np.array([1.0, np.nextafter(np.float32(1), np.float32(2)), -0.0, -1.401298464324817e-45], np.float32)
    at = rank(x.view(np.uint32), FORMATS["float32"])
    assert at[1] - at[0] == 1
    assert at[2:].tolist() == [0, -1]
    assert rank(np.array([0, 127, 128, 255], np.uint8), FORMATS["int8"]).tolist() == [0, 127, -128, -1]
    assert code_of_rank(np.array([0, 127, -128, -1]), FORMATS["int8"]).tolist() == [0, 127, 128, 255]


# --- figures ---------------------------------------------------------------------------------------------------------


def measured(got: Coded, low: Coded, high: Coded | None = None, output: str = "codes") -> dict[str, int]:
    want = {output: Interval(low, high or low)}
    return figures({output: got}, want, compare({output: got}, want))


def test_ulp_is_the_farthest_value() -> None:
    """0x38 is 1.0 and 0x3a 1.25; 0x80 is -0, one step above 0x81."""
    assert measured(codes(0x38, 0x3A, 0x80), codes(0x38, 0x38, 0x82))["ulp"] == 2
    assert "ulp" not in measured(codes(0x38, 0x80), codes(0x38, 0x00))  # a sign of zero is no distance
    assert "ulp" not in measured(codes(0x7F), codes(0x7E))  # NaN is none either
    assert "ulp" not in measured(floats(2.0), floats(1.0), output="scale")


def test_ulp_is_counted_from_the_nearer_end() -> None:
    low, high = codes(0x38, 0x38), codes(0x3A, 0x3A)
    assert measured(codes(0x3D, 0x39), low, high)["ulp"] == 3
    assert measured(codes(0x34, 0x39), low, high)["ulp"] == 4


@pytest.mark.parametrize(
    ("name", "tensor", "count"),
    [
        (E4, (0x7E, 0xFE, 0x7D, 0x7F), 2), ("float8_e4m3fnuz", (0x7F, 0xFF, 0x80), 2), ("float8_e5m2", (0x7B, 0x7C), 1),
        ("int8", (0x7F, 0x80, 0x81), 2), ("uint4", (15, 0, 7), 2), ("float8_e8m0fnu", (0xFE,), 0),
        ("bfloat16", (0x7F7F,), 0),
    ],
)  # fmt: skip
def test_saturated_codes(name: str, tensor: tuple[int, ...], count: int) -> None:
    """448 is 0x7e, 240 is 0x7f, 57344 is 0x7b; powers of two alone, and wide formats, are not clipped to."""
    assert saturated(codes(*tensor, name=name)) == count


# --- pictures --------------------------------------------------------------------------------------------------------


def cast(inputs: tuple[float, ...], got: tuple[int, ...], want: tuple[int, ...]) -> Differing:
    x, outputs, expected = floats(*inputs), {"codes": codes(*got)}, {"codes": Interval.exactly(codes(*want))}
    return Differing(x, outputs, expected, compare(outputs, expected), True)


def test_a_lane_stands_around_its_input() -> None:
    """1.0625 lies half-way between 1 (0x38) and 1.125 (0x39)."""
    made = cast((1.0625, 2.0), (0x39, 0x40), (0x38, 0x40))
    (lane,) = lanes(made.x, made.got["codes"], made.want["codes"], made.difference)
    assert [t.value for t in lane.ticks] == [0.875, 0.9375, 1.0, 1.125, 1.25, 1.375]
    assert (lane.want_at, lane.got_at, lane.at) == (0x38, 0x39, 0x38 + 0.5)
    assert (lane.got, lane.want) == ("1.125 (0x39)", "1 (0x38)")


@pytest.mark.parametrize(
    ("x", "got", "want", "places"),
    [
        (500.0, 0x7F, 0x7E, (None, 126.0)),  # NaN for 448
        (-500.0, 0xFF, 0xFE, (None, -126.0)),
        (float("nan"), 0x7E, 0x7F, (126.0, None)),
        (1.0, 0x00, 0x38, (0x38 - 2 - 0.7, 56.0)),  # so far off that it stands at the end of the line
    ],
)
def test_a_lane_of_what_is_no_number_or_far_off(x: float, got: int, want: int, places: tuple[float, float]) -> None:
    made = cast((x,), (got,), (want,))
    (lane,) = lanes(made.x, made.got["codes"], made.want["codes"], made.difference)
    assert (lane.got_at, lane.want_at) == places
    beyond = {500.0: 126 + 0.7, -500.0: -126 - 0.7, 1.0: 56}  # the largest has no neighbour: beside the line
    assert np.isnan(x) or lane.at == beyond[x]
    assert all(abs(t.value) <= 448 for t in lane.ticks)


def test_lanes_show_every_kind_and_sign() -> None:
    made = cast(
        (1.0, 2.0, 4.0, 8.0, 16.0, -1.0, 500.0), (0x39, 0x41, 0x49, 0x51, 0x59, 0xB9, 0x7F),
        (0x38, 0x40, 0x48, 0x50, 0x58, 0xB8, 0x7E),
    )  # fmt: skip
    shown = [lane.given for lane in lanes(made.x, made.got["codes"], made.want["codes"], made.difference)]
    assert len(shown) == 5
    assert any(given.startswith("-1 ") for given in shown)
    assert any(given.startswith("500 ") for given in shown)


def test_an_overview_has_every_input() -> None:
    made = cast((1.0, -1.0, 500.0, 0.0, 1.0), (0x3A, 0xB8, 0x7F, 0x00, 0x37), (0x38, 0xB9, 0x7E, 0x00, 0x38))
    seen = overview(made.x, made.got["codes"], made.want["codes"], made.difference)
    assert seen.wrong.tolist() == [True, True, True, False, True]
    assert seen.apart[:2].tolist() == [2.0, 1.0]  # -1 for -1.125: one code up
    assert np.isnan(seen.apart[2])
    assert seen.apart[3:].tolist() == [0.0, -1.0]


def test_a_map_keeps_the_rarest_kind() -> None:
    """1,000 columns in 250 points of four; a single NaN among wrong values is not painted over."""
    classes = np.zeros((2, 1000), np.uint8)
    classes[1, 400:420] = 1
    classes[1, 403] = 4
    found, each = shrunk(classes)
    assert each == (1, 4)
    assert found.shape == (2, 250)
    assert np.flatnonzero(found[1]).tolist() == [100, 101, 102, 103, 104]
    assert found[1, 100:105].tolist() == [4, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("shape", "matrix"), [((), (1, 1)), ((5,), (1, 5)), ((3, 4), (3, 4)), ((2, 3, 4), (6, 4)), ((0, 8), (0, 8))]
)
def test_any_tensor_is_a_matrix(shape: tuple[int, ...], matrix: tuple[int, int]) -> None:
    assert as_matrix(shape) == matrix


def row(**values: object) -> Row:
    fixed = {"id": "i", "operation": "cast", "rule": "r", "source": "float32", "format": E4, "case": "edges"}
    who = {"kernel": "<k>", "owner": "o", "own": True, "target": "host", "device": "host", "how": "executed"}
    return Row(**{**fixed, **who, "backend": "numpy", "result": "failed", **values})  # type: ignore[arg-type]


def test_a_table_of_codes_is_hexadecimal_and_bounded() -> None:
    made = cast((1.0,) * 2000, (0x39,) * 2000, (0x38,) * 2000)
    lines = list(csv.reader(io.StringIO(made.csv())))
    assert lines[0] == ["output", "index", "kind", "input", "got", "want", "or up to"]
    assert lines[1] == ["codes", "0", "value", "0x3f800000", "0x39", "0x38", "0x38"]
    assert len(lines) == 1001


def test_a_page_escapes_what_it_is_given() -> None:
    mismatch = Mismatch("codes", (1, 2), "zero_sign", "<script>", "a", "b")
    text = page(row(mismatches=(mismatch,), differences={"zero_sign": 1}, elements=4, figures={"ulp": 3}), ["no <x>"])
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "codes[1, 2]" in text
    assert "1 of 4 elements differ" in " ".join(text.split())
    assert "no &lt;x&gt;" in text


@needs_matplotlib
@pytest.mark.parametrize("shape", [(6,), (2, 3, 4), (700, 1)])
def test_a_picture_is_wide_and_small(shape: tuple[int, ...]) -> None:
    """Every shape of output gives a PNG of 1,200 columns; of a cast, and of a matrix."""
    from PIL import Image

    from narrowgauge.command import mismatch_picture

    got = np.full(shape, 0x39, np.uint8)
    want = got.copy()
    want.flat[0] = 0x38
    inputs = Coded("float32", np.ones(shape, np.float32).view(np.uint32))
    outputs, expected = {"codes": Coded(E4, got)}, {"codes": Interval.exactly(Coded(E4, want))}
    difference: Difference = compare(outputs, expected)
    judged = Judged(row(differences={"value": 1}, elements=got.size))
    made = mismatch_picture.png(judged, Differing(inputs, outputs, expected, difference, len(shape) == 1))
    picture = Image.open(io.BytesIO(made))
    assert picture.size[0] == 1200
    assert 300 < picture.size[1] < 1000
    assert len(made) < 100_000
    assert len(picture.convert("RGB").getcolors(1 << 20) or ()) > 3


# --- files -----------------------------------------------------------------------------------------------------------


@needs_torch
def test_files_of_a_call_on_a_cache_are_judged_alike(tmp_path: Path) -> None:
    """What lies in pages goes into the file as it lay there, not as the matrices that were judged."""
    origin = str(Path(__file__).absolute().parent / "mutant_kernels" / "kv_writers.py")
    run = Run(origins=[origin], device_names=["host"])
    try:
        kernels = [p for p in run.devices[0].describe(origin) if p.kernel.name == "kv_writer_v_at_unity"]
        planned = next(p for p in plan_cases(kernels, run.devices, "kv_write", "smoke") if p.case == "scattered")
        x = case_named("scattered", "kv_write").inputs(planned.claim)
        judged = run_cell(planned, x)
    finally:
        run.close()
    assert judged.memory is not None
    files = tmp_path / "in", tmp_path / "out"
    files[0].write_bytes(inputs_content(planned.claim, {planned.case: x}))
    files[1].write_bytes(outputs_content(planned.case, judged.memory))
    (again,) = judge_files(*files, "k", "host")
    assert judged.row.result == again.row.result == "failed"
    assert (again.row.differences, again.row.digest) == (judged.row.differences, judged.row.digest)


def test_what_is_no_code_is_not_written() -> None:
    strange = Coded("float4_e2m1fn", np.array([3, 200], np.uint8))
    with pytest.raises(BadInput, match="scale holds what is no code"):
        outputs_content("edges", {"codes": codes(1), "scale": strange})
