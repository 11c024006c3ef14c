"""The recipe catalogue as people see it, and as a kernel can claim it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from narrowgauge.command.identify import _identity
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim, Quantize, observe
from narrowgauge.contracts.recipe import STATISTICS, TENSOR, TOKEN, Blocks, Recipe, group, names_in
from narrowgauge.reference.behaviour import behaviour_of, candidates, resolved
from narrowgauge.reference.compare import compare
from narrowgauge.reference.expected import expected
from narrowgauge.reference.faults.registry import fault_named
from narrowgauge.reference.form import form_of, shaped, takes
from narrowgauge.reference.identify import Seen, identify
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.judge import check_claim, judge
from narrowgauge.reference.listing import mismatches
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.reference.steps import STEPS, operands_of
from narrowgauge.reference.words import WORDS, facts_of, in_words

pytestmark = pytest.mark.meta

CLAIMS = [
    Claim(Quantize(recipe.name), "float32", d.format)
    for recipe in RECIPES.values()
    for d in recipe.destinations
    if not recipe.inputs
]
STATIC = [recipe for recipe in RECIPES.values() if recipe.inputs]


# --- in words --------------------------------------------------------------------------------------------------------


def test_every_step_has_words_of_its_own() -> None:
    assert WORDS.keys() == STEPS.keys()
    assert len(set(WORDS.values())) == len(WORDS)


def test_words_say_every_operand() -> None:
    chain = ("amax", ("div", "bound"), ("at_least", "minimum"), ("round", "source"), ("mul", 2.0**-10), "recip")
    assert in_words(chain) == (
        "amax, over bound, at least minimum (NaN: minimum), rounded to x's own format, times 0.0009765625, 1 over it"
    )


@pytest.mark.parametrize("name", RECIPES)
def test_words_of_a_recipe_name_all_that_it_uses(name: str) -> None:
    recipe = RECIPES[name]
    words = dict(facts_of(recipe))
    said = " ".join(words.values())
    for operand in operands_of(recipe) - {"source"}:
        assert re.search(rf"(?<!\w){re.escape(operand)}(?!\w)", said), operand
    assert [n for n in words if n in dict(recipe.steps)] == [n for n, _ in recipe.steps]


# --- as claims -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_a_kernel_that_follows_a_recipe_passes_and_is_named(claim: Claim) -> None:
    """On every case of the claim; and as an observation, where only rules of the same outputs are named."""
    check_claim(claim)
    cases = cases_for(claim, "smoke")
    assert len(cases) >= 2
    observed = Claim.parse(f"quantize/?/float32/{claim.format}")
    for case, x in cases.items():
        got = behaviour_of(claim).run(x)
        assert form_of(got, shaped(claim, x.shape)) == ()
        assert judge(claim, x, got).result == "passed", case
        if case == "rows_128":
            seen = judge(observed, x, got)
            assert seen.result == "passed", seen.malformed
            assert claim.rule in seen.follows


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_a_wrong_output_fails(claim: Claim) -> None:
    """One code, and one value beside the codes, of any format and of any output."""
    cases = cases_for(claim, "smoke")
    x = cases.get("finite_128", cases["rows_128"])  # a NaN in a block of many rows makes all of them NaN
    right = behaviour_of(claim).run(x)
    for name, output in right.items():
        data = output.data.copy()
        data[-1, -1] ^= 1
        got, want = right | {name: Coded(output.format, data)}, expected(claim, x)
        (found,) = mismatches(claim, x, got, want, compare(got, want))
        assert (found.output, found.index) == (name, (output.shape[0] - 1, output.shape[1] - 1))
        if output.shape != x.shape and output.shape[0] == x.shape[0]:
            assert f"row {x.shape[0] - 1}, " in found.input


@pytest.mark.parametrize("recipe", STATIC, ids=lambda r: r.name)
def test_a_recipe_with_inputs_is_claimed_and_observed_with_them(recipe: Recipe) -> None:
    destination = recipe.destinations[0].format
    check_claim(Claim(Quantize(recipe.name), "float32", destination))
    without, given = (Claim(observe(Quantize, names), "float32", destination) for names in ((), recipe.inputs))
    assert recipe.name not in {c.rule for c in candidates(without)}
    assert recipe.name in {c.rule for c in candidates(given)}


def test_outputs_are_those_of_the_recipe() -> None:
    claim = Claim.parse("quantize/nvidia.nvfp4_divisor/float32/float4_e2m1fn")
    with pytest.raises(BadInput, match=r"what 'nvidia\.nvfp4_divisor' takes and returns is said by the recipe"):
        _ = claim.outputs
    assert resolved(claim).outputs == {
        "codes": "float4_e2m1fn", "global_scale": "float32", "scale": "float8_e4m3fn",
    }  # fmt: skip
    azp = resolved(Claim.parse("quantize/vllm.int8_per_token_dynamic_azp/float32/int8"))
    assert azp.outputs == {"codes": "int8", "scale": "float32", "zero_point": "int32"}
    shapes = {name: interval.low.shape for name, interval in shaped(claim, (3, 64)).items()}
    assert shapes == {"codes": (3, 64), "global_scale": (1, 1), "scale": (3, 4)}


def test_a_matrix_that_the_blocks_do_not_divide_is_refused() -> None:
    claim = Claim.parse("quantize/ocp.mxfp4/float32/float4_e2m1fn")
    assert takes(claim, (3, 64))
    assert not takes(claim, (3, 65))
    with pytest.raises(BadInput, match="65 columns has no whole number of blocks of 32 columns"):
        expected(claim, Coded("float32", np.zeros((3, 65), np.uint32)))
    assert takes(Claim.parse("quantize/vllm.fp8_block/float32/float8_e4m3fn"), (3, 65))


def test_outputs_that_no_recipe_has_are_said_to_follow_none() -> None:
    """A kernel with a scale for each column pair, say: each answer alone has a form, all together have none."""
    x = Coded("float32", np.zeros((2, 7), np.uint32))
    got = {
        "codes": Coded("float8_e4m3fn", np.zeros((2, 7), np.uint8)),
        "scale": Coded("bfloat16", np.zeros((2, 7), "<u2")),
    }
    found = identify(Claim.parse("quantize/?/float32/float8_e4m3fn"), [Seen(x, got)])
    assert (found.follows, found.nearest, found.elements) == ((), (), 28)
    (line,) = [t.plain for t in _identity(found, "quantize", 28, 120) if "follows" in t.plain]
    assert "no named recipe: none has outputs of these formats and shapes" in line


def test_which_rows_stand_for_themselves() -> None:
    """A cut of rows is judged, and printed, only where rows do not share anything."""
    by_rows = {name for name, recipe in RECIPES.items() if recipe.by_rows}
    for name, recipe in RECIPES.items():
        looks = {name for _, chain in recipe.steps for name in names_in(chain)} & set(STATISTICS)
        shares = "tensor_amax" in looks if recipe.blocks.rows == 1 else recipe.blocks.rows > 1 or bool(looks)
        assert (name not in by_rows) == shares
    assert {"vllm.fp8_group", "ocp.mxfp4"} <= by_rows
    assert not {"vllm.fp8_block", "vllm.fp8_per_tensor_dynamic", "nvidia.nvfp4_divisor"} & by_rows


def test_a_fault_of_a_tensor_s_scale_is_named_from_the_whole_tensor() -> None:
    """Rows of it alone have another scale."""
    claim = Claim.parse("quantize/vllm.fp8_per_tensor_dynamic/float32/float8_e4m3fnuz")
    x = cases_for(claim, "smoke")["finite_128"]
    behaviour = fault_named("scale.448_for_fnuz").applied_to(behaviour_of(claim))
    assert behaviour is not None
    verdict = judge(claim, x, behaviour.run(x))
    assert verdict.explanations[0].faults == ("scale.448_for_fnuz",)
    assert verdict.explanations[0].complete


@pytest.mark.parametrize(
    ("blocks", "words"),
    [(TENSOR, "tensor"), (TOKEN, "token"), (group(32), "group of 32"), (Blocks(128, 128), "block of 128 × 128")],
)
def test_blocks_in_words(blocks: Blocks, words: str) -> None:
    assert str(blocks) == words
