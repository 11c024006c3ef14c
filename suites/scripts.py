"""A standalone script that shows one mismatch with numpy, the library or the owner's file, and nothing of ours."""

from __future__ import annotations

import numpy as np

from narrowgauge.contracts.coded import Coded, given_with
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import Claim, Convert, Matmul, OfCache
from narrowgauge.contracts.verdict import Verdict
from narrowgauge.contracts.views import View
from narrowgauge.reference.behaviour import recipe_of, resolved
from narrowgauge.suites.kv_scripts import of_a_call
from narrowgauge.suites.product_scripts import of_a_product
from narrowgauge.suites.script_lines import bits_of, head, shown, tensor, view_of

#: how many elements of a cast, and of a row or matrix of a quantizer, a script holds
ELEMENTS, LARGEST_MATRIX = 4, 1024


def standalone(plugged: Plugged, claim: Claim, target: str, case: str, x: Coded, verdict: Verdict, view: View) -> str:
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
        part, place = x.data, {index: index for index in indices}
    elif x.data.ndim == 2:
        row = indices[0][0]
        x = x.take(np.array([row]))
        part, place = x.data, {index: (0, *index[1:]) for index in indices if index[0] == row}
    else:
        chosen = indices[:ELEMENTS]
        part = x.data[tuple(np.array(axis) for axis in zip(*chosen, strict=True))]
        place = {index: (number,) for number, index in enumerate(chosen)}
    if claim.layouts or (x.data.ndim == 2 and part.size > LARGEST_MATRIX):
        return ""
    lines = head(plugged, f"{plugged.kernel.name}: {claim} on {target}, case {case}", target)
    lines += tensor(plugged, "x", claim.source, part)
    lines += view_of(plugged, "x", claim.source, part, view) if view != "contiguous" else []
    for name, value in given_with(x).items():
        lines += tensor(plugged, name, value.format, value.data)
    lines += _call(plugged, claim, list(given_with(x)))
    for name, format_name in resolved(claim).outputs.items():
        if found := [m for m in verdict.mismatches if m.output == name and m.index in place]:
            lines.append(f"got = {bits_of(plugged, f'out[{name!r}]', format_name)}")
            lines += shown("got", found, lambda m: place[m.index])
    return "\n".join(lines)


def _call(plugged: Plugged, claim: Claim, given: list[str]) -> list[str]:
    expression = plugged.kernel.expression.replace("{format}", claim.format)
    beside = "".join(f", {name}={name}" for name in given)
    names = list(resolved(claim).outputs)
    return [
        f"out = {expression or f'{plugged.kernel.name}(x, {claim.format!r}{beside})'}",
        f"out = out if isinstance(out, dict) else dict(zip({names}, out if isinstance(out, tuple) else [out]))",
    ]
