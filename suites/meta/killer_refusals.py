"""What the reference must refuse: bad input never yields a number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from narrowgauge.suites.meta import second_derivation as second
from narrowgauge.suites.meta.killer_policies import DESTINATIONS, PLAIN, Policy, fits

#: the NaN rule that each format has at least, and single choices that some formats cannot express
_NAN_OF = {name: "nan" if second.LAYOUTS[name].nan is not None else "max" for name in DESTINATIONS}
_ONE_CHOICE: tuple[Policy, ...] = (
    {"overflow": "special"}, {"infinity": "special"}, {"nan": "nan"}, {"nan": "min"}, {"nan": "signed_max"},
    {"nan": "opposite_zero"}, {"negative_zero": "drop"}, {"subnormals": "flush"}, {"negative": "magnitude"},
    {"negative": "nan"}, {"zero": "nan"}, {"limit": 1.0}, {"zero_point": 1},
)  # fmt: skip


def wrong_refusals(module: Callable[[str], Any], recipe: str) -> Iterator[str]:
    """What the modules take that they must refuse, or refuse without helping anybody. ``recipe``: one that exists."""
    formats, codec, coded = module("contracts.formats"), module("reference.codec"), module("contracts.coded")
    policies, recipes, steps = module("reference.policies"), module("reference.recipes"), module("reference.steps")
    fast, quantizer = module("reference.fast_codec"), module("reference.quantize")
    policy = module("contracts.policy").CastPolicy
    limited = policy(limit=447.0)

    def resolved(choice: Policy, name: str) -> None:
        whole = {"nan": _NAN_OF[name]} | choice  # or a format without a NaN is refused for its NaN rule
        policies.resolve(policy(**whole), name)

    vector = coded.Coded("float32", np.zeros(4, "<u4"))
    refused: dict[str, Callable[[], Any]] = {
        "an unknown format": lambda: formats.format_named("float8_e4m3x"),
        "a code too large": lambda: formats.as_codes("float8_e4m3fn", [256]),
        "a negative code": lambda: formats.as_codes("float8_e4m3fn", [-1, 5]),
        "a table of 2^20 values": lambda: codec.values(formats.Format("wide", 8, 11, 127, "ieee", "", "")),
        "float32 by other rules than IEEE 754's": lambda: fast.cast(vector, "float32", policy()),
        "a 64-bit destination": lambda: fast.cast(vector, "float64", policy()),
        "an unknown policy": lambda: policies.resolve("ocp_saturates", "float8_e4m3fn"),
        **{
            f"{choice} in {name}": partial(resolved, choice, name)
            for name in DESTINATIONS
            for choice in _ONE_CHOICE
            if not fits(PLAIN | {"nan": _NAN_OF[name]} | choice, name)
        },
        "a policy of another format": lambda: policies.resolve("ocp_saturate", "float8_e4m3fnuz"),
        "stochastic rounding of an integer": lambda: resolved({"rounding": "stochastic"}, "int8"),
        "stochastic rounding without bits": lambda: fast.cast(vector, "float8_e4m3fn", policy(rounding="stochastic")),
        "stochastic rounding of patterns": lambda: fast.encode_float32(
            vector.data, formats.FORMATS["float8_e4m3fn"], policy(rounding="stochastic")
        ),
        "bits without stochastic rounding": lambda: fast.cast(
            vector, "float8_e4m3fn", policy(), codec.RandomBits(np.zeros(1, np.uint32), 1)
        ),
        "random bits that are too wide": lambda: codec.RandomBits(np.array([2], np.uint32), 1),
        "random bits below zero": lambda: codec.RandomBits(np.array([-1], np.int32), 1),
        "random bits that are no integers": lambda: codec.RandomBits(np.array([0.5]), 1),
        "random bits of another shape": lambda: fast.cast(
            vector, "float8_e4m3fn", policy(rounding="stochastic"), codec.RandomBits(np.zeros(3, np.uint32), 1)
        ),
        "random bits of no width": lambda: codec.RandomBits(np.zeros(0, np.uint32), -1),
        "random bits of 33": lambda: codec.RandomBits(np.zeros(0, np.uint64), 33),
        "half a zero point": lambda: policy(zero_point=0.5),
        "a limit that is no value": lambda: policies.resolve(limited, "float8_e4m3fn"),
        "an unknown recipe": lambda: recipes.resolve("vllm.fp8"),
        "an unknown step": lambda: steps.run_chain(("x", ("sqrt",)), {"x": np.float32(1)}),
        "a vector for a quantizer": lambda: quantizer.quantize(vector, recipes.resolve(recipe), "float8_e4m3fn"),
    }
    for name in ("fp8", "NVFP4"):
        try:
            formats.format_named(name)
        except Exception as error:
            if "not one format" not in str(error):
                yield f"{name} is taken for a misspelling"
    for what, call in refused.items():
        try:
            call()
        except Exception as error:
            if type(error).__name__ != "BadInput":
                yield f"{what} raises {type(error).__name__}, which helps nobody"
        else:
            yield f"{what} is not refused"
    if recipes.resolve(recipes.RECIPES[recipe]).name != recipe:
        yield "a recipe as data"
