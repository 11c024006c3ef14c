"""Faults of caches are named rightly: alone, or with those that no call of the suite tells from them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.compare import compare
from narrowgauge.reference.expected import expected, outputs_of, promised_for
from narrowgauge.reference.faults.applicability import CACHED
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.interval import Expected
from narrowgauge.reference.judge import judge
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.kv.settling import free_rows, settled
from narrowgauge.reference.message import failure_message

pytestmark = pytest.mark.meta

#: a writer whose every answer is many; its reader has the same layout
SLOW = ["kv_write", "vllm.nvfp4"]
CLAIMS = tuple(Claim.parse(text) for claims in CACHED for text in claims if text.split("/")[:2] != SLOW)
#: faults of kernels on caches, and those of quantizers and readers whose rows of the logs are of caches
OURS = [name for name in FAULTS if name.startswith("kv_")]
LIFTED = (
    "element.not_scaled",
    "element.scaled_twice",
    "element.multiplied_for_divided",
    "read.scale_ignored",
    "read.scale_inverted",
    "read.scale_twice",
    "granularity.first_scale_for_all",
    "read.first_scale_for_all",
    "fnuz.ocp_codes_written",
    "fnuz.fnuz_codes_written",
    "fnuz.read_as_ocp",
    "fnuz.ocp_read_as_fnuz",
    "cast.e4m3_and_e5m2_confused",
    "cast.overflow_to_nan",
)
#: a claim and a fault that no smoke call of it shows without others
NEVER_ALONE = {
    # a latent is key and value at once: whoever counts a token of NaN gives NaN as well
    ("attend/vllm.fp8_ds_mla/float8_e4m3fn/bfloat16", "kv_attention.stale_values"),
}


@dataclass(frozen=True)
class Shown:
    """What a fault leaves on a call, and the faults that leave just this."""

    claim: Claim
    x: Coded
    outputs: Expected
    names: frozenset[str]


def answer(outputs: Expected) -> tuple[bytes, ...]:
    return tuple(end.data.tobytes() for name in sorted(outputs) for end in (outputs[name].low, outputs[name].high))


@cache
def shown() -> Mapping[tuple[str, str], list[Shown]]:
    """By claim and fault, every smoke call that shows it."""
    found = defaultdict(list)
    for claim in CLAIMS:
        for x in cases_for(claim, "smoke").values():
            right = promised_for(claim, x)
            want, sets = outputs_of(right, x), defaultdict(list)
            for name, fault in FAULTS.items():
                wrong = fault.applied_to(right)
                try:
                    outputs = None if wrong is None else outputs_of(wrong, x)
                except BadInput:  # it would read or write outside the cache
                    continue
                if outputs is not None and compare({n: v.low for n, v in outputs.items()}, want).total:
                    sets[answer(outputs)].append((name, outputs))
            for alike in sets.values():
                names = frozenset(name for name, _ in alike)
                for name, outputs in alike:
                    found[str(claim), name].append(Shown(claim, x, outputs, names))
    return found


def best(claim: str, fault: str) -> Shown | None:
    """The call on which the fewest others leave the same."""
    calls = shown().get((claim, fault), [])
    return min(calls, key=lambda one: len(one.names), default=None)


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_on_each_kind_of_cache_a_fault_stands_alone(claim: Claim) -> None:
    """On some smoke call, so that the table of a run names it."""
    found = {fault: best(str(claim), fault) for fault in (*OURS, *LIFTED)}
    together = {fault: one.names for fault, one in found.items() if one is not None and len(one.names) > 1}
    assert {fault: names for fault, names in together.items() if (str(claim), fault) not in NEVER_ALONE} == {}


@pytest.mark.parametrize("fault", [*OURS, *LIFTED])
def test_the_verdict_names_the_fault(fault: str) -> None:
    """The verdict on what it leaves, of the first operation in which it can exist."""
    calls = [one for claim in CLAIMS if (one := best(str(claim), fault)) is not None]
    assert calls, "no smoke call shows it"
    one = min(calls, key=lambda call: len(call.names))
    got = {name: value.low for name, value in one.outputs.items()}
    verdict = judge(one.claim, one.x, got)
    assert verdict.result == "failed"
    first = verdict.explanations[0]
    assert first.complete
    assert one.names <= set(first.faults)
    for name in set(first.faults) - one.names:  # by another token of one slot, or within the interval of an attention
        assert left_by(name, one, got) == 0
        assert one.claim.operation == "attend" or fault in WRAPS


#: where padding goes to the slot of a token, either may stay
WRAPS = ("kv_slot.negative_wraps", "kv_slot.only_minus_one_is_padding")


def left_by(fault: str, one: Shown, got: Mapping[str, Coded]) -> int:
    """How many elements a fault leaves unexplained, whichever token of a slot stays."""
    right = promised_for(one.claim, one.x)
    wrong = FAULTS[fault].applied_to(right)
    outputs = outputs_of(wrong, one.x)
    assert isinstance(right, Paged)
    if one.claim.operation != "kv_write":
        return compare(got, outputs).total
    free = free_rows(right, one.x, next(iter(got.values())).shape[0])
    return compare(settled(wrong, one.x, got, outputs, free), outputs).total


def test_two_mistakes_are_named_together() -> None:
    """A scale that is not applied, and slots one too high."""
    claim = CLAIMS[0]
    x = cases_for(claim, "smoke")["scattered"]
    wrong = promised_for(claim, x)
    for name in ("kv_scale.v_ignored", "kv_slot.one_later"):
        wrong = FAULTS[name].applied_to(wrong)
    verdict = judge(claim, x, {name: value.low for name, value in outputs_of(wrong, x).items()})
    assert verdict.explanations[0].faults == ("kv_scale.v_ignored + kv_slot.one_later",)


def test_what_nobody_decides_is_no_part_of_a_fault() -> None:
    """Of two tokens with one slot the first stays, in a kernel that leaves out the scale: that is all it is told."""
    claim = CLAIMS[0]
    x = cases_for(claim, "smoke")["repeated"]
    right = promised_for(claim, x)
    assert isinstance(x, Input)
    assert isinstance(right, Paged)
    wrong = FAULTS["kv_scale.v_ignored"].applied_to(right)
    slots = x.given["slots"].data.view(np.int32).ravel()
    shared = [slot for slot in np.unique(slots) if slot >= 0 and np.count_nonzero(slots == slot) > 1]
    assert shared
    got, first = ({n: v.low for n, v in outputs_of(wrong, call).items()} for call in (x, _in_reverse(x)))
    for name, value in got.items():
        value.data[shared] = first[name].data[shared]
    seen = settled(right, x, got, expected(claim, x), free_rows(right, x, got["k"].shape[0]))
    found = judge(claim, x, seen).explanations[0]
    assert (found.faults, found.left) == (("kv_scale.v_ignored",), 0)


def _in_reverse(x: Input) -> Input:
    """The same call with its tokens in reverse, so that the first of a slot stays."""
    v, slots = x.given["v"], x.given["slots"]
    turned = {"v": Coded(v.format, v.data[::-1].copy()), "slots": Coded("int32", slots.data[:, ::-1].copy())}
    return Input(x.format, x.data[::-1].copy(), {**x.given, **turned})


def test_every_fault_of_caches_is_probed() -> None:
    """Held to numbers by hand in one of the files beside this one."""
    files = Path(__file__).parent.glob("test_kv_fault_*.py")
    named = {name for file in files if file != Path(__file__) for name in re.findall(r"kv_\w+\.\w+", file.read_text())}
    assert set(OURS) - named == {"kv_scale.doubled", "kv_scale.halved"}  # named in two parts there


@pytest.mark.parametrize(
    "fault", ["cast.ties_away", "element.scaled_twice", "kv_slot.one_later", "kv_slot.page_zeroed"]
)
def test_a_fault_in_one_part_alone(fault: str) -> None:
    """Values are written wrongly and keys rightly: the verdict says which part it is."""
    claim = CLAIMS[0]
    x = cases_for(claim, "smoke")["scattered"]
    right = promised_for(claim, x)
    got = {n: v.low for n, v in outputs_of(right, x).items()}
    got["v"] = outputs_of(FAULTS[fault].applied_to(right), x)["v"].low
    verdict = judge(claim, x, got)
    first = verdict.explanations[0]
    if fault == "element.scaled_twice":
        assert (first.faults, first.only) == (("kv_scale.v_twice",), "")
    else:
        assert (first.faults, first.only, first.complete) == ((fault,), "v", True)
        assert f": {fault} in v alone" in failure_message(verdict, "mine")


def test_the_scales_of_a_part_belong_to_it() -> None:
    """Values alone have the inverse of their scales stored."""
    claim = Claim.parse("kv_write/vllm.fp8_token_head/bfloat16/float8_e4m3fn")
    x = cases_for(claim, "smoke")["scattered"]
    right = promised_for(claim, x)
    wrong = outputs_of(FAULTS["scale.inverted"].applied_to(right), x)
    got = {n: (wrong if n.startswith("v") else outputs_of(right, x))[n].low for n in wrong}
    first = judge(claim, x, got).explanations[0]
    assert (first.faults, first.only, first.left) == (("scale.inverted",), "v", 0)
