# SPDX-License-Identifier: Apache-2.0
"""What a kernel is given beside x, on the host: by name, in the right types, and watched. One plug-in has all."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.operations import Claim, Dequantize, Quantize, Then
from narrowgauge.contracts.outcome import Outcome
from narrowgauge.devices.device import Device
from narrowgauge.reference.behaviour import resolved
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.judge import judge
from narrowgauge.reference.memory import in_memory, to_memory
from narrowgauge.suites.meta.marks import needs_torch

pytestmark = [pytest.mark.meta, needs_torch]

STATIC = "quantize/vllm.fp8_static_token/bfloat16/float8_e4m3fn"
AZP = "quantize/vllm.int8_static_azp/float32/int8"
NVFP4 = "quantize/vllm.nvfp4/float16/float4_e2m1fn"
READ_NVFP4 = "dequantize/vllm.nvfp4/float4_e2m1fn/bfloat16"
READ_MX = "dequantize/ocp.mxfp8_e4m3/float8_e4m3fn/bfloat16"
READ_AWQ = "dequantize/awq.uint4/uint4/float16"
READ_PACKED = "dequantize/awq.uint4@codes:awq_4bit,zero_point:awq_4bit~awq_4bit/uint4/float16"
NORM = "then/rms_norm+vllm.fp8_per_token_dynamic/bfloat16/float8_e4m3fn"

#: x times the inverse of the scale of its row, brought within ±448 as CUDA's fmin and fmax do
RIGHT = """
done = torch.fmax(torch.fmin(x.float() * (1 / scale), x.new_tensor(448.0)), x.new_tensor(-448.0))
done = done.to(torch.float8_e4m3fn)
"""
SEES = 'raise TypeError(" ".join(f"{{t.dtype}}{{list(t.shape)}}" for t in ({},)))'
#: claim, parameters, and what the words of its refusal hold
LACKING = {
    "no_scale": (STATIC, "x, format", "kernel 'no_scale' takes x, format; its claim gives it scale beside x: add"),
    "other_name": (STATIC, "x, format, scales", "its claim gives it scale beside x"),
    "no_zero": (AZP, "x, format, scale", "takes x, format, scale; its claim gives it zero_point beside x"),
    "neither": (AZP, "x, format", "its claim gives it scale, zero_point beside x"),
    "no_global": (READ_NVFP4, "x, format, scale", "gives it global_scale beside x"),
    "no_weight": (NORM, "x, format", "gives it weight beside x"),
}  # fmt: skip
#: claim, names, and types and shapes of what has them, on a matrix of rows {0} and columns {1}
SEEN = {
    "static": (STATIC, "x, scale", "torch.bfloat16[{0}, {1}] torch.float32[{0}, 1]"),
    "azp": (AZP, "x, scale, zero_point", "torch.float32[{0}, {1}] torch.float32[1, 1] torch.int32[1, 1]"),
    "nvfp4": (NVFP4, "x, global_scale", "torch.float16[{0}, {1}] torch.float32[1, 1]"),
    "read_mx": (READ_MX, "x, scale", "torch.float8_e4m3fn[{0}, {1}] torch.float8_e8m0fnu[{0}, 8]"),
    "read_nvfp4": (READ_NVFP4, "x, scale, global_scale",
                   "torch.uint8[{0}, {1}] torch.float8_e4m3fn[{0}, 16] torch.float32[1, 1]"),
    "read_awq": (READ_AWQ, "x, scale, zero_point", "torch.uint8[{0}, {1}] torch.float16[1, {1}] torch.int32[1, {1}]"),
    "read_packed": (READ_PACKED, "x, scale, zero_point",
                    "torch.int32[{0}, 32] torch.float16[1, {1}] torch.int32[1, 32]"),
    "norm": (NORM, "x, weight", "torch.bfloat16[{0}, {1}] torch.bfloat16[1, {1}]"),
}  # fmt: skip
#: claim, what is written into, how, and how many of all elements then differ (all where 0), from which place on
WRITING = {
    "doubles": (STATIC, "scale", "scale.mul_(2)", 0, [0, 0]),
    "second": (STATIC, "scale", "scale[1] = 7", 1, [1, 0]),
    "turns": (STATIC, "scale", "scale.neg_()", 0, [0, 0]),
    "adds": (AZP, "zero_point", "zero_point.add_(1)", 1, [0, 0]),
    "sets_global": (NVFP4, "global_scale", "global_scale[0, 0] = 3", 1, [0, 0]),
    "flips": (READ_MX, "scale", "scale.view(torch.uint8)[0, 3] ^= 1", 1, [0, 3]),
    "adds_one": (READ_AWQ, "zero_point", "zero_point[0, 200] += 1", 1, [0, 200]),
    "adds_packed": (READ_PACKED, "zero_point", "zero_point[0, 5] ^= -(2**31)", 1, [0, 5]),
    "weighs": (NORM, "weight", "weight[0, 1] = 9", 1, [0, 1]),
}


def source(name: str, claim: str, parameters: str, body: str, backend: str = "torch") -> str:
    """A kernel as a plug-in has it."""
    held = Claim.parse(claim)
    assert isinstance(held.contract, Quantize | Dequantize | Then)
    first = f", first={held.contract.first!r}" if isinstance(held.contract, Then) else ""
    contract = f"{type(held.contract).__name__}({held.contract.recipe!r}, {held.layouts!r}{first})"
    head = f"@kernel({contract}, [{held.format!r}], [{held.source!r}], backend={backend!r})"
    return f"\n{head}\ndef {name}({parameters}):\n" + textwrap.indent(body.strip(), "    ") + "\n"


def sources() -> str:
    """All kernels of these tests."""
    text = "import torch\nfrom narrowgauge import kernel, Quantize, Dequantize, Then\n"
    text += source("right", STATIC, "x, format, scale", f"{RIGHT}return done")
    text += source("any_name", AZP, "x, format, **given", "raise ValueError(sorted(given))")
    text += source("asks_shape", READ_PACKED, "x, format, scale, zero_point, shape", "raise ValueError(tuple(shape))")
    text += source("asks_source", READ_PACKED, "x, format, scale, zero_point, source", "raise ValueError(source)")
    beside = "x, format, scale, global_scale"
    text += source("in_numpy", READ_NVFP4, beside, SEES.format("x, scale, global_scale"), "numpy")
    for name, (claim, parameters, _) in LACKING.items():
        text += source(name, claim, parameters, "return x")
    for name, (claim, names, _) in SEEN.items():
        parameters = ", ".join(["x", "format", *names.split(", ")[1:]])
        text += source(f"sees_{name}", claim, parameters, SEES.format(names))
    for name, (claim, what, write, _, _) in WRITING.items():
        work = RIGHT if claim == STATIC else "done = x\n"
        text += source(name, claim, "x, format, **given", f"{what} = given[{what!r}]\n{work}{write}\nreturn done")
    return text


@pytest.fixture(scope="module")
def run(host: Device, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Claim, Coded, Outcome]]:
    """A kernel by name: its claim, the first case of it, and the outcome."""
    path: Path = tmp_path_factory.mktemp("given") / "plug.py"
    path.write_text(sources())
    kernels = {plugged.kernel.name: plugged for plugged in host.describe(str(path))}

    def outcome(name: str) -> tuple[Claim, Coded, Outcome]:
        plugged = kernels[name]
        (claim,) = plugged.kernel.claims
        x = next(iter(cases_for(claim, "smoke").values()))
        return claim, x, host.run(plugged, resolved(claim), to_memory(claim, x), form=in_memory(claim, x))

    return outcome


Run = Callable[[str], tuple[Claim, Coded, Outcome]]


def test_given_numbers_decide_the_codes(run: Run) -> None:
    """A right kernel passes; held to the scales of the rows beside its own, it fails."""
    claim, x, outcome = run("right")
    assert (outcome.kind, outcome.malformed) == ("returned", ())
    assert judge(claim, x, outcome.outputs).result == "passed"
    scale = given_with(x)["scale"]
    other = Input(x.format, x.data, {"scale": Coded(scale.format, np.roll(scale.data, 1, axis=0))})
    assert judge(claim, other, outcome.outputs).result == "failed"


@pytest.mark.parametrize("name", LACKING)
def test_a_kernel_that_lacks_a_parameter_is_told_so(run: Run, name: str) -> None:
    outcome = run(name)[2]
    assert outcome.kind == "raised"
    assert LACKING[name][2] in outcome.reason


def test_a_kernel_that_takes_any_name_is_given_all(run: Run) -> None:
    assert "['scale', 'zero_point']" in run("any_name")[2].reason


@pytest.mark.parametrize("name", SEEN)
def test_given_tensors_have_their_types_and_shapes(run: Run, name: str) -> None:
    _, x, outcome = run(f"sees_{name}")
    assert SEEN[name][2].format(*x.shape) in outcome.reason


def test_numpy_kernels_are_given_arrays_of_the_same_types(run: Run) -> None:
    pytest.importorskip("ml_dtypes")
    _, x, outcome = run("in_numpy")
    rows, columns = x.shape
    assert f"float4_e2m1fn[{rows}, {columns}] float8_e4m3fn[{rows}, 16] float32[1, 1]" in outcome.reason


def test_the_shape_of_a_packed_matrix_is_given_to_those_that_ask(run: Run) -> None:
    """It cannot be seen: eight codes are one element."""
    _, x, outcome = run("asks_shape")
    assert f"ValueError: {x.shape}" in outcome.reason


def test_the_format_of_packed_codes_is_given_to_those_that_ask(run: Run) -> None:
    """And not that of the words in which they come."""
    _, _, outcome = run("asks_source")
    assert "ValueError: uint4" in outcome.reason or "ValueError: int4" in outcome.reason


@pytest.mark.parametrize("name", WRITING)
def test_whatever_is_given_is_watched(run: Run, name: str) -> None:
    """Each way of writing into it is named; the second call, and the parent, have what was given."""
    _, what, _, count, place = WRITING[name]
    claim, x, outcome = run(name)
    before = x.digest()
    size = given_with(to_memory(claim, x))[what].data.size
    said = f"input modified: {count or size} of {size} elements of {what}, first at {place}"
    assert said in outcome.malformed
    assert not any(words.startswith("not deterministic") for words in outcome.malformed)
    assert judge(claim, x, outcome.outputs, outcome.malformed).result == "failed"
    assert x.digest() == before
