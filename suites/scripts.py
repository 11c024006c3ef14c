"""A standalone script that shows one mismatch with numpy, the library or the owner's file, and nothing of ours."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, given_with
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.verdict import Verdict
from narrowgauge.contracts.views import View, place
from narrowgauge.devices.placing import around
from narrowgauge.reference.behaviour import recipe_of, resolved
from narrowgauge.reference.interval import Expected

#: how many elements of a cast, and of a row or matrix of a quantizer, a script holds
ELEMENTS, LARGEST_MATRIX = 4, 1024


def standalone(
    plugged: Plugged, claim: Claim, target: str, x: Coded, want: Expected, verdict: Verdict, view: View
) -> str:
    """The script, or "" where there is no mismatch to show or what shows it is too large to print."""
    if not verdict.mismatches:
        return ""
    indices = list(dict.fromkeys(m.index for m in verdict.mismatches))
    recipe = recipe_of(claim)
    if view != "contiguous" or (recipe is not None and not recipe.by_rows):  # of rows that belong together, all or none
        part, expected = x.data, _ends(want, lambda tensor: tensor.data)
    elif x.data.ndim == 2:
        rows = np.array([indices[0][0]])
        x = x.take(rows)
        part, expected = x.data, _ends(want, lambda tensor: tensor.take(rows).data)
    else:
        chosen = tuple(np.array(axis) for axis in zip(*indices[:ELEMENTS], strict=True))
        part, expected = x.data[chosen], _ends(want, lambda tensor: tensor.data[chosen])
    if claim.layouts or (x.data.ndim == 2 and part.size > LARGEST_MATRIX):
        return ""
    lines = [f"# {plugged.kernel.name}: {claim} on {target}"]
    if target == "interpreter":
        lines.append('import os; os.environ["TRITON_INTERPRET"] = "1"')
    lines += _imports(plugged)
    lines += _input(plugged, "x", claim.source, part)
    lines += _place(plugged, claim.source, part, view) if view != "contiguous" else []
    for name, value in given_with(x).items():
        lines += _input(plugged, name, value.format, value.data)
    lines += _call(plugged, claim, list(given_with(x)))
    lines += [_print(plugged, name, expected[name], resolved(claim).outputs[name]) for name in expected]
    return "\n".join(lines)


def _ends(want: Expected, cut: Callable[[Coded], npt.NDArray[Any]]) -> dict[str, list[npt.NDArray[Any]]]:
    """The part of each output that is shown: what is expected, or from what to what."""
    ends = {name: (cut(interval.low), cut(interval.high)) for name, interval in want.items()}
    return {name: [low] if np.array_equal(low, high) else [low, high] for name, (low, high) in ends.items()}


#: stands in for narrowgauge while the owner's file is loaded: the decorator does nothing there
_STAND_IN = (
    "class StandIn:  # for narrowgauge, whose decorator the file below uses\n"
    "    def __getattr__(self, name): return lambda *a, **k: (lambda f: f)\n"
    "sys.modules['narrowgauge'] = StandIn()"
)


def _imports(plugged: Plugged) -> list[str]:
    lines = [f"import numpy as np, {'ml_dtypes' if plugged.kernel.backend == 'numpy' else 'torch'}"]
    if plugged.kernel.expression:
        return lines
    name = plugged.kernel.name
    if not plugged.origin.endswith(".py"):
        return [*lines, f"from {plugged.origin} import {name}"]
    folder = str(Path(plugged.origin).parent)
    return [
        *lines,
        f"import runpy, sys; sys.path.insert(0, {folder!r})",
        _STAND_IN,
        f"{name} = runpy.run_path({plugged.origin!r})[{name!r}]",
    ]


def _input(plugged: Plugged, name: str, source: str, part: npt.NDArray[Any]) -> list[str]:
    storage = format_named(source).storage
    text = '"' + '"\n    "'.join(textwrap.wrap(part.astype(storage).tobytes().hex(), 96)) + '"'
    lines = [f'bits = np.frombuffer(bytes.fromhex(\n    {text}), "{storage.str}").reshape({list(part.shape)}).copy()']
    if plugged.kernel.backend == "numpy":
        kind = f"np.{source}" if source in ("float32", "float16", "int8", "int32") else f"ml_dtypes.{source}"
        return [*lines, f"{name} = bits.view({kind})"]
    place = '.to("cuda" if torch.cuda.is_available() else "cpu")'
    plain = "torch.from_numpy(bits)"
    if format_named(source).bits == 8 * storage.itemsize:  # others travel as plain codes
        plain += f'.view(getattr(torch, "{source}", torch.uint{8 * storage.itemsize}))'
    return [*lines, f"{name} = {plain}{place}"]


def _place(plugged: Plugged, source: str, part: npt.NDArray[Any], view: View) -> list[str]:
    """The same numbers as a view of other memory: see devices/placing."""
    at, fmt, shape = place(view, part.shape), format_named(source), list(part.shape)
    width = fmt.storage.itemsize
    numpy = f"np.lib.stride_tricks.as_strided(memory[{at.offset}:], {shape}, {[width * s for s in at.strides]})"
    filled = f"np.resize(np.array({list(around(fmt))}, bits.dtype), {at.size})"
    lines = [f"memory = {filled if at.filled else f'np.zeros({at.size}, bits.dtype)'}", f"{numpy}[...] = bits"]
    if plugged.kernel.backend == "numpy":
        return [*lines, f"x = {numpy}.view(x.dtype)"]
    return [
        *lines,
        f"x = torch.from_numpy(memory).view(x.dtype).to(x.device).as_strided({shape}, {list(at.strides)}, {at.offset})",
    ]


def _call(plugged: Plugged, claim: Claim, given: list[str]) -> list[str]:
    expression = plugged.kernel.expression.replace("{format}", claim.format)
    beside = "".join(f", {name}={name}" for name in given)
    names = list(resolved(claim).outputs)
    return [
        f"out = {expression or f'{plugged.kernel.name}(x, {claim.format!r}{beside})'}",
        f"out = out if isinstance(out, dict) else dict(zip({names}, out if isinstance(out, tuple) else [out]))",
    ]


def _print(plugged: Plugged, name: str, want: list[npt.NDArray[Any]], format_name: str) -> str:
    storage = format_named(format_name).storage
    bits = f'out["{name}"].view("{storage.str}")'
    if plugged.kernel.backend != "numpy":
        # Integers are codes as they are; a tensor of the format's own dtype is looked at as bits.
        view = f"view(torch.uint{8 * storage.itemsize})"
        bits = f'(lambda t: t.{view} if t.is_floating_point() else t)(out["{name}"].cpu()).numpy()'
    wanted = ', "to", '.join(str(end.tolist()) for end in want)
    return f'print("{name}: got", {bits}.tolist(), "want", {wanted})'
