"""Memory of an emulated launch: the tensors that were passed, and what each thread has for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from narrowgauge.devices.emulator.accesses import Accesses
from narrowgauge.devices.emulator.regions import UNSIGNED, Active, Array, Fault, Region

__all__ = ["UNSIGNED", "Active", "Array", "Change", "Fault", "GlobalMemory", "LocalMemory", "Region", "in_turn"]

#: of what memory holds and what the lanes bring: what memory holds then
Change = Callable[[Array, Array], Array]


def in_turn(address: Array) -> Iterator[Array]:
    """Lanes (by index) in groups of which none has an address twice; equal addresses in the order of the lanes."""
    order = np.argsort(address, kind="stable")
    sorted_ = address[order]
    starts = np.flatnonzero(np.concatenate([[True], sorted_[1:] != sorted_[:-1]]))
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.concatenate([starts, [len(order)]])))
    for turn in range(int(rank.max()) + 1 if len(rank) else 0):
        yield np.sort(order[rank == turn])


class GlobalMemory:
    """The storages of the tensors that were passed, and nothing else."""

    def __init__(self, regions: Sequence[Region]) -> None:
        self.regions = regions
        self.accesses = Accesses()

    def load(self, address: Array, width: int, lanes: Array | None = None) -> Array:
        """Words at byte addresses [n] uint64, or one address for all lanes.

        ``lanes``: who reads; None for accesses that are in order by themselves. Raises ``Fault`` outside of every
        tensor, for bytes that nobody wrote, and for races.
        """
        words = np.zeros(address.shape, UNSIGNED[width])
        for region, chosen, index in self._places(address, width, "load"):
            if region.written is not None:
                _check_written(region, index, width)
            if lanes is not None:
                one_for_all = len(address) == 1 and len(lanes) > 1
                who = lanes if chosen is None or one_for_all else lanes[chosen]
                self.accesses.load(region, index, width, who)
            found = region.words(width)[index]
            if chosen is None:
                return found
            words[chosen] = found
        return words

    def store(self, address: Array, words: Array, lanes: Array | None = None) -> None:
        """Write words; ``lanes`` as in ``load``. Raises ``Fault`` outside of every tensor, and for races."""
        width = words.itemsize
        for region, chosen, index in self._places(address, width, "store"):
            wanted = words if chosen is None else words[chosen]
            memory = region.words(width)
            if lanes is not None:
                self.accesses.store(region, index, width, lanes if chosen is None else lanes[chosen],
                                    memory[index] != wanted)  # fmt: skip
            memory[index] = wanted
            lost = memory[index] != wanted
            if lost.any():
                raise Fault(f"race: two threads store different values at {region.place(index[lost][0], width)}")
            if region.written is not None:
                region.written.view(np.uint8)[: len(memory) * width].view(memory.dtype)[index] = _ALL[width]

    def atomic(self, address: Array, words: Array, change: Change, lanes: Array | None = None) -> Array:
        """Change words, one lane after the other in the order of their numbers; what was there before each [n].

        ``lanes``: who does it; their blocks are from then on taken to be in step with others.
        """
        if lanes is not None:
            self.accesses.in_step(lanes)
        old = np.zeros(address.shape, words.dtype)
        for turn in in_turn(address):
            old[turn] = self.load(address[turn], words.itemsize)
            self.store(address[turn], change(old[turn], words[turn]))
        return old

    def _places(self, address: Array, width: int, verb: str) -> Sequence[tuple[Region, Active, Array]]:
        """Which lanes fall into which region, and at which word of it. None stands for all lanes."""
        if not len(address):
            return []
        odd = address & np.uint64(width - 1) != 0
        if odd.any():
            raise Fault(f"misaligned {verb} of {width} bytes at {self._near(address, odd)}")
        places: list[tuple[Region, Active, Array]] = []
        left = np.ones(len(address), bool)
        for region in self.regions:
            if len(region.data) < width:
                continue
            offset = address - np.uint64(region.address)
            inside = offset <= np.uint64(len(region.data) - width)
            index = offset >> np.uint64(width.bit_length() - 1)
            if inside.all():
                return [(region, None, index)]
            if inside.any():
                places.append((region, inside, index[inside]))
                left &= ~inside
        if left.any():
            known = "; ".join(str(r) for r in self.regions) or "no tensor was passed"
            raise Fault(f"out of bounds: {verb} of {width} bytes at {self._near(address, left)}; there is {known}")
        return places

    def _near(self, address: Array, wrong: Array) -> str:
        """Where the first wrong address lies, seen from the tensor that it is nearest to; and how many are wrong."""
        at = int(address[wrong][0])
        many = f" ({int(wrong.sum())} of {len(wrong)} lanes)" if len(wrong) > 1 else ""
        if not self.regions:
            return f"{at:#x}{many}"

        def distance(region: Region) -> int:
            return max(region.address - at, at - region.address - len(region.data), 0)

        near = min(self.regions, key=distance)
        return f"{at:#x}, byte {at - near.address} of {near.name}{many}"


#: every byte of a word written
_ALL = {width: dtype.type(int.from_bytes(b"\1" * width, "little")) for width, dtype in UNSIGNED.items()}


def _check_written(region: Region, index: Array, width: int) -> None:
    assert region.written is not None
    words = region.written.view(np.uint8)[: len(region.data) // width * width].view(UNSIGNED[width])
    wrong = words[index] != _ALL[width]
    if wrong.any():
        raise Fault(
            f"load of {width} bytes that nobody wrote since they were allocated, at "
            f"{region.place(index[wrong][0], width)} ({int(wrong.sum())} of {len(wrong)} lanes)"
        )


class LocalMemory:
    """Memory that each thread has for itself, from address 0 on."""

    def __init__(self, lanes: int, size: int) -> None:
        self.size = size
        self.bytes = np.zeros((lanes, size), np.uint8)
        self.written = np.zeros((lanes, size), bool)

    def load(self, lanes: Array, address: Array, width: int) -> Array:
        """Words of some lanes. Raises ``Fault`` for bytes that nobody wrote."""
        at = self._at(address, width, "load")
        if not self.written[lanes[:, None], at].all():
            raise Fault(f"load of local memory that nobody wrote, of {width} bytes at {int(address[0]):#x}")
        return np.ascontiguousarray(self.bytes[lanes[:, None], at]).view(UNSIGNED[width])[:, 0]

    def store(self, lanes: Array, address: Array, words: Array) -> None:
        """Write words of some lanes."""
        at = self._at(address, words.itemsize, "store")
        new = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), words.itemsize)
        self.bytes[lanes[:, None], at], self.written[lanes[:, None], at] = new, True

    def _at(self, address: Array, width: int, verb: str) -> Array:
        address = address.astype(np.int64)
        if ((address < 0) | (address > self.size - width)).any():
            raise Fault(f"out of bounds: {verb} of {width} bytes of local memory; a thread has {self.size} bytes")
        at: Array = address[:, None] + np.arange(width)
        return at
