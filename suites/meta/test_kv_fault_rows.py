"""Faults of rows of MLA, of swizzled scales, and of attention: against bytes by hand, and a plain softmax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.expected import expected
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.suites.meta.test_kv_fault_effects import E4, bf16, float32, wrongly
from narrowgauge.suites.meta.test_kv_fault_slots import int32

pytestmark = pytest.mark.meta

F64 = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]
PAGE = 64


def ds_mla() -> tuple[Claim, Input, Bytes]:
    """A page of 64 rows of 656 bytes, and those bytes: 512 codes, 4 scales, 64 of bfloat16."""
    random = np.random.default_rng(5)
    latent = random.integers(0, 0x7F, (PAGE, 512)).astype(np.uint8)
    scale = (2.0 ** random.integers(-6, 6, (PAGE, 4))).astype(np.float32)
    rope = random.integers(0x3C00, 0x4000, (PAGE, 64)).astype(np.uint16)
    given = {
        "latent_scale": Coded("float32", scale.view(np.uint32)), "rope": Coded("bfloat16", rope),
        "table": int32([[0]]), "lengths": int32([PAGE]), "sizes": int32([1, PAGE]),
    }  # fmt: skip
    memory = np.concatenate([latent, scale.view(np.uint8), rope.view(np.uint8)], axis=1)
    return Claim.parse(f"kv_read/vllm.fp8_ds_mla/{E4}/float32"), Input(E4, latent, given), memory


def _value(codes: Bytes, scale: Bytes, rope: Bytes) -> tuple[F64, F64]:
    numbers = np.ascontiguousarray(scale).view(np.float32).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        latent = decode_values(Coded(E4, np.ascontiguousarray(codes))) * np.repeat(numbers, 128, axis=1)
        latent = latent.astype(np.float32).astype(np.float64)
    return latent, decode_values(Coded("bfloat16", np.ascontiguousarray(rope).view(np.uint16)))


#: of a page's bytes: what is taken for codes, scales and the rotated part
Cut = Callable[[Bytes], tuple[Bytes, Bytes, Bytes]]


def _in_columns(codes: int, scale: int, rope: int) -> Cut:
    return lambda m: (m[:, codes : codes + 512], m[:, scale : scale + 16], m[:, rope : rope + 128])


def _by_page(m: Bytes) -> tuple[Bytes, Bytes, Bytes]:
    flat = m.reshape(-1)
    ends = np.cumsum([0, PAGE * 512, PAGE * 16, PAGE * 128])
    parts = [flat[a:b].reshape(PAGE, -1) for a, b in pairwise(ends)]
    return parts[0], parts[1], parts[2]


CUTS = {
    "": _in_columns(0, 512, 528),
    "kv_layout.scale_at_another_offset": _in_columns(0, 640, 512),
    "kv_layout.rope_first": _in_columns(128, 640, 0),
    "kv_layout.rows_for_pages": _by_page,
}


@pytest.mark.parametrize("fault", CUTS)
def test_rows_of_656_bytes(fault: str) -> None:
    claim, x, memory = ds_mla()
    got = wrongly(fault, claim, x) if fault else expected(claim, x)
    latent, rope = _value(*CUTS[fault](memory))
    np.testing.assert_array_equal(decode_values(got["latent"].low), latent)
    np.testing.assert_array_equal(decode_values(got["rope"].low), rope)


def test_pages_of_codes_and_then_scales() -> None:
    """64 rows of 128 codes, then 64 scales; taken for 64 rows of 132 bytes."""
    random = np.random.default_rng(6)
    codes = random.integers(0, 0x7F, (PAGE, 128)).astype(np.uint8)
    scale = (2.0 ** random.integers(-6, 6, (PAGE, 1))).astype(np.float32)
    given = {"k_scale": float32(scale), "table": int32([[0]]), "lengths": int32([PAGE]), "sizes": int32([1, PAGE])}
    claim, x = Claim.parse(f"kv_read/vllm.indexer/{E4}/float32"), Input(E4, codes, given)
    memory = np.concatenate([codes.ravel(), scale.view(np.uint8).ravel()])
    for rows, got in (
        ((codes, scale.view(np.uint8)), expected(claim, x)),
        (np.split(memory.reshape(PAGE, 132), [128], axis=1), wrongly("kv_layout.rows_for_pages", claim, x)),
    ):
        numbers = np.ascontiguousarray(rows[1]).view(np.float32)
        with np.errstate(all="ignore"):
            want = decode_values(Coded(E4, np.ascontiguousarray(rows[0]))).astype(np.float32) * numbers
        np.testing.assert_array_equal(decode_values(got["k"].low).astype(np.float32), want)


def test_places_and_heads_of_scales_exchanged() -> None:
    """Two heads of one column, code 1 everywhere: what is read is the map of scales."""
    ones = Coded(E4, np.full((16, 2), 0x38, np.uint8))
    scales = 1.0 + np.arange(32).reshape(16, 2)
    given = {
        "k_scale": float32(scales), "v": ones, "v_scale": float32(100 + scales), "table": int32([[0]]),
        "lengths": int32([16]), "sizes": int32([2, 16]),
    }  # fmt: skip
    claim, x = Claim.parse(f"kv_read/vllm.fp8_token_head/{E4}/float32"), Input(E4, ones.data, given)
    got = wrongly("kv_layout.scales_exchanged", claim, x)
    np.testing.assert_array_equal(decode_values(got["k"].low), scales.reshape(2, 16).T)
    np.testing.assert_array_equal(decode_values(got["v"].low), 100 + scales.reshape(2, 16).T)


def nvfp4() -> tuple[Claim, Input]:
    """One head of 64 columns in a page of 16: four scales of a token, all 64 of them different."""
    ones = Coded("float4_e2m1fn", np.full((16, 64), 2, np.uint8))
    scale = Coded(E4, (np.arange(64, dtype=np.uint8) + 16).reshape(16, 4))
    given = {
        "k_scale": scale, "k_global_scale": float32(1.0), "v": ones, "v_scale": scale, "v_global_scale": float32(1.0),
        "table": int32([[0]]), "lengths": int32([16]), "sizes": int32([1, 16]),
    }  # fmt: skip
    return Claim.parse("kv_read/vllm.nvfp4/float4_e2m1fn/float32"), Input("float4_e2m1fn", ones.data, given)


def swizzled(token: int, scale: int) -> tuple[int, int]:
    """Where a scale of a value stands, as vLLM's kernel computes it for four scales of a token."""
    return token // 4 * 4 + scale, token % 4


def test_swizzled_scales_of_values() -> None:
    """Rightly linear for keys; the fault reads those of values as linear, or those of keys as swizzled."""
    claim, x = nvfp4()
    codes = x.given["v_scale"].data
    memory = np.zeros((16, 4), np.uint8)
    taken = np.zeros((16, 4), np.uint8)
    for token in range(16):
        for scale in range(4):
            memory[swizzled(token, scale)] = codes[token, scale]
            taken[token, scale] = codes[swizzled(token, scale)]
    for fault, k, v in (
        ("kv_layout.value_scales_as_key_scales", codes, memory),
        ("kv_layout.scales_linear", codes, memory),
        ("kv_layout.key_scales_as_value_scales", taken, codes),
    ):
        got = wrongly(fault, claim, x)
        for name, want in (("k", k), ("v", v)):
            np.testing.assert_array_equal(decode_values(got[name].low)[:, ::16], decode_values(Coded(E4, want)))


# --- attention -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """Of one sequence of five tokens in a page of eight, two heads of four, two queries a head."""

    q: F64  #: [4, 4]
    k: F64  #: [8, 2, 4]; the last three are of nobody
    v: F64


def numbers() -> Call:
    random = np.random.default_rng(2)
    q, k, v = (random.integers(-8, 9, shape) / 4 for shape in ((4, 4), (8, 2, 4), (8, 2, 4)))
    return Call(q, k, v)


Keys = Callable[[int], int]


def plain(c: Call, tokens: range, scale: float, cap: float = 0.0, head: Keys = lambda h: h // 2) -> F64:
    """Softmax in float64, [4, 4]."""
    out = []
    for h in range(4):
        score = scale * (c.k[tokens, head(h)] @ c.q[h])
        score = cap * np.tanh(score / cap) if cap else score
        weight = np.exp(score - score.max())
        out.append(weight @ c.v[tokens, head(h)] / weight.sum())
    return np.array(out)


ALL, SCALE = range(5), 0.5
ATTENDED: dict[str, Callable[[Call], F64]] = {
    "": lambda c: plain(c, ALL, SCALE, 1.5),
    "kv_attention.soft_cap_missing": lambda c: plain(c, ALL, SCALE),
    "kv_attention.softmax_scale_missing": lambda c: plain(c, ALL, 1.0, 1.5),
    "kv_attention.softmax_scale_twice": lambda c: plain(c, ALL, 0.25, 1.5),
    "kv_attention.factor_of_base_2": lambda c: plain(c, ALL, SCALE * float(np.log(2)), 1.5),
    "kv_attention.masked_token_counted": lambda c: plain(c, range(6), SCALE, 1.5),
    "kv_attention.rest_of_page_counted": lambda c: plain(c, range(8), SCALE, 1.5),
    "kv_attention.last_token_dropped": lambda c: plain(c, range(4), SCALE, 1.5),
    "kv_attention.first_token_dropped": lambda c: plain(c, range(1, 5), SCALE, 1.5),
    "kv_attention.heads_dealt_in_turn": lambda c: plain(c, ALL, SCALE, 1.5, lambda h: h % 2),
    "kv_attention.first_head_for_all": lambda c: plain(c, ALL, SCALE, 1.5, lambda h: 0),
}


def attending(c: Call, text: str = "vllm.flash_copy+soft_cap:1.5") -> tuple[Claim, Input]:
    given = {
        "v": bf16(c.v.reshape(8, 8)), "k_scale": float32(1.0), "v_scale": float32(1.0), "table": int32([[0]]),
        "lengths": int32([5]), "sizes": int32([2, 8]),
    }  # fmt: skip
    query = Coded("float32", c.q.reshape(1, 16).astype(np.float32).view(np.uint32))
    claim = Claim.parse(f"attend/{text}/bfloat16/float32")
    return claim, Input("bfloat16", bf16(c.k.reshape(8, 8)).data, {**given, "query": query})


def within(got: Coded, high: Coded, want: F64) -> npt.NDArray[np.bool_]:
    """Whether a float64 result, to 1e-7 of its size, lies in an interval."""
    room = 1e-7 * np.maximum(np.abs(want), 1)
    return np.asarray((decode_values(got) <= want + room) & (want - room <= decode_values(high)))


@pytest.mark.parametrize("fault", ATTENDED)
def test_attention_by_a_plain_softmax(fault: str) -> None:
    c = numbers()
    claim, x = attending(c)
    right = expected(claim, x)["output"]
    got = wrongly(fault, claim, x)["output"] if fault else right
    want = ATTENDED[fault](c).reshape(1, 16)
    assert within(got.low, got.high, want).all()
    if fault:
        assert not within(right.low, right.high, want).all()


def test_a_page_that_is_full_has_no_token_behind_it() -> None:
    claim, x = attending(numbers())
    full = Input(x.format, x.data, {**x.given, "lengths": int32([8])})
    right = expected(claim, full)["output"]
    for fault in ("kv_attention.masked_token_counted", "kv_attention.rest_of_page_counted"):
        np.testing.assert_array_equal(wrongly(fault, claim, full)["output"].low.data, right.low.data)


def test_another_scale_of_softmax() -> None:
    c = numbers()
    claim, x = attending(c, "vllm.flash_copy+scale:0.75")
    for fault, scale in (("", 0.75), ("kv_attention.softmax_scale_of_width_alone", 0.5)):
        got = (wrongly(fault, claim, x) if fault else expected(claim, x))["output"]
        assert within(got.low, got.high, plain(c, ALL, scale).reshape(1, 16)).all()


def test_weights_in_bfloat16() -> None:
    """Two keys, weights 1 and exp(-1.5), which is 228.485 units of 2^-10: 228 in bfloat16."""
    c = Call(np.array([[0.0] * 4] * 4), np.zeros((8, 2, 4)), np.zeros((8, 2, 4)))
    c.q[:, 0], c.k[1, :, 0], c.v[1] = 1.0, -3.0, 1.0
    claim, x = attending(c, "vllm.flash_copy")
    x = Input(x.format, x.data, {**x.given, "lengths": int32([2])})
    exact, rounded = np.exp(-1.5), 228 / 1024
    total = 1 + exact
    got = wrongly("kv_attention.weights_in_bfloat16", claim, x)["output"]
    for weight, in_right in ((exact, True), (rounded, False)):
        right = expected(claim, x)["output"]
        assert within(right.low, right.high, np.full((1, 16), weight / total)).all() == in_right
    assert within(got.low, got.high, np.full((1, 16), rounded / total)).all()


def test_stale_values_are_nan() -> None:
    c = numbers()
    c.v[6, 1, 2] = np.inf
    claim, x = attending(c)
    assert np.isfinite(decode_values(expected(claim, x)["output"].low)).all()
    got = decode_values(wrongly("kv_attention.stale_values", claim, x)["output"].low).reshape(4, 4)
    want = np.zeros((4, 4), bool)
    want[2:, 2] = True  # the queries of the second head, in the column where it stands
    np.testing.assert_array_equal(np.isnan(got), want)


#: what latent and rope are multiplied by as keys, and the latent as a value
OF_MLA = {"": (2, 2), "kv_attention.values_not_descaled": (2, 1), "kv_attention.keys_not_descaled": (1, 2)}
WIDTHS = {"": 576, "kv_attention.softmax_scale_of_values": 512}


@pytest.mark.parametrize("fault", sorted({*OF_MLA, *WIDTHS}))
def test_attention_of_mla(fault: str) -> None:
    """Two tokens whose latents are single ones, scale 2; the weights can be read in the first two columns."""
    claim, x, _ = ds_mla()
    latent = np.zeros((PAGE, 512), np.uint8)
    latent[0, 0] = latent[1, 1] = 0x38
    query = np.zeros((1, 576), np.float32)
    query[0, :2] = 8, 4
    two = Coded("float32", np.full((PAGE, 4), 2, np.float32).view(np.uint32))
    zero = Coded("bfloat16", np.zeros((PAGE, 64), np.uint16))
    given = {"latent_scale": two, "rope": zero, "lengths": int32([2]), "query": Coded("float32", query.view(np.uint32))}
    call = Input(E4, latent, {**x.given, **given})
    claim = Claim.parse(f"attend/vllm.fp8_ds_mla/{E4}/float32")
    got = (wrongly(fault, claim, call) if fault else expected(claim, call))["output"]
    key, value = OF_MLA.get(fault, (2, 2))
    scores = np.array([8, 4]) * key / np.sqrt(WIDTHS.get(fault, 576))
    weights = np.exp(scores) / np.exp(scores).sum() * value
    want = np.zeros((1, 512))
    want[0, :2] = weights
    assert within(got.low, got.high, want).all()
    assert np.ptp(weights) > 0.1


def test_every_fault_of_attention_is_probed() -> None:
    ours = {name for name in FAULTS if name.startswith("kv_attention.")}
    alone = {"softmax_scale_of_width_alone", "weights_in_bfloat16", "stale_values"}
    assert ours == {*ATTENDED, *OF_MLA, *WIDTHS, *(f"kv_attention.{name}" for name in alone)} - {""}
