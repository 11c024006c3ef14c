"""The public reports that faults name: each was read, and says what the fault says."""

from __future__ import annotations

import re

import pytest

from narrowgauge.reference.faults.registry import FAULTS, Fault

pytestmark = pytest.mark.meta

#: what each public report, or measurement, was read to say; a report stands with no other fault
SAYS = {
    "triton#11753": {"cast.ties_away", "cast.double_rounding_float16"},
    "triton#8322": {"cast.ties_away"},
    "aiter#3992": {"cast.ties_away"},
    "Model-Optimizer MXFP4, measured": {"cast.ties_toward_zero"},
    "gguf MXFP4, measured": {"cast.ties_toward_zero"},
    "triton interpreter fp32 to bf16, measured": {"cast.truncates"},
    "vllm int8 group quantizer, measured": {"cast.truncates"},
    "pto-isa#318": {"cast.truncates"},
    "vllm#4614": {"cast.overflow_to_nan"},
    "transformers#42746": {"cast.overflow_to_nan"},
    "Model-Optimizer#1633": {"cast.overflow_to_nan"},
    "pytorch#178817": {"cast.overflow_saturates"},
    "ao#4364": {"cast.overflow_saturates"},
    "rocm-systems#8800": {"cast.overflow_saturates"},
    "onnx#6220": {"cast.infinity_saturates"},
    "tilelang#2944": {"cast.infinity_saturates"},
    "vllm per-tensor fp8 CUDA path, read": {"cast.nan_to_max"},
    "Model-Optimizer NVFP4, measured": {"cast.nan_to_max"},
    "torchao quantize_affine int8, measured": {"cast.nan_to_zero"},
    "compressed-tensors NVFP4, measured": {"cast.nan_to_zero"},
    "microxcaling, measured": {"cast.negative_zero_lost"},
    "breccia, measured": {"cast.negative_zero_lost"},
    "rocm-libraries#7517": {"cast.negative_zero_lost"},
    "triton#10846": {"cast.double_rounding_float16"},
    "triton#7382": {"cast.double_rounding_float16"},
    "OpenVINO Convert, measured": {"cast.double_rounding_float16"},
    "flashinfer#5128": {"cast.double_rounding_bfloat16"},
    "vllm#45562": {"fnuz.fnuz_codes_written"},  # FNUZ bytes, read as OCP
    "uccl#804": {"fnuz.fnuz_codes_written"},  # the same
    "onnxruntime#18473": {"fnuz.negative_underflow_is_nan"},
    "xla#17487": {"fnuz.negative_underflow_is_nan"},
    "triton#3997": {"fnuz.negative_underflow_is_nan"},
    "modular#6600": {"scale.inverted"},
    "flashinfer#4624": {"scale.unity"},
    "Model-Optimizer#20": {"scale.unity"},
    "vllm fp8_utils.py Triton path, read": {"scale.reciprocal_multiplied"},
    "sglang per_token_group_quant.cuh, read": {"scale.reciprocal_multiplied"},
    "kernels-community#681": {"scale.minimum_missing"},
    "ao#4713": {"scale.minimum_missing"},
    "slime#2256": {"scale.minimum_missing"},
    "vllm#30360": {"scale.format_maximum_for_224"},
    "vllm#31106": {"scale.format_maximum_for_224"},
    "ROCm/TransformerEngine#485": {"scale.448_for_fnuz"},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=lambda f: f.name)
def test_a_report_says_what_the_fault_says(fault: Fault) -> None:
    for report in fault.reports:
        assert re.fullmatch(r"[\w./-]+#\d+|.+, (measured|read)", report)
        assert fault.name in SAYS[report]
