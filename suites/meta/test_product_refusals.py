# SPDX-License-Identifier: Apache-2.0
"""A call that is none is refused by the reference with what was given and what was expected; and a call comes back
from memory as it went there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim, Matmul
from narrowgauge.contracts.product import Operand, Product
from narrowgauge.golden.products import vectors, well_shaped
from narrowgauge.reference.expected import expected
from narrowgauge.reference.matmul.call import check_call
from narrowgauge.reference.matmul.memory import check_packed, read_memory, to_memory
from narrowgauge.reference.matmul.products import PRODUCTS
from narrowgauge.suites.meta.product_inputs import inputs_for

pytestmark = pytest.mark.meta

Given = dict[str, Coded]
M, N, K = 5, 24, 256
GROUPED, BLOCK, AZP, ACT = "vllm.moe_fp8_block", "vllm.fp8_block", "vllm.int8_azp_token", "gptq.gemm_act_order"
CHANNEL, BIAS, MXFP4, NVFP4 = "vllm.fp8_token_channel", "vllm.fp8_token_channel_bias", "ocp.mxfp4", "nvidia.nvfp4"
INFINITY, NAN = 0x7F800000, 0x7FC00000


def good(name: str, depth: int = K, columns: int = N) -> Input:
    """Random codes, of the product's first formats."""
    product = PRODUCTS[name]
    given = inputs_for(product, *product.formats[0], (M, 128 if product.grouped else columns, depth), 3, experts=2)
    x = given.pop("x")
    return Input(x.format, x.data, given)


def multiply(name: str, x: Coded) -> None:
    check_call(PRODUCTS[name], *PRODUCTS[name].formats[0], x)
    expected(Claim(Matmul(name), *PRODUCTS[name].formats[0]), x)


def refused(name: str, x: Coded) -> str:
    with pytest.raises(BadInput) as error:
        multiply(name, x)
    return str(error.value)


def beside(name: str, change: Callable[[Coded], Coded | None]) -> Callable[[Input], Input]:
    """One of the things that are given, changed; None leaves it out."""

    def changed(x: Input) -> Input:
        new = change(x.given[name])
        others = {n: v for n, v in x.given.items() if n != name}
        return Input(x.format, x.data, others | ({name: new} if new is not None else {}))

    return changed


def as_format(fmt: str) -> Callable[[Coded], Coded]:
    return lambda value: Coded(fmt, value.data)


def turned(value: Coded) -> Coded:
    return Coded(value.format, np.ascontiguousarray(value.data.T))


def cut(rows: int, columns: int) -> Callable[[Coded], Coded]:
    """So many rows and columns less."""
    return lambda v: Coded(v.format, v.data[: v.shape[0] - rows, : v.shape[1] - columns].copy())


def last(code: int) -> Callable[[Coded], Coded]:
    """Another code as the last."""

    def changed(value: Coded) -> Coded:
        data = value.data.copy()
        data[-1, -1] = np.array(code, np.int64).astype(data.dtype)
        return Coded(value.format, data)

    return changed


def no(value: Coded) -> None:
    """Left out."""


def stacked(value: Coded) -> Coded:
    return Coded(value.format, value.data[None])


def x_as(change: Callable[[Coded], Coded]) -> Callable[[Input], Input]:
    def changed(x: Input) -> Input:
        new = change(Coded(x.format, x.data))
        return Input(new.format, new.data, x.given)

    return changed


#: product, what is wrong with a good call, and what the message says of it
WRONG: dict[str, tuple[str, Callable[[Input], Input], str]] = {
    "a of three axes": (CHANNEL, x_as(stacked), "a is float8_e4m3fn [1, 5, 256]; expected float8_e4m3fn [M, K]"),
    "a of another format": (CHANNEL, x_as(as_format("float8_e5m2")), "a is float8_e5m2 [5, 256]; expected float8_e4m3"),
    "a that is no code": (MXFP4, x_as(last(16)), "a holds numbers that are no codes of float4_e2m1fn"),
    "no b": (CHANNEL, beside("b", no), "'b' is missing; expected a matrix beside a's codes"),
    "b of three axes": (CHANNEL, beside("b", stacked), "'b' is float8_e4m3fn [1, 24, 256]; expected a matrix"),
    "b of another format": (CHANNEL, beside("b", as_format("float8_e5m2")), "b is float8_e5m2 [24, 256]; expected flo"),
    "b that is no code": (MXFP4, beside("b", last(16)), "b holds numbers that are no codes of float4_e2m1fn"),
    "another K": (CHANNEL, beside("b", cut(0, 1)), "a is [5, 256], b [24, 255]; expected the same K, which is"),
    "another K of columns": ("awq.gemm", beside("b", cut(8, 0)), "b [248, 24]; expected the same K, which is a's 256"),
    "no scale": (CHANNEL, beside("a_scale", no), "a_scale is missing; expected float32 [5, 1] for a [5, 256]"),
    "a scale of another format": (CHANNEL, beside("b_scale", as_format("int32")), "b_scale is int32 [24, 1]; expected"),
    "a scale turned": (CHANNEL, beside("b_scale", turned), "b_scale is float32 [1, 24]; expected float32 [24, 1]"),
    "a scale of fewer rows": (CHANNEL, beside("a_scale", cut(1, 0)), "a_scale is float32 [4, 1]; expected float32 [5,"),
    "a scale of fewer blocks": (BLOCK, beside("b_scale", cut(0, 1)), "b_scale is float32 [1, 1]; expected float32"),
    "a whole scale of rows": (NVFP4, beside("a_global_scale", lambda v: Coded(v.format, v.data.repeat(5, 0))),
                              "a_global_scale is float32 [5, 1]; expected float32 [1, 1]"),
    "a zero point turned": (AZP, beside("a_zero_point", turned), "a_zero_point is int32 [1, 5]; expected int32 [5, 1]"),
    "a bias of rows": (BIAS, beside("bias", cut(0, N - M)), "bias is bfloat16 [1, 5]; expected bfloat16 [1, 24]"),
    "an index of fewer k": (ACT, beside("b_group_index", cut(0, 1)), "b_group_index is int32 [1, 255]; expected"),
    "an infinite scale": (CHANNEL, beside("a_scale", last(INFINITY)), "a_scale[4, 0] is inf; expected finite scales"),
    "a scale that is NaN": (CHANNEL, beside("b_scale", last(NAN)), "b_scale[23, 0] is nan; expected finite scales"),
    "a whole scale that is NaN": (NVFP4, beside("b_global_scale", last(NAN)), "b_global_scale[0, 0] is nan; expected"),
    "a NaN of float16": ("awq.gemm", beside("b_scale", last(0x7E00)), "b_scale[1, 23] is nan; expected finite scales"),
    "a NaN of bfloat16": ("awq.gemm_bf16", beside("b_scale", last(0x7FC0)), "b_scale[1, 23] is nan; expected finite s"),
    "a group that is not": (ACT, beside("b_group_index", last(2)), "b_group_index[0, 255] is 2; expected 0 to 1"),
    "a group before all": (ACT, beside("b_group_index", last(-1)), "b_group_index[0, 255] is -1; expected 0 to 1"),
    "no count": (GROUPED, beside("expert_count", no), "expert_count is missing; expected int32 [1, 1]"),
    "a count as float": (GROUPED, beside("expert_count", lambda v: last(0x40000000)(as_format("float32")(v))),
                         "expert_count is float32 [1, 1]; expected int32 [1, 1]"),
    "two counts": (GROUPED, beside("expert_count", lambda v: Coded(v.format, v.data.repeat(2, 1))),
                   "expert_count is int32 [1, 2]; expected int32 [1, 1]"),
    "an empty count": (GROUPED, beside("expert_count", cut(0, 1)), "expert_count is int32 [1, 0]; expected int32 [1,"),
    "no experts at all": (GROUPED, beside("expert_count", last(0)), "b has 256 rows for 0 experts; expected as many"),
    "rows of no expert": (GROUPED, beside("expert_count", last(3)), "b has 256 rows for 3 experts; expected as many"),
    "blocks of two experts": (GROUPED, beside("expert_count", last(4)), "64 columns of each expert are no whole number"
                              " of blocks of 128"),
    "an expert too many": (GROUPED, beside("experts", last(2)), "experts[0, 4] is 2; expected -1 to 1"),
    "an expert below none": (GROUPED, beside("experts", last(-2)), "experts[0, 4] is -2; expected -1 to 1"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_call_that_is_none_is_refused(what: str) -> None:
    name, change, words = WRONG[what]
    message = refused(name, change(good(name)))
    assert words in message
    assert message.startswith(f"{name}: ")


def test_what_is_changed_was_good() -> None:
    for name in {name for name, _, _ in WRONG.values()}:
        expected(Claim(Matmul(name), *PRODUCTS[name].formats[0]), good(name))


def test_a_depth_that_blocks_do_not_divide_is_refused() -> None:
    x = good("ocp.mxfp8", 64)
    short = Input(x.format, x.data[:, :40].copy(), {**x.given, "b": cut(0, 24)(x.given["b"])})
    assert refused("ocp.mxfp8", short).startswith("ocp.mxfp8: a [5, 40]: ")


def test_sums_beyond_all_numbers_are_refused() -> None:
    """2^63 · 2^64 in float32: what overflows on the way depends on the order."""
    big = Coded("float32", np.full((1, 2), 0x5F800000, np.uint32))
    words = "plain.matmul: sums of products beyond 2^127; what they give is not derived"
    with pytest.raises(BadInput, match=words.replace("^", r"\^")):
        expected(Claim(Matmul("plain.matmul"), "float32", "float32"), Input("float32", big.data, {"b": big}))


#: scales of a and of b whose product, or whose product with the sum 4, is no normal number of float32
OUT_OF_RANGE = {
    "both scales": (2.0**-70, 2.0**-70), "a large one": (2.0**126, 1.0), "the other": (1.0, 2.0**126),
    "both and the sum": (2.0**60, 2.0**66), "a small one": (2.0**-129, 2.0**20),
    "subnormal together": (2.0**-63, 2.0**-64),
}  # fmt: skip


@pytest.mark.parametrize("what", OUT_OF_RANGE)
def test_scales_of_which_the_order_matters_are_refused(what: str) -> None:
    """Where one association overflows or underflows and another does not."""
    a, b = (Coded("float32", np.array([[s]], np.float32).view(np.uint32)) for s in OUT_OF_RANGE[what])
    ones = Coded("float8_e4m3fn", np.full((1, 4), 0x38, np.uint8))
    x = Input(ones.format, ones.data, {"b": ones, "a_scale": a, "b_scale": b})
    assert "products with scales leave float32's normal numbers" in refused("vllm.fp8_tensor", x)


# --- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_call_comes_back_from_memory(name: str) -> None:
    """Every product, of random codes, neither M = N nor N = K."""
    product = PRODUCTS[name]
    x = good(name, 256, 40)
    sent = to_memory(product, x)
    back = read_memory(product, *product.formats[0], (M, 256), Coded(sent.format, sent.data), sent.given)
    assert back.given.keys() == x.given.keys()
    for part, want in (("x", Coded(x.format, x.data)), *x.given.items()):
        got = Coded(back.format, back.data) if part == "x" else back.given[part]
        assert (got.format, got.shape) == (want.format, want.shape), part
        np.testing.assert_array_equal(got.data.reshape(-1).view(np.uint8), want.data.reshape(-1).view(np.uint8), part)


def test_a_packed_buffer_of_another_size_is_refused() -> None:
    """Zero points of eight columns a word, and one word too many."""
    product, x = PRODUCTS["awq.gemm"], good("awq.gemm")
    sent = to_memory(product, x)
    zeros = sent.given["b_zero_point"]
    wrong = {**sent.given, "b_zero_point": Coded(zeros.format, np.pad(zeros.data, ((0, 0), (0, 1))))}
    with pytest.raises(BadInput, match="b_zero_point: "):
        read_memory(product, "float16", "float16", (M, K), Coded(sent.format, sent.data), wrong)


def test_a_layout_of_what_is_not_given_is_refused() -> None:
    plain = Operand(layouts=(("zero_point", "gptq_zeros_4bit~gptq_v1_4bit"),))
    product = Product("mine", (("bfloat16", "bfloat16"),), Operand(), plain, "sum", "a test")
    with pytest.raises(BadInput, match="product 'mine': 'b_zero_point' has a layout; it is given x, b"):
        check_packed(product, "bfloat16", "bfloat16")


# --- golden tensors --------------------------------------------------------------------------------------------------


def sized(*numbers: int) -> Coded:
    return Coded("int32", np.array([numbers], np.int32).view(np.uint32))


#: which tensor is changed, what it becomes, and which is named
DAMAGED: dict[str, tuple[str, Callable[[Coded], Coded], str]] = {
    "nothing": ("shape", lambda v: v, ""),
    "another N": ("shape", lambda v: sized(7, 17, 75), "result"),
    "another K": ("shape", lambda v: sized(7, 16, -1), "shape"),
    "two sizes": ("shape", lambda v: sized(7, 16), "shape"),
    "four sizes": ("shape", lambda v: sized(7, 16, 75, 1), "shape"),
    "a result of fewer columns": ("result", cut(0, 1), "result"),
    "a result of fewer rows": ("result", cut(1, 0), "result"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_the_golden_tensor_that_is_wrong_is_named(what: str) -> None:
    claim = Claim(Matmul("plain.matmul_int8"), "int8", "int32")
    name, change, named = DAMAGED[what]
    tensors = vectors(claim)
    tensors[f"int8.{name}"] = change(tensors[f"int8.{name}"])
    assert well_shaped(claim, tensors) == (f"int8.{named}" if named else "")
