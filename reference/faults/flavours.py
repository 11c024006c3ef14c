"""Faults between OCP and FNUZ: ``fnuz.*``. Each covers e4m3 and e5m2."""

from __future__ import annotations

from narrowgauge.reference.faults import edits, value_edits
from narrowgauge.reference.faults.fault import Fault

OCP_OF = {"float8_e4m3fnuz": "float8_e4m3fn", "float8_e5m2fnuz": "float8_e5m2"}
FNUZ_OF = {ocp: fnuz for fnuz, ocp in OCP_OF.items()}

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
        value_edits.zero_with_sign(lambda b: value_edits.family(b) == "fnuz"),
        "small negative values become NaN",
        "the sign bit is kept on a zero in a format whose code for -0 is its NaN",
        ("onnxruntime#18473", "xla#17487", "triton#3997", "onnx#5764"),
    ),
)
