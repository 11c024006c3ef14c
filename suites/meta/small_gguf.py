# SPDX-License-Identifier: Apache-2.0
"""A small GGUF file, version 3, little-endian, with blocks of several types. Layouts: ggml's own description."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from narrowgauge.suites.meta.small_bytes import E2M1, Array, Raw, bf16, f16, f32, look_up, nearest
from narrowgauge.suites.meta.small_drafts import Draft
from narrowgauge.suites.meta.small_models import HEADS, KV_HEADS, LAYERS, VOCAB, original

HIDDEN, WIDE = 256, 256
ALIGNMENT = 32

#: the bytes of one block's weights, and what they stand for
Block = Callable[[Array], tuple[bytes, Array]]


def _half(x: float) -> float:
    return float(np.float16(x))


def q8_0(x: Array) -> tuple[bytes, Array]:
    """A float16 scale, and 32 signed bytes."""
    d = _half(np.abs(x).max() / 127)
    q = np.clip(np.rint(x / d), -127, 127)
    return np.float16(d).tobytes() + q.astype(np.int8).tobytes(), q * d


def q4_0(x: Array) -> tuple[bytes, Array]:
    """A float16 scale, and 16 bytes: number j low and number j + 16 high; 8 is zero."""
    d = _half(x[np.abs(x).argmax()] / -8)
    q = np.clip(np.rint(x / d) + 8, 0, 15).astype(np.uint8)
    return np.float16(d).tobytes() + (q[:16] | q[16:] << 4).tobytes(), (q.astype(float) - 8) * d


def mxfp4(x: Array) -> tuple[bytes, Array]:
    """An E8M0 byte, and 16 bytes: number j low and number j + 16 high."""
    exponent = int(np.floor(np.log2(np.abs(x).max()))) - 2
    q = nearest(x / 2.0**exponent, E2M1)
    packed = (q[:16] | q[16:] << 4).astype(np.uint8)
    return bytes([exponent + 127]) + packed.tobytes(), look_up(q, E2M1) * 2.0**exponent


def q4_k(x: Array) -> tuple[bytes, Array]:
    """256 weights: scale and least of each 32 in six bits, times two float16; w = d * scale * q - dmin * least."""
    parts = x.reshape(8, 32)
    least = np.maximum(-parts.min(axis=1), 0)
    steps = (parts.max(axis=1) + least) / 15
    d, dmin = _half(steps.max() / 63), _half(least.max() / 63)
    scale = np.rint(steps / d).clip(1, 63).astype(int)
    low = np.rint(least / dmin).clip(0, 63).astype(int)
    q = np.rint((parts + (dmin * low)[:, None]) / (d * scale)[:, None]).clip(0, 15).astype(np.uint8)
    six = bytearray(12)
    for j in range(4):
        six[j] = scale[j] | scale[j + 4] >> 4 << 6
        six[j + 4] = low[j] | low[j + 4] >> 4 << 6
        six[j + 8] = scale[j + 4] & 15 | (low[j + 4] & 15) << 4
    nibbles = b"".join((q[2 * c] | q[2 * c + 1] << 4).tobytes() for c in range(4))
    weights = (d * scale)[:, None] * q - (dmin * low)[:, None]
    return np.array([d, dmin], "<f2").tobytes() + bytes(six) + nibbles, weights.ravel()


def q6_k(x: Array) -> tuple[bytes, Array]:
    """256 weights: four low bits, two high ones, a signed scale for each 16, a float16; w = d * scale * (q - 32)."""
    parts = x.reshape(16, 16)
    steps = np.abs(parts).max(axis=1) / 31
    d = _half(steps.max() / 127)
    scale = np.rint(steps / d).clip(1, 127).astype(np.int8)
    q = (np.rint(parts / (d * scale)[:, None]).clip(-32, 31) + 32).astype(np.uint8)
    weights = (d * scale)[:, None] * (q.astype(float) - 32)
    low, high = b"", b""
    for half in q.reshape(2, 4, 32):
        low += ((half[0] & 15) | (half[2] & 15) << 4).tobytes() + ((half[1] & 15) | (half[3] & 15) << 4).tobytes()
        high += (half[0] >> 4 | half[1] >> 4 << 2 | half[2] >> 4 << 4 | half[3] >> 4 << 6).tobytes()
    return low + high + scale.tobytes() + np.float16(d).tobytes(), weights.ravel()


#: ggml's number of a type, and its block; the plain ones by their own functions
BLOCKS: Mapping[str, tuple[int, int, Block]] = {
    "Q4_0": (2, 32, q4_0),
    "Q8_0": (8, 32, q8_0),
    "Q4_K": (12, 256, q4_k),
    "Q6_K": (14, 256, q6_k),
    "MXFP4": (39, 32, mxfp4),
}
PLAIN = {"F32": (0, f32), "F16": (1, f16), "BF16": (30, bf16)}

TYPES = {
    "attn_q": ("Q8_0", (HIDDEN, HIDDEN)),
    "attn_k": ("Q4_0", (HIDDEN // HEADS * KV_HEADS, HIDDEN)),
    "attn_v": ("Q6_K", (HIDDEN // HEADS * KV_HEADS, HIDDEN)),
    "attn_output": ("BF16", (HIDDEN, HIDDEN)),
    "ffn_gate": ("Q4_K", (WIDE, HIDDEN)),
    "ffn_up": ("MXFP4", (WIDE, HIDDEN)),
    "ffn_down": ("Q6_K", (HIDDEN, WIDE)),
}


def tensors() -> dict[str, tuple[str, tuple[int, ...]]]:
    """Names, types and shapes [N, K] of the model."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {"token_embd.weight": ("Q8_0", (VOCAB, HIDDEN))}
    for i in range(LAYERS):
        found |= {f"blk.{i}.{part}.weight": row for part, row in TYPES.items()}
        found |= {f"blk.{i}.{part}_norm.weight": ("F32", (HIDDEN,)) for part in ("attn", "ffn")}
    return found | {"output_norm.weight": ("F32", (HIDDEN,)), "output.weight": ("F16", (VOCAB, HIDDEN))}


def draft() -> Draft:
    """Blocks run along the rows."""
    found = Draft(file="small.gguf")
    for name, (type, shape) in tensors().items():
        x = original(name, shape)
        if type in PLAIN:
            found.keep(name, x, PLAIN[type][1])
            continue
        _, size, block = BLOCKS[type]
        made = [block(part) for part in x.reshape(-1, size)]
        found.tensors[name] = Raw(type, shape, b"".join(data for data, _ in made))
        found.weights[name] = np.concatenate([w for _, w in made]).reshape(shape)
        found.originals[name] = x
    return found


# ---------------- the file

_SCALARS = {"u32": (4, "<I"), "f32": (6, "<f"), "bool": (7, "<?"), "u64": (10, "<Q")}


def _text(s: str) -> bytes:
    return struct.pack("<Q", len(s.encode())) + s.encode()


def _value(kind: str, value: object) -> bytes:
    """Type and value: of a scalar, a text ("str"), or an array of texts or float32 ("strs", "f32s")."""
    if kind == "str":
        return struct.pack("<I", 8) + _text(str(value))
    if kind == "strs":
        assert isinstance(value, list)
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    if kind == "f32s":
        assert isinstance(value, list)
        return struct.pack(f"<IIQ{len(value)}f", 9, 6, len(value), *value)
    number, form = _SCALARS[kind]
    return struct.pack("<I", number) + struct.pack(form, value)


METADATA: Mapping[str, tuple[str, object]] = {
    "general.architecture": ("str", "llama"),
    "general.name": ("str", "small"),
    "general.alignment": ("u32", ALIGNMENT),
    "general.file_type": ("u32", 15),
    "general.quantization_version": ("u32", 2),
    "llama.attention.head_count": ("u32", HEADS),
    "llama.attention.head_count_kv": ("u32", KV_HEADS),
    "llama.attention.layer_norm_rms_epsilon": ("f32", 1e-6),
    "llama.block_count": ("u32", LAYERS),
    "llama.context_length": ("u32", 2048),
    "llama.embedding_length": ("u32", HIDDEN),
    "llama.feed_forward_length": ("u32", WIDE),
    "llama.rope.dimension_count": ("u32", HIDDEN // HEADS),
    "llama.vocab_size": ("u32", VOCAB),
    "tokenizer.ggml.add_bos_token": ("bool", True),
    "tokenizer.ggml.model": ("str", "llama"),
    "tokenizer.ggml.scores": ("f32s", [float(-i) for i in range(VOCAB)]),
    "tokenizer.ggml.tokens": ("strs", [f"<{i}>" for i in range(VOCAB)]),
}


def write_gguf(path: Path, table: Mapping[str, Raw]) -> None:
    infos, data = b"", b""
    for name, raw in table.items():
        number = PLAIN[raw.dtype][0] if raw.dtype in PLAIN else BLOCKS[raw.dtype][0]
        axes = struct.pack(f"<I{len(raw.shape)}Q", len(raw.shape), *reversed(raw.shape))
        infos += _text(name) + axes + struct.pack("<IQ", number, len(data))
        data += raw.data + b"\0" * (-len(raw.data) % ALIGNMENT)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(table), len(METADATA))
    head += b"".join(_text(key) + _value(*value) for key, value in METADATA.items()) + infos
    path.write_bytes(head + b"\0" * (-len(head) % ALIGNMENT) + data)
