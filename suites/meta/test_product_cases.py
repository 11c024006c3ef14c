# SPDX-License-Identifier: Apache-2.0
"""Which cases each product has, by hand: one that no longer suits a product is noticed. And where it is judged."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.kernels import Kernel, Plugged
from narrowgauge.contracts.operations import Claim, Matmul
from narrowgauge.contracts.product import Operand, Product
from narrowgauge.devices import discovery
from narrowgauge.devices.device import Device
from narrowgauge.reference.behaviour import claim_on, multiplying_of
from narrowgauge.reference.inputs import CASES
from narrowgauge.reference.matmul.cases import Shape, call_of
from narrowgauge.reference.matmul.kinds import Name
from narrowgauge.reference.matmul.products import PRODUCTS
from narrowgauge.reference.matmul.reading import terms_by_expert
from narrowgauge.suites.planning import Planned, plan_cases

pytestmark = pytest.mark.meta

Sizes = npt.NDArray[np.float64]
E4, HALF, BF16, F32 = "float8_e4m3fn", "float16", "bfloat16", "float32"
#: what every product has; what it has beside that, with sums in float32. Not there, and why: subnormal numbers of
#: bfloat16, whose products vanish; NaN of float32, which suites/matmul/poison.py has, and of integers; limit, beyond
#: and lost, which are drawn for codes that are the numbers themselves
EVERY = {"exact", "noise", "positive", "surrounded", "one_row", "no_rows", "short"}
DRAWN = {"full", "limit", "beyond", "lost"}
NARROW = {"full", "subnormal", "specials"}
WIDE = {"full", "specials"}
CASES_OF: dict[str, set[str]] = {
    "plain.matmul": DRAWN | NARROW, "plain.matmul/bfloat16": DRAWN | WIDE, "plain.matmul/float32": DRAWN,
    "plain.matmul_bias": DRAWN | NARROW, "plain.matmul_bias/float32": DRAWN,  # what vanishes, vanishes beside the bias
    "plain.matmul_then_bias": DRAWN | NARROW,
    "plain.matmul_tf32": {"full"}, "plain.matmul_fp8": DRAWN | NARROW,
    "plain.matmul_int8": {"full", "limit", "beyond"}, "vllm.moe": NARROW,
    "vllm.moe/bfloat16": WIDE,
    "vllm.fp8_tensor": DRAWN | NARROW | {"scaled"}, "vllm.fp8_token_channel": DRAWN | NARROW | {"scaled"},
    "vllm.fp8_token_channel_bias": DRAWN | NARROW | {"scaled"}, "vllm.fp8_block": NARROW | {"scaled"},
    "vllm.moe_fp8_channel": NARROW | {"scaled"}, "vllm.moe_fp8_block": NARROW | {"scaled"},
    "vllm.int8_token_channel": {"full", "limit", "beyond", "scaled"},
    "vllm.int8_azp_tensor": {"full", "scaled"}, "vllm.int8_azp_token": {"full", "scaled"},
    "vllm.int8_azp_token_bias": {"full", "scaled"},
    **{f"{name}{ending}": kinds for ending, kinds in (("", NARROW), ("_bf16", WIDE)) for name in (
        "awq.gemm", "gptq.gemm_symmetric", "gptq.gemm", "gptq.gemm_act_order", "vllm.w4a16_uint4b8",
        "vllm.w4a16_zero_point")},
    "ocp.mxfp8": NARROW | {"extreme"}, "ocp.mxfp4": NARROW | {"extreme"}, "ocp.mxfp8_mxfp4": NARROW | {"extreme"},
    "ocp.mxfp8_to_bf16": WIDE, "ocp.mxfp4_to_bf16": WIDE, "vllm.nvfp4_to_bf16": WIDE, "nvidia.nvfp4": NARROW,
    "torch.int4_cpu": WIDE, "torch.scaled_mm_cpu_tensor": NARROW, "torch.scaled_mm_cpu_row": NARROW,
    "torch.scaled_mm_cpu_row_bias": NARROW,
}  # fmt: skip
#: the same where sums are kept otherwise: in 13 bits, which nothing is beyond; promoted
KEPT: dict[tuple[str, str], set[str]] = {
    ("plain.matmul_fp8", "tensor_core_13"): {"limit", "subnormal", "specials"},
    ("vllm.fp8_tensor", "tensor_core_13"): {"limit", "scaled", "subnormal", "specials"},
    ("vllm.fp8_block", "tensor_core_13"): {"scaled", "subnormal", "specials"},
    ("ocp.mxfp8", "tensor_core_13"): {"subnormal", "specials", "extreme"},
    ("vllm.fp8_token_channel", "promoted_128"): {"limit", "scaled", "subnormal", "specials", "promoted"},
    ("vllm.moe_fp8_channel", "promoted_128"): {"scaled", "subnormal", "specials", "promoted"},
    ("vllm.fp8_block", "promoted_128"): {"scaled", "subnormal", "specials"},
}
#: larger calls of kinds that are here anyhow
LARGER = {"long", "long_noise", "large"}


def cases_of(claim: Claim) -> set[str]:
    return {c.name for c in CASES if c.operation == "matmul" and c.name not in LARGER and c.suits(claim)}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_has_its_cases(name: str) -> None:
    """With each format of a; the format of the result decides nothing."""
    for source, out in {source: (source, out) for source, out in PRODUCTS[name].formats}.values():
        wanted = CASES_OF.get(f"{name}/{source}", CASES_OF[name])
        assert cases_of(Claim(Matmul(name, "float32"), source, out)) == EVERY | wanted, source


@pytest.mark.parametrize(("name", "accumulator"), KEPT)
def test_a_narrow_accumulator_has_its_cases(name: str, accumulator: str) -> None:
    _, out = max(PRODUCTS[name].formats, key=lambda pair: pair == (E4, F32))
    assert cases_of(Claim(Matmul(name, accumulator), E4, out)) == EVERY | KEPT[name, accumulator]


# --- what calls are made of ------------------------------------------------------------------------------------------


def test_a_call_of_experts_has_all_there_may_be() -> None:
    """Rows of no expert, an expert without rows, several with some."""
    x = call_of(multiplying_of(Claim(Matmul("vllm.moe"), HALF, HALF)), Shape("exact"))
    experts = x.given["experts"].data.view(np.int32)[0].tolist()
    assert set(experts) == {-1, 0, 1}
    assert x.given["expert_count"].data.tolist() == [[3]]


def test_groups_are_taken_out_of_order() -> None:
    x = call_of(multiplying_of(Claim(Matmul("gptq.gemm_act_order"), HALF, HALF)), Shape("exact"))
    index = x.given["b_group_index"].data.view(np.int32)[0]
    assert set(index.tolist()) == {0, 1, 2}
    assert (np.diff(index) < 0).any()


@pytest.mark.parametrize(("name", "source", "places"), [
    ("vllm.int8_azp_token", "int8", {-20, -7, -1, 0, 1, 3, 12}), ("awq.gemm", HALF, set(range(16))),
    ("gptq.gemm", HALF, set(range(1, 17))), ("vllm.w4a16_zero_point", HALF, set(range(16))),
])  # fmt: skip
def test_zero_points_are_all_that_there_may_be(name: str, source: str, places: set[int]) -> None:
    """GPTQ's first version stores one less, so 1 to 16."""
    x = call_of(multiplying_of(Claim(Matmul(name), source, HALF)), Shape("exact"))
    side = "a" if source == "int8" else "b"
    assert set(x.given[f"{side}_zero_point"].data.view(np.int32).ravel().tolist()) == places


def test_blocks_of_columns_are_not_all_whole() -> None:
    x = call_of(multiplying_of(Claim(Matmul("vllm.fp8_block"), E4, F32)), Shape("exact"))
    rows = x.given["b"].shape[0]
    assert rows > 128
    assert rows % 128


@pytest.mark.parametrize("name", ["vllm.fp8_block", "vllm.fp8_token_channel"])
def test_no_two_neighbours_share_a_scale(name: str) -> None:
    x = call_of(multiplying_of(Claim(Matmul(name), E4, F32)), Shape("exact"))
    a, b = x.given["a_scale"].data, x.given["b_scale"].data
    for scales in (a, b):
        for axis in (0, 1):
            assert not (np.diff(scales.astype(np.int64), axis=axis) == 0).any()
    assert a[0, 0] != b[0, 0]


def test_the_least_scale_there_is_is_in_the_extreme_call() -> None:
    x = call_of(multiplying_of(Claim(Matmul("ocp.mxfp8"), E4, F32)), Shape("extreme"))
    assert (x.given["a_scale"].data == 0).any()


def test_every_place_of_k_is_used_and_rows_begin_elsewhere() -> None:
    claim = Claim(Matmul("plain.matmul_fp8"), E4, F32)
    x = call_of(multiplying_of(claim), Shape("exact"))
    ((_, terms),) = terms_by_expert(multiplying_of(claim), x)
    assert (terms.a != 0).any(axis=0).all()
    assert len({tuple(row) for row in (terms.a != 0).tolist()}) == len(terms.a)


def sizes(claim: Claim, kind: Name, first: int | None = None) -> Sizes:
    """Sums of magnitudes in units of 1, over all of K or the first of it."""
    x = call_of(multiplying_of(claim), Shape(kind, depth=2000))
    ((_, terms),) = terms_by_expert(multiplying_of(claim), x)
    return np.asarray(np.abs(terms.a[:, :first]) @ np.abs(terms.b[:, :first]).T)


@pytest.mark.parametrize(("kind", "bits"), [("exact", 14), ("full", 22), ("limit", 24)])
def test_sums_of_magnitudes_come_near_what_is_allowed(kind: Name, bits: int) -> None:
    """Above half of it in some element, and below it in all."""
    assert 0.5 * 2**bits < sizes(Claim(Matmul("plain.matmul", "float32"), HALF, F32), kind).max() < 2**bits


def test_what_is_left_out_is_the_zero_point() -> None:
    """And not the code 0, which is a number there."""
    assert 0.5 * 2**14 < sizes(Claim(Matmul("vllm.int8_azp_token"), "int8", F32), "exact").max() < 2**14


def test_promoted_sums_pass_what_their_stretches_do_not() -> None:
    claim = Claim(Matmul("plain.matmul_fp8", "promoted_128"), E4, F32)
    assert sizes(claim, "promoted", 128).max() < 2**14 < sizes(claim, "promoted").min()


def test_special_rows_and_columns() -> None:
    """NaN at the beginning of a row and infinity within another, NaN at both ends of columns."""
    x = call_of(multiplying_of(Claim(Matmul("plain.matmul"), HALF, F32)), Shape("specials"))
    a, b = (v.view(np.float16) for v in (x.data, x.given["b"].data))
    assert [p.tolist() for p in np.nonzero(np.isnan(a))] == [[11], [0]]
    assert [p.tolist() for p in np.nonzero(np.isinf(a))] == [[7], [138]]
    assert [p.tolist() for p in np.nonzero(np.isnan(b))] == [[7, 20], [276, 0]]


@pytest.mark.parametrize(("name", "source", "code"), [("ocp.mxfp8", E4, 0xFF), ("nvidia.nvfp4", "float4_e2m1fn", 0x7F)])
def test_a_scale_that_is_nan_is_among_the_special(name: str, source: str, code: int) -> None:
    x = call_of(multiplying_of(Claim(Matmul(name), source, F32)), Shape("specials"))
    assert x.given["a_scale"].data[-1, -1] == code


def test_a_kind_that_says_nothing_is_refused() -> None:
    with pytest.raises(BadInput, match=r"plain\.matmul: a call of kind 'extreme' says nothing of it"):
        call_of(multiplying_of(Claim(Matmul("plain.matmul"), HALF, F32)), Shape("extreme"))


# --- where ------------------------------------------------------------------------------------------------------------

#: the accumulator to which a claim without one is held: on each target, of each product and its a
ON = {
    ("vllm.fp8_tensor", E4): {"sm_89": "tensor_core_13", "sm_90": "tensor_core_13", "sm_100": "float32",
                              "sm_103": "assumed_float32", "gfx90a": "float32", "gfx942": "float32",
                              "gfx950": "assumed_float32", "gfx1151": "rdna3", "gfx1201": "assumed_float32",
                              "host": "float32", "interpreter": "float32"},
    ("ocp.mxfp8_mxfp4", E4): {"sm_90": "tensor_core_13", "sm_100": "float32"},
    ("ocp.mxfp8_to_bf16", BF16): {"sm_90": "float32", "gfx1151": "rdna3"},
    ("plain.matmul", HALF): {"sm_75": "float32", "sm_90": "float32", "gfx90a": "float32_flushed", "gfx942": "float32",
                             "gfx1100": "rdna3", "": "float32_flushed"},
    ("vllm.int8_token_channel", "int8"): {"sm_90": "int32", "gfx942": "int32", "host": "int32"},
}  # fmt: skip


@pytest.mark.parametrize(("name", "source"), ON)
def test_a_claim_without_an_accumulator_has_that_of_the_target(name: str, source: str) -> None:
    claim = Claim(Matmul(name, portrait={"promotion": "none"}), source, F32)
    for target, accumulator in ON[name, source].items():
        held = claim_on(claim, target)
        assert held == Claim(Matmul(name, accumulator, {"promotion": "none"}), source, F32), target
        assert multiplying_of(held).accumulator.name == accumulator


def test_who_names_an_accumulator_is_held_to_it_everywhere() -> None:
    named = Claim(Matmul("vllm.fp8_tensor", "float32"), E4, F32)
    product = Product("mine", ((E4, F32),), Operand(), Operand(), "sum", "a test", accumulator="float16")
    for claim in (named, Claim(Matmul(product), E4, F32)):
        assert claim_on(claim, "sm_90") == claim
    assert multiplying_of(Claim(Matmul(product), E4, F32)).accumulator.name == "float16"


def kernel(conversion: str, contract: Matmul, own: bool = True) -> Plugged:
    """One of a's formats and two of the result's."""
    words = Kernel("mine", contract, (BF16, F32), (BF16,), "", "triton", conversion, "", "", False)  # type: ignore[arg-type]
    return Plugged(words, "mine.py", {}, own)


PLAIN = Matmul("plain.matmul", "float32")
MATRIX = "instructions of matrix units are not emulated (docs/emulator.md)"


@pytest.mark.parametrize(("target", "conversion", "reason"), [
    ("sm_90", "soft", ""), ("sm_90", "none", MATRIX), ("gfx942", "soft", MATRIX), ("gfx942", "none", MATRIX),
])  # fmt: skip
def test_matrix_units_are_not_emulated(target: str, conversion: str, reason: str) -> None:
    """What widens by integers becomes float32 arithmetic on NVIDIA; the rest is not executed, and says so."""
    plugged = kernel(conversion, PLAIN)
    planned = Planned(plugged, plugged.kernel.claims[0], "exact", discovery.emulated(target))
    assert planned.hindrance == reason


@pytest.mark.parametrize("device", [discovery.host(), discovery.interpreter()], ids=lambda d: str(d.target))
def test_elsewhere_nothing_hinders(device: Device) -> None:
    plugged = kernel("none", PLAIN)
    assert Planned(plugged, plugged.kernel.claims[0], "exact", device).hindrance == ""


def test_a_smoke_run_has_one_emulated_cell_of_each_of_our_products() -> None:
    """All cases of all formats are judged on the interpreter; somebody else's kernel everywhere."""
    devices = [discovery.emulated("sm_90")]
    ours = plan_cases([kernel("soft", PLAIN)], devices, "matmul", "smoke")
    assert [(p.claim.format, p.case) for p in ours] == [(BF16, "exact")]
    theirs = plan_cases([kernel("soft", PLAIN, own=False)], devices, "matmul", "smoke")
    smoke = [c.name for c in CASES if c.operation == "matmul" and c.depth == "smoke"]
    assert {p.claim.format for p in theirs} == {BF16, F32}
    assert [p.case for p in theirs if p.claim.format == F32] == [
        n for n in smoke if n in CASES_OF["plain.matmul/bfloat16"] | EVERY
    ]
