# SPDX-License-Identifier: Apache-2.0
"""Products as an owner of a kernel meets them: what is said of one, what is refused, how mistakes are listed."""

from __future__ import annotations

import re
from math import ceil

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.errors import LISTED, BadInput, unknown
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim, Matmul
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.verdict import Verdict
from narrowgauge.golden import products as golden
from narrowgauge.golden.archive_text import README
from narrowgauge.reference.behaviour import multiplying_of
from narrowgauge.reference.codec import encode
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.faults.product_ways import in_words
from narrowgauge.reference.inputs import case_named
from narrowgauge.reference.judge import judge
from narrowgauge.reference.matmul.call import check_call
from narrowgauge.reference.matmul.cases import Shape, call_of
from narrowgauge.reference.matmul.products import PRODUCTS
from narrowgauge.reference.matmul.words import facts_of
from narrowgauge.suites.meta.command_sets import as_json
from narrowgauge.suites.meta.product_pages import PAGE

pytestmark = pytest.mark.meta

AZP = Claim(Matmul("vllm.int8_azp_token"), "int8", "float32")
MOE = Claim(Matmul("vllm.moe"), "bfloat16", "bfloat16")
FOUR_BITS = [name for name in PRODUCTS if name.startswith(("awq.", "gptq.", "vllm.w4a16"))]


def exact_call(claim: Claim) -> Input:
    x = case_named("exact").make(claim)
    assert isinstance(x, Input)
    return x


# --- what is said of a product ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRODUCTS)
def test_shapes_as_they_are_told(name: str) -> None:
    """Each formula, with the numbers of a call, is the shape of what the call holds."""
    product = PRODUCTS[name]
    source, result = product.formats[0]
    multiplying = multiplying_of(Claim(Matmul(name), source, result))
    x = call_of(multiplying, Shape("exact", experts=3))
    given = given_with(x)
    experts = 3 if product.grouped else 1
    columns = given["b"].shape[0 if product.b.by_rows else 1] // experts
    known = {"M": x.shape[0], "N": columns, "K": x.shape[1], "E": experts, "ceil": ceil}
    told = dict(facts_of(product))["given beside x"]
    found = {}
    for each in told.split("; "):
        what, shape, fmt = re.fullmatch(r"(\w+) \[(.*)\] (\w[\w ]*)(?:, packed)?", each).groups()  # type: ignore[union-attr]
        found[what] = tuple(eval(axis.replace("·", "*"), known) for axis in shape.split(", "))
        assert given[what].format == {"as x": source, "as the result": result}.get(fmt, fmt)
    assert found == {what: value.shape for what, value in given.items()}


@pytest.mark.parametrize(
    ("name", "side", "words"),
    [
        ("vllm.int8_azp_token", "a", "(code - zero_point) · scale"),
        ("vllm.w4a16_uint4b8", "b", "(code - 8) · scale"),
        ("nvidia.nvfp4", "a", "code · (scale / global_scale)"),
        ("ocp.mxfp4", "b", "code · scale"),
    ],
)
def test_what_codes_stand_for(name: str, side: str, words: str) -> None:
    assert f"stands for {words}, " in dict(facts_of(PRODUCTS[name]))[side]


@pytest.mark.parametrize("name", FOUR_BITS)
def test_groups_of_four_bit_weights_are_whole(name: str) -> None:
    """As their engines ask (products.py says where): K of a group and a half is an error, and no case has it."""
    product = PRODUCTS[name]
    source, result = product.formats[0]
    x = exact_call(Claim(Matmul(name), source, result))
    assert x.shape[1] % 128 == 0
    ragged = Input(x.format, np.ascontiguousarray(x.data[:, :-64]), {
        **x.given, "b": Coded("uint4", np.ascontiguousarray(x.given["b"].data[:-64])),
    })  # fmt: skip
    with pytest.raises(BadInput, match="expected a multiple of 128"):
        check_call(product, source, result, ragged)


# --- what is said of a mistake ---------------------------------------------------------------------------------------


def azp_off_by(step: int) -> Verdict:
    """The verdict on a kernel that takes another zero point off a, in float64, where the sums are exact."""
    x = exact_call(AZP)
    given = given_with(x)
    zero = given["a_zero_point"].data.view(np.int32).astype(np.float64) + step
    total = (decode_values(x) - zero) @ decode_values(given["b"]).T
    y = (total * decode_values(given["a_scale"]) * decode_values(given["b_scale"]).T).astype(np.float32)
    return judge(AZP, x, {"codes": Coded("float32", y.view(np.uint32))})


@pytest.mark.parametrize(
    ("step", "fault"), [(1, "product.zero_point_one_higher"), (-1, "product.zero_point_one_lower")]
)
def test_a_zero_point_of_activations_one_off(step: int, fault: str) -> None:
    (found,) = azp_off_by(step).explanations
    assert found.faults == (fault,)
    assert not azp_off_by(0).explanations
    assert azp_off_by(0).result == "passed"


def test_the_expert_of_a_row_is_shown() -> None:
    x = exact_call(MOE)
    given = given_with(x)
    rows, columns = x.shape[0], given["b"].shape[0] // 3
    wrong = judge(MOE, x, {"codes": Coded("bfloat16", np.full((rows, columns), 0x7F00, np.uint16))})
    experts = given["experts"].data.view(np.int32)[0]
    shown = [
        re.search(r"row (\d+) of a, column (\d+): \d+ products, experts (-?\d+) ", m.input) for m in wrong.mismatches
    ]
    assert len(shown) > 1
    for found in shown:
        assert found is not None
        assert int(found[3]) == experts[int(found[1])]
    assert any(experts[int(found[2])] != experts[int(found[1])] for found in shown if found)  # columns would differ


def test_ways_that_are_told_alike_are_told_once() -> None:
    assert in_words([("f", "in b"), ("f", "in b"), ("f", "in a"), ("g", "")]) == {"f": "in b or in a", "g": ""}


# --- names, casts, the export ----------------------------------------------------------------------------------------


def test_a_claim_is_explained_by_its_rule(capsys: pytest.CaptureFixture[str]) -> None:
    claim = as_json(["explain", "matmul/vllm.int8_azp_token+int32/int8/bfloat16"], capsys)
    assert claim == as_json(["explain", "vllm.int8_azp_token"], capsys)


def test_a_long_list_of_names_is_cut() -> None:
    names = [f"name{number:03}" for number in range(LISTED + 5)]
    text = str(unknown("thing", "zz", names))
    assert text.endswith(f"{names[LISTED - 1]} and 5 more")
    assert str(unknown("thing", "zz", names[:LISTED])).endswith(names[LISTED - 1])


def test_casts_to_int32() -> None:
    """Both ends, where two's complement of 32 bits fills the type; float32 has no 2^31 - 1."""
    fmt, x = format_named("int32"), np.array([1.0, -1.0, 2.0**31 - 1, 2.0**31, -(2.0**31), -3e9])
    ends = [0x00000001, 0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF, 0x80000000, 0x80000000]
    assert encode(x, fmt, CastPolicy()).tolist() == ends


def test_the_export_says_what_the_tensors_of_a_product_are() -> None:
    """Every tensor of the vectors has its name there, or in the table of docs/products.md to which it points."""
    part = README.split("(docs/conversions.md)")[1].split("of matmul:")[0]
    table = PAGE.parts()[0]
    stored = [golden.layout(claim) for each in golden.families() for claim in golden.claims_of(*each)]
    names = {name.partition(".")[2] for tensors in stored for name in tensors}
    assert {"shape", "result", "experts"} < names
    assert {name for name in names if f"`{name}`" not in table and not re.search(rf"\b{name}\b", part)} == set()
