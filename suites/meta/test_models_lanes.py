"""Exchange between lanes: cases by hand, from the tables of the instruction sets."""

from __future__ import annotations

import numpy as np
import pytest

from narrowgauge.contracts.errors import BadInput
from narrowgauge.devices.emulator.models import lanes

pytestmark = pytest.mark.meta

LANES = np.arange(64)


def dpp_source(control: int, rdna: bool = False, wave: int = 64) -> list[int]:
    """Per lane the source, -1 out of range."""
    route = lanes.dpp(control, wave, rdna)
    assert ((route.source >= 0) & (route.source < wave)).all()
    return [int(s) if ok else -1 for s, ok in zip(route.source, route.valid, strict=True)]


def test_dpp_controls_by_hand() -> None:
    assert dpp_source(0xB1)[:6] == [1, 0, 3, 2, 5, 4]  # quad_perm:[1,0,3,2]
    assert dpp_source(0x00)[4:8] == [4] * 4
    assert [dpp_source(0x101)[n] for n in (0, 14, 15, 16)] == [1, 15, -1, 17]  # row_shl:1
    assert [dpp_source(0x118)[n] for n in (7, 8, 15, 16, 24)] == [-1, 0, 7, -1, 16]  # row_shr:8
    assert [dpp_source(0x121)[n] for n in (0, 1, 16)] == [15, 0, 31]  # row_ror:1
    assert [dpp_source(0x140)[n] for n in (0, 17)] == [15, 30]
    assert [dpp_source(0x141)[n] for n in (0, 9)] == [7, 14]
    assert [dpp_source(0x142)[n] for n in (0, 15, 16, 33, 48)] == [-1, -1, 15, 31, 47]  # row_bcast:15
    assert [dpp_source(0x143)[n] for n in (31, 32, 63)] == [-1, 31, 31]
    assert [dpp_source(0x130)[n] for n in (0, 63)] == [1, -1]
    assert [dpp_source(0x134)[n] for n in (0, 63)] == [1, 0]
    assert [dpp_source(0x138)[n] for n in (0, 16)] == [-1, 15]
    assert [dpp_source(0x13C)[n] for n in (0, 16)] == [63, 15]
    assert [dpp_source(0x153, True, 32)[n] for n in (0, 16)] == [3, 19]
    assert [dpp_source(0x168, True, 32)[n] for n in (0, 24)] == [8, 16]  # row_xmask:8
    for control, rdna in ((0x142, True), (0x130, True), (0x161, False), (0x100, False), (0x170, True)):
        with pytest.raises(BadInput, match="no such exchange"):
            lanes.dpp(control, 64, rdna)


def test_update_dpp_keeps_old_where_it_must() -> None:
    old, source = np.full((1, 64), 999, np.uint32), LANES.astype(np.uint32)[None]
    active = np.ones((1, 64), bool)
    active[0, 2] = False
    route = lanes.dpp(0x111, 64, False)  # row_shr:1
    kept = lanes.update_dpp(old, source, route, active, 0xF, 0xF, False)[0]
    assert [int(kept[n]) for n in (0, 1, 2, 3, 4, 16)] == [999, 0, 999, 999, 3, 999]  # lane 3 reads the inactive lane 2
    zeroed = lanes.update_dpp(old, source, route, active, 0xF, 0xF, True)[0]
    assert [int(zeroed[n]) for n in (0, 2, 3, 16)] == [0, 999, 0, 0]
    masked = lanes.update_dpp(old, source, route, active, 0xA, 0x3, True)[0]
    assert [int(masked[n]) for n in (5, 17, 23, 24, 33, 49)] == [999, 16, 22, 999, 999, 48]


def test_shuffles_of_ptx_by_hand() -> None:
    def read(mode: str, b: int, c: int) -> list[int]:
        route = lanes.shfl(mode, np.full(32, b, np.uint32), np.full(32, c, np.uint32))  # type: ignore[arg-type]
        return [int(s) if ok else -1 for s, ok in zip(route.source, route.valid, strict=True)]

    assert [read("bfly", 16, 0x1F)[n] for n in (0, 31)] == [16, 15]
    assert [read("up", 1, 0)[n] for n in (0, 1, 31)] == [-1, 0, 30]
    assert [read("down", 1, 0x1F)[n] for n in (0, 31)] == [1, -1]
    assert read("idx", 5, 0x1F) == [5] * 32
    # segments of eight: mask 0b11000 and clamp 0x07 in c
    assert [read("idx", 3, 0x181F)[n] for n in (0, 8, 31)] == [3, 11, 27]
    assert [read("down", 1, 0x181F)[n] for n in (6, 7, 8)] == [7, -1, 9]
    assert [read("up", 1, 0x1800)[n] for n in (7, 8, 9)] == [6, -1, 8]


def test_permutes_of_amd_by_hand() -> None:
    identity = (0x76543210, 0xFEDCBA98)
    assert list(lanes.permlane16(*identity, 32, True).source[:2]) == [16, 17]
    assert list(lanes.permlane16(0x00000001, 0, 64, False).source[[0, 1, 16, 63]]) == [1, 0, 17, 48]
    assert list(lanes.permlane64(64).source[[0, 40]]) == [32, 8]
    assert list(lanes.permlane64(32).source[:2]) == [0, 1]
    a, b = LANES.astype(np.uint32)[None], 100 + LANES.astype(np.uint32)[None]
    first_, second = lanes.permlane_swap(a, b, 32)
    assert ([int(first_[0, n]) for n in (0, 31, 32, 63)], [int(second[0, n]) for n in (0, 31, 32)]) == (
        [0, 31, 100, 131],
        [32, 63, 132],
    )
    first_, second = lanes.permlane_swap(a, b, 16)
    assert ([int(first_[0, n]) for n in (0, 16, 48)], [int(second[0, n]) for n in (0, 16, 32)]) == (
        [0, 100, 132],
        [16, 116, 48],
    )
    assert list(lanes.ds_swizzle(0x041F, 64).source[[0, 1, 33]]) == [1, 0, 32]  # and 31, xor 1
    assert list(lanes.ds_swizzle(0x5C, 64).source[[0, 1, 5, 32]]) == [2, 2, 6, 34]  # and 28, or 2
    assert list(lanes.ds_swizzle(0x801B, 32).source[:4]) == [3, 2, 1, 0]
    active = np.ones((1, 64), bool)
    active[0, 5] = False
    address = np.full((1, 64), 4 * 5, np.uint32)
    assert int(lanes.ds_bpermute(address, b, active)[0, 0]) == 0
    assert int(lanes.ds_bpermute(address + np.uint32(260), b, active)[0, 0]) == 106
    pushed = lanes.ds_permute(np.where(LANES < 2, 12, 252).astype(np.uint32)[None], b, active)
    assert [int(pushed[0, n]) for n in (0, 3, 5, 63)] == [0, 101, 105, 163]


def test_lanes_that_are_read_and_written_alone() -> None:
    b = 100 + LANES.astype(np.uint32)[None]
    active = (LANES >= 7)[None]
    assert int(lanes.readfirstlane(b, active)[0]) == 107
    assert int(lanes.readfirstlane(b, np.zeros((1, 64), bool))[0]) == 100
    assert int(lanes.readlane(b, np.array([66]))[0]) == 102
    written = lanes.writelane(b, np.array([9], np.uint32), np.array([3]))
    assert [int(written[0, n]) for n in (2, 3, 4)] == [102, 9, 104]


def _dpp_by_words(control: int, lane: int, wave: int, rdna: bool) -> int | None:
    """The source of one lane by the table of DPP_CTRL; -1 out of range, None where the target has no such control."""
    row, place, count = lane // 16, lane % 16, control % 16
    inside = {0x10: place + count, 0x11: place - count, 0x12: (place - count) % 16, 0x15: count, 0x16: place ^ count}
    if control < 0x100:
        return lane // 4 * 4 + (control >> 2 * (lane % 4)) % 4
    if control // 16 in (0x10, 0x11, 0x12) and count == 0:
        return None
    if control // 16 in inside and not (control // 16 == 0x16 and not rdna):
        source = inside[control // 16]
        return 16 * row + source if 0 <= source < 16 else -1
    if control in (0x140, 0x141):
        return 16 * row + 15 - place if control == 0x140 else lane // 8 * 8 + 7 - lane % 8
    if rdna:
        return None
    past = {
        0x130: lane + 1 if lane + 1 < wave else -1,
        0x134: (lane + 1) % wave,
        0x138: lane - 1,  # of lane 0 that is -1
        0x13C: (lane - 1) % wave,
        0x142: 16 * row - 1,
        0x143: 31 if lane >= 32 else -1,
    }
    return past.get(control)


@pytest.mark.parametrize("rdna", [False, True])
@pytest.mark.parametrize("wave", [32, 64])
def test_every_dpp_control_by_its_words(wave: int, rdna: bool) -> None:
    for control in range(0x200):
        want = [_dpp_by_words(control, lane, wave, rdna) for lane in range(wave)]
        if None in want:
            with pytest.raises(BadInput):
                lanes.dpp(control, wave, rdna)
        else:
            assert dpp_source(control, rdna, wave) == want, hex(control)


def test_permutes_of_several_waves() -> None:
    """Three waves, so that an axis taken for another shows."""
    value = np.arange(3 * 64, dtype=np.uint32).reshape(3, 64)
    active = np.ones((3, 64), bool)
    active[0, 0] = active[1, :5] = active[2, 9] = False
    turned = (4 * ((LANES + 3) % 64)).astype(np.uint32)[None].repeat(3, axis=0)
    pulled, pushed = lanes.ds_bpermute(turned, value, active), lanes.ds_permute(turned, value, active)
    for wave in range(3):
        for lane in range(64):
            source, writer = (lane + 3) % 64, (lane - 3) % 64
            kept = int(value[wave, lane])
            there = int(value[wave, source]) if active[wave, source] else 0
            put = int(value[wave, writer]) if active[wave, writer] else 0
            assert int(pulled[wave, lane]) == (there if active[wave, lane] else kept)
            assert int(pushed[wave, lane]) == (put if active[wave, lane] else kept)
    assert lanes.readfirstlane(value, active).tolist() == [1, 64 + 5, 128]
    assert lanes.readlane(value, np.array([1, 70, 63])).tolist() == [1, 64 + 6, 128 + 63]
    written = lanes.writelane(value, np.array([7, 8, 9], np.uint32), np.array([0, 65, 63]))
    assert [int(written[i, n]) for i, n in ((0, 0), (1, 1), (2, 63), (0, 63))] == [7, 8, 9, 63]
    selects = (0x01234567, 0x89ABCDEF)
    assert list(lanes.permlane16(*selects, 32, False).source) == [
        16 * (n // 16) + _nibble(selects, n) for n in range(32)
    ]
    for size in (16, 32):
        one, other = lanes.permlane_swap(value, value + np.uint32(1000), size)
        for wave in range(3):
            for lane in range(64):
                odd = lane // size % 2 == 1
                assert int(one[wave, lane]) == (1000 + 64 * wave + lane - size if odd else 64 * wave + lane)
                assert int(other[wave, lane]) == (1000 + 64 * wave + lane if odd else 64 * wave + lane + size)


def _nibble(selects: tuple[int, int], lane: int) -> int:
    """The source of a lane of a row: eight nibbles in the first select, eight in the second."""
    return selects[lane % 16 // 8] >> 4 * (lane % 8) & 15
