# SPDX-License-Identifier: Apache-2.0
"""Run in a child: torch's attention on the CPU over inputs of a file, by its math path and its flash kernel.

    python torch_attention.py inputs.npz results.npz

The inputs are q [heads, d], k and v [keys, heads, d], exact in the formats; the results are float64.
"""

from __future__ import annotations

import sys

import numpy as np


def main(inputs: str, results: str) -> None:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    torch.set_num_threads(1)
    given, found = np.load(inputs), {}
    for name, of in (("float32", torch.float32), ("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        q, k, v = (torch.from_numpy(given[each]).to(of) for each in "qkv")
        for path, backend in (("math", SDPBackend.MATH), ("flash", SDPBackend.FLASH_ATTENTION)):
            with sdpa_kernel(backend):
                one, many, values = (each.transpose(0, 1)[None] for each in (q[None], k, v))
                out = scaled_dot_product_attention(one, many, values, scale=0.125)
            found[f"{name} {path}"] = out[0, :, 0].double().numpy()
    np.savez(results, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
