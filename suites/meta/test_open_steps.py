# SPDX-License-Identifier: Apache-2.0
"""Steps whose last bit is open: what a recipe admits is what the second derivation admits, no more and no less."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from fractions import Fraction
from functools import cache, partial
from itertools import pairwise, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.operations import Claim, Quantize
from narrowgauge.contracts.recipe import TOKEN, Destination, Recipe
from narrowgauge.reference.behaviour import behaviour_of
from narrowgauge.reference.compare import compare
from narrowgauge.reference.expected import expected, outputs_of
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.faults.registry import fault_named
from narrowgauge.reference.identify import Seen, identify
from narrowgauge.reference.interval import Interval
from narrowgauge.reference.judge import judge
from narrowgauge.reference.open_steps import is_open, ways
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.reference.steps import STEPS, VARIANTS
from narrowgauge.suites.meta.second_catalogue import derive, differ
from narrowgauge.suites.meta.second_derivation import Number, decode, whole_number
from narrowgauge.suites.meta.second_levels import aiter_hip, approximate, nvfp4_kernel
from narrowgauge.suites.meta.second_matrices import coded, given, matrix
from narrowgauge.suites.meta.second_quantizers import divide, multiply
from narrowgauge.suites.meta.second_recipes import (
    Block,
    Rule,
    amax_keep,
    at_least,
    ceil_log2,
    ceil_of_rounded_log2,
    code,
    constant,
    eps,
    float32_bits,
    fp8,
    microscaled,
    over,
    tiny,
    up_to_power,
)

pytestmark = pytest.mark.meta

Array = npt.NDArray[Any]
E4M3 = "float8_e4m3fn"
TOKEN_CLAIM = Claim.parse(f"quantize/aiter.fp8_hip_token/float32/{E4M3}")
Ceiling = Callable[[Number], int]

# --- approximate reciprocals -----------------------------------------------------------------------------------------

RECIPROCALS: Mapping[str, tuple[Callable[..., Any], int, str, tuple[str, ...]]] = {
    "aiter.fp8_hip_token": (partial(aiter_hip, whole_number(0)), 1, E4M3, ("random", "tiny", "special")),
    "aiter.fp8_hip_group": (partial(aiter_hip, constant(1e-10)), 1, "float8_e4m3fnuz", ("random", "faint")),
    "vllm.nvfp4": (nvfp4_kernel, 3, "float4_e2m1fn", ("ties", "special", "huge")),
}


@pytest.mark.parametrize("name", RECIPROCALS)
def test_what_is_admitted_is_the_hull_of_every_answer(name: str) -> None:
    """Each reciprocal one place below, the nearest, or one above, in every combination; by exact fractions."""
    rule, places, format_name, kinds = RECIPROCALS[name]
    for kind in kinds:
        x, beside = matrix(name, kind), given(name, kind)
        runs = [
            derive(name, x, "float32", format_name, beside, partial(rule, ulps))
            for ulps in product((-1, 0, 1), repeat=places)
        ]
        claim, held = Claim.parse(f"quantize/{name}/float32/{format_name}"), _coded(beside)
        assert_hull(expected(claim, Input("float32", x, held)), runs)


def assert_hull(want: Mapping[str, Interval], runs: list[dict[str, Array]]) -> None:
    for name, interval in want.items():
        every = np.stack([decode_values(_like(interval.low, run[name])) for run in runs])
        nan = np.isnan(every)
        assert (nan.all(axis=0) == nan.any(axis=0)).all(), "no element is a number or NaN"
        for end, extreme in ((interval.low, every.min(axis=0)), (interval.high, every.max(axis=0))):
            np.testing.assert_array_equal(decode_values(end), extreme, err_msg=name)


def _like(tensor: Coded, codes: Array) -> Coded:
    return Coded(tensor.format, codes.astype(tensor.data.dtype))


def _coded(beside: Mapping[str, Array]) -> dict[str, Coded]:
    return {n: Coded("float32", codes) for n, codes in beside.items()}


@cache
def sharp() -> Array:
    """Rows [4, 132] for aiter.fp8_hip_token of which codes change where the reciprocal is one, or two, places off."""
    grid = [decode(c, E4M3).magnitude for c in range(8, 0x7F)]
    ties = [(a + b) / 2 for a, b in pairwise(grid)]
    rows = []
    for top in (3.7, 1.3, 0.81, 5.9):
        scale = multiply(constant(top), divide(constant(1), whole_number(448)))
        inverses = [approximate(scale, u) for u in (-2, -1, 0, 1, 2)]
        tried = [(bits, [code(multiply(decode(bits, "float32"), r), E4M3) for r in inverses])
                 for tie in ties for bits in _around(tie, inverses[2])]  # fmt: skip
        parted = [
            [bits for bits, codes in tried if parts(codes)]
            for parts in (
                lambda c: c[0] not in c[1:4],
                lambda c: c[4] not in c[1:4],
                lambda c: c[1] != c[2],
                lambda c: c[3] != c[2],
            )
        ]
        assert min(map(len, parted)) > 5
        rows.append(np.concatenate([np.resize(np.array(found, np.uint32), 33) for found in parted]))
        rows[-1][0] = float32_bits(constant(top))
    return np.stack(rows)


def _around(tie: Fraction, inverse: Number) -> range:
    near = float32_bits(divide(Number("finite", False, tie), inverse))
    return range(near - 3, near + 4)


def hip_kernel(x: Array, ulps: tuple[int, ...]) -> dict[str, Coded]:
    """A kernel whose reciprocal in each row is so far from the nearest."""
    rows = [
        derive("aiter.fp8_hip_token", x[i : i + 1], "float32", E4M3, {}, partial(aiter_hip, whole_number(0), (u,)))
        for i, u in enumerate(ulps)
    ]
    formats = {"codes": (E4M3, np.uint8), "scale": ("float32", np.uint32)}
    return {n: Coded(f, np.concatenate([r[n] for r in rows]).astype(dtype)) for n, (f, dtype) in formats.items()}


def verdict_of(ulps: tuple[int, ...]) -> str:
    return judge(TOKEN_CLAIM, Coded("float32", sharp()), hip_kernel(sharp(), ulps)).result


@pytest.mark.parametrize("ulps", [(0, 0, 0, 0), (1, 1, 1, 1), (-1, -1, -1, -1), (1, -1, 0, 1)], ids=str)
def test_a_kernel_within_one_place_passes(ulps: tuple[int, ...]) -> None:
    assert verdict_of(ulps) == "passed"


@pytest.mark.parametrize("ulps", [(2, 0, 0, 0), (0, -2, 0, 0), (1, 1, 1, 2), (0, 0, -2, 1)], ids=str)
def test_a_kernel_two_places_off_fails(ulps: tuple[int, ...]) -> None:
    assert verdict_of(ulps) == "failed"


def test_the_two_tests_above_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """With less admitted a right kernel fails; with more a wrong one passes."""
    nearest, (below, above) = STEPS["recip_approx"], VARIANTS["recip_approx"]
    for few in ((), (below,), (above,)):
        monkeypatch.setitem(VARIANTS, "recip_approx", few)
        assert "failed" in {verdict_of((1, 1, 1, 1)), verdict_of((-1, -1, -1, -1))}
    far = tuple(partial(_moved, nearest, places) for places in (-2, 2))
    monkeypatch.setitem(VARIANTS, "recip_approx", (below, above, *far))
    assert verdict_of((2, 0, 0, 0)) == verdict_of((0, -2, 0, 0)) == "passed"


def _moved(step: Callable[..., Any], places: int, x: Any) -> Any:
    return (np.asarray(step(x), np.float32).view(np.int32) + np.int32(places)).view(np.float32)


def test_answers_that_differ_from_place_to_place_are_admitted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """SF * rcp(g) and the reciprocal of it: both up and both down reach further than one variant for all."""
    name, x, beside = "vllm.nvfp4", matrix("vllm.nvfp4", "random"), given("vllm.nvfp4", "random")
    claim = Claim.parse(f"quantize/{name}/float32/float4_e2m1fn")
    recipe, combinations = ways(RECIPES[name])
    assert len(combinations) == 27
    assert combinations[0] == STEPS | dict.fromkeys(combinations[0].keys() - STEPS.keys(), STEPS["recip_approx"])
    assert not is_open(recipe), "no place is counted twice"
    for ulps in ((1, -1, 1), (-1, 1, -1)):
        got = derive(name, x, "float32", "float4_e2m1fn", beside, partial(nvfp4_kernel, ulps))
        want = expected(claim, Input("float32", x, _coded(beside)))
        assert compare({n: _like(want[n].low, c) for n, c in got.items()}, want).total == 0


# --- powers of two by a logarithm ------------------------------------------------------------------------------------


def ceil_of_low_log2(x: Number) -> int:
    """A logarithm one place below the nearest float32, then up. Of a power of two it is exact."""
    exact, nearest = ceil_log2(x), ceil_of_rounded_log2(x)
    if nearest != exact or x.magnitude == Fraction(2) ** exact:
        return nearest
    # ceil(log2 x) = e; whether the float32 nearest to log2 x is the one next to e - 1
    beside = Fraction(np.nextafter(np.float32(exact - 1), np.float32(np.inf)).item())
    third = Fraction(np.nextafter(np.float32(beside), np.float32(np.inf)).item())
    # log2 x < (beside + third) / 2, by the power that is half way between the two, in 200 digits
    return exact - 1 if _log2_below(x.magnitude, (beside + third) / 2) else exact


def _log2_below(x: Fraction, exponent: Fraction) -> bool:
    context = Context(prec=80)
    log = context.divide(
        context.ln(context.divide(Decimal(x.numerator), Decimal(x.denominator))), context.ln(Decimal(2))
    )
    return Fraction(log) < exponent


CEILINGS: tuple[Ceiling, ...] = (ceil_of_rounded_log2, ceil_log2, ceil_of_low_log2)


def _mxfp8(ceiling: Ceiling) -> Rule:
    def exponent(block: Block) -> int:
        return ceiling(divide(amax_keep(block, constant(2.0**-126)), whole_number(448)))

    return microscaled(exponent)


LOGARITHMS: Mapping[str, Callable[[Ceiling], Rule]] = {
    "vllm.fp8_group_ue8m0": lambda c: fp8(up_to_power(at_least(over(eps(1e-10)), tiny), c), "inverse", "fmax first"),
    "vllm.mxfp8_torch": _mxfp8,
}


def beside_powers(width: int) -> Array:
    """Blocks whose amax is up to ten places above 448 times a power of two, and one below."""
    exponents = np.array([-37, -20, -10, -5, -3, -1, 0, 1, 5, 11, 30])
    tops = np.asarray(448 * 2.0**exponents, np.float32).view(np.int32)[:, None] + np.arange(-1, 11, dtype=np.int32)
    blocks = np.zeros((tops.size, width), np.float32)
    blocks[:, 0] = tops.ravel().view(np.float32)
    blocks[:, 1:8] = blocks[:, :1] * np.linspace(-0.9, 0.8, 7, dtype=np.float32)
    return coded(blocks, "float32")


@pytest.mark.parametrize("name", LOGARITHMS)
def test_of_a_logarithm_within_one_place_both_powers_are_admitted(name: str) -> None:
    x = beside_powers(128 if "group" in name else 32)
    runs = [derive(name, x, "float32", E4M3, {}, LOGARITHMS[name](ceiling)) for ceiling in CEILINGS]
    claim = Claim.parse(f"quantize/{name}/float32/{E4M3}")
    want = expected(claim, Coded("float32", x))
    assert_hull(want, runs)
    opened = want["scale"].open
    assert opened.sum() > 10
    assert (~opened).sum() > 30
    # another one in each block
    mixed = {n: _like(want[n].low, np.stack([runs[i % 3][n][i] for i in range(len(x))])) for n in want}
    assert compare(mixed, want).total == 0
    for wrong in (lambda s: ceil_log2(s) + 1, lambda s: ceil_log2(s) - 1):
        got = derive(name, x, "float32", E4M3, {}, LOGARITHMS[name](wrong))
        scales = compare({n: _like(want[n].low, c) for n, c in got.items()}, want).mask("scale")
        assert (scales | opened).all()
        assert scales.sum() > 30


def test_a_power_by_its_bits_is_one_of_the_admitted() -> None:
    """ceil_pow2, which engines say is the same, passes for exp2(ceil(log2)); the other way round it fails."""
    x = Coded("float32", beside_powers(128))
    by_bits = behaviour_of(Claim.parse(f"quantize/vllm.fp8_group_ue8m0_packed/float32/{E4M3}")).run(x)
    by_log = behaviour_of(Claim.parse(f"quantize/vllm.fp8_group_ue8m0/float32/{E4M3}")).run(x)
    assert differ(by_bits["scale"].data, by_log["scale"].data, "float32").any()
    assert judge(Claim.parse(f"quantize/vllm.fp8_group_ue8m0/float32/{E4M3}"), x, by_bits).result == "passed"
    assert judge(Claim.parse(f"quantize/vllm.fp8_group_ue8m0_packed/float32/{E4M3}"), x, by_log).result == "failed"


# --- who asks for what is admitted -----------------------------------------------------------------------------------


def test_a_fault_is_named_though_the_kernel_answers_otherwise() -> None:
    """A fault explains all, where the rest are admitted answers of the faulty recipe."""
    fault = "cast.clamped_to_224"
    wrong = fault_named(fault).applied_to(behaviour_of(TOKEN_CLAIM))
    assert wrong is not None
    x = Coded("float32", sharp())
    admitted = outputs_of(wrong, x)
    assert admitted["codes"].open.any()
    got = {name: interval.high for name, interval in admitted.items()}
    verdict = judge(TOKEN_CLAIM, x, got)
    assert verdict.result == "failed"
    assert verdict.explanations[0].complete
    assert fault in verdict.explanations[0].faults


def test_identify_follows_a_kernel_of_admitted_answers() -> None:
    x = sharp()
    got = hip_kernel(x, (1, -1, 1, -1))
    observed = Claim.parse(f"quantize/?/float32/{E4M3}")
    assert identify(observed, [Seen(Coded("float32", x), got)]).follows == (
        "aiter.fp8_hip_token",
        "aiter.fp8_hip_smooth",
    )


def test_an_interval_of_inputs_and_open_steps_hold_every_answer() -> None:
    """All that the three reciprocals give at both ends of x, and nothing of two places off at either."""
    low = sharp()
    high = low + np.uint32(1)
    x = Interval(Coded("float32", low), Coded("float32", high))
    want = expected(TOKEN_CLAIM, x)
    for end, ulps in product((low, high), (-1, 0, 1)):
        assert compare(hip_kernel(end, (ulps,) * 4), want).total == 0


@pytest.mark.parametrize("top", [2.0**126, 2.0**126 + 2.0**103])
def test_a_number_or_nan(top: float) -> None:
    """Where one answer makes a NaN of what another makes a number, both are admitted, and no number on the other side.

    The reciprocal of 2^126 is the least normal number, or a zero; that of the reciprocal 2^126, or infinite. Of the
    next float32 it is the other way round: the nearest is no normal number, so zero is what comes first.
    """
    recipe = Recipe(
        "open", TOKEN, (Destination("float8_e5m2", 57344.0, "ocp_nonsaturate"),),
        (("scale", ("amax",)), ("encode", ("scale", "recip_approx", "recip"))), ("x", ("mul", "encode")), "",
    )  # fmt: skip
    claim = Claim(Quantize(recipe), "float32", "float8_e5m2")
    x = Coded("float32", coded(np.array([[top, 0.0, -0.0, 2.0**-126]], np.float32), "float32"))
    want = expected(claim, x)
    assert want["codes"].open.tolist() == [[False, True, True, True]]
    for fine in ([0x7C, 0x00, 0x80, 0x3C], [0x7C, 0x7E, 0x7E, 0x7C], [0x7C, 0x7E, 0x80, 0x3C]):
        got = {"codes": Coded("float8_e5m2", np.array([fine], np.uint8)), "scale": want["scale"].low}
        assert compare(got, want).total == 0, fine
    for wrong in ([0x7C, 0xBC, 0x80, 0x3C], [0x7C, 0x00, 0x3C, 0x3C], [0x7C, 0x00, 0x80, 0x38]):
        got = {"codes": Coded("float8_e5m2", np.array([wrong], np.uint8)), "scale": want["scale"].low}
        assert compare(got, want).total == 1, wrong
