"""Shared memory of an emulated launch, and asynchronous copies to it."""

from __future__ import annotations

import numpy as np

from narrowgauge.devices.emulator.memory import UNSIGNED, Array, Change, Fault, in_turn


class Copies:
    """Asynchronous copies to shared memory, in groups of each lane."""

    def __init__(self, shared: SharedMemory, lanes: int) -> None:
        self.shared = shared
        self.groups = np.zeros(lanes, np.int64)  #: groups that a lane has closed
        self.pending: list[tuple[Array, Array, Array, int]] = []  #: lanes, their groups, addresses, bytes

    def start(self, lanes: Array, address: Array, words: Array) -> None:
        """Words on their way to shared memory."""
        self.shared.store(lanes, address, words)
        self.shared.expect(lanes, address, words.itemsize, coming=True)
        self.pending.append((lanes, self.groups[lanes], address, words.itemsize))

    def commit(self, lanes: Array) -> None:
        """Close a group of each of these lanes."""
        self.groups[lanes] += 1

    def wait(self, lanes: Array, left: int) -> None:
        """These lanes' copies are there, all but those of their last ``left`` groups; -1: what is in no group, too."""
        waits = np.zeros(len(self.groups), bool)
        waits[lanes] = True
        pending, self.pending = self.pending, []
        for of, group, address, width in pending:
            there = waits[of] & (group < self.groups[of] - left)
            self.shared.expect(of[there], address[there], width, coming=False)
            if not there.all():
                self.pending.append((of[~there], group[~there], address[~there], width))


#: who wrote or read a byte since the last barrier: nobody, a thread (its number + 1), or several
NOBODY, SEVERAL, ATOMIC = 0, -(1 << 30), -(1 << 29)


class SharedMemory:
    """Shared memory of every block, with who touched each byte since the block's last barrier.

    A store that changes nothing is no race: the compiler has all threads of a warp store one reduced value.
    """

    def __init__(self, blocks: int, size: int, threads: int, warp: int) -> None:
        self.size, self.threads, self.warp = size, threads, warp
        self.bytes = np.zeros(blocks * size, np.uint8)
        self.written = np.zeros(blocks * size, bool)
        self.writer = np.zeros(blocks * size, np.int32)
        self.reader = np.zeros(blocks * size, np.int32)
        self.coming = np.zeros(blocks * size, bool)  #: bytes of copies that nobody has waited for

    def load(self, lanes: Array, address: Array, width: int) -> Array:
        """Words at byte addresses of each lane's block. Raises ``Fault`` for bytes nobody wrote, and for races."""
        at = self._at(lanes, address, width, "load")
        if not self.written[at].all():
            raise Fault(f"load of shared memory that nobody wrote, at {self._first(address, ~self.written[at])}")
        self._arrived(address, at, "read")
        me = self._me(lanes)
        writer = self.writer[at]
        foreign = (writer != NOBODY) & (writer != me) & (writer != self._warp_mark(me))
        if foreign.any():
            raise Fault(
                f"race: shared memory at {self._first(address, foreign)} is read while another thread writes it"
            )
        reader = self.reader[at]
        mark = np.where((reader == NOBODY) | (reader == me) | (reader == self._warp_mark(me)), me, SEVERAL)
        self.reader[at] = mark
        self.reader[at[self.reader[at] != mark]] = SEVERAL  # several of these lanes read it
        return np.ascontiguousarray(self.bytes[at]).view(UNSIGNED[width])[:, 0]

    def store(self, lanes: Array, address: Array, words: Array) -> None:
        """Write words of each lane's block. Raises ``Fault`` for races."""
        at = self._at(lanes, address, words.itemsize, "store")
        self._arrived(address, at, "written")
        new = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), words.itemsize)
        me = np.broadcast_to(self._me(lanes), at.shape)
        changes = ~self.written[at] | (self.bytes[at] != new)
        writer, reader = self.writer[at], self.reader[at]
        ours = self._warp_mark(me)
        foreign = (writer != NOBODY) & (writer != me) & (writer != ours)
        foreign |= (reader != NOBODY) & (reader != me) & (reader != ours)
        if (changes & foreign).any():
            raise Fault(
                f"race: shared memory at {self._first(address, changes & foreign)} is written while another thread "
                "reads or writes it"
            )
        self.bytes[at], self.written[at] = new, True
        if (self.bytes[at] != new).any():
            raise Fault(
                f"race: two threads store different values in shared memory at "
                f"{self._first(address, self.bytes[at] != new)}"
            )
        self.writer[at] = me
        shared = self.writer[at] != me  # several threads wrote the same value: each may read it, its warp too
        self.writer[at[shared]] = self._warp_mark(me)[shared]

    def expect(self, lanes: Array, address: Array, width: int, coming: bool) -> None:
        """Bytes of an asynchronous copy: on their way, or there, as if the lane had written them now."""
        at = self._at(lanes, address, width, "copy")
        self.coming[at] = coming
        if not coming:
            self.writer[at] = self._me(lanes)

    def _arrived(self, address: Array, at: Array, verb: str) -> None:
        if self.coming.any() and (wrong := self.coming[at]).any():
            raise Fault(
                f"race: shared memory at {self._first(address, wrong)} is {verb} before the asynchronous copy to it "
                "was waited for"
            )

    def atomic(self, lanes: Array, address: Array, words: Array, change: Change) -> Array:
        """As in global memory. Atomic accesses race with those that are not."""
        width = words.itemsize
        at = self._at(lanes, address, width, "atomic access")
        if not self.written[at].all():
            raise Fault(f"atomic of shared memory that nobody wrote, at {self._first(address, ~self.written[at])}")
        me, writer, reader = self._me(lanes), self.writer[at], self.reader[at]
        foreign = (writer != NOBODY) & (writer != me) & (writer != ATOMIC) | (reader != NOBODY) & (reader != me)
        if foreign.any():
            raise Fault(
                f"race: an atomic access of shared memory at {self._first(address, foreign)} while another thread "
                "reads or writes it otherwise"
            )
        self.writer[at] = ATOMIC
        old = np.zeros(len(words), words.dtype)
        for turn in in_turn(at[:, 0]):
            old[turn] = np.ascontiguousarray(self.bytes[at[turn]]).view(words.dtype)[:, 0]
            new = np.ascontiguousarray(change(old[turn], words[turn]))
            self.bytes[at[turn]] = new.view(np.uint8).reshape(len(new), width)
        return old

    def barrier(self, blocks: Array) -> None:
        """What was done before a barrier races with nothing after it. ``blocks`` [n] bool."""
        if not self.size:
            return
        self.writer.reshape(len(blocks), -1)[blocks] = NOBODY
        self.reader.reshape(len(blocks), -1)[blocks] = NOBODY

    def warp_barrier(self, lanes: Array) -> None:
        """The same for accesses of one warp among each other. ``lanes``: those that take part."""
        if not self.size:
            return
        warps = np.zeros((len(self.bytes) // self.size, self.threads // self.warp), bool)
        warps[lanes // self.threads, lanes % self.threads // self.warp] = True
        for marks in (self.writer, self.reader):
            by_thread = np.flatnonzero(marks > 0)
            warp = (marks[by_thread] - 1) // self.warp
            synced = warps[by_thread // self.size, warp]
            marks[by_thread[synced]] = -(warp[synced] + 1)

    def _at(self, lanes: Array, address: Array, width: int, verb: str) -> Array:
        """Index of each byte [lanes, width]."""
        address = address.astype(np.int64)
        wrong = (address < 0) | (address > self.size - width)
        if wrong.any():
            raise Fault(
                f"out of bounds: {verb} of {width} bytes of shared memory at {int(address[wrong][0]):#x}; "
                f"a block has {self.size} bytes"
            )
        if (address % width).any():
            raise Fault(f"misaligned {verb} of {width} bytes of shared memory")
        at: Array = (lanes // self.threads * self.size + address)[:, None] + np.arange(width)
        return at

    def _me(self, lanes: Array) -> Array:
        return (lanes % self.threads + 1).astype(np.int32)[:, None]

    def _warp_mark(self, me: Array) -> Array:
        mark: Array = -((me - 1) // self.warp + 1)
        return mark

    @staticmethod
    def _first(address: Array, wrong: Array) -> str:
        return f"{int(address[wrong.any(axis=1)][0]):#x}"
