"""Contracts travel as JSON and refuse what cannot be."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from narrowgauge import Cast, CastPolicy, Destination, Quantize, Recipe, kernel, observe
from narrowgauge.contracts.coded import Coded, digest
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS, NO_FORMAT, format_named
from narrowgauge.contracts.kernels import ATTRIBUTE, Plugged
from narrowgauge.contracts.operations import Claim, Contract
from narrowgauge.contracts.recipe import TOKEN, Blocks
from narrowgauge.contracts.serial import contract_from_json, contract_to_json, plugged_from_json, plugged_to_json
from narrowgauge.reference.recipes import RECIPES

pytestmark = pytest.mark.meta

OWN_RECIPE = Recipe(
    name="mine", blocks=Blocks(1, 32, ragged=True), destinations=(Destination("float8_e4m3fn", 440.0, "ocp_saturate"),),
    steps=(("minimum", ("bound", "recip")), ("scale", ("amax", ("div", "bound"), ("at_least", "minimum")))),
    element=("x", ("div", "stored")), source="mine", inputs=("global_scale",), scale_format="float8_e8m0fnu",
    scale_cast="e8m0_ceil",
)  # fmt: skip


@pytest.mark.parametrize(
    "contract",
    [Cast("ocp_saturate"), Cast(CastPolicy(limit=224.0, rounding="up")), Quantize("vllm.fp8_per_token_dynamic"),
     Quantize(OWN_RECIPE), Quantize(RECIPES["vllm.fp8_per_token_dynamic"]), observe(Cast), observe("quantize")],
    ids=repr,
)  # fmt: skip
def test_contracts_survive_json(contract: Contract) -> None:
    assert contract_from_json(json.loads(json.dumps(contract_to_json(contract)))) == contract


def test_kernels_survive_json() -> None:
    @kernel(Cast("ocp_saturate"), ["e4m3"], ["fp32", "bf16"], owner="me", backend="torch", library="torch")
    def mine(x: object, format: str) -> None: ...

    plugged = Plugged(getattr(mine, ATTRIBUTE), "mine.py", {"file": "mine.py"})
    assert plugged.kernel.formats == ("float8_e4m3fn",)
    assert plugged.kernel.sources == ("float32", "bfloat16")
    assert plugged_from_json(json.loads(json.dumps(plugged_to_json(plugged)))) == plugged
    assert [str(c) for c in plugged.kernel.claims] == [
        "cast/ocp_saturate/float32/float8_e4m3fn", "cast/ocp_saturate/bfloat16/float8_e4m3fn",
    ]  # fmt: skip


def test_claims_are_text_and_back() -> None:
    for text in ("cast/ocp_saturate/float32/float8_e4m3fn", "quantize/sglang.fp8_per_token_cta/float16/float8_e4m3fnuz",
                 "cast/?/bfloat16/float8_e4m3fn"):  # fmt: skip
        assert str(Claim.parse(text)) == text
    assert str(Claim.parse("cast/ocp_saturate/bf16/E4M3")) == "cast/ocp_saturate/bfloat16/float8_e4m3fn"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cast/ocp_saturate/float32", "expected operation/rule/source/format"),
        ("casts/ocp_saturate/float32/e4m3", "unknown operation 'casts'.*did you mean cast"),
        ("cast/ocp_saturate/float32/e4m4", "unknown format 'e4m4'; did you mean"),
    ],
)
def test_claims_that_cannot_be(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Claim.parse(text)


@pytest.mark.parametrize(
    "choices",
    [
        {"rounding": "nearest"},
        {"overflow": "nan"},
        {"nan": "keep"},
        {"limit": -1.0},
        {"limit": float("inf")},
        {"limit": float("nan")},
        {"subnormals": "ftz"},
    ],
)
def test_policies_refuse_choices_that_do_not_exist(choices: dict[str, object]) -> None:
    with pytest.raises(BadInput, match=next(iter(choices))):
        CastPolicy(**choices)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("steps", "element", "inputs", "wrong"),
    [
        ((("scale", ("encode", "recip")), ("encode", ("scale", "recip"))), ("x",), (), "scale uses 'encode'"),
        ((("scale", ("amax", ("div", "maximum"))),), ("x",), (), "scale uses 'maximum'"),
        ((("scale", ("stored",)),), ("x",), (), "scale uses 'stored'"),
        ((), ("x",), (), "it has no 'scale'"),
        ((("scale", ("amax",)),), ("amax",), (), "element starts at 'amax'"),
        ((), ("x", ("mul", "global_scale")), ("scale",), "element uses 'global_scale'"),
    ],
)
def test_recipes_use_what_is_known(steps: Any, element: Any, inputs: Any, wrong: str) -> None:
    with pytest.raises(BadInput, match=wrong):
        Recipe("wrong", TOKEN, (), steps, element, "mine", inputs=inputs)


@pytest.mark.parametrize("data", [{}, {"operation": "cast"}, {"operation": "mul", "policy": "x"},
                                  {"operation": "cast", "policy": {"roundings": "up"}}])  # fmt: skip
def test_json_that_is_no_contract(data: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        contract_from_json(data)


def test_every_alias_finds_its_format_and_no_two_share_one() -> None:
    seen: dict[str, str] = {}
    for fmt in FORMATS.values():
        for alias in {fmt.name.lower(), fmt.safetensors.lower(), *(a.lower() for a in fmt.aliases)} - {""}:
            assert seen.setdefault(alias, fmt.name) == fmt.name
            assert format_named(alias.upper()).name == fmt.name


def test_digest_tells_codes_formats_and_shapes_apart() -> None:
    data = np.arange(6, dtype=np.uint8)
    buffers = [
        Coded("float8_e4m3fn", data), Coded("float8_e4m3fnuz", data), Coded("float8_e4m3fn", data.reshape(2, 3)),
        Coded("float8_e4m3fn", data[::-1]),
    ]  # fmt: skip
    assert len({b.digest() for b in buffers}) == len(buffers)
    assert digest({"a": buffers[0], "b": buffers[1]}) == digest({"b": buffers[1], "a": buffers[0]})
    assert digest({"a": buffers[0], "b": buffers[1]}) != digest({"b": buffers[0], "a": buffers[1]})


@pytest.mark.parametrize("name", NO_FORMAT)
def test_a_name_of_no_single_format_says_what_it_is(name: str) -> None:
    """ "fp8" is one format on one GPU and another on the next: a guess would be the mistake that we look for."""
    assert name not in {alias.lower() for f in FORMATS.values() for alias in (f.name, f.safetensors, *f.aliases)}
    with pytest.raises(BadInput, match=f"'{name.upper()}' is not one format: "):
        format_named(name.upper())


def test_every_alias_is_of_one_format() -> None:
    spellings = [alias.lower() for f in FORMATS.values() for alias in {f.name, f.safetensors, *f.aliases} if alias]
    names = [(a, format_named(a).name) for a in spellings]
    assert len(dict(names)) == len(set(names))
    assert format_named("fp8e4b8").name == "float8_e4m3fnuz"
    assert format_named("F8_E8M0").name == "float8_e8m0fnu"
    assert [format_named(a).name for a in ("e2m3fn", "e3m2fn")] == ["float6_e2m3fn", "float6_e3m2fn"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [("torch.float8_e4m3fn", "float8_e4m3fn"), ("tl.float8e4nv", "float8_e4m3fn"), ("tl.float8e4b8", "float8_e4m3fnuz"),
     ("torch.half", "float16"), ("TORCH.INT8", "int8")],
)  # fmt: skip
def test_the_name_that_a_library_prints_is_a_name(name: str, meant: str) -> None:
    assert format_named(name).name == meant


def test_a_library_s_name_of_no_format_says_so_too() -> None:
    with pytest.raises(BadInput, match=r"'torch\.float4_e2m1fn_x2' is not one format: torch's packed storage"):
        format_named("torch.float4_e2m1fn_x2")
    with pytest.raises(BadInput, match=r"unknown format 'tl\.float8e4nw'; did you mean float8_e4m3fn"):
        format_named("tl.float8e4nw")
