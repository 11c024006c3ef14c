"""Which tensors of an original checkpoint are the weight of a passport: by the same name, fused, apart, or turned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from narrowgauge.checkpoints.matrices import matrices
from narrowgauge.checkpoints.model import Checkpoint, Stored
from narrowgauge.checkpoints.passports import Passport, passport_of
from narrowgauge.checkpoints.source import Source
from narrowgauge.checkpoints.values import band, readable
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.fast_codec import decode_values

#: a fused layer -> the layers whose rows it has, one after the other
FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "w13": ("w1", "w3"),
}
#: beginnings of names that one export has and another has not
PREFIXES = ("model.", "language_model.", "model.language_model.", "transformer.")
#: llama.cpp's names -> those of Hugging Face (gguf-py tensor_mapping.py)
GGUF = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "token_embd": "model.embed_tokens", "output": "lm_head",
}  # fmt: skip
_PLAIN = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True)
class Part:
    """So many rows of a tensor [.., N, K], from ``first`` on."""

    tensor: Stored
    first: int
    count: int
    turned: bool = False  #: stored as [.., K, N]
    quantized: Passport | None = None  #: the original is quantized too: what its bytes stand for
    heads: int = 0  #: so many heads whose two halves are interleaved here, and stand one after the other there


@dataclass(frozen=True)
class Original:
    """The weight of a passport in another checkpoint: rows of tensors, one after the other."""

    parts: tuple[Part, ...]
    lead: int  #: axes before the matrix

    @property
    def name(self) -> str:
        return " + ".join(part.tensor.name for part in self.parts)

    def rows(self, which: int, first: int, count: int) -> npt.NDArray[np.float64]:
        """float64 [count, K] of matrix ``which``."""
        found = []
        with ExitStack() as stack:
            for part in self.parts:
                start, end = max(0, first), min(part.count, first + count)
                if start < end:
                    source = stack.enter_context(Source(part.tensor.path))
                    found.append(_rows(part, source, self.lead, which, start, end - start))
                first -= part.count
        return np.concatenate(found)


def _rows(part: Part, source: Source, lead: int, which: int, first: int, count: int) -> npt.NDArray[np.float64]:
    if not part.heads:
        return _read(part, source, lead, which, part.first + first, count)
    width = part.count // part.heads
    start, end = first // width * width, -(-(first + count) // width) * width
    whole = _read(part, source, lead, which, part.first + start, end - start)
    mixed = whole.reshape(-1, 2, width // 2, whole.shape[1]).swapaxes(1, 2).reshape(whole.shape)
    return np.asarray(mixed[first - start : first - start + count])


def _read(part: Part, source: Source, lead: int, which: int, first: int, count: int) -> npt.NDArray[np.float64]:
    if part.quantized is not None:
        return band(part.quantized, which, first, count)
    storage = FORMATS[part.tensor.format].storage
    found = matrices(part.tensor, source, lead)
    if part.turned:
        width = storage.itemsize
        data = found.strip(which, first * width, count * width).view(storage).T
    else:
        data = found.band(which, first, count).view(storage)
    return decode_values(Coded(part.tensor.format, data))


def originals(passport: Passport, passports: Sequence[Passport], original: Checkpoint) -> Iterator[Original]:
    """What the weight may be in the original, the likeliest first; several where a square matrix may be turned."""
    lead = len(passport.shape) - 2
    yield from _of_gguf(passport, original)
    for name in _spellings(passport.module):
        tensors = [original.tensors[each] for each in (f"{name}.weight", name) if each in original.tensors]
        for tensor in tensors:
            yield from _same(passport, tensor, lead)
        if not tensors or not any(map(_plain, tensors)):
            yield from _quantized(passport, name, original)
        above, _, leaf = name.rpartition(".")
        yield from _apart(passport, original, above, FUSED.get(leaf, ()), lead)
        for fused, shards in FUSED.items():
            if leaf in shards and lead == 0:
                yield from _within(passport, passports, original, f"{above}.{fused}.weight", shards)


def _of_gguf(passport: Passport, original: Checkpoint) -> Iterator[Original]:
    """A tensor of llama.cpp by its Hugging Face name; of q and k with heads interleaved too, as llama.cpp has Llama's.

    (convert_hf_to_gguf.py LlamaModel.permute)
    """
    words = passport.module.removesuffix(".weight").split(".")
    if words[-1] not in GGUF or not passport.scheme.name.startswith("gguf"):
        return
    layer = f"model.layers.{words[1]}." if words[0] == "blk" and len(words) > 2 else ""
    tensor = original.tensors.get(f"{layer}{GGUF[words[-1]]}.weight")
    if tensor is None or tensor.shape != passport.shape or not _plain(tensor):
        return
    rows = passport.shape[0]
    yield Original((Part(tensor, 0, rows),), 0)
    key = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}.get(words[-1], "")
    heads = original.config.get(key) or (original.config.get("num_attention_heads") if key else None)
    if isinstance(heads, int) and heads > 0 and rows % (2 * heads) == 0:
        yield Original((Part(tensor, 0, rows, heads=heads),), 0)


#: so many other tensors are looked at for a weight that is not that of its name
SISTERS = 64


def sisters(passport: Passport, mine: Original, original: Checkpoint) -> Iterator[Sister]:
    """What else of the original the weight could be: other matrices of its tensor, other tensors by their names."""
    for which in range(min(prod(passport.shape[:-2]), SISTERS) if len(passport.shape) > 2 else 0):
        yield Sister(f"{mine.name}, matrix {which}", mine, which)
    words = passport.module.split(".")
    alike = []
    for tensor in original.tensors.values():
        other = tensor.name.removesuffix(".weight").split(".")
        if tensor.shape == passport.shape and _plain(tensor) and len(other) == len(words) and other != words:
            alike.append((sum(a != b for a, b in zip(words, other, strict=True)), tensor))
    for _, tensor in sorted(alike, key=lambda each: each[0])[:SISTERS]:
        lead = len(passport.shape) - 2
        yield Sister(tensor.name, Original((Part(tensor, 0, passport.shape[-2]),), lead))


@dataclass(frozen=True)
class Sister:
    """Another weight of the original."""

    name: str
    original: Original
    which: int | None = None  #: which of its matrices; None for the one that is asked for

    def rows(self, which: int, first: int, count: int) -> npt.NDArray[np.float64]:
        return self.original.rows(which if self.which is None else self.which, first, count)


def _spellings(module: str) -> Iterator[str]:
    yield module
    for prefix in PREFIXES:
        if module.startswith(prefix):
            yield module.removeprefix(prefix)
        yield prefix + module


def _plain(tensor: Stored) -> bool:
    return tensor.dtype in _PLAIN


def _same(passport: Passport, tensor: Stored, lead: int) -> Iterator[Original]:
    if not _plain(tensor):
        return
    rows, columns = passport.shape[-2:]
    if tensor.shape == passport.shape or (1, *tensor.shape) == passport.shape:  # a vector is a row
        yield Original((Part(tensor, 0, rows),), lead)
    if lead and tensor.shape == (*passport.shape[:-2], columns, rows):  # plain experts may be stored as [E, K, N]
        yield Original((Part(tensor, 0, rows, turned=True),), lead)


def _quantized(passport: Passport, name: str, original: Checkpoint) -> Iterator[Original]:
    """The original is quantized too, as DeepSeek's of fp8 is of an export in fp4."""
    mine = passport_of(name, original)
    if mine is not None and mine.shape == passport.shape and not readable(mine):
        yield Original((Part(mine.weight, 0, mine.shape[-2], quantized=mine),), len(mine.shape) - 2)


def _apart(
    passport: Passport, original: Checkpoint, above: str, leaves: Sequence[str], lead: int
) -> Iterator[Original]:
    tensors = [original.tensors.get(f"{above}.{leaf}.weight") for leaf in leaves]
    there = [tensor for tensor in tensors if tensor is not None and _plain(tensor) and len(tensor.shape) == 2]
    if lead or not there or len(there) < len(leaves):
        return
    rows, columns = passport.shape
    if sum(tensor.shape[0] for tensor in there) == rows and all(tensor.shape[1] == columns for tensor in there):
        yield Original(tuple(Part(tensor, 0, tensor.shape[0]) for tensor in there), 0)


def _within(
    passport: Passport, passports: Sequence[Passport], original: Checkpoint, name: str, shards: Sequence[str]
) -> Iterator[Original]:
    tensor = original.tensors.get(name)
    if tensor is None or not _plain(tensor) or len(tensor.shape) != 2:
        return
    above, _, leaf = passport.module.rpartition(".")
    sizes = {each.module: each.shape[0] for each in passports if len(each.shape) == 2}
    before = [sizes.get(f"{above}.{shard}", 0) for shard in shards[: shards.index(leaf)]]
    if all(before) and tensor.shape[1] == passport.shape[1] and sum(before) + passport.shape[0] <= tensor.shape[0]:
        yield Original((Part(tensor, sum(before), passport.shape[0]),), 0)
