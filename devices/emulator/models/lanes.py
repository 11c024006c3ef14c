"""Exchange between the lanes of a wave as index functions: for each lane, the lane that it reads.

A ``Route`` has, per lane of a wave of 32 or 64, the source lane and whether it lies in range; what becomes of the
others is told by the function that applies it. Arrays over many waves are (waves, lanes).

Words: PTX ISA 9.0, shfl; CDNA3 ISA, "Data Parallel Processing", table of DPP_CTRL; RDNA3 and
RDNA4 ISA, "DPP16", V_PERMLANE16_B32, V_PERMLANEX16_B32; CDNA4 ISA, V_PERMLANE16_SWAP_B32, V_PERMLANE32_SWAP_B32;
DS_SWIZZLE_B32, DS_PERMUTE_B32, DS_BPERMUTE_B32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.errors import BadInput
from narrowgauge.devices.emulator.models.answers import Bits, Mask

Lanes = npt.NDArray[np.int64]
ROW, BANK, QUAD = 16, 4, 4


@dataclass(frozen=True)
class Route:
    """Per lane: the lane it reads, and whether the words give it one. Out of range the source is the lane itself."""

    source: Lanes
    valid: Mask


def _route(source: Lanes, valid: Mask | bool = True) -> Route:
    inside = np.broadcast_to(np.asarray(valid, bool), source.shape)
    return Route(np.where(inside, source, np.broadcast_to(np.arange(source.shape[-1]), source.shape)), inside)


def shfl(mode: Literal["up", "down", "bfly", "idx"], b: Bits, c: Bits) -> Route:
    """PTX shfl in a warp of 32. ``b``, ``c``: operands per lane, (..., 32); ``valid`` is the predicate. Where it is
    false a lane reads itself."""
    lane = np.arange(32, dtype=np.int64)
    offset, clamp, mask = ((x.astype(np.int64) & 31) for x in (b, c, c >> np.uint32(8)))
    lowest = lane & mask
    highest = lowest | (clamp & ~mask & 31)
    source = {"up": lane - offset, "down": lane + offset, "bfly": lane ^ offset, "idx": lowest | (offset & ~mask & 31)}
    target = np.broadcast_to(source[mode], np.broadcast_shapes(b.shape, c.shape, (32,)))
    return _route(target, target >= highest if mode == "up" else target <= highest)


def dpp(control: int, wave: int, rdna: bool) -> Route:
    """DPP_CTRL. ``rdna``: gfx10 and later, which have row_share and row_xmask and no exchange across rows.

    Raises ``BadInput`` for a control that the target does not have.
    """
    lane = np.arange(wave, dtype=np.int64)
    within, start, count = lane % ROW, lane - lane % ROW, control & 0xF
    if control <= 0xFF:
        return _route(lane - lane % QUAD + ((control >> (2 * (lane % QUAD))) & 3))
    if 0x101 <= control <= 0x10F:
        return _route(lane + count, within + count < ROW)
    if 0x111 <= control <= 0x11F:
        return _route(lane - count, within >= count)
    if 0x121 <= control <= 0x12F:
        return _route(start + (within - count) % ROW)
    if control == 0x140:
        return _route(start + ROW - 1 - within)
    if control == 0x141:
        return _route(lane - lane % 8 + 7 - lane % 8)
    if 0x150 <= control <= 0x15F:  # row_share, and row_newbcast of gfx90a and later
        return _route(start + count)
    if rdna and 0x160 <= control <= 0x16F:
        return _route(start + (within ^ count))
    across = {} if rdna else _across_rows(lane, wave)
    if control not in across:
        raise BadInput(f"DPP control {control:#x}: {'RDNA' if rdna else 'CDNA'} targets have no such exchange")
    return across[control]


def _across_rows(lane: Lanes, wave: int) -> dict[int, Route]:
    """GFX9 only."""
    return {
        0x130: _route(lane + 1, lane + 1 < wave),
        0x134: _route((lane + 1) % wave),
        0x138: _route(lane - 1, lane > 0),
        0x13C: _route((lane - 1) % wave),
        0x142: _route(lane - lane % ROW - 1, lane >= ROW),
        0x143: _route(np.full_like(lane, 31), lane >= 32),
    }


def update_dpp(
    old: Bits, source: Bits, route: Route, active: Mask, row_mask: int, bank_mask: int, bound_ctrl: bool
) -> Bits:
    """v_mov_b32 with DPP, llvm.amdgcn.update.dpp. All arrays (waves, lanes).

    A lane of a row or bank that is masked off keeps ``old``. A lane whose source is out of range or inactive takes 0
    with bound_ctrl, else keeps ``old``.
    """
    lane = np.arange(old.shape[-1])
    enabled = (((row_mask >> (lane // ROW)) & 1) == 1) & (((bank_mask >> (lane % ROW // BANK)) & 1) == 1)
    readable = route.valid & active[..., route.source]
    absent = np.zeros_like(old) if bound_ctrl else old
    return np.where(enabled & active, np.where(readable, source[..., route.source], absent), old)


def permlane16(low: int, high: int, wave: int, other_row: bool) -> Route:
    """V_PERMLANE16_B32, with ``other_row`` V_PERMLANEX16_B32: nibble i of the selects is the source of lane i of a row,
    in the same row or in the other row of the pair."""
    lane = np.arange(wave, dtype=np.int64)
    selects = (high << 32) | low
    nibbles = np.array([(selects >> (4 * i)) & 0xF for i in range(ROW)], np.int64)
    start = lane - lane % ROW
    return _route((start ^ ROW if other_row else start) + nibbles[lane % ROW])


def permlane_swap(a: Bits, b: Bits, size: Literal[16, 32]) -> tuple[Bits, Bits]:
    """V_PERMLANE16_SWAP_B32, V_PERMLANE32_SWAP_B32: odd groups of ``size`` lanes of ``a`` change places with the even
    groups of ``b`` before them. Arrays (waves, 64)."""
    lane = np.arange(a.shape[-1])
    odd = lane // size % 2 == 1
    return np.where(odd, b[..., lane - size * odd], a), np.where(odd, b, a[..., lane + size * ~odd])


def permlane64(wave: int) -> Route:
    """V_PERMLANE64_B32: the halves of a wave of 64 change places; nothing in a wave of 32."""
    lane = np.arange(wave, dtype=np.int64)
    return _route(lane ^ 32 if wave == 64 else lane)


def ds_swizzle(offset: int, wave: int) -> Route:
    """DS_SWIZZLE_B32: bit 15 set, a permutation of every four lanes; else ((lane & and) | or) ^ xor in 32 lanes."""
    lane = np.arange(wave, dtype=np.int64)
    if offset & 0x8000:
        return _route(lane - lane % QUAD + ((offset >> (2 * (lane % QUAD))) & 3))
    keep, put, turn = offset & 31, (offset >> 5) & 31, (offset >> 10) & 31
    return _route(lane - lane % 32 + ((((lane % 32) & keep) | put) ^ turn))


def ds_bpermute(address: Bits, value: Bits, active: Mask) -> Bits:
    """Pull: each lane reads lane address / 4, modulo the wave; 0 from a lane that is not active. (waves, lanes)."""
    source = (address >> np.uint32(2)).astype(np.int64) % value.shape[-1]
    pulled = np.take_along_axis(np.where(active, value, np.uint32(0)), source, axis=-1)
    return np.where(active, pulled, value)


def ds_permute(address: Bits, value: Bits, active: Mask) -> Bits:
    """Push: each active lane writes lane address / 4, modulo the wave; of several the highest lane; else 0."""
    pushed = np.zeros_like(value)
    waves = np.arange(value.shape[0])
    target = (address >> np.uint32(2)).astype(np.int64) % value.shape[-1]
    for lane in range(value.shape[-1]):
        here = waves[active[:, lane]]
        pushed[here, target[here, lane]] = value[here, lane]
    return np.where(active, pushed, value)


def readlane(value: Bits, lane: npt.NDArray[np.int64]) -> Bits:
    """V_READLANE_B32: one value per wave, of the lane modulo the wave, active or not. (waves, lanes) gives (waves,)."""
    return np.take_along_axis(value, (lane % value.shape[-1])[:, None], axis=-1)[:, 0]


def readfirstlane(value: Bits, active: Mask) -> Bits:
    """V_READFIRSTLANE_B32: of the lowest active lane; of lane 0 where none is."""
    return readlane(value, np.argmax(active, axis=-1))


def writelane(old: Bits, value: Bits, lane: npt.NDArray[np.int64]) -> Bits:
    """V_WRITELANE_B32: one lane of each wave is written, active or not."""
    chosen = np.arange(old.shape[-1]) == (lane % old.shape[-1])[:, None]
    return np.where(chosen, value[:, None], old)
