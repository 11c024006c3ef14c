"""Wrong kernels, most of them written from public reports: each is caught and named.

The torch and Triton ones are by somebody who had not seen the faults; the NumPy ones by the author of the later faults,
from the reports and before those faults were written; but five have no report: a reviewer tried such kernels, and no
fault named them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from narrowgauge.devices import discovery
from narrowgauge.devices.device import Device
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.inputs import cases_for
from narrowgauge.suites.judging import Judged, run_cell
from narrowgauge.suites.meta.marks import needs_torch
from narrowgauge.suites.meta.test_conversion_mutants import NAMED as OF_CONVERTERS
from narrowgauge.suites.meta.test_kv_mutants import NAMED as OF_CACHES
from narrowgauge.suites.meta.test_product_mutants import NAMED as OF_PRODUCTS
from narrowgauge.suites.meta.test_wide_mutants import NAMED as OF_WIDE
from narrowgauge.suites.planning import Planned

pytestmark = [pytest.mark.meta, needs_torch]

FOLDER = Path(__file__).absolute().parent / "mutant_kernels"
#: name of a mutant (its file's too, but for those in NumPy) and the fault that its report is about
NAMED = {
    "triton_ties_away": "cast.ties_away",
    "triton_double_rounding": "cast.double_rounding_float16",
    "torch_nan_lost": "cast.nan_to_max",
    "torch_fnuz_negative_underflow": "fnuz.negative_underflow_is_nan",
    "torch_inverted_scale": "scale.inverted",
    "triton_missing_minimum": "scale.minimum_missing",
    "torch_fnuz_bytes_as_ocp": "fnuz.ocp_codes_written",
    "triton_subnormals_flushed": "cast.subnormals_flushed",
    "torch_overflow_to_nan": "cast.overflow_to_nan",
    "triton_fnuz_as_448": "scale.448_for_fnuz",
    "numpy_carry_lost": "cast.carry_lost",
    "numpy_clamped_to_240": "cast.clamped_to_240",
    "numpy_e8m0_log2": "e8m0.log2_in_float32",
    "numpy_e8m0_lowest_binade": "e8m0.lowest_binade_up",
    "numpy_e8m0_mask": "e8m0.fraction_masked",
    "numpy_e8m0_nearest": "e8m0.rounded_to_nearest",
    "numpy_floor_of_half_added": "integer.floor_of_half_added",
    "numpy_flushed_before_rounding": "cast.subnormals_flushed_before_rounding",
    "numpy_half_added": "integer.half_added_in_float32",
    "numpy_half_up": "cast.ties_up",
    "numpy_limit_before_rounding": "cast.limit_before_rounding",
    "numpy_nan_to_lower_bound": "cast.nan_to_min",
    "numpy_shift_wraps": "cast.shift_modulo_64",
    "numpy_specials_as_numbers": "decode.specials_as_numbers",
    "numpy_subnormals_as_normals": "decode.subnormals_as_normals",
    "numpy_subnormals_rounded_twice": "cast.subnormals_rounded_twice",
    "quantizer_not_requantized": "scale.codes_not_requantized",
    "quantizer_reciprocal_of_encode": "scale.reciprocal_of_encode",
    "quantizer_scaled_twice": "element.scaled_twice",
    "quantizer_not_scaled": "element.not_scaled",
    "quantizer_nan_to_lower_bound": "element.nan_to_lower_bound",
    "quantizer_reciprocal_of_zero": "zero.guard_missing",
    "quantizer_merged": "granularity.largest_stored",
    "quantizer_one_scale_mode": "granularity.first_scale_for_all",
    "quantizer_part_of_a_tensor": "granularity.part_of_the_tensor",
    "quantizer_one_scale_for_two": "granularity.first_of_two",
    "quantizer_nan_dropped": "nan.dropped_by_amax",
    "quantizer_fraction_leaks": "e8m0.fraction_leaks",
    "quantizer_divisor_as_multiplier": "global.inverted",
    "quantizer_multiplier_stored": "global.stored_inverted",
    "quantizer_reads_the_next_row": "tail.reads_the_next_row",
    "quantizer_spills": "tail.spills_into_the_next_row",
    "quantizer_zero_one_higher": "integer.zero_point_one_higher",
    "quantizer_zero_negated": "integer.zero_point_negated",
    "quantizer_reader_ignores_scale": "read.scale_ignored",
    "quantizer_reader_divides": "read.scale_inverted",
    "quantizer_reader_scales_twice": "read.scale_twice",
    "quantizer_reader_one_block_off": "read.scale_of_the_block_before",
    "quantizer_high_nibble_first": "layout.nibbles_swapped",
    "quantizer_pairs_for_planes": "layout.planar_as_pairs",
    "quantizer_bytes_reversed": "layout.bytes_reversed",
    "quantizer_scales_by_rows": "layout.row_major_scales",
}
#: kernels of broken.py: the word in brackets, and what is said after the subject
BROKEN = {
    "crashes": ("CRASHED", "signal SIGSEGV"),
    "hangs_holding_the_gil": ("HUNG", "no answer in 2 s"),
    "returns_nothing": ("FORM", "returned nothing"),
    "misshaped": ("FORM", "codes misshaped: got [1825], want [1826]"),
    "tail_unwritten": ("FORM", "unwritten: 3 of 1826 elements of codes"),
    "codes_out_of_range": ("NOT-A-CODE", "782 numbers that are no codes of the format"),
    "raises": ("RAISED", "ValueError"),
}


@pytest.fixture(scope="module")
def devices() -> Iterator[dict[str, Device]]:
    host, interpreter = discovery.host(), discovery.interpreter()
    yield {"torch": host, "numpy": host, "quantizer": host, "triton": interpreter}
    host.close()
    interpreter.close()


def judged(path: Path, device: Device, timeout: float = 60.0, only: str = "", of_case: str = "") -> Iterator[Judged]:
    for plugged in device.describe(str(path)):
        for claim in plugged.kernel.claims:
            for case, x in cases_for(claim, "smoke").items():
                if only in ("", plugged.kernel.name) and of_case in ("", case):
                    yield run_cell(Planned(plugged, claim, case, device), x, timeout=timeout)


@pytest.mark.parametrize("name", NAMED)
def test_a_wrong_kernel_is_named(name: str, devices: dict[str, Device]) -> None:
    """Every case that shows the mistake names its fault, completely; and at least one case shows it."""
    if name.startswith("triton") and not discovery.has_triton():
        pytest.skip("triton is not installed: its mutants cannot run")
    file = {"numpy": "numpy_kernels", "quantizer": "numpy_quantizers"}.get(name.split("_")[0], name)
    found = list(judged(FOLDER / f"{file}.py", devices[name.split("_")[0]], only=name))
    wrong = [j for j in found if j.row.result in ("failed", "disputed")]  # disputed: the recipe is but a document
    assert wrong
    assert all(j.row.result == "passed" for j in found if j not in wrong)
    for j in wrong:
        assert j.row.left == 0, j.message
        assert NAMED[name] in j.row.faults, j.message
    assert any(j.row.faults == (NAMED[name],) for j in wrong), "no case tells this fault from all others"


@pytest.mark.parametrize("name", BROKEN)
def test_a_kernel_without_an_answer_is_named(name: str, devices: dict[str, Device]) -> None:
    (found,) = judged(FOLDER / "broken.py", devices["torch"], timeout=2, only=name, of_case="edges")
    assert found.row.result == "failed"
    code, words = BROKEN[name]
    subject = f"{name} (float32 to float8_e4m3fn) on host, case edges"
    assert found.message.startswith(f"[{code}] {subject}: {words}")


def test_one_fault_in_four_of_each_family_is_a_real_kernel() -> None:
    """A mutant made from a fault shows only that the fault differs from the reference."""
    for family in {name.split(".")[0] for name in FAULTS}:
        faults = [name for name in FAULTS if name.startswith(f"{family}.")]
        others = (OF_CACHES, OF_CONVERTERS, OF_PRODUCTS, OF_WIDE)
        real = {*NAMED.values(), *(fault for named in others for fault in named.values())} & set(faults)
        assert 4 * len(real) >= len(faults), f"{family}: {len(real)} real kernels for {len(faults)} faults"


OWNERS_FILE = """
import torch
from narrowgauge import kernel, Cast, Quantize

@kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
def nan_lost(x, format):
    return torch.where(x.isnan(), 448.0, x).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).to(torch.int32)

@kernel(Quantize("sglang.fp8_per_token_cta"), ["float8_e4m3fn"])
def inverted(x, format):
    scale = x.nan_to_num(0.0, float("inf"), float("-inf")).abs().amax(1, keepdim=True) / 448
    y = (x * (1 / scale)).nan_to_num(448.0, float("inf"), float("-inf")).clamp(-448, 448)
    return y.to(torch.float8_e4m3fn), 1 / scale
"""


@pytest.mark.parametrize("name", ["nan_lost", "inverted"])
def test_the_standalone_script_shows_the_mismatch(name: str, devices: dict[str, Device], tmp_path: Path) -> None:
    """It runs in a process where narrowgauge cannot be imported, on a machine where the file lies elsewhere, and prints
    the codes that were returned beside those that should have been."""
    path = tmp_path / "owners.py"
    path.write_text(OWNERS_FILE)
    found = [j for j in judged(path, devices["torch"]) if j.row.kernel == name and j.script]
    script, moved = tmp_path / "show.py", path.rename(tmp_path / "moved.py")
    script.write_text("import sys; sys.modules['narrowgauge'] = None\n" + found[0].script)
    command = [sys.executable, str(script), str(moved)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = {f"{m.output}{list(m.index)}": (m.got, m.want) for m in found[0].row.mismatches}
    for line in done.stdout.splitlines():
        where, got, want = re.fullmatch(r"(.+): got (0x\w+) want (.+)", line).groups()  # type: ignore[union-attr]
        assert want == told[where][1]
        assert int(got, 16) == int(re.findall(r"\((0x\w+)\)", told[where][0])[-1], 16)
    assert {line.split("[")[0] for line in done.stdout.splitlines()} == {"codes" if name == "nan_lost" else "scale"}
