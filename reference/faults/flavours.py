"""Faults between OCP and FNUZ: ``fnuz.*``. Each covers e4m3 and e5m2."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.codec import largest, values
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.faults import edits, value_edits
from narrowgauge.reference.faults.edits import Edit
from narrowgauge.reference.faults.fault import Fault

OCP_OF = {"float8_e4m3fnuz": "float8_e4m3fn", "float8_e5m2fnuz": "float8_e5m2"}
FNUZ_OF = {ocp: fnuz for fnuz, ocp in OCP_OF.items()}


def _ocp_codes(repaired: bool = False, clamped: bool = False) -> Edit:
    """OCP codes under the label of FNUZ. A NaN keeps its sign, as in casts by software.

    ``repaired``: 0x80, which is the NaN of FNUZ, becomes 0. ``clamped``: no value beyond FNUZ's largest is written.
    """

    def patch(behaviour: Behaviour, x: Coded, codes: Coded) -> Coded:
        real, data = decode_values(x), codes.data
        data = np.where(np.isnan(real) & np.signbit(real), data | 0x80, data)
        return Coded(codes.format, np.where((data == 0x80) & repaired, 0, data).astype(codes.data.dtype))

    def edit(behaviour: Behaviour) -> Behaviour | None:
        if behaviour.format not in OCP_OF:
            return None
        fmt = format_named(behaviour.format)
        limit = float(values(fmt)[largest(fmt)]) if clamped else behaviour.policy.limit
        found = edits.written_as(OCP_OF)(replace(behaviour, policy=replace(behaviour.policy, limit=limit)))
        return None if found is None else replace(found, patched=(*found.patched, patch))

    return edit


FAULTS = (
    Fault(
        "fnuz.ocp_codes_written",
        "FNUZ",
        edits.written_as(OCP_OF),
        "every value is half of what it should be, and -0 is NaN",
        "OCP codes are written into a buffer that is read as FNUZ",
        (),
    ),
    Fault(
        "fnuz.ocp_codes_with_nan_sign",
        "FNUZ",
        _ocp_codes(),
        "every value is half of what it should be, -0 is NaN, and NaN is the largest value with its sign",
        "OCP codes, in which a NaN keeps its sign, are written into a buffer that is read as FNUZ",
        (),
    ),
    Fault(
        "fnuz.ocp_codes_repaired",
        "FNUZ",
        _ocp_codes(repaired=True),
        "every value is half of what it should be",
        "OCP codes are put into an FNUZ buffer, 0x80 replaced by 0, and the scale is not doubled",
        (),
    ),
    Fault(
        "fnuz.ocp_codes_of_clamped",
        "FNUZ",
        _ocp_codes(repaired=True, clamped=True),
        "every value is half of what it should be, and the largest one is half of the format's",
        "values are clamped to the largest one of FNUZ, then cast to OCP; 0x80 is replaced by 0",
        (),
    ),
    Fault(
        "fnuz.fnuz_codes_written",
        "FNUZ",
        edits.written_as(FNUZ_OF),
        "every value is twice what it should be, and what was NaN is -0",
        "FNUZ codes are written into a buffer that is read as OCP",
        ("vllm#45562", "uccl#804"),
    ),
    Fault(
        "fnuz.read_as_ocp",
        "FNUZ",
        edits.read_as(OCP_OF),
        "every value is twice what it should be, and NaN is -0",
        "a buffer of FNUZ codes is read as OCP",
        ("vllm#45562",),
    ),
    Fault(
        "fnuz.ocp_read_as_fnuz",
        "FNUZ",
        edits.read_as(FNUZ_OF),
        "every value is half of what it should be, and -0 is NaN",
        "a buffer of OCP codes is read as FNUZ",
        (),
    ),
    Fault(
        "fnuz.negative_underflow_is_nan",
        "FNUZ",
        value_edits.zero_with_sign(lambda b: value_edits.family(b) == "fnuz" and not b.written),
        "small negative values become NaN",
        "the sign bit is kept on a zero in a format whose code for -0 is its NaN",
        ("onnxruntime#18473", "xla#17487", "triton#3997", "onnx#5764"),
    ),
)
