"""A standalone script that shows one mismatch with numpy, the library or the owner's file, and nothing of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, given_with
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import Claim, Convert, Matmul, OfCache
from narrowgauge.contracts.verdict import Verdict
from narrowgauge.contracts.views import View
from narrowgauge.reference.behaviour import recipe_of, resolved
from narrowgauge.reference.interval import Expected
from narrowgauge.suites.kv_scripts import of_a_call
from narrowgauge.suites.product_scripts import of_a_product
from narrowgauge.suites.script_lines import bits_of, head, tensor, view_of

#: how many elements of a cast, and of a row or matrix of a quantizer, a script holds
ELEMENTS, LARGEST_MATRIX = 4, 1024


def standalone(
    plugged: Plugged, claim: Claim, target: str, case: str, x: Coded, want: Expected, verdict: Verdict, view: View
) -> str:
    """The script, or "" where there is no mismatch to show or what shows it is too large to print."""
    if not verdict.mismatches:
        return ""
    if isinstance(claim.contract, OfCache):
        return of_a_call(plugged, claim, target, x, verdict, view)
    indices = list(dict.fromkeys(m.index for m in verdict.mismatches))
    recipe = recipe_of(claim)
    if isinstance(claim.contract, Matmul):
        # a view of a product is too large to print, and files of inputs hold none
        return of_a_product(plugged, claim, target, case, x, verdict) if view == "contiguous" else ""
    if isinstance(claim.contract, Convert):  # shards, blocks and packed buffers: no cut of a call is one
        return ""
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
    lines = head(plugged, f"{plugged.kernel.name}: {claim} on {target}", target)
    lines += tensor(plugged, "x", claim.source, part)
    lines += view_of(plugged, "x", claim.source, part, view) if view != "contiguous" else []
    for name, value in given_with(x).items():
        lines += tensor(plugged, name, value.format, value.data)
    lines += _call(plugged, claim, list(given_with(x)))
    lines += [_print(plugged, name, expected[name], resolved(claim).outputs[name]) for name in expected]
    return "\n".join(lines)


def _ends(want: Expected, cut: Callable[[Coded], npt.NDArray[Any]]) -> dict[str, list[npt.NDArray[Any]]]:
    """The part of each output that is shown: what is expected, or from what to what."""
    ends = {name: (cut(interval.low), cut(interval.high)) for name, interval in want.items()}
    return {name: [low] if np.array_equal(low, high) else [low, high] for name, (low, high) in ends.items()}


def _call(plugged: Plugged, claim: Claim, given: list[str]) -> list[str]:
    expression = plugged.kernel.expression.replace("{format}", claim.format)
    beside = "".join(f", {name}={name}" for name in given)
    names = list(resolved(claim).outputs)
    return [
        f"out = {expression or f'{plugged.kernel.name}(x, {claim.format!r}{beside})'}",
        f"out = out if isinstance(out, dict) else dict(zip({names}, out if isinstance(out, tuple) else [out]))",
    ]


def _print(plugged: Plugged, name: str, want: list[npt.NDArray[Any]], format_name: str) -> str:
    bits = bits_of(plugged, f'out["{name}"]', format_name)
    wanted = ', "to", '.join(str(end.tolist()) for end in want)
    return f'print("{name}: got", {bits}.tolist(), "want", {wanted})'
