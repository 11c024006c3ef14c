"""The public reports that faults name: each was read, and says what the fault says."""

from __future__ import annotations

import re

import pytest

from narrowgauge.reference.faults.fault import Fault
from narrowgauge.reference.faults.registry import FAULTS

pytestmark = pytest.mark.meta

#: what each public report, or measurement, was read to say; a report stands with no other fault
SAYS = {
    "triton#11753": {"cast.ties_away", "cast.double_rounding_float16"},
    "triton#8322": {"cast.carry_lost", "cast.ties_away"},
    "aiter#3992": {"cast.ties_away"},
    "Model-Optimizer MXFP4, measured": {"cast.ties_toward_zero"},
    "gguf MXFP4, measured": {"cast.ties_toward_zero"},
    "triton interpreter fp32 to bf16, measured": {"cast.nan_by_its_bits", "cast.truncates"},
    "vllm int8 group quantizer, measured": {"cast.truncates"},
    "pto-isa#318": {"cast.truncates"},
    "vllm#4614": {"cast.overflow_to_nan"},
    "transformers#42746": {"cast.overflow_to_nan"},
    "Model-Optimizer#1633": {"cast.overflow_to_nan"},
    "pytorch#178817": {"cast.overflow_saturates"},
    "ao#4364": {"cast.overflow_saturates"},
    "rocm-systems#8800": {"cast.overflow_saturates"},
    "onnx#6220": {"cast.infinity_saturates"},
    "tilelang#2944": {"cast.infinity_saturates", "cast.overflow_saturates"},
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
    "vllm#45562": {"fnuz.fnuz_codes_written", "fnuz.read_as_ocp"},
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
    "triton#11897": {"cast.carry_lost", "cast.subnormals_rounded_twice", "cast.ties_away"},
    "ocannl#646": {"cast.ties_away"},
    "triton#2583": {"cast.double_rounding_float16"},
    "ao#4725": {"cast.double_rounding_bfloat16"},
    "ml_dtypes#401": {"cast.double_rounding_float32"},
    "torch float64 sources, measured": {"cast.double_rounding_float32"},
    "triton#7337": {"cast.overflow_to_nan"},
    "triton AMD float16 to e4m3fn, measured": {"cast.limit_before_rounding"},
    "torch CPU float32 to uint8, measured": {"cast.overflow_wraps"},
    "openvino#30057": {"cast.subnormals_rounded_twice"},
    "pytorch test reference, measured": {"cast.subnormals_lose_sticky_bits"},
    "tt-metal#51971": {"cast.subnormals_halved"},
    "rocm-systems#10591": {"cast.shift_modulo_64"},
    "composable_kernel#2571": {"cast.shift_modulo_64"},
    "composable_kernel#975": {"cast.e4m3_and_e5m2_confused"},
    "tilelang#3024": {"cast.nan_to_min"},
    "vllm KV cache per token and head, measured": {"cast.nan_to_min", "integer.half_added_in_float32"},
    "torch e8m0, measured": {"cast.magnitude_of_negative", "e8m0.lowest_binade_up"},
    "onnx#5764": {"fnuz.negative_underflow_is_nan"},
    "microxcaling#4": {"e8m0.rounded_down"},
    "mlx#4353": {"e8m0.rounded_to_nearest"},
    "ml_dtypes#298": {"e8m0.rounded_to_nearest"},
    "gfloat e8m0, measured": {"e8m0.ties_to_even", "e8m0.zero_is_nan"},
    "onnxruntime#28435": {"e8m0.lowest_binade_up"},
    "ml_dtypes e8m0, measured": {"e8m0.lowest_binade_up", "e8m0.negative_is_nan", "e8m0.zero_is_nan"},
    "onnx#7784": {"e8m0.fraction_masked"},
    "gfloat#62": {"e8m0.underflow_is_nan"},
    "triton#11784": {"decode.specials_as_numbers"},
    "triton#10745": {"decode.specials_as_numbers"},
    "intel-xpu-backend-for-triton#7771": {"decode.specials_as_numbers"},
    "TransformerEngine#3262": {"decode.scale_code_0_is_zero", "decode.specials_as_numbers"},
    "1bit-MONSTER#300": {"decode.subnormals_as_normals"},
    "b12x#388": {"decode.subnormals_as_normals"},
    "flashinfer#3035": {"decode.finite_as_nan"},
    "triton#11624": {"decode.scale_code_0_is_zero"},
    "ROCm/TransformerEngine#485": {"scale.448_for_fnuz"},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=lambda f: f.name)
def test_a_report_says_what_the_fault_says(fault: Fault) -> None:
    for report in fault.reports:
        assert re.fullmatch(r"[\w./-]+#\d+|.+, (measured|read)", report)
        assert fault.name in SAYS[report]
