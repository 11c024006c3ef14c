"""What an operation of a transformer block must not lose, and what it gives in a format.

Each trial is a few numbers, computed as a kernel would that keeps every result in that format. Its verdict is computed:
``yes`` where the answer is the right one, and otherwise ``no``, or the condition under which it is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from narrowgauge.reference.legal.arithmetic import added, divided, held, largest, repeated

YES, NO = "yes", "no"
SCALED, ROUNDED_UP, UNDIVIDED = "with a scale", "rounded up", "before the division"
#: what an operation does with what it is given
Does = Literal["sums", "exponentiates", "divides", "chooses", "stores"]
COUNT = 4096


class Seen(NamedTuple):
    """The verdict of a trial, and its numbers."""

    verdict: str
    shown: str


@dataclass(frozen=True)
class Operation:
    """One operation. ``trial`` takes the name of a format."""

    name: str
    does: Does
    about: str  #: what is computed, of what, and what it should give
    trial: Callable[[str], Seen]
    verdicts: Mapping[str, str]  #: by format
    reason: str  #: what becomes of it where the verdict is another than yes
    source: str  #: who computes or keeps it how


def _seen(right: bool, shown: str, otherwise: str = NO) -> Seen:
    return Seen(YES if right else otherwise, shown)


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{value:.6g}"


# --- sums ------------------------------------------------------------------------------------------------------------


def accumulate(name: str) -> Seen:
    total = repeated(1, COUNT, name)
    return _seen(total == COUNT, _number(total))


def normalise(name: str) -> Seen:
    ones, threes = _normalised(1, COUNT, name), _normalised(300, 4, name)
    return _seen(ones == threes == 1, f"{_number(ones)}; {_number(threes)}")


def _normalised(value: float, count: int, name: str) -> float:
    """What x / sqrt(mean(x²)) is of a row of equal numbers; without the small term, which changes nothing here."""
    x = held(value, name)
    mean = divided(repeated(held(x * x, name), count, name), count, name)
    return divided(x, held(math.sqrt(mean), name), name)


def softmax(name: str) -> Seen:
    weight = divided(1, repeated(1, COUNT, name), name)
    return _seen(weight * COUNT == 1, f"{_number(weight)}; all of them add up to {_number(weight * COUNT)}")


def residual(name: str) -> Seen:
    kept, large = added([held(256, name), *[0.5] * 64], name), held(2 * held(40000, name), name)
    near = math.isfinite(large) and abs(large - 80000) <= 80000 / 64
    return _seen(kept == 288 and near, f"{_number(kept)}; {_number(large)}")


# --- exponentials and choices ----------------------------------------------------------------------------------------


def scores(name: str) -> Seen:
    product = held(held(32, name) * held(32, name) * 128, name)
    pair = held(100, name), held(100.25, name)
    right = math.isfinite(product) and product == 131072 and pair[0] != pair[1]
    return _seen(right, f"{_number(product)}; {_number(pair[0])} and {_number(pair[1])}")


def logits(name: str) -> Seen:
    return _apart([held(v, name) for v in (20.01, 20.02, 20.03, 20.04)])


def soft_cap(name: str) -> Seen:
    return _apart([held(30 * held(math.tanh(held(held(x, name) / 30, name)), name), name) for x in (150, 160)])


def router(name: str) -> Seen:
    return _apart([held(1 / (1 + math.exp(-held(x, name))), name) for x in (9.0, 9.5)])


def _apart(each: list[float]) -> Seen:
    return _seen(len(set(each)) == len(each), ", ".join(map(_number, each)))


def rotation(name: str) -> Seen:
    angle = held(4097, name)
    return _seen(angle == 4097, f"an angle of {_number(angle)}, its cosine {math.cos(angle):.3f}")


# --- what is stored --------------------------------------------------------------------------------------------------


def attention_weights(name: str) -> Seen:
    total = COUNT * held(1 / COUNT, name)
    undivided = COUNT * held(1, name) / COUNT
    return _seen(total == 1, _number(total), UNDIVIDED if undivided == 1 else NO)


def product_of_gate(name: str) -> Seen:
    return _stored((90000.0, 8000.0), name)


def result(name: str) -> Seen:
    return _stored((70000.0, 6000.0), name)


def weights(name: str) -> Seen:
    return _stored((0.012, 0.001), name)


def cached(name: str) -> Seen:
    return _stored((1000.0, 80.0), name)


def _stored(numbers: tuple[float, float], name: str) -> Seen:
    """Whether two numbers come back less than half of themselves off: as they are, or over a scale of the first."""
    plain = [held(v, name) for v in numbers]
    shown = ", ".join(map(_number, plain))
    if _near(plain, numbers, 1 / 2):
        return Seen(YES, shown)
    scale = numbers[0] / largest(name)
    scaled = [held(v / scale, name) * scale for v in numbers]
    return Seen(SCALED if _near(scaled, numbers, 1 / 2) else NO, f"{shown}; scaled {', '.join(map(_number, scaled))}")


def _near(got: list[float], want: tuple[float, ...], share: float) -> bool:
    return all(abs(g - w) < share * w for g, w in zip(got, want, strict=True))


def scale_factor(name: str) -> Seen:
    """Of two tensors whose largest elements are 20 and 2e-6, to be stored as float8_e4m3fn."""
    numbers = (20.0, 2e-6)
    back = [_by_scale(v, held(v / 448, name)) for v in numbers]
    shown = ", ".join(map(_number, back))
    if _near(back, numbers, 1 / 16):
        return Seen(YES, shown)
    if name == "float8_e8m0fnu":
        up = [_by_scale(v, 2.0 ** math.ceil(math.log2(v / 448))) for v in numbers]
        return Seen(ROUNDED_UP if _near(up, numbers, 1 / 16) else NO, f"{shown}; up {', '.join(map(_number, up))}")
    whole = [v / 448 / largest(name) for v in numbers]  # one more scale, of the tensor, in float32
    both = [_by_scale(v, held(v / 448 / g, name) * g) for v, g in zip(numbers, whole, strict=True)]
    right = _near(both, numbers, 1 / 16)
    return Seen(SCALED if right else NO, f"{shown}; scaled {', '.join(map(_number, both))}")


def _by_scale(value: float, scale: float) -> float:
    """A number stored as a code of float8_e4m3fn and its scale."""
    with np.errstate(all="ignore"):
        return held(float(np.float64(value) / scale), "float8_e4m3fn") * scale


# --- the list --------------------------------------------------------------------------------------------------------

#: what is computed is asked of these, and what is stored of two more
_COMPUTED = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
_WIDE_ALONE = dict(zip(_COMPUTED, (YES, NO, NO, NO, NO), strict=True))
_V, _S = "vLLM 0.33.0, ", "SGLang 0.5.23, "
_SAME = "numbers that are apart become the same"


def _stores(*verdicts: str) -> dict[str, str]:
    return dict(zip((*_COMPUTED, "float4_e2m1fn", "int8"), verdicts, strict=True))


OPERATIONS: dict[str, Operation] = {
    o.name: o
    for o in (
        Operation(
            "sum of a product", "sums", "4,096 ones added up one after another: 4096", accumulate,
            _WIDE_ALONE | {"tfloat32": NO, "int32": YES},
            "a sum stays as it is where a term is at most half of its spacing",
            _V + "model_executor/layers/quantization/utils/fp8_utils.py:893",
        ),
        Operation(
            "RMSNorm", "divides", "x / sqrt(mean(x²)) of 4,096 ones, and of four 300s: 1 and 1", normalise,
            _WIDE_ALONE, "the sum of the squares stops; a square is infinity, and the row zeros",
            _V + "ir/ops/layernorm.py:15,53-54",
        ),
        Operation(
            "softmax", "divides", "the weights of 4,096 equal scores: 1/4096 = 0.000244141", softmax,
            _WIDE_ALONE, "the sum that is divided by stops",
            _V + "v1/attention/ops/triton_unified_attention.py:382-384",
        ),
        Operation(
            "scores of attention", "exponentiates",
            "128 products of 32 and 32: 131072; scores of 100 and 100.25, which are apart", scores,
            _WIDE_ALONE, f"the score is infinity; {_SAME}",
            _V + "v1/attention/ops/triton_unified_attention.py:543",
        ),
        Operation(
            "soft-cap", "exponentiates", "30 tanh(x / 30) of 150 and 160, which are apart: 29.9973, 29.9986", soft_cap,
            _WIDE_ALONE, _SAME, "the definition",
        ),
        Operation(
            "logits and sampling", "chooses", "20.01, 20.02, 20.03, 20.04, which are apart", logits,
            _WIDE_ALONE, f"{_SAME}, and of equal ones the first is chosen", _V + "v1/sample/sampler.py:157-158",
        ),
        Operation(
            "scores of a router", "chooses", "sigmoid of 9 and of 9.5, which are apart: 0.999877, 0.999925", router,
            _WIDE_ALONE, f"{_SAME}, and of equal ones the first is chosen", _S + "srt/layers/moe/topk.py:1161-1163",
        ),
        Operation(
            "angles of RoPE", "exponentiates", "position 4097, first pair: an angle of 4097, its cosine 0.935",
            rotation, _WIDE_ALONE, "positions beside one another have one angle",
            _V + "model_executor/layers/rotary_embedding/base.py:97",
        ),
        Operation(
            "residual stream", "sums", "256 and 64 times 0.5: 288; 40000 and 40000: 80000", residual,
            _WIDE_ALONE, "what a layer adds is lost; infinity. Engines keep it in bfloat16 all the same",
            _S + "srt/layers/layernorm.py:843-846 (float32 where a model asks for it)",
        ),
        Operation(
            "weights of attention", "stores", "4,096 weights of 1/4096 add up to 1", attention_weights,
            _stores(YES, YES, YES, UNDIVIDED, YES, UNDIVIDED, UNDIVIDED), "each of them becomes 0",
            "the definition",
        ),
        Operation(
            "SiLU(gate) · up", "stores", "300 · 300 = 90000, and 8000: less than half of each off", product_of_gate,
            _stores(YES, YES, SCALED, SCALED, SCALED, SCALED, SCALED), "infinity, or the format's largest",
            _V + "model_executor/layers/activation.py:38-39",
        ),
        Operation(
            "result of a product", "stores", "70000 and 6000: less than half of each off", result,
            _stores(YES, YES, SCALED, SCALED, SCALED, SCALED, SCALED), "infinity, or the format's largest",
            _V + "config/model.py:2399-2402 (models that float16 is refused to)",
        ),
        Operation(
            "operands of a product", "stores", "weights of 0.012 and 0.001: less than half of each off", weights,
            _stores(YES, YES, YES, SCALED, YES, SCALED, SCALED), "small ones become 0, or nearly twice themselves",
            _V + "model_executor/layers/quantization/utils/fp8_utils.py:896-900",
        ),
        Operation(
            "key-value cache", "stores", "1000 and 80: less than half of each off", cached,
            _stores(YES, YES, YES, SCALED, YES, SCALED, SCALED), "the format's largest", "docs/kv.md",
        ),
        Operation(
            "scale of float8_e4m3fn", "stores", "tensors whose largest are 20 and 2e-6: less than a 16th off",
            scale_factor,
            {"float32": YES, "bfloat16": YES, "float16": SCALED, "float8_e8m0fnu": ROUNDED_UP, "float8_e4m3fn": SCALED},
            "the scale becomes 0 and so does the tensor; rounded down, the largest is clamped",
            "OCP MX 1.0, 5.3; docs/recipes.md",
        ),
    )
}  # fmt: skip
