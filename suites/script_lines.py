"""Lines of a standalone script: what it imports, and tensors as text."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.verdict import Mismatch
from narrowgauge.contracts.views import View, place
from narrowgauge.devices.placing import around

#: bytes of a stretch that repeats its first ones, and how many of it are worth to be told in short
PERIOD, SHORTEST = 4, 64
#: how many elements of an output a script prints
SHOWN = 4
#: stands in for narrowgauge while the owner's file is loaded: the decorator does nothing there
_STAND_IN = (
    "class StandIn:  # for narrowgauge, whose decorator the file below uses\n"
    "    def __getattr__(self, name): return lambda *a, **k: (lambda f: f)\n"
    "sys.modules['narrowgauge'] = StandIn()"
)


def head(plugged: Plugged, about: str, target: str) -> list[str]:
    """What the script shows, and what it imports: the libraries, and the owner's function by its name."""
    lines = [f"# {about}"]
    if target == "interpreter":
        lines.append('import os; os.environ["TRITON_INTERPRET"] = "1"')
    lines.append(f"import numpy as np, {'ml_dtypes' if plugged.kernel.backend == 'numpy' else 'torch'}")
    if plugged.kernel.expression:
        return lines
    name = plugged.kernel.name
    if not plugged.origin.endswith(".py"):
        return [*lines, f"from {plugged.origin} import {name}"]
    return [
        *lines,
        "import os, runpy, sys",
        f"FILE = sys.argv[1] if sys.argv[1:] else {plugged.origin!r}  # where it lies elsewhere: python SCRIPT FILE",
        "sys.path.insert(0, os.path.dirname(os.path.abspath(FILE)))",
        _STAND_IN,
        f"{name} = runpy.run_path(FILE)[{name!r}]",
    ]


def tensor(plugged: Plugged, name: str, format_name: str, data: npt.NDArray[Any]) -> list[str]:
    """A tensor of that name, its codes in the script itself."""
    return typed(plugged, name, format_name, numbers(data.astype(format_named(format_name).storage)))


def typed(plugged: Plugged, name: str, format_name: str, codes: str) -> list[str]:
    """A tensor of that name, of the format's own dtype where the library has it; other codes as they are."""
    storage = format_named(format_name).storage
    lines = [f"bits = {codes}.copy()"]
    if plugged.kernel.backend == "numpy":
        plain = format_name in ("float32", "float16", "int8", "uint8", "int32")
        kind = f"np.{format_name}" if plain else f"ml_dtypes.{format_name}"
        return [*lines, f"{name} = bits.view({kind})"]
    where = '.to("cuda" if torch.cuda.is_available() else "cpu")'
    typed = "torch.from_numpy(bits)"
    if format_named(format_name).bits == 8 * storage.itemsize:  # others travel as plain codes
        typed += f'.view(getattr(torch, "{format_name}", torch.uint{8 * storage.itemsize}))'
    return [*lines, f"{name} = {typed}{where}"]


def numbers(data: npt.NDArray[Any]) -> str:
    """An expression for an array of plain numbers."""
    return f'np.frombuffer({_bytes(data.tobytes())}, "{data.dtype.str}").reshape({list(data.shape)})'


def _bytes(content: bytes) -> str:
    """An expression for bytes; a long stretch that repeats itself is told by its first bytes and how often."""
    parts = [
        f'bytes.fromhex("{piece.hex()}") * {times}' if times > 1 else f"bytes.fromhex(\n    {_quoted(piece)})"
        for piece, times in _pieces(content)
    ]
    return " + ".join(parts) or 'b""'


def _quoted(piece: bytes) -> str:
    return '"' + '"\n    "'.join(textwrap.wrap(piece.hex(), 96)) + '"'


def _pieces(content: bytes) -> Iterator[tuple[bytes, int]]:
    """Stretches of bytes, one after the other, and how often each of them stands there."""
    data = np.frombuffer(content, np.uint8)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], data[PERIOD:] == data[:-PERIOD], [0]])))
    written = 0
    for first, past in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        times = (past - first) // PERIOD + 1
        if times * PERIOD >= SHORTEST and first >= written:
            yield from ((content[written:first], 1),) * (first > written)
            yield content[first : first + PERIOD], times
            written = first + times * PERIOD
    if written < len(content):
        yield content[written:], 1


def view_of(plugged: Plugged, name: str, format_name: str, data: npt.NDArray[Any], view: View) -> list[str]:
    """The tensor of the line before, the same numbers as a view of other memory: see devices/placing."""
    at, fmt, shape = place(view, data.shape), format_named(format_name), list(data.shape)
    width = fmt.storage.itemsize
    numpy = f"np.lib.stride_tricks.as_strided(memory[{at.offset}:], {shape}, {[width * s for s in at.strides]})"
    filled = f"np.resize(np.array({list(around(fmt))}, bits.dtype), {at.size})"
    lines = [f"memory = {filled if at.filled else f'np.zeros({at.size}, bits.dtype)'}", f"{numpy}[...] = bits"]
    if plugged.kernel.backend == "numpy":
        return [*lines, f"{name} = {numpy}.view({name}.dtype)"]
    strided = f"as_strided({shape}, {list(at.strides)}, {at.offset})"
    return [*lines, f"{name} = torch.from_numpy(memory).view({name}.dtype).to({name}.device).{strided}"]


def shown(of: str, mismatches: Iterable[Mismatch], index: Callable[[Mismatch], tuple[int, ...]]) -> Iterator[str]:
    """Lines that print the first of some elements: the code in the array of that name, and what it should be.

    ``index`` says where an element is in the array, which may be a part of the output.
    """
    for m in itertools.islice(mismatches, SHOWN):
        yield f"print({f'{m.output}{list(m.index)}: got'!r}, hex({of}[{index(m)}]), 'want', {m.want!r})"


def bits_of(plugged: Plugged, value: str, format_name: str) -> str:
    """An expression for the codes in a tensor or array: of the storage's width they are its bits, of another width its
    numbers."""
    storage = format_named(format_name).storage
    if plugged.kernel.backend == "numpy":
        return f'(lambda a: a.view("{storage.str}") if a.itemsize == {storage.itemsize} else a)({value})'
    view = f"t.view(torch.uint{8 * storage.itemsize}) if t.element_size() == {storage.itemsize} else t"
    return f"(lambda t: {view})({value}.cpu()).numpy()"
