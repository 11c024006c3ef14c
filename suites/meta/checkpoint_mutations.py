"""Damage to the bytes of a file, the same for a seed."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping

#: numbers that counts, lengths and offsets are replaced by
EXTREMES = (0, 1, 2, 31, 255, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
#: what replaces a token of JSON
WORDS = (
    "0", "-1", "1e999", "NaN", "Infinity", "1" + "0" * 400, "9223372036854775808", "18446744073709551616", "true",
    "null", "0.5", '""', '"F32"', '"F4"', '"C64"', '"\\ud800"', '"\\u0000"', "[]", "{}", "[0, 4]", "[[[[[]]]]]", "",
    ",", "[" * 5000,
)  # fmt: skip
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d+|[\[\]{},:]')


def flipped(rng: random.Random, content: bytes) -> bytes:
    """One to four bits of it changed."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(rng: random.Random, content: bytes) -> bytes:
    """Its end, or a stretch of it, left out."""
    first = rng.randrange(len(content))
    return content[:first] + (content[first + rng.randint(1, 40) :] if rng.random() < 0.5 else b"")


def spliced(rng: random.Random, content: bytes) -> bytes:
    """A stretch of it put in elsewhere, or over what was there."""
    first, at = rng.randrange(len(content)), rng.randrange(len(content))
    stretch = content[first : first + rng.randint(1, 60)]
    return content[:at] + stretch + content[at + len(stretch) * rng.randint(0, 1) :]


def extreme(rng: random.Random, content: bytes) -> bytes:
    """A number of four or eight bytes replaced: by an extreme one, or by the size of the file, or next to these."""
    size = rng.choice((4, 8))
    number = rng.choice((*EXTREMES, len(content))) + rng.choice((-1, 0, 1))
    at = rng.randrange(max(1, len(content) - size))
    return content[:at] + (number % (1 << 8 * size)).to_bytes(size, "little") + content[at + size :]


def retold(rng: random.Random, text: bytes) -> bytes:
    """JSON text of which one or two tokens are others, or stand twice."""
    for _ in range(rng.randint(1, 2)):
        tokens = list(_TOKEN.finditer(text))
        if not tokens:
            return text
        one, other = rng.choice(tokens), rng.choice(tokens)
        put = rng.choice((rng.choice(WORDS).encode(), other[0], one[0] + b", " + one[0]))
        text = text[: one.start()] + put + text[one.end() :]
    return text


def recounted(rng: random.Random, text: bytes) -> bytes:
    """JSON text of which one number is another, or two have changed places: JSON as before."""
    numbers = list(re.finditer(rb"\b\d+\b", text))
    if not numbers:
        return text
    one, other = rng.choice(numbers), rng.choice(numbers)
    near = rng.choice((*EXTREMES, int(one[0][:18]) + rng.randint(-2, 2), int(other[0][:18])))
    return text[: one.start()] + str(near).encode() + text[one.end() :]


def with_other_header(rng: random.Random, content: bytes) -> bytes:
    """A safetensors file whose header is retold or recounted; its length is said right."""
    length = int.from_bytes(content[:8], "little")
    header = rng.choice((retold, recounted, recounted))(rng, content[8 : 8 + length])
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def lengthened(rng: random.Random, content: bytes) -> bytes:
    """Bytes put in."""
    at = rng.randrange(len(content))
    return content[:at] + rng.randbytes(rng.randint(1, 30)) + content[at:]


Mutation = Callable[[random.Random, bytes], bytes]
BINARY: tuple[Mutation, ...] = (flipped, cut, spliced, extreme, extreme, lengthened)


def mutated(seed: int, content: bytes, mutations: tuple[Mutation, ...] = BINARY) -> bytes:
    """The content with one to three mutations."""
    rng = random.Random(seed)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        content = rng.choice(mutations)(rng, content) if content else content
    return content


def report_mutated(rng: random.Random, report: Mapping[str, object]) -> dict[str, object]:
    """A report of a child's in which one number is another."""
    key = rng.choice(("start", "size", "shape"))
    number = rng.choice((*EXTREMES, -1))
    changed: dict[str, object] = json.loads(json.dumps(report))
    changed[key] = [number] * rng.randint(0, 3) if key == "shape" else number
    return changed
