"""Matrices that are not contiguous, and inputs that a kernel must leave alone."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.views import VIEWS, View, place
from narrowgauge.devices.device import Device
from narrowgauge.devices.placing import placed
from narrowgauge.reference.behaviour import resolved
from narrowgauge.reference.compare import compare
from narrowgauge.reference.expected import expected
from narrowgauge.reference.inputs import CASES, case_named, cases_for
from narrowgauge.suites.judging import Judged, run_cell
from narrowgauge.suites.meta.device_sets import FOLDER
from narrowgauge.suites.meta.marks import needs_torch
from narrowgauge.suites.planning import Planned

pytestmark = pytest.mark.meta

STRIDED: tuple[View, ...] = ("sliced", "transposed", "alternate_rows", "far")
#: wrong kernel -> the views that show it; on a contiguous matrix none does
SHOWN: dict[str, set[View]] = {
    "takes_all_for_contiguous": set(STRIDED),
    "takes_columns_for_adjacent": {"transposed"},
    "takes_the_first_of_each_pair": {"alternate_rows"},
    "reads_beyond_its_columns": {"sliced"},
    "offsets_in_32_bits": {"far"},
    "numpy_takes_all_for_contiguous": set(STRIDED),
}


@pytest.fixture(scope="module")
def kernels(host: Device) -> dict[str, Plugged]:
    files = (str(FOLDER / name) for name in ("views.py", "views_numpy.py"))
    return {p.kernel.name: p for file in files for p in host.describe(file)}


def claim(source: str) -> Claim:
    return Claim.parse(f"quantize/vllm.fp8_per_token_dynamic/{source}/float8_e4m3fn")


def judged(kernels: dict[str, Plugged], name: str, case: str, host: Device, source: str = "float32") -> Judged:
    plugged = kernels[name]
    (claim,) = [c for c in plugged.kernel.claims if c.source == source]
    return run_cell(Planned(plugged, claim, case, host), case_named(case).make(claim))


# --- places ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("source", ["float32", "bfloat16"])
def test_a_view_has_the_numbers_of_its_matrix(view: View, source: str) -> None:
    x = case_named("sliced").make(claim(source))
    found = placed(x, view)
    np.testing.assert_array_equal(found.array(found.memory), x.data)
    assert found.watched
    assert found.changes("x", found.array(found.memory)) == []
    assert not np.shares_memory(found.memory, x.data)


def test_strides_of_each_view() -> None:
    """Written out: 3 rows of 64."""
    found = {view: place(view, (3, 64)) for view in VIEWS}
    assert {view: p.strides for view, p in found.items()} == {
        "contiguous": (64, 1),
        "sliced": (112, 1),
        "transposed": (1, 3),
        "alternate_rows": (128, 1),
        "far": (2**30 + 16, 1),
    }
    assert {view: (p.offset, p.size) for view, p in found.items()} == {
        "contiguous": (0, 192),
        "sliced": (16, 336),
        "transposed": (0, 192),
        "alternate_rows": (0, 384),
        "far": (0, 2**31 + 96),
    }


def test_nan_and_large_numbers_stand_around_a_view() -> None:
    """On both sides of every row, and between rows; whichever of the two an amax drops, the other is there."""
    x = Coded("float32", np.zeros((3, 64), np.uint32))
    for view in ("sliced", "alternate_rows"):
        found = placed(x, view)
        around = np.ones(found.memory.shape, bool)
        found.array(around)[...] = False
        other = found.memory[around].view(np.float32)
        assert other.size == found.memory.size - 192
        assert np.isnan(other).sum() == (other == np.finfo(np.float32).max).sum() == other.size // 2
        beside = np.flatnonzero(np.diff(around.astype(int)))
        assert beside.size == {"sliced": 6, "alternate_rows": 5}[view]
        for edge in beside:  # two elements on the outer side of an edge are one of each
            pair = found.memory[edge - 1 : edge + 1] if around[edge] else found.memory[edge + 1 : edge + 3]
            assert np.isnan(pair.view(np.float32)).sum() == 1


def test_surroundings_in_formats_without_infinity_are_codes() -> None:
    for name in ("float8_e4m3fn", "float6_e2m3fn", "float8_e8m0fnu", "int8"):
        fmt = format_named(name)
        found = placed(Coded(name, np.zeros((2, 32), fmt.storage)), "sliced")
        assert Coded(name, found.memory).well_formed
        assert len(np.unique(found.memory)) == 2


def test_every_view_but_the_plain_one_has_a_case_and_files_have_none() -> None:
    """A file holds numbers and no strides."""
    assert {c.view for c in CASES} == set(VIEWS)
    assert "sliced" not in cases_for(claim("float32"), "smoke")


# --- kernels ---------------------------------------------------------------------------------------------------------


@needs_torch
@pytest.mark.parametrize("source", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", ["rows_128", "blocks", *STRIDED])
def test_a_right_kernel_passes_every_view(case: str, source: str, host: Device, kernels: dict[str, Plugged]) -> None:
    found = judged(kernels, "right", case, host, source)
    assert found.row.result == "passed", found.message


@needs_torch
@pytest.mark.parametrize("name", SHOWN)
def test_a_kernel_that_is_wrong_on_views_is_caught_by_those(
    name: str, host: Device, kernels: dict[str, Plugged]
) -> None:
    (of,) = kernels[name].kernel.claims
    shown = set()
    for view in VIEWS:
        x = case_named("rows_128" if view == "contiguous" else view).make(of)
        outcome = host.run(kernels[name], resolved(of), x, view=view)
        assert outcome.kind == "returned"
        assert not outcome.malformed, "what differs from call to call would be said to be unwritten"
        if compare(outcome.outputs, expected(of, x)).total:
            shown.add(view)
    assert shown == SHOWN[name]


@needs_torch
def test_to_refuse_a_view_is_neither_right_nor_wrong(host: Device, kernels: dict[str, Plugged]) -> None:
    """It gives no wrong number, and has computed nothing."""
    found = judged(kernels, "wants_contiguous", "sliced", host)
    assert found.row.result == "not_executed"
    assert found.row.reason.startswith("it refuses a matrix that is not contiguous (sliced): ValueError: x must be")
    assert judged(kernels, "wants_contiguous", "rows_128", host).row.result == "passed"


@needs_torch
@pytest.mark.parametrize("case", ["blocks", "sliced", "transposed"])
@pytest.mark.parametrize(("name", "source"), [("clamps_in_place", "float32"), ("numpy_negates_in_place", "bfloat16")])
def test_a_kernel_that_writes_to_its_input_is_told_of(
    name: str, source: str, case: str, host: Device, kernels: dict[str, Plugged]
) -> None:
    """Although what it returns is right."""
    found = judged(kernels, name, case, host, source)
    assert found.row.result == "failed"
    (said,) = found.row.malformed
    x = case_named(case).make(claim(source))
    if name == "clamps_in_place":
        value = x.data.view(np.float32)
        changed = np.abs(value) > 5
        first = [int(i) for i in np.argwhere(changed)[0]]
        assert said == f"input modified: {changed.sum()} of {x.data.size} elements of x, first at {first}"
    else:
        assert said.startswith("input modified: ")
        assert said.endswith(f"first at [{x.shape[0] - 1}, 0]")
    assert found.message.startswith("[FORM]")


@needs_torch
@pytest.mark.parametrize("name", ["takes_columns_for_adjacent", "numpy_takes_all_for_contiguous"])
def test_the_script_shows_the_mismatch_of_a_view(
    name: str, host: Device, kernels: dict[str, Plugged], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The matrix is made a view there, too; contiguous it would come out right."""
    found = judged(kernels, name, "transposed", host)
    assert found.script
    script = tmp_path_factory.mktemp("script") / "show.py"
    script.write_text("import sys; sys.modules['narrowgauge'] = None\n" + found.script)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        got, want = re.findall(r"0x\w+", line)
        assert int(got, 16) != int(want, 16), line
