# SPDX-License-Identifier: Apache-2.0
"""The second derivation of conversions: against exact fractions and what was recorded."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from narrowgauge.suites.meta import conversion_sets as sets
from narrowgauge.suites.meta.conversion_sets import SETS, Patterns, bits, ints
from narrowgauge.suites.meta.second_codes import E2M1, FNUZ, OCP, Array, f32, nibbles, packed, table, values
from narrowgauge.suites.meta.second_conversions import CONVERSIONS
from narrowgauge.suites.meta.second_derivation import Number, cast, decode
from narrowgauge.suites.meta.second_quantizers import divide, multiply

pytestmark = pytest.mark.meta

_SATURATE: dict[str, object] = {
    "rounding": "nearest_even", "limit": None, "overflow": "max", "infinity": "max",
    "nan": "nan", "negative_zero": "keep", "subnormals": "keep",
}  # fmt: skip


# ---------------- exact


def by_fractions(codes: Array, source: str, scale: Array, new: Array, format: str) -> list[int]:
    """cast(fl(fl(code * scale) / new)), with one fraction for each number."""
    found = []
    for code, own, other in zip(codes.tolist(), scale.tolist(), new.tolist(), strict=True):
        v = multiply(decode(code, source), decode(own, "float32"))
        found.append(cast(divide(v, decode(other, "float32")), format, _SATURATE))
    return found


def agrees(name: str, given: Patterns, source: str, format: str, own: Array, new: Array) -> None:
    done, some = CONVERSIONS[name](given), slice(None, None, max(1, given["codes"].size // 700) | 1)
    own, new = (np.broadcast_to(x, given["codes"].shape).ravel()[some] for x in (own, new))
    want = by_fractions(given["codes"].ravel()[some], source, own, new, format)
    assert done["codes"].ravel()[some].tolist() == want, given["scale"].view(np.float32)


@pytest.mark.parametrize(
    ("name", "source", "format"), [("ocp_to_fnuz_requantized", OCP, FNUZ), ("fnuz_to_ocp_requantized", FNUZ, OCP)]
)
def test_codes_of_a_new_scale(name: str, source: str, format: str) -> None:
    """The scale is amax over the largest, of all codes but NaN; NaN stays, and zeros have no amax."""
    for given in sets.tensors():
        new = CONVERSIONS[name](given)["scale"]
        agrees(name, given, source, format, given["scale"], new)
        top = max(abs(n) for n in values(given["codes"], source).ravel().tolist() if n == n)
        with np.errstate(all="ignore"):
            amax = np.abs(np.float32(top) * f32(given["scale"]))
            want = np.where(amax > 0, amax / np.float32(table(format)[0x7E if format == OCP else 0x7F]), 1)
        np.testing.assert_array_equal(f32(new), want.astype(np.float32))


def test_shards_to_the_largest() -> None:
    every = list(sets.shards())
    for given in [*every[:12], *every[12::23]]:
        own = np.repeat(given["scale"], given["widths"].ravel(), axis=0)
        new = CONVERSIONS["requantize_to_largest"](given)["scale"]
        agrees("requantize_to_largest", given, OCP, OCP, own, new)
        assert f32(new).item() == f32(given["scale"]).max() or np.isnan(f32(new))


def test_a_shard_of_the_largest_scale_keeps_its_codes() -> None:
    given: dict[str, Array] = {
        "codes": np.tile(sets.CODES, (3, 1)),
        "scale": bits(0.3, 9.0, 0.011),
        "widths": ints(1, 1, 1),
    }
    assert (CONVERSIONS["requantize_to_largest"](given)["codes"][1] & 0x7F == sets.CODES & 0x7F).all()


@pytest.mark.parametrize("name", ["block_to_channel", "channel_to_block"])
def test_blocks_and_channels(name: str) -> None:
    for given in list(SETS[name]())[::3]:
        done, (n, k) = CONVERSIONS[name](given), given["codes"].shape
        rows, columns = (np.arange(size) // 128 for size in (n, k))
        blocks, channels = (rows[:, None], columns[None]), (np.arange(n)[:, None], np.zeros((1, k), int))
        own, new = (blocks, channels) if name == "block_to_channel" else (channels, blocks)
        agrees(name, given, OCP, OCP, given["scale"][own], done["scale"][new])
        with np.errstate(all="ignore"):
            v = np.abs(values(given["codes"], OCP).astype(np.float32) * f32(given["scale"])[own])
            v = np.where(np.isnan(v), np.float32(0), v)
            top = np.zeros(done["scale"].shape, np.float32)
            np.maximum.at(top, np.broadcast_arrays(*new), v)
            want = np.where(top > 0, top / np.float32(448), np.float32(1))
        np.testing.assert_array_equal(f32(done["scale"]), want)


def test_one_global_is_rounded_once() -> None:
    """By fractions: the block scale nearest to the old one by the ratio, codes nearest under it."""
    policy = {**_SATURATE, "nan": "nan"}
    for given in sets.globals_(multipliers=True):
        done = CONVERSIONS["nvfp4_one_global"](given)
        g = [Fraction(float(x)) for x in f32(given["global_scale"]).ravel()]
        assert Fraction(float(f32(done["global_scale"]).item())) == max(g)
        old_codes, new_codes = nibbles(given["codes"]), nibbles(done["codes"])
        for place in range(0, old_codes.size, 331):
            row, column = divmod(place, old_codes.shape[1])
            ratio = g[row >= 100] / max(g)
            old, new, code = (
                int(given["scale"][row, column // 16]),
                int(done["scale"][row, column // 16]),
                int(old_codes[row, column]),
            )
            if old == 0x7F:
                assert (new, new_codes[row, column]) == (old, code)
                continue
            sb, v = decode(old, OCP), decode(code, E2M1)
            assert new == cast(Number("finite", False, sb.magnitude * ratio), OCP, policy)
            held = decode(new, OCP).magnitude
            if old == 0:
                want = code
            elif new == 0:
                want = code & 8
            else:
                exact = Number("finite", v.negative, v.magnitude * sb.magnitude * ratio / held)
                want = cast(exact, E2M1, policy)
            assert new_codes[row, column] == want


def test_ocp_to_fnuz_keeps_every_value() -> None:
    """Code times scale, exactly, where the doubled scale is a number; and NaN is NaN. Back, two codes lose."""
    scale, codes = bits(*sets.GOOD, 2.0**-149), np.tile(sets.CODES, (len(sets.GOOD) + 1, 1))
    done = CONVERSIONS["ocp_to_fnuz"]({"codes": codes, "scale": scale})

    def product(codes: Array, scale: Array, format: str) -> Array:
        return values(codes, format) * f32(scale).astype(np.float64)

    np.testing.assert_array_equal(product(codes, scale, OCP), product(done["codes"], done["scale"], FNUZ))
    back = CONVERSIONS["fnuz_to_ocp"]({"codes": codes, "scale": bits(*sets.GOOD, 2.0**-100)})
    scale = bits(*sets.GOOD, 2.0**-100)
    lost = product(codes, scale, FNUZ) != product(back["codes"], back["scale"], OCP)
    lost &= ~np.isnan(values(codes, FNUZ))
    assert np.flatnonzero(lost.any(axis=0)).tolist() == [0x7F, 0xFF]
    np.testing.assert_array_equal(np.isnan(values(codes, FNUZ)), np.isnan(values(back["codes"], OCP)))


# ---------------- recorded


def test_what_was_measured() -> None:
    """facts/engines.md D.1 to D.3; facts/checkpoints.md 0.7 and 0.4; public-bugs-engines R27 and R25."""
    every = next(iter(sets.sixteens()))
    done = CONVERSIONS["float16_counted"](every)
    assert [int(done[name].sum()) for name in ("overflowed", "flushed")] == [28672, 26112]
    halves = {"codes": np.arange(65536, dtype=np.uint16).reshape(256, 256)}  # float16: all is there in bfloat16
    done = CONVERSIONS["bfloat16_counted"](halves)
    assert [int(done[name].sum()) for name in ("overflowed", "flushed")] == [0, 0]
    for scale, changed in ((147.0, 2), (200.0, 8), (1e-5, 28 + 2)):  # two NaN become 448
        for name in ("vllm.requantize_to_largest", "vllm.requantize_to_largest_cpu"):
            given: dict[str, Array] = {"codes": sets.CODES[None], "scale": bits(scale), "widths": ints(1)}
            assert int((CONVERSIONS[name](given)["codes"] != sets.CODES).sum()) == changed, (name, scale)
    six: dict[str, Array] = {"scale": bits(0.0, 2.0**-127, 2.0**-126, 1.0, 2.0**127, 3.0)}
    assert CONVERSIONS["compressed_tensors.scale_to_e8m0"](six)["scale"].ravel().tolist() == [127, 0, 1, 127, 254, 128]
    assert CONVERSIONS["compressed_tensors.e8m0_to_scale"]({"scale": np.array([[0, 127, 255]], np.uint8)})[
        "scale"
    ].tolist() == [[0x0040, 0x3F80, 0x7F80]]
    eight: dict[str, Array] = {"qzeros": np.array([[0x77777777]], np.int32)}
    assert CONVERSIONS["gptq_v1_to_v2"](eight)["qzeros"].view(np.uint32).tolist() == [[0x88888888]]
    full = CONVERSIONS["gptq_v1_to_v2"]({"qzeros": np.array([[-1, 0x0FEDCBA9]], np.int64).astype(np.int32)})
    assert full["qzeros"].tolist() == [[0, 0x10FEDCBA]]
    assert full["wrapped"].tolist() == [[9]]
    places = CONVERSIONS["swizzle_128x4"]({"scale": np.arange(512).reshape(128, 4).astype(np.uint8)})["scale"][0]
    assert [int(places[i]) for i in (16, 4, 499)] == [4, 128, 31 * 4 + 3]


def test_a_gpu_rounds_the_scale_first() -> None:
    """Of 5e-8, float16 leaves 2**-24, or 5.96e-8: on a GPU codes are another fifth larger, and many differ."""
    given: dict[str, Array] = {"codes": sets.CODES[None], "scale": bits(5e-8), "widths": ints(1)}
    gpu, cpu = (CONVERSIONS[f"vllm.requantize_to_largest{on}"](given)["codes"] for on in ("", "_cpu"))
    assert (gpu != cpu).sum() > 100
    assert (gpu[0, 0x38], cpu[0, 0x38]) == (0x3A, 0x3A)  # 1.0 is 2**-24 in both, and 1.19 under the scale
    assert (gpu[0, 0x70], cpu[0, 0x70]) == (
        0x72,
        0x70,
    )  # 128: 128 * 2**-24 is 152.6 of the scale; 107 * 2**-24 is 127.6


def test_shards_that_were_never_loaded() -> None:
    """w8a8_utils.py:87-90: of the last shard's scale only what is above -448 is loaded, which NaN is not."""
    codes = np.tile(sets.CODES, (3, 1))
    for last in (sets.UNSET, -448.0, float("nan")):
        given: dict[str, Array] = {"codes": codes, "scale": bits(0.3, 0.5, last), "widths": ints(1, 1, 1)}
        done = CONVERSIONS["vllm.requantize_to_largest"](given)
        assert (done["codes"] == codes).all()
        assert done["scale"].item() == bits(0.5 if last == last else last).item()
    loaded: dict[str, Array] = {"codes": codes, "scale": bits(0.3, 0.5, -447.0), "widths": ints(1, 1, 1)}
    assert (CONVERSIONS["vllm.requantize_to_largest"](loaded)["codes"] != codes).any()


def test_just_above_a_power_of_two() -> None:
    """facts/engines.md 0.6: within 5 units of the last place above 2**-20 the rounded logarithm is a whole number."""
    scale = (np.float32(2.0**-20).reshape(1, 1).view(np.uint32) + np.uint32(1)).astype(np.uint32)
    given: dict[str, Array] = {
        "codes": np.array([[0x7E]], np.uint8),
        "scale": scale,
        "blocks": np.array([[128, 128]], np.int32),
    }
    assert f32(CONVERSIONS["vllm.block_to_ue8m0"](given)["scale"]).item() == 2.0**-20
    given["scale"] = scale + np.uint32(6)
    assert f32(CONVERSIONS["vllm.block_to_ue8m0"](given)["scale"]).item() == 2.0**-19
    given["scale"] = bits(2.0**-20 * (1 + 2.0**-7))  # in bfloat16, too, above the power
    assert f32(CONVERSIONS["sglang.block_to_ue8m0"](given)["scale"]).item() == 2.0**-19


# ---------------- there and back


@pytest.mark.parametrize(
    ("there", "back"),
    [
        ("gptq_v1_to_v2", "gptq_v2_to_v1"),
        ("swizzle_128x4", "unswizzle_128x4"),
        ("compressed_tensors_int4", "compressed_tensors_int4_back"),
    ],
)
def test_there_and_back(there: str, back: str) -> None:
    part = {"gptq_v1_to_v2": "qzeros", "swizzle_128x4": "scale"}.get(there, "codes")
    for given in SETS[there]():
        middle = CONVERSIONS[there](given)
        done = CONVERSIONS[back]({**middle, "shape": np.array([given[part].shape], np.int32)})
        assert done[part].tolist() == given[part].tolist()
        if there == "swizzle_128x4" and given[part].shape == (128, 4):
            twice = CONVERSIONS[there]({"scale": middle["scale"].reshape(128, 4)})
            assert twice["scale"].tolist() != given[part].reshape(1, -1).tolist()
            assert twice["scale"].tolist() != middle["scale"].tolist()


def test_awq_and_gptq_are_the_same_weights() -> None:
    """(q - z) of each element, read by shifts; a zero point of 0 is 16 to a reader of v1, and counted."""
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    for given in sets.words():
        done = CONVERSIONS["awq_to_gptq"](given)
        words, zeros = (given[name].view(np.uint32) for name in ("qweight", "qzeros"))
        made, made_zeros = (done[name].view(np.uint32) for name in ("qweight", "qzeros"))
        wrapped = 0
        for group in range(len(zeros)):
            for n in range(zeros.shape[1] * 8):
                zero = int(zeros[group, n // 8]) >> 4 * order.index(n % 8) & 15
                stored = int(made_zeros[group, n // 8]) >> 4 * (n % 8) & 15
                assert stored == (zero - 1) % 16
                wrapped += zero == 0
        for k in range(len(words)):
            for n in range(words.shape[1] * 8):
                code = int(words[k, n // 8]) >> 4 * order.index(n % 8) & 15
                assert int(made[k // 8, n]) >> 4 * (k % 8) & 15 == code
        assert int(done["wrapped"].sum()) == wrapped
        assert done["g_idx"].ravel().tolist() == [k // 16 for k in range(32)]


def test_gate_and_up_by_turns() -> None:
    """A row number in each row: gate has the even ones."""
    codes = np.repeat(np.arange(8, dtype=np.uint8)[None, :, None], 32, axis=2)  # [1, 8, 32]
    given: dict[str, Array] = {
        "blocks": packed(codes).reshape(1, 8, 1, 16),
        "scales": np.full((1, 8, 1), 127, np.uint8),
    }
    done = CONVERSIONS["gpt_oss"](given)
    assert done["values"].shape == (1, 32, 8)
    assert f32(done["gate"][0, 0].astype(np.uint32) << 16).tolist() == [0, 1, 2, 4]
    assert f32(done["up"][0, 31].astype(np.uint32) << 16).tolist() == [0.5, 1.5, 3, 6]


def test_every_conversion_has_sets() -> None:
    assert set(SETS) == set(CONVERSIONS)
    for name, make in SETS.items():
        assert next(iter(make())), name
