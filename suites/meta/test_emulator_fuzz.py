"""The fuzzer of the emulator: its record, a few kernels of it, and that it finds an emulator that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from narrowgauge.devices.targets import EMULATED, TARGETS
from narrowgauge.suites.meta.emulator_fuzz import RUNGS, compare

pytestmark = pytest.mark.meta

RECORD = json.loads((Path(__file__).parent / "fuzzed.json").read_text())
#: an xor that loses its lowest bit
SPOILT = (
    "from narrowgauge.devices.emulator import ptx_opcodes as o, ptx_integer as i; "
    "o.OPCODES['xor'] = i.logic(lambda x, y: (x ^ y) & ~type(x.flat[0])(1))"
)
#: an fma that is one unit too large
SPOILT_FMA = (
    "from narrowgauge.devices.emulator.models import ptx_arithmetic as p; import numpy; own = p.fma; "
    "p.fma = lambda a, b, c: numpy.nextafter(own(a, b, c), numpy.float32(numpy.inf))"
)


def test_the_record_has_every_target_and_every_kernel_explained() -> None:
    assert RECORD["targets"].keys() == set(EMULATED)
    for target, counts in RECORD["targets"].items():
        assert sum(counts.values()) == RECORD["kernels"] == 300
        assert counts.keys() <= {"equal", "contraction", "not settled", *RUNGS[TARGETS[target].backend]}


def test_a_few_kernels_are_explained(tmp_path: Path) -> None:
    assert [found.why for found in compare(3, 6, "gfx942", tmp_path)] == ["contraction", "approximation"]


def test_a_wrong_opcode_is_found(tmp_path: Path) -> None:
    assert [found for found in compare(3, 2, "sm_90", tmp_path, SPOILT) if not found.why]


def test_a_wrong_fma_is_not_taken_for_contraction(tmp_path: Path) -> None:
    (found,) = compare(1, 6, "gfx942", tmp_path, SPOILT_FMA)
    assert (found.why, found.what[:16]) == ("", "fma is not exact")
