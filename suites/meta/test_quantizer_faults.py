"""Faults of quantizers: each does what its words say, and diagnosis names it, alone or in a set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded, Input, digest
from narrowgauge.contracts.operations import Claim, Quantize
from narrowgauge.reference.behaviour import Buffers, behaviour_of
from narrowgauge.reference.compare import compare
from narrowgauge.reference.diagnosis import explain
from narrowgauge.reference.expected import outputs_of
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.interval import Interval
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites.meta.quantizer_probes import PROBES, Probe

pytestmark = pytest.mark.meta

#: families of which every fault is one of quantizers
FAMILIES = ("scale", "element", "zero", "nan", "global", "granularity", "tail")
#: a recipe of each kind, and a destination; with given scales, read, packed
CLAIMS = tuple(
    Claim.parse(text if text.startswith("dequantize") else f"quantize/{text}")
    for text in (
        "vllm.fp8_per_token_dynamic/float32/float8_e4m3fn",
        "vllm.fp8_native_token/float32/float8_e4m3fnuz",
        "sglang.fp8_per_token_cta/float16/float8_e4m3fnuz",
        "sglang.fp8_per_tensor_dynamic/float32/float8_e4m3fn",
        "sglang.fp8_group/float32/float8_e4m3fn",
        "vllm.fp8_native_group_ue8m0/float32/float8_e4m3fn",
        "vllm.fp8_group_ue8m0_packed_bf16/float32/float8_e4m3fn",
        "vllm.fp8_block/float32/float8_e4m3fn",
        "aiter.fp8_hip_token/float32/float8_e4m3fn",
        "ocp.mxfp8_e4m3/float32/float8_e4m3fn",
        "ocp.mxint8/float32/int8",
        "nvidia.mxfp8_e5m2/float32/float8_e5m2",
        "vllm.mxfp8_triton/float32/float8_e4m3fn",
        "quark.mxfp4_even/float32/float4_e2m1fn",
        "nvidia.nvfp4_divisor/float32/float4_e2m1fn",
        "nvidia.nvfp4_multiplier/float32/float4_e2m1fn",
        "vllm.int8_per_token_dynamic/float32/int8",
        "vllm.int8_per_token_dynamic_azp/float32/int8",
        "compressed_tensors.int4_channel/float32/int4",
        "vllm.fp8_static_token/float32/float8_e4m3fn",
        "vllm.nvfp4/float32/float4_e2m1fn",
        "vllm.int8_static_azp/float32/int8",
        "dequantize/ocp.mxfp8_e4m3/float8_e4m3fn/float32",
        "dequantize/vllm.int8_per_token_dynamic_azp/int8/float32",
        "dequantize/nvidia.nvfp4_divisor@codes:nibbles_low_first,scale:scales_128x4/float4_e2m1fn/float32",
        "nvidia.nvfp4_divisor@codes:nibbles_low_first,scale:scales_128x4/float32/float4_e2m1fn",
    )
)


STATIC = "quantize/vllm.fp8_static_tensor/float32/float8_e4m3fn"


def float32(*values: float) -> Coded:
    """A column, one value for each row."""
    return Coded("float32", np.array(values, np.float32)[:, None].view(np.uint32))


def exactly(outputs: Buffers) -> dict[str, Interval]:
    return {name: Interval.exactly(value) for name, value in outputs.items()}


# --- what each does --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("probe", PROBES, ids=lambda p: f"{p.fault}-{p.recipe[0]}")
def test_a_fault_does_what_its_words_say(probe: Probe) -> None:
    right = behaviour_of(probe.claim)
    wrong = FAULTS[probe.fault].applied_to(right)
    assert wrong is not None
    x = probe.x
    got, want = wrong.run(x), right.run(x)
    assert compare(got, exactly(want)).total > 0
    found = {(name, i, j): float(decode_values(got[name])[i, j]) for name, i, j in probe.want}
    np.testing.assert_equal(found, {place: float(value) for place, value in probe.want.items()})


def test_every_fault_of_quantizers_is_probed() -> None:
    ours = {name for name in FAULTS if name.split(".")[0] in FAMILIES}
    of_fnuz = {"scale.format_maximum_for_224", "scale.224_for_format_maximum", "scale.448_for_fnuz"}
    assert ours - {p.fault for p in PROBES} == set(BY_TIES) | of_fnuz


def test_224_is_taken_for_the_largest_of_fnuz() -> None:
    """A row whose largest magnitude is 240 has the scale 1; over 224 it is 240 / 224."""
    right = behaviour_of(Claim.parse("quantize/aiter.fp8_triton/float32/float8_e4m3fnuz"))
    wrong = FAULTS["scale.224_for_format_maximum"].applied_to(right)
    assert wrong is not None
    scales = [float(decode_values(b.run(float32(240.0))["scale"])[0, 0]) for b in (right, wrong)]
    assert scales == [1.0, float(np.float32(240) / np.float32(224))]


F32 = np.float32
#: elements and the largest magnitude of a block -> what is cast
Scaled = Callable[[npt.NDArray[np.float32], np.float32], npt.NDArray[np.float32]]


def to_float8(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Codes of values within the range, by ml_dtypes."""
    return np.clip(values, F32(-448), F32(448)).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)


#: faults that show beside ties alone: recipe, and what elements become in float32, by the fault and rightly
BY_TIES: dict[str, tuple[str, Scaled, Scaled]] = {
    "element.by_reciprocal": (
        "vllm.fp8_per_token_dynamic",
        lambda x, amax: x * (F32(1) / (amax / F32(448))),
        lambda x, amax: x / (amax / F32(448)),
    ),
    "element.divided": (
        "sglang.fp8_per_token_cta",
        lambda x, amax: x / (amax / F32(448)),
        lambda x, amax: x * (F32(1) / (amax / F32(448))),
    ),
    "element.rounding_left_out": (
        "vllm.fp8_group_ue8m0_packed_bf16",
        lambda x, amax: x,  # amax is 448, and the scale 1
        lambda x, amax: x.astype(ml_dtypes.bfloat16).astype(F32),
    ),
}


@pytest.mark.parametrize("fault", BY_TIES)
def test_a_fault_beside_ties_does_what_its_words_say(fault: str) -> None:
    """Every tie of e4m3 from 1 to 8 in the block's scale, the float32 beside it, and their neighbours."""
    recipe, wrongly, rightly = BY_TIES[fault]
    amax = F32(448 if "bf16" in recipe else 3.7)
    ties = (np.arange(17, 129, 2, dtype=F32) / F32(16)) * (amax / F32(448))
    near = np.concatenate([np.nextafter(ties, F32(0)), ties, np.nextafter(ties, F32(9)), ties * F32(1 + 2.0**-10)])
    x = np.zeros((1, 256), F32)
    x[0, : near.size], x[0, 0], x[0, 128] = near, amax, amax
    claim = Claim.parse(f"quantize/{recipe}/float32/float8_e4m3fn")
    right = behaviour_of(claim)
    wrong = FAULTS[fault].applied_to(right)
    assert wrong is not None
    got, want = (b.run(Coded("float32", x.view(np.uint32)))["codes"].data for b in (wrong, right))
    np.testing.assert_array_equal(want, to_float8(rightly(x, amax)))
    np.testing.assert_array_equal(got, to_float8(wrongly(x, amax)))
    assert (got != want).any()


# --- how they are named ----------------------------------------------------------------------------------------------


def answer(outputs: Buffers) -> str:
    """The same for the same outputs, whatever NaN they have."""
    plain = {}
    for name, value in outputs.items():
        nan = np.isnan(decode_values(value))
        plain[name] = Coded(value.format, np.where(nan, -1, value.data.astype(np.int64)))
    return digest(plain)


@dataclass
class Shown:
    """The outputs of the faults that show on one case of a claim; those that give the same outputs stand together."""

    claim: Claim
    x: Coded
    right: Buffers
    sets: dict[str, tuple[Buffers, set[str]]] = field(default_factory=dict)

    def set_of(self, fault: str) -> tuple[Buffers, set[str]] | None:
        return next((pair for pair in self.sets.values() if fault in pair[1]), None)


@cache
def shown() -> dict[str, Shown]:
    """Every fault on every case of ``CLAIMS``, compared by the comparison and not by diagnosis."""
    found = {}
    for claim in CLAIMS:
        right = behaviour_of(claim)
        for case, x in cases_for(claim, "smoke").items():
            if x.data.size == 0:
                continue
            one = Shown(claim, x, right.run(x))
            for name, fault in FAULTS.items():
                wrong = fault.applied_to(right)
                if wrong is not None and (key := answer(got := wrong.run(x))) != answer(one.right):
                    one.sets.setdefault(key, (got, set()))[1].add(name)
            found[f"{claim} {case}"] = one
    return found


QUANTIZER_FAULTS = [
    n for n in FAULTS if n.split(".")[0] in (*FAMILIES, "e8m0", "integer") and any(p.fault == n for p in PROBES)
]


@pytest.mark.parametrize("fault", [*QUANTIZER_FAULTS, *BY_TIES, "scale.format_maximum_for_224", "scale.448_for_fnuz"])
def test_a_fault_is_named_alone_or_in_a_set(fault: str) -> None:
    """On the first case that shows it, on the one that shows it with fewest others, and on the last."""
    where = [one for one in shown().values() if one.set_of(fault) is not None]
    assert where, "no case of the suite shows it"
    sizes = [len(one.set_of(fault)[1]) for one in where]  # type: ignore[index]
    for one in {id(o): o for o in (where[0], where[int(np.argmin(sizes))], where[-1])}.values():
        outputs, alike = one.set_of(fault)  # type: ignore[misc]
        difference = compare(outputs, exactly(one.right))
        (found,) = explain(one.claim, one.x, outputs, difference)
        assert alike <= set(found.faults)
        for name in set(found.faults) - alike:  # by another last bit of a step that leaves it open
            wrong = FAULTS[name].applied_to(behaviour_of(one.claim))
            assert wrong is not None
            assert compare(outputs, outputs_of(wrong, one.x)).total == 0
        assert (found.left, found.explained) == (0, difference.total)
        assert bool(found.separated_by) == (len(found.faults) > 1)


def test_any_two_faults_part_somewhere() -> None:
    """Else they would be one fault. Those of the last cast are held to this by the tests of casts."""
    together: dict[tuple[str, str], int] = defaultdict(int)
    apart = set()
    names = [*QUANTIZER_FAULTS, *BY_TIES]
    for one in shown().values():
        number = {name: n for n, (_, alike) in enumerate(one.sets.values()) for name in alike}
        for i, first in enumerate(names):
            for second in names[i + 1 :]:
                if first in number and number[first] == number.get(second):
                    together[first, second] += 1
                elif first in number or second in number:
                    apart.add((first, second))
    assert {pair for pair in together if pair not in apart} == set()


def test_a_fault_changes_no_form() -> None:
    """Outputs keep their names, shapes and formats: a kernel of another form never comes to be compared."""
    for one in shown().values():
        for outputs, names in one.sets.values():
            for name, value in one.right.items():
                got = outputs[name]
                assert (got.format, got.shape, got.data.dtype) == (value.format, value.shape, value.data.dtype), names
            assert outputs.keys() == one.right.keys(), names


# --- scales that are given -------------------------------------------------------------------------------------------

#: a given scale of 4: what 896, 96 and 9e9 become
OF_GIVEN = {
    "element.not_scaled": (448, 96, 448),
    "element.scaled_twice": (56, 6, 448),
    "element.multiplied_for_divided": (448, 384, 448),
    "element.clamp_missing": (224, 24, float("nan")),
    "element.divided": None,  # by a power of two it is the same
}


@pytest.mark.parametrize("fault", OF_GIVEN)
def test_faults_of_a_given_scale(fault: str) -> None:
    claim = Claim.parse(STATIC)
    right = behaviour_of(claim)
    wrong = FAULTS[fault].applied_to(right)
    assert wrong is not None
    x = Coded("float32", np.array([[896, 96, 9e9]], F32).view(np.uint32))
    given = {"scale": float32(4.0)}
    x = Input(x.format, x.data, given)
    want, got = right.run(x), wrong.run(x)
    assert got.keys() == {"codes"}
    difference = compare(got, exactly(want))
    values = OF_GIVEN[fault]
    if values is None:
        assert difference.total == 0
        return
    np.testing.assert_array_equal(decode_values(got["codes"]), [values])
    explanations = explain(claim, x, got, difference)
    assert fault in explanations[0].faults
    assert explanations[0].left == 0


def test_a_given_scale_of_each_row_can_be_that_of_the_row_before() -> None:
    claim = Claim.parse("quantize/vllm.fp8_static_token/float32/float8_e4m3fn")
    right = behaviour_of(claim)
    wrong = FAULTS["granularity.scale_of_the_row_before"].applied_to(right)
    assert wrong is not None
    x = Input("float32", np.full((3, 2), 64, F32).view(np.uint32), {"scale": float32(1.0, 2.0, 4.0)})
    np.testing.assert_array_equal(decode_values(wrong.run(x)["codes"])[:, 0], [16, 64, 32])


def test_static_recipes_have_faults_of_their_own() -> None:
    for name, recipe in RECIPES.items():
        if recipe.inputs:
            applied = _applied(Claim(Quantize(name), "float32", recipe.destinations[0].format))
            assert {"element.not_scaled", "element.scaled_twice", "element.multiplied_for_divided"} <= applied, recipe


def _applied(claim: Claim) -> set[str]:
    return {name for name, fault in FAULTS.items() if fault.applied_to(behaviour_of(claim)) is not None}
