"""The file that says how often each magnitude stood in what went into a key-value cache (docs/kv.md), as names.

It is a safetensors file. For each layer and part there are three tensors, ``LAYER.PART.codes``, ``.counts``, ``.amax``;
the metadata, JSON under the key ``narrowgauge``, say the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

KIND, VERSION = "kv", 1
#: the three tensors of a part: bins that hold something; elements in each; the largest finite magnitude of each head
CODES, COUNTS, AMAX = "codes", "counts", "amax"
#: format of the elements -> the format whose codes are the bins
BINS = {"bfloat16": "bfloat16", "float16": "float16", "float32": "bfloat16"}
#: the parts of what an engine caches for a layer -> whose scale they take. An MLA layer caches one latent vector and
#: the keys that carry positions; both take K's
PARTS = {"k": "k", "v": "v", "latent": "k", "rope": "k"}
#: where a part was seen
PLACES = {
    "cache": "as it went into the cache",
    "projection": "as the projection gave it",
    "norm": "after its norm",
}
#: whether rotary position embeddings had been applied; "none" where they do not change the part
ROPES = ("after", "before", "none")


def tensor_name(layer: str, part: str, which: str) -> str:
    """The name of one of the three tensors of a part."""
    return f"{layer}.{part}.{which}"


def metadata(
    model: str, tokens: int, made_by: Mapping[str, str], layers: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """What stands in the file beside its tensors. ``layers``: of each layer and part format, nan, inf, place, rope."""
    return {
        "kind": KIND, "version": VERSION, "model": model, "tokens": tokens, "made_by": dict(made_by),
        "layers": {layer: dict(parts) for layer, parts in layers.items()},
    }  # fmt: skip


#: name -> numbers, as the file holds them
Tensors = dict[str, npt.NDArray[Any]]
