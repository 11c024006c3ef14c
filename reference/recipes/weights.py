"""Quantizers of weights to four bits: GPTQ, AWQ, and vLLM's for its kernels.

A weight is [inputs, outputs]: 128 rows of one column share a scale, which is kept in the format of the weight. Each
operation is rounded to that format. How codes and zero points lie in words is said by layouts.
"""

from __future__ import annotations

from narrowgauge.contracts.recipe import LESS_ZERO_POINT, Blocks, Chain, Destination, Recipe, Step, less
from narrowgauge.reference.recipes.common import VLLM

#: GPTQ's last group may be smaller; the others ask for whole ones
_COLUMN = Blocks(128, 1, ragged=True)
#: codes from 0 to 15, in which 8 or a zero point stands for 0
_UINT4 = (Destination("uint4", 15.0, "integer_nearest"),)
_VLLM, _AWQ = f"{VLLM}, quant_utils.py:701-793", "llm-awq 02c1dd65, awq/quantize/quantizer.py"
_GPTQ = "AutoGPTQ 3ef391f3, auto_gptq/quantization/quantizer.py"
_ROUND: Step = ("round", "source")
_WITHIN: Chain = (("at_least", 0.0), ("at_most", "bound"))
_KEPT = {"": "float16", "_bf16": "bfloat16"}


def _weights(name: str, kept: str, steps: tuple[tuple[str, Chain], ...], element: Chain, source: str) -> Recipe:
    zero_point = "zero_point" in dict(steps)
    return Recipe(
        name=name,
        blocks=_COLUMN,
        destinations=_UINT4,
        steps=steps,
        element=element,
        reader=LESS_ZERO_POINT if zero_point else less(8.0),
        scale_format=kept,
        scale_cast="ieee",
        source=source,
    )


_SPAN: Chain = ("max", ("sub", "min"), _ROUND, ("at_least_or_nan", 1e-5), _ROUND, ("div", "bound"), _ROUND)
_NEAREST: Chain = ("x", ("div", "scale"), _ROUND, "rint")
_WITH_ZERO: Chain = (*_NEAREST, ("add", "zero_point"), _ROUND)


def _in_format(on: str, kept: str) -> tuple[Recipe, ...]:
    return (
        # -8 for the least and 7 for the largest, whichever asks for more; zeros alone divide 0 by 0
        _weights(
            f"vllm.uint4b8{on}",
            kept,
            (
                ("upper", ("max", ("div", 7.0), _ROUND, "abs")),
                ("scale", ("min", ("div", -8.0), _ROUND, "abs", ("at_least_or_nan", "upper"))),
            ),
            (*_NEAREST, ("add", 8.0)),
            f"{_VLLM} (GPTQ, Marlin)",
        ),
        # the magnitude of the least: weights that are all positive are shifted the wrong way
        _weights(
            f"vllm.uint4_zero_point{on}",
            kept,
            (("scale", _SPAN), ("zero_point", ("min", ("div", "scale"), _ROUND, "abs", "rint", *_WITHIN))),
            _WITH_ZERO,
            f"{_VLLM} (AWQ, zero_points)",
        ),
        _weights(
            f"awq.uint4{on}",
            kept,
            (("scale", _SPAN), ("zero_point", ("min", ("div", "scale"), _ROUND, "rint", ("rsub", 0.0), *_WITHIN))),
            _WITH_ZERO,
            f"{_AWQ}, pseudo_quantize_tensor",
        ),
        # in float32; the scale is rounded where it is stored alone
        _weights(
            f"gptq.uint4_symmetric{on}",
            kept,
            (
                ("least", ("min", ("at_most", 0.0))),
                # weights of which none is negative use the upper half alone
                ("low", ("amax", ("rsub", 0.0), ("zero_where_zero", "least"))),
                ("scale", ("amax", ("sub", "low"), ("zero_to", 2.0), ("div", "bound"))),
            ),
            ("x", ("div", "scale"), "rint", ("add", 8.0)),
            f"{_GPTQ} (sym)",
        ),
        _weights(
            f"gptq.uint4_asymmetric{on}",
            kept,
            (
                ("least", ("min", ("at_most", 0.0))),
                ("most", ("max", ("at_least", 0.0))),
                # 1 where there are zeros alone, which stand for -1 to 1
                ("empty", ("most", ("sub", "least"), ("rdiv", 0.0), ("nan_to", 1.0))),
                ("low", ("least", ("sub", "empty"))),
                ("scale", ("most", ("add", "empty"), ("sub", "low"), ("div", "bound"))),
                ("zero_point", ("low", ("rsub", 0.0), ("div", "scale"), "rint")),
            ),
            ("x", ("div", "scale"), "rint", ("add", "zero_point")),
            f"{_GPTQ} (not sym)",
        ),
    )


RECIPES = tuple(recipe for on, kept in _KEPT.items() for recipe in _in_format(on, kept))
