"""What a quantizer refuses: each time one error that says what was given, what was expected, and where."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.expected import expected
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.recipes import RECIPES, resolve

pytestmark = pytest.mark.meta

E4 = "float8_e4m3fn"


def float32(values: object) -> Coded:
    return Coded("float32", np.asarray(values, np.float32).view(np.uint32))


def ones(*shape: int) -> Coded:
    return float32(np.ones(shape))


def holding(bad: float, *at: int) -> Coded:
    scale: npt.NDArray[np.float32] = np.ones((3, 1), np.float32)
    scale[at] = bad
    return float32(scale)


STATIC = "vllm.fp8_static_token"
NUMBER, SHAPE = "expected a finite number above 0", "expected float32 [3, 1] or [1, 1]"
PARTS = "columns has no whole number of blocks of"

REFUSED = {
    "NaN": (STATIC, ones(3, 128), {"scale": holding(np.nan, 1, 0)}, f"scale[1, 0] is nan; {NUMBER}"),
    "infinity": (STATIC, ones(3, 128), {"scale": holding(np.inf, 2, 0)}, f"scale[2, 0] is inf; {NUMBER}"),
    "minus infinity": (STATIC, ones(3, 128), {"scale": holding(-np.inf, 0, 0)}, f"scale[0, 0] is -inf; {NUMBER}"),
    "zero": (STATIC, ones(3, 128), {"scale": holding(0.0, 0, 0)}, f"scale[0, 0] is 0; {NUMBER}"),
    "minus zero": (STATIC, ones(3, 128), {"scale": holding(-0.0, 0, 0)}, f"scale[0, 0] is -0; {NUMBER}"),
    "negative": (STATIC, ones(3, 128), {"scale": holding(-2.5, 1, 0)}, f"scale[1, 0] is -2.5; {NUMBER}"),
    "no scale": (STATIC, ones(3, 128), {}, "the recipe is given 'scale' beside x; nothing of that name came"),
    "a scale too many": (STATIC, ones(3, 128), {"scale": ones(4, 1)}, f"float32 [4, 1]; {SHAPE}"),
    "a scale without an axis": (STATIC, ones(3, 128), {"scale": ones(3)}, f"float32 [3]; {SHAPE}"),
    "a scale for each column": (STATIC, ones(3, 128), {"scale": ones(1, 128)}, f"float32 [1, 128]; {SHAPE}"),
    "a scale of another format": (
        STATIC,
        ones(3, 128),
        {"scale": Coded("bfloat16", np.full((3, 1), 0x3F80, np.uint16))},
        "scale is bfloat16 [3, 1]; expected float32 [3, 1] or [1, 1]",
    ),
    "a global scale for each row": (
        "vllm.nvfp4",
        ones(3, 128),
        {"global_scale": ones(3, 1)},
        "global_scale is float32 [3, 1]; expected float32 [1, 1]",
    ),
    "groups that do not divide": ("vllm.fp8_group", ones(3, 130), {}, f"130 {PARTS} 128 columns; expected a multiple"),
    "blocks of 32": ("ocp.mxfp4", ones(3, 48), {}, f"48 {PARTS} 32 columns"),
    "blocks of 16": ("nvidia.nvfp4_divisor", ones(1, 8), {}, f"8 {PARTS} 16 columns"),
    "a row": ("ocp.mxfp4", ones(64), {}, "x has shape (64,); expected [rows, columns]"),
    "three axes": ("ocp.mxfp4", ones(2, 2, 64), {}, "x has shape (2, 2, 64); expected [rows, columns]"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_quantized_is_refused(what: str) -> None:
    name, x, given, words = REFUSED[what]
    recipe = resolve(name)
    with pytest.raises(BadInput, match=re.escape(words)) as told:
        quantize(x, recipe, recipe.destinations[0].format, given=given)
    assert len(str(told.value).splitlines()) == 1


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if "scale" in recipe.inputs])
def test_no_static_recipe_takes_a_scale_that_is_no_number(name: str) -> None:
    """And each takes one that is: the refusal is about the scale."""
    recipe, zero = RECIPES[name], Coded("int32", np.zeros((1, 1), np.uint32))
    for bad in (np.nan, np.inf, 0.0, -1.0, 1.0):
        given = {"scale": float32([[bad]]), "zero_point": zero}
        if bad == 1:
            assert quantize(ones(2, 128), recipe, recipe.destinations[0].format, given=given)
            continue
        with pytest.raises(BadInput, match=NUMBER):
            quantize(ones(2, 128), recipe, recipe.destinations[0].format, given=given)


def test_a_destination_that_a_recipe_does_not_have() -> None:
    with pytest.raises(BadInput, match=r"'ocp\.mxfp4' has no destination 'float8_e4m3fn'; it has float4_e2m1fn"):
        quantize(ones(1, 32), resolve("ocp.mxfp4"), E4)


def test_an_input_of_another_format_than_the_claim_s() -> None:
    claim = Claim.parse("quantize/ocp.mxfp4/bfloat16/float4_e2m1fn")
    with pytest.raises(BadInput, match="the input is float32; expected bfloat16"):
        expected(claim, ones(1, 32))
