"""Faults of scales of caches, and of the bits of codes: each against numbers by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.expected import expected, outputs_of, promised_for
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.interval import Expected
from narrowgauge.suites.meta.test_kv_fault_slots import bfloat16, int32

pytestmark = pytest.mark.meta

F64 = npt.NDArray[np.float64]
E4, FNUZ = "float8_e4m3fn", "float8_e4m3fnuz"


def float32(values: Any) -> Coded:
    return Coded("float32", np.atleast_2d(np.array(values, np.float32)).view(np.uint32))


def bf16(values: Any) -> Coded:
    """Values that bfloat16 holds."""
    return bfloat16((np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16))


def wrongly(fault: str, claim: Claim, x: Input) -> Expected:
    behaviour = FAULTS[fault].applied_to(promised_for(claim, x))
    assert behaviour is not None
    return outputs_of(behaviour, x)


def values(outputs: Expected, name: str) -> list[float]:
    return [float(v) for v in decode_values(outputs[name].low).ravel()]


# --- scales that are given -------------------------------------------------------------------------------------------


def write_one(
    cache: str, format_name: str, x: float, k_scale: Any, v_scale: Any, width: int = 1
) -> tuple[Claim, Input]:
    """One token with x in all of K and V, at slot 0 of a cache of one page."""
    heads = np.size(k_scale)
    rows = np.full((1, heads * width), x)
    empty = Coded(format_name, np.zeros((16, heads * width), np.uint8))
    given = {
        "v": bf16(rows), "k_scale": float32(k_scale), "v_scale": float32(v_scale), "slots": int32([0]),
        "held.k": empty, "held.v": empty, "sizes": int32([heads, 16]),
    }  # fmt: skip
    return Claim.parse(f"kv_write/{cache}/bfloat16/{format_name}"), Input("bfloat16", bf16(rows).data, given)


def read_one(cache: str, format_name: str, code: int, k_scale: Any, v_scale: Any) -> tuple[Claim, Input]:
    """The same read, of a cache that holds nothing but that code."""
    heads = np.size(k_scale)
    held = Coded(format_name, np.full((16, heads), code, np.uint8))
    given = {
        "v": held, "k_scale": float32(k_scale), "v_scale": float32(v_scale), "table": int32([[0]]),
        "lengths": int32([1]), "sizes": int32([heads, 16]),
    }  # fmt: skip
    return Claim.parse(f"kv_read/{cache}/{format_name}/float32"), Input(format_name, held.data, given)


#: of 6 under the scales 2 and 0.5: what a writer leaves (rightly 3 and 12), what a reader gives (rightly 12 and 3)
OF_SIX = {
    "": ((3, 12), (12, 3)),
    "kv_scale.k_ignored": ((6, 12), (6, 3)),
    "kv_scale.v_ignored": ((3, 6), (12, 6)),
    "kv_scale.k_twice": ((1.5, 12), (24, 3)),
    "kv_scale.v_twice": ((3, 24), (12, 1.5)),
    "kv_scale.k_inverted": ((12, 12), (3, 3)),
    "kv_scale.v_inverted": ((3, 3), (12, 12)),
    "kv_scale.k_for_both": ((3, 3), (12, 12)),
    "kv_scale.v_for_both": ((12, 12), (3, 3)),
    "kv_scale.exchanged": ((12, 3), (3, 12)),
    # the first calls of the suite give 0.37 and 1 / 16: 16.2 and 96; 2.22 and 0.375
    "kv_scale.of_the_first_call": ((16, 96), (float(np.float32(6) * np.float32(0.37)), 0.375)),
}
SIX = {E4: 0x4C, FNUZ: 0x54}  #: 1.5 x 4


@pytest.mark.parametrize("fault", OF_SIX)
def test_scales_that_are_given(fault: str) -> None:
    for at, (claim, x) in enumerate((
        write_one("vllm.flash_fp8", E4, 6, 2, 0.5), read_one("vllm.flash_fp8", E4, SIX[E4], 2, 0.5)
    )):  # fmt: skip
        got = wrongly(fault, claim, x) if fault else expected(claim, x)
        assert (values(got, "k")[0], values(got, "v")[0]) == OF_SIX[fault][at]


@pytest.mark.parametrize(("fault", "written", "read"), [("doubled", (1.5, 6), (24, 6)), ("halved", (6, 24), (6, 1.5))])
def test_doubling_for_fnuz(fault: str, written: tuple[float, float], read: tuple[float, float]) -> None:
    for want, (claim, x) in (
        (written, write_one("plain.fp8_tensor", FNUZ, 6, 2, 0.5)),
        (read, read_one("plain.fp8_tensor", FNUZ, SIX[FNUZ], 2, 0.5)),
    ):
        got = wrongly(f"kv_scale.{fault}", claim, x)
        assert (values(got, "k")[0], values(got, "v")[0]) == want
        assert FAULTS[f"kv_scale.{fault}"].applied_to(promised_for(*read_one("vllm.flash_fp8", E4, 0, 1, 1))) is None


def test_the_last_head_for_all() -> None:
    claim, x = write_one("vllm.flash_fp8_head", E4, 8, [2, 4], [0.5, 1])
    assert (values(expected(claim, x), "k")[:2], values(expected(claim, x), "v")[:2]) == ([4, 2], [16, 8])
    got = wrongly("kv_scale.last_head_for_all", claim, x)
    assert (values(got, "k")[:2], values(got, "v")[:2]) == ([2, 2], [8, 8])


def test_a_scale_on_a_copy() -> None:
    claim, x = write_one("vllm.flash_copy", "bfloat16", 6, 2, 0.5)
    held = bfloat16(np.zeros((16, 1)))
    x = Input(x.format, x.data, {**x.given, "held.k": held, "held.v": held})
    got, right = wrongly("kv_scale.on_a_copy", claim, x), expected(claim, x)
    assert [values(o, n)[0] for o in (right, got) for n in ("k", "v")] == [6, 6, 3, 12]
    claim, x = read_one("vllm.flash_copy", "bfloat16", 0, 2, 0.5)
    six = bf16(np.full((16, 1), 6.0))
    x = Input("bfloat16", six.data, {**x.given, "v": six})
    got, right = wrongly("kv_scale.on_a_copy", claim, x), expected(claim, x)
    assert [values(o, n)[0] for o in (right, got) for n in ("k", "v")] == [6, 6, 12, 3]


@pytest.mark.parametrize(
    ("code", "number", "read"),
    [(0x38, 1, 56), (0x3C, 1.5, 60), (0xC0, -2, 192), (0x08, 2.0**-6, 8), (0x7F, np.nan, 128), (0x01, 2.0**-9, 1)],
)
def test_values_for_bits(code: int, number: float, read: float) -> None:
    """What .to(uint8) makes of a value, by C; and what a byte becomes as a number, in the format (127 lies between
    120 and 128, and the even one is 128)."""
    claim, x = read_one("vllm.flash_fp8", E4, code, 1, 1)
    np.testing.assert_equal(values(expected(claim, x), "k"), [float(number)])
    assert values(wrongly("kv_code.value_for_bits", claim, x), "k") == [read]
    if np.isfinite(number):
        claim, x = write_one("vllm.flash_fp8", E4, number, 1, 1)
        assert expected(claim, x)["k"].low.data[0, 0] == code
        assert wrongly("kv_code.value_for_bits", claim, x)["k"].low.data[0, 0] == int(number) % 256


def test_read_as_the_other_format() -> None:
    claim, x = read_one("vllm.flash_fp8", E4, 0x38, 1, 1)  # e5m2: 2^(14 - 15)
    assert values(wrongly("kv_code.read_as_the_other_format", claim, x), "k") == [0.5]


# --- scales that are stored ------------------------------------------------------------------------------------------


def read_stored() -> tuple[Claim, Input]:
    """Three tokens of one head, each code 1, under the scales 1, 2, 4 …; those of V are three times as large."""
    ones = Coded(E4, np.full((16, 1), 0x38, np.uint8))
    scales = 2.0 ** np.arange(16)[:, None]
    given = {
        "k_scale": float32(scales), "v": ones, "v_scale": float32(3 * scales), "table": int32([[0]]),
        "lengths": int32([3]), "sizes": int32([1, 16]),
    }  # fmt: skip
    return Claim.parse(f"kv_read/vllm.fp8_token_head/{E4}/float32"), Input(E4, ones.data, given)


@pytest.mark.parametrize(
    ("fault", "k", "v"),
    [
        ("kv_scale.of_the_slot_after", [2, 4, 8], [6, 12, 24]),
        ("kv_scale.of_the_slot_before", [2**15, 1, 2], [3 * 2**15, 3, 6]),
        ("kv_scale.exchanged", [3, 6, 12], [1, 2, 4]),
        ("kv_scale.v_ignored", [1, 2, 4], [1, 1, 1]),
    ],
)
def test_stored_scales_that_are_read(fault: str, k: list[float], v: list[float]) -> None:
    claim, x = read_stored()
    assert (values(expected(claim, x), "k"), values(expected(claim, x), "v")) == ([1, 2, 4], [3, 6, 12])
    got = wrongly(fault, claim, x)
    assert (values(got, "k"), values(got, "v")) == (k, v)


def test_stored_scales_that_are_written() -> None:
    """Tokens of 448 and 896 at slots 4 and 9: scales 1 and 2, codes 448."""
    claim = Claim.parse(f"kv_write/vllm.fp8_token_head/bfloat16/{E4}")
    nobody, minus = Coded(E4, np.zeros((16, 1), np.uint8)), float32(np.full((16, 1), -1.0))
    rows = bf16([[448.0], [896.0]])
    held = {"held.k": nobody, "held.k_scale": minus, "held.v": nobody, "held.v_scale": minus}
    x = Input("bfloat16", rows.data, {"v": rows, "slots": int32([4, 9]), **held, "sizes": int32([1, 16])})

    def scales(outputs: Expected) -> dict[int, float]:
        assert {slot for slot, code in enumerate(outputs["k"].low.data[:, 0]) if code == 0x7E} == {4, 9}
        return {slot: value for slot, value in enumerate(values(outputs, "k_scale")) if value != -1}

    assert scales(expected(claim, x)) == {4: 1, 9: 2}
    assert scales(wrongly("kv_scale.of_the_slot_after", claim, x)) == {5: 1, 10: 2}
    assert scales(wrongly("kv_scale.of_the_slot_before", claim, x)) == {3: 1, 8: 2}
    assert scales(wrongly("kv_scale.not_stored", claim, x)) == {}
    one_slot = Input(x.format, x.data, {**x.given, "slots": int32([4, 4])})
    got = wrongly("kv_scale.of_the_slot_after", claim, one_slot)
    assert values(got, "k_scale")[5] == 2
    assert values(wrongly("kv_slot.scale_of_the_other_token", claim, one_slot), "k_scale")[4] == 1
    assert values(expected(claim, one_slot), "k_scale")[4] == 2
