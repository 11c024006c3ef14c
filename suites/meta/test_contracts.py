"""Contracts travel as JSON and refuse what cannot be."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from narrowgauge import Cast, CastPolicy, Dequantize, Destination, Quantize, Recipe, Then, kernel, observe
from narrowgauge.contracts.coded import Coded, digest
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS, NO_FORMAT, format_named
from narrowgauge.contracts.kernels import ATTRIBUTE, Plugged
from narrowgauge.contracts.operations import Claim, Contract
from narrowgauge.contracts.recipe import TOKEN, Blocks, Reader
from narrowgauge.contracts.serial import contract_from_json, contract_to_json, plugged_from_json, plugged_to_json
from narrowgauge.reference.recipes import RECIPES

pytestmark = pytest.mark.meta

OWN_RECIPE = Recipe(
    name="mine", blocks=Blocks(1, 32, ragged=True), destinations=(Destination("float8_e4m3fn", 440.0, "ocp_saturate"),),
    steps=(("minimum", ("bound", "recip")), ("scale", ("amax", ("div", "bound"), ("at_least", "minimum")))),
    element=("x", ("div", "stored")), source="mine", inputs=("global_scale",), scale_format="float8_e8m0fnu",
    scale_cast="e8m0_ceil",
    reader=Reader((("decode", ("stored", ("mul", 0.5))),), ("x", ("sub", 1.0), ("mul", "decode"))),
)  # fmt: skip


@pytest.mark.parametrize(
    "contract",
    [Cast("ocp_saturate"), Cast(CastPolicy(limit=224.0, rounding="up")), Quantize("vllm.fp8_per_token_dynamic"),
     Quantize(OWN_RECIPE), Quantize(RECIPES["vllm.fp8_per_token_dynamic"]), observe(Cast), observe("quantize"),
     observe(Quantize, ("scale", "zero_point")),
     Quantize("awq.uint4", {"zero_point": "awq_4bit~awq_4bit", "codes": "awq_4bit^T"}),
     Dequantize("ocp.mxint8"), Dequantize(OWN_RECIPE, {"codes": "fp6_planes"}),
     Then("vllm.fp8_group", first="rms_norm"), Then(OWN_RECIPE, {"scale": "scales_128x4"}, first="silu_mul")],
    ids=repr,
)  # fmt: skip
def test_contracts_survive_json(contract: Contract) -> None:
    assert contract_from_json(json.loads(json.dumps(contract_to_json(contract)))) == contract


@pytest.mark.parametrize("kind", [Quantize, Dequantize])
def test_every_recipe_survives_json(kind: type[Quantize] | type[Dequantize]) -> None:
    """As an owner's own, whole: chains, readers, casts, blocks."""
    for recipe in RECIPES.values():
        found = contract_from_json(json.loads(json.dumps(contract_to_json(kind(recipe)))))
        assert isinstance(found, kind)
        assert found.recipe == recipe


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


@pytest.mark.parametrize("name", ["größe", "a-host", "<lambda>", "a|b", "a b", "1a", ""])
def test_a_kernels_name_is_a_word_in_ids_and_commands(name: str) -> None:
    """pytest writes an ö of an id as \\xf6: neither -k nor a waiver would find it."""

    def mine(x: object, format: str) -> None: ...

    mine.__name__ = name
    with pytest.raises(BadInput, match="expected ASCII letters, digits and underscores"):
        kernel(Cast("ocp_saturate"), ["e4m3"])(mine)


def test_claims_are_text_and_back() -> None:
    for text in ("cast/ocp_saturate/float32/float8_e4m3fn", "quantize/sglang.fp8_per_token_cta/float16/float8_e4m3fnuz",
                 "cast/?/bfloat16/float8_e4m3fn", "quantize/?/bfloat16/int8",
                 "dequantize/ocp.mxint8/int8/bfloat16",
                 "dequantize/awq.uint4@codes:awq_4bit,zero_point:awq_4bit~awq_4bit/uint4/float16",
                 "quantize/vllm.uint4b8@codes:compressed_tensors_4bit^T/float16/uint4",
                 "then/rms_norm+vllm.fp8_group/bfloat16/float8_e4m3fn",
                 "then/silu_mul+ocp.mxfp8_e4m3@scale:scales_128x4/bfloat16/float8_e4m3fn"):  # fmt: skip
        assert str(Claim.parse(text)) == text
    assert str(Claim.parse("cast/ocp_saturate/bf16/E4M3")) == "cast/ocp_saturate/bfloat16/float8_e4m3fn"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cast/ocp_saturate/float32", "expected operation/rule/source/format"),
        ("casts/ocp_saturate/float32/e4m3", "unknown operation 'casts'.*did you mean cast"),
        ("cast/ocp_saturate/float32/e4m4", "unknown format 'e4m4'; did you mean"),
        ("dequantise/ocp.mxint8/int8/bf16", "unknown operation 'dequantise'.*did you mean dequantize"),
        ("then/vllm.fp8_group/bf16/e4m3", r"which operation comes first is missing, as in Then"),
        ("then/+vllm.fp8_group/bf16/e4m3", r"which operation comes first is missing"),
        ("quantize/rms_norm+vllm.fp8_group/bf16/e4m3", r"rms_norm\+ stands before the recipe of a 'then' alone"),
        ("quantize/ocp.mxfp4@codes/bf16/e2m1", "layouts 'codes'; expected name:layout, with commas between"),
        ("quantize/ocp.mxfp4@codes:/bf16/e2m1", "layouts 'codes:'; expected name:layout"),
        ("quantize/ocp.mxfp4@:fp6_dense/bf16/e2m1", "layouts ':fp6_dense'; expected name:layout"),
        ("quantize/ocp.mxfp4@codes:a,/bf16/e2m1", "layouts 'codes:a,'; expected name:layout"),
        ("then/?/bf16/e4m3", "unknown operation 'then'"),
        ("dequantize/?/e4m3/bf16", "unknown operation 'dequantize'"),
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


def test_layouts_are_kept_by_name_whatever_their_order() -> None:
    one = Quantize("awq.uint4", {"zero_point": "b", "codes": "a"})
    assert one == Quantize("awq.uint4", (("codes", "a"), ("zero_point", "b")))
    assert Claim(one, "float16", "uint4").layouts == {"codes": "a", "zero_point": "b"}
    assert one.rule == "awq.uint4@codes:a,zero_point:b"
    assert one != Quantize("awq.uint4")


def test_what_a_claim_takes_and_returns_is_said_by_its_recipe() -> None:
    """A reader takes what was stored, a quantizer what it is given, and both only once the recipe is known."""
    recipe = RECIPES["vllm.nvfp4"]
    read = Claim(Dequantize(recipe), "float4_e2m1fn", "bfloat16")
    assert read.inputs == {"scale": "float8_e4m3fn", "global_scale": "float32"}
    assert read.outputs == {"codes": "bfloat16"}
    write = Claim(Quantize(recipe), "bfloat16", "float4_e2m1fn")
    assert write.inputs == {"global_scale": "float32"}
    assert write.outputs == {"codes": "float4_e2m1fn", "scale": "float8_e4m3fn"}
    then = Claim(Then(recipe, first="silu_mul"), "bfloat16", "float4_e2m1fn")
    assert (then.inputs, then.outputs) == (write.inputs, write.outputs)
    seen = Claim(observe(Quantize, ("zero_point", "scale")), "bfloat16", "int8")
    assert seen.inputs == {"zero_point": "int32", "scale": "float32"}
    assert seen.outputs == {"codes": "int8", "scale": "float32"}
    for contract in (Dequantize("vllm.nvfp4"), Then("vllm.nvfp4", first="rms_norm")):
        with pytest.raises(BadInput, match=r"is said by the recipe; resolve the claim first"):
            print(Claim(contract, "bfloat16", "float4_e2m1fn").inputs)


@pytest.mark.parametrize(
    ("of", "inputs", "words"),
    [("dequantize", (), "unknown operation 'dequantize'"), ("quantise", (), "did you mean quantize"),
     ("quantize", ("scales",), "unknown input 'scales'.*did you mean scale")],
)  # fmt: skip
def test_what_cannot_be_observed(of: str, inputs: tuple[str, ...], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        observe(of, inputs)


@pytest.mark.parametrize("data", [{}, {"operation": "cast"}, {"operation": "mul", "policy": "x"},
                                  {"operation": "cast", "policy": {"roundings": "up"}},
                                  {"operation": "then", "recipe": "ocp.mxfp4"},
                                  {"operation": "then", "first": "rms_norm"},
                                  {"operation": "dequantize"}, {"operation": "dequantize", "recipe": {"name": "x"}},
                                  {"operation": "quantize", "recipe": "x", "layouts": ["codes"]},
                                  {"operation": "quantize", "recipe": "x", "layouts": [["codes", "a", "b"]]},
                                  {"operation": "observe", "of": "dequantize"},
                                  {"operation": "observe", "of": "quantize", "inputs": ["scales"]}])  # fmt: skip
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
