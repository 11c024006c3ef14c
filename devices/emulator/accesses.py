"""Who read and wrote global memory in a launch, and when: races between blocks, and between warps of a block.

Two accesses are in order where one warp makes both, or where warps of one block make them with a barrier between.
A block that has carried out an atomic is taken to be in step with all others from then on: what atomics order is not
followed. Of two accesses that are not in order it is a race when the later one changes what the earlier one wrote or
read, or reads what the earlier one changed.

A compiler has several warps load one element where a block has more threads than elements, and uses what one of them
gets. So within a block it is no race where the earlier warp takes part in the later access, too, or where the warp that
writes has read the element itself.
"""

from __future__ import annotations

import numpy as np

from narrowgauge.devices.emulator.regions import Array, Fault, Region

#: a mark: when in the upper half; below whether the store changed nothing; below who: a warp, a block's several, or all
_TIME, _SAME, _WHO = 40, np.int64(1 << 39), np.int64((1 << 39) - 1)
_BLOCK, _SEVERAL = np.int64(1 << 38), np.int64((1 << 39) - 1)
#: regions with more marks than this are not followed, to keep memory bounded
MOST_MARKS = 1 << 24


class _Marks:
    """Last accesses of a region, for pieces as small as the narrowest access so far."""

    def __init__(self, size: int, grain: int) -> None:
        self.size, self.grain = size, grain
        self.writer, self.reader = (np.zeros(-(-size // grain), np.int64) for _ in range(2))

    def refine(self, grain: int) -> None:
        ways, self.grain = self.grain // grain, grain
        self.writer, self.reader = (np.repeat(m, ways)[: -(-self.size // grain)] for m in (self.writer, self.reader))


class Accesses:
    """Accesses of one launch."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Another launch begins."""
        self.marks: dict[int, _Marks] = {}
        self.now = 1
        self.steps: set[int] = set()  #: blocks that have carried out an atomic

    def batch(self, first: int, blocks: int, threads: int, warp: int) -> None:
        """Blocks that run now: ``first``, …, by their number in the grid."""
        self.first, self.threads, self.warp, self.warps = first, threads, warp, -(-threads // warp)
        self.since = np.zeros(blocks, np.int64)  #: time of the last barrier
        self.free = np.zeros(blocks, bool)

    def barrier(self, blocks: Array) -> None:
        """``blocks`` [n] bool passed a barrier."""
        self.now += 1
        self.since[blocks] = self.now

    def in_step(self, lanes: Array) -> None:
        """These lanes' blocks carried out an atomic."""
        self.free[lanes // self.threads] = True

    def load(self, region: Region, index: Array, width: int, lanes: Array) -> None:
        """Words [n] of a region are read by lanes [n], or one word by all of them. Raises ``Fault`` for a race."""
        marks = self._of(region, width)
        if marks is None:
            return
        if len(index) < len(lanes):  # of a warp, one lane speaks for all
            lanes = lanes[np.unique(lanes // self.warp, return_index=True)[1]]
            index = np.broadcast_to(index, lanes.shape)
        me, block, free = self._who(lanes)
        for at in _pieces(index, width, marks.grain):
            written = marks.writer[at]
            if written.any():
                wrong = ~self._ordered(written, me, block) & ~free & (written & _SAME == 0)
                if wrong.any() and (wrong := self._unless_both(wrong, written, at, me, block)).any():
                    raise self._race(region, index, width, wrong, written, "read", "wrote")
            self._note(marks.reader, at, me, block)

    def store(self, region: Region, index: Array, width: int, lanes: Array, changes: Array) -> None:
        """Words [n] of a region are written by lanes [n]; ``changes``: with another value. Raises ``Fault``."""
        marks = self._of(region, width)
        if marks is None:
            return
        me, block, free = self._who(lanes)
        for at in _pieces(index, width, marks.grain):
            written, read = marks.writer[at], marks.reader[at]
            wrong = changes & ~self._ordered(written, me, block) & ~free
            if wrong.any() and (wrong := self._unless_both(wrong, written, at, me, block)).any():
                raise self._race(region, index, width, wrong, written, "changed", "wrote")
            several_of_mine = (read & _WHO) == (block | _BLOCK)
            wrong = changes & ~self._ordered(read, me, block) & ~several_of_mine & ~free
            if wrong.any():
                raise self._race(region, index, width, wrong, read, "changed", "read")
            marks.writer[at] = np.where(
                changes | (written == 0), np.where(changes, 0, _SAME) | self._stamp(me), written
            )

    def _of(self, region: Region, width: int) -> _Marks | None:
        found = self.marks.get(region.address)
        if found is None:
            found = self.marks[region.address] = _Marks(len(region.data), width)
        if len(region.data) // min(width, found.grain) > MOST_MARKS:
            return None
        if width < found.grain:
            found.refine(width)
        return found

    def _who(self, lanes: Array) -> tuple[Array, Array, Array]:
        """Warps from 1 on, blocks, and which of these are in step with others, [n]."""
        here = lanes // self.threads
        block = self.first + here
        warp = block * self.warps + lanes % self.threads // self.warp + 1
        return warp.astype(np.int64), block.astype(np.int64), self.free[here]

    def _stamp(self, who: Array | np.int64) -> Array:
        stamp: Array = np.int64(self.now << _TIME) | np.asarray(who)
        return stamp

    def _block_of(self, mark: Array) -> Array:
        """The block of a mark; -1 for several blocks."""
        who = mark & _WHO
        block = np.where(who & _BLOCK, who & ~_BLOCK, (who - 1) // self.warps)
        found: Array = np.where(who == _SEVERAL, -1, block)
        return found

    def _ordered(self, mark: Array, me: Array, block: Array) -> Array:
        """Whether what a mark stands for comes before me, or is mine, or is nothing."""
        mine: Array = (mark == 0) | ((mark & _WHO) == me)
        if mine.all():
            return mine
        before: Array = (self._block_of(mark) == block) & (mark >> _TIME < self.since[block - self.first])
        ordered: Array = mine | before
        return ordered

    def _note(self, reader: Array, at: Array, me: Array, block: Array) -> None:
        """Write down readers: one warp, several of a block, or of several blocks."""
        old = reader[at]
        new = self._stamp(me)
        if old.any():
            same_block = self._block_of(old) == block
            merged = np.where(same_block, self._stamp(block | _BLOCK), self._stamp(_SEVERAL))
            new = np.where(self._ordered(old, me, block), new, merged)
        reader[at] = new
        back = reader[at]
        if (lost := back != new).any():  # several of these lanes read it
            near = lost & (self._block_of(back) == block)
            reader[at[near]] = self._stamp(block | _BLOCK)[near]
            far = lost & (self._block_of(back) != block)
            reader[at[far]] = self._stamp(np.array([_SEVERAL]))

    def _unless_both(self, wrong: Array, written: Array, at: Array, me: Array, block: Array) -> Array:
        """Leave out where the earlier one is a warp of the same block that takes part in this instruction, too."""
        now = set(zip(at.tolist(), me.tolist(), strict=True))
        kept = wrong.copy()
        for i in np.flatnonzero(wrong & (self._block_of(written) == block)):
            kept[i] = (int(at[i]), int(written[i] & _WHO)) not in now
        return kept

    def _race(
        self, region: Region, index: Array, width: int, wrong: Array, mark: Array, verb: str, before: str
    ) -> Fault:
        first = np.flatnonzero(wrong)[0]
        block = int(self._block_of(mark[first : first + 1])[0])
        other = "other blocks" if block < 0 else f"a warp of block {block}"
        return Fault(
            f"race: {region.place(index[first], width)} is {verb} after {other} {before} it in the same launch, with "
            f"no barrier between ({int(wrong.sum())} of {len(wrong)} lanes)"
        )


def _pieces(index: Array, width: int, grain: int) -> list[Array]:
    """Indices of the marks of words."""
    ways = width // grain
    start = index.astype(np.int64) * ways
    return [start + i for i in range(ways)]
