"""What attention is asked: queries, and keys and values that let its weights be read out of the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.operations import Attend, Claim
from narrowgauge.reference.codec import values
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.kv.call import heads_of
from narrowgauge.reference.kv.contents import F64, nearest
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.kv.pages import Sizes
from narrowgauge.reference.noise import noise

#: "read_out": token i of a sequence has one value, in column i, so that the result is its weight. "equal": a query of
#: zeros. "dominant": the query is a token's key many times. "bend": scores about as large as the soft cap.
#: "poisoned": NaN in one key and in one value that are used
Kind = Literal["ordinary", "read_out", "equal", "dominant", "bend", "poisoned"]
#: how far scores are apart
_SPREAD = {"ordinary": 1.5, "read_out": 5.0, "equal": 0.0, "dominant": 1.5, "poisoned": 1.5}


def suits(kind: Kind, claim: Claim) -> bool:
    """Whether a claim can be asked so."""
    contract = claim.contract
    if kind == "ordinary":
        return True
    if not isinstance(contract, Attend):
        return False
    if kind == "bend":
        return contract.soft_cap > 0
    return kind != "poisoned" or has_nan(format_named(claim.source))


def has_nan(fmt: Format) -> bool:
    """Whether a format has NaN."""
    return fmt.family != "integer" and bool(np.isnan(values(fmt)).any())


def attended(
    claim: Claim,
    paged: Paged,
    held: Mapping[str, Coded],
    kind: Kind,
    query_heads: int,
    sizes: Sizes,
    used: npt.NDArray[np.int32],
) -> dict[str, Coded]:
    """The query [sequences, query heads × head size], and matrices of the cache where a kind has its own."""
    contract = claim.contract
    assert isinstance(contract, Attend)
    lengths = held["lengths"].data.view(np.int32).ravel()
    names = [name for name, _ in paged.parts if name != "v"]
    heads = sizes.heads
    width = sum(held[n].shape[1] // heads_of(paged.cache.part(n), sizes) for n in names)
    spread = contract.soft_cap if kind == "bend" else _SPREAD[kind]
    rows = len(lengths)
    q = noise(rows * query_heads * heads * width, 11).reshape(rows, heads, query_heads, width)
    q *= spread / (2.0 * _typical_scale(held, names[0]))
    changed = {}
    if kind == "read_out":
        changed = _one_hot(paged, held, used, lengths, sizes)
    if kind == "poisoned":
        changed = _with_nan(paged, held, used)
    if kind == "dominant":
        q = _many_times_a_key(q, held, names[0], used, lengths, heads)
    flat = np.ascontiguousarray(q.reshape(rows, heads * query_heads * width))
    return {**changed, "query": Coded(claim.format, nearest(flat, format_named(claim.format)))}


def _typical_scale(held: Mapping[str, Coded], name: str) -> float:
    """Of keys: the first that is given; 1 where none is, or they stand in the cache."""
    scale = held.get(f"{name}_scale")
    if scale is None or scale.format != "float32" or scale.shape[0] > 1:
        return 1.0
    return float(scale.data.view(np.float32).ravel()[0])


def _starts(lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.intp]:
    return np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.intp) if lengths.size else np.zeros(0, np.intp)


def _one_hot(
    paged: Paged, held: Mapping[str, Coded], used: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32], sizes: Sizes
) -> dict[str, Coded]:
    """Values with one number in a row, of token i in column i of every head."""
    name = "v" if "v" in held else paged.parts[0][0]
    value = held[name]
    heads = heads_of(paged.cache.part(name), sizes)
    width = value.shape[1] // heads
    place = np.concatenate([np.arange(n) for n in lengths]) if lengths.size else np.zeros(0, np.intp)
    fmt = format_named(value.format)
    one = nearest(np.array([2.0 if fmt.family == "integer" else 1.0]), fmt)[0]
    rows = np.zeros((used.size, heads, width), fmt.storage)
    rows[np.arange(used.size), :, place % width] = one
    data = value.data.copy()
    data[used] = rows.reshape(used.size, heads * width)
    return {name: Coded(value.format, data)}


def _with_nan(paged: Paged, held: Mapping[str, Coded], used: npt.NDArray[np.int32]) -> dict[str, Coded]:
    """NaN in the first column of a key, and in the last column of another token's value."""
    found = {}
    for name, token, column in ((paged.parts[0][0], 2, 0), ("v", used.size - 1, -1)):
        if name in held and used.size:
            value = held[name]
            data = value.data.copy()
            data[used[token], column] = nearest(np.array([np.nan]), format_named(value.format))[0]
            found[name] = Coded(value.format, data)
    return found


def _many_times_a_key(
    q: F64,
    held: Mapping[str, Coded],
    name: str,
    used: npt.NDArray[np.int32],
    lengths: npt.NDArray[np.int32],
    heads: int,
) -> F64:
    """Queries along the key of each sequence's last token, so long that no other counts."""
    keys = held[name]
    value = np.nan_to_num(decode_values(Coded(keys.format, keys.data[used])))
    for sequence, (start, length) in enumerate(zip(_starts(lengths), lengths, strict=True)):
        if length:
            key = value[start + length - 1].reshape(heads, -1)
            q[sequence, :, :, : key.shape[1]] = 32.0 * key[:, None] / _typical_scale(held, name)
            q[sequence, :, :, key.shape[1] :] = 0.0
    return q
