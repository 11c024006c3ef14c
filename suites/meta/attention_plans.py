# SPDX-License-Identifier: Apache-2.0
"""Ways to compute decode attention that are all right: order, exponential, folding, tiles, splits, last bits."""

from __future__ import annotations

import numpy as np

from narrowgauge.suites.meta.attention_kernels import Plan, backwards, by_lanes, fused, in_pairs, of_fp8, truncated

PLANS = (
    Plan("at once"),
    Plan("at once, a tree", add=in_pairs, ulps=3, divided=2),
    Plan("at once, folded", power="folded", add=backwards, ulps=-3, divided=-2),
    Plan("key by key", tile=1, ulps=3),
    Plan("key by key, fused", tile=1, power="fused", add=fused, ulps=-3),
    Plan("backwards, key by key", tile=1, turned=True, power="to_base_2", ulps=3, divided=-2),
    Plan("tiles of 16, tensor core", tile=16, add=truncated, power="to_base_2", ulps=-3),
    Plan("tiles of 32, tensor core", tile=32, add=truncated, power="fused", ulps=3, turned=True),
    Plan("tiles of 64, lanes", tile=64, add=by_lanes, scaled="query"),
    Plan("tiles of 16, query folded", tile=16, scaled="query", power="folded", values_scaled="values", divided=2),
    Plan("3 splits by maxima", splits=3, tile=16, add=in_pairs, values_scaled="weights", ulps=3, flush=True),
    Plan("3 splits by means", splits=3, tile=16, merge="means", power="to_base_2", ulps=-3, divided=2),
    Plan("8 splits by means, fused", splits=8, tile=1, merge="means", power="fused", add=truncated, ulps=3, divided=2),
    Plan("8 splits by means, folded", splits=8, merge="means", power="folded", add=backwards, ulps=-3, flush=True),
    Plan("64 splits by maxima", splits=64, scaled="keys", values_scaled="values", add=fused, ulps=3, flush=True),
)
#: with scales of their own for each token and head, as vLLM's int8 and fp8 caches have them
TOKENS = (
    Plan("token scales on scores and weights", values_scaled="weights", tile=16, ulps=3),
    Plan("token scales on scores and values", values_scaled="values", power="to_base_2", splits=3, merge="means"),
    Plan("token scales on keys and weights", scaled="keys", values_scaled="weights", tile=32, add=truncated),
)
#: for a soft cap: not with the scale folded into anything
CAPPED = tuple(
    Plan(f"soft cap by {tanh}, {ulps}", tanh=tanh, power=power, tile=16, ulps=ulps, divided=np.sign(ulps) * 2)
    for tanh in ("function", "power", "sigmoid")
    for power in ("natural", "to_base_2")
    for ulps in (-3, 0, 3)
)
SHARES = (
    Plan("shares", shares=True, ulps=3, divided=2),
    Plan("shares, a tree", shares=True, add=in_pairs, power="to_base_2", ulps=-3, divided=-2),
    Plan("shares, folded", shares=True, add=truncated, power="folded", divided=-2),
)
#: over an fp8 cache, weights in fp8 as well
FP8 = (
    Plan("fp8, exact sums", tile=32, power="to_base_2", ulps=3),
    Plan("fp8, folded", power="folded", turned=True, ulps=-3),
    Plan("fp8, 13 bits", tile=64, add=of_fp8, power="to_base_2", ulps=3),
    Plan("fp8, 13 bits at once", add=of_fp8, power="fused", turned=True),
)
