"""What the catalogue of caches is made of: orders of axes, and parts and buffers for keys and values alike."""

from __future__ import annotations

from dataclasses import replace

from narrowgauge.contracts.cache import Buffer, Cache, Field, Part

PAIR = ("k", "v")
#: pages as axes of memory: b page, o place in it, h head, c column of a head
NHD, HND = ("b", "o", "h", "c"), ("b", "h", "o", "c")
#: a head's columns in pieces of 16 bytes, the slots of a page between the pieces and what is in one
PACKED = Field("k", ("b", "h", "d", "o", "c"), columns="h d:width/vector c:vector")
#: the slots of a page side by side for each column; or in pieces of 16 bytes
TRANSPOSED = Field("v", ("b", "h", "c", "o"))
INTERLEAVED = Field("v", ("b", "h", "p", "c", "o"), rows="b p:block/vector o:vector")
#: two codes in a byte, the even column low
NIBBLES = Field("k", NHD, columns="h c:width/2 n:2", slots="n")
#: no pages: a pool of slots
FLAT = ("s", "h", "c")


def flat(field: Field) -> Field:
    """The same in a pool of slots without pages."""
    return replace(field, storage=FLAT, rows="s")


def codes(axes: tuple[str, ...]) -> tuple[Field, Field]:
    """The codes of keys and of values in the same order."""
    return Field("k", axes), Field("v", axes)


def of_scale(*axes: str, rows: str = "b o:block") -> Field:
    """One scale of each head."""
    return Field("k_scale", axes, rows=rows, columns="h")


def beside(name: str, fields: tuple[Field, ...], element: str = "") -> tuple[Buffer, ...]:
    """A buffer for keys and one for values; a field that speaks of "k" speaks of "v" in the second."""
    return tuple(
        Buffer(name.format(part), (replace(field, of=part + field.of[1:]),), element=element)
        for part, field in zip(PAIR, fields, strict=True)
    )


def parts(recipe: str, per_head: bool = False, first: str = "") -> tuple[Part, ...]:
    """Keys and values, quantized alike; or kept as they are, and a scale given that is not for them."""
    return tuple(Part(part, recipe, per_head=per_head, first=first, unused_scale=not recipe) for part in PAIR)


def pair(
    name: str,
    recipe: str,
    fields: tuple[Field, Field],
    slots: str,
    source: str,
    blocks: tuple[int, ...],
    per_head: bool = False,
) -> Cache:
    """Keys and values in two buffers, and no scales beside them."""
    return Cache(name, parts(recipe, per_head), beside("{}_cache", fields), slots, source, blocks)
