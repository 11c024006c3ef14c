"""Faults of how caches stand in memory, and of whose codes they hold: ``kv_layout.*``, ``kv_code.*``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from narrowgauge.contracts.cache import Buffer, Cache, Field
from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.fast_codec import cast, decode_values
from narrowgauge.reference.faults import edits
from narrowgauge.reference.faults import kv_edits as kv
from narrowgauge.reference.faults.casts import E4M3_AND_E5M2
from narrowgauge.reference.faults.fault import PagedFault
from narrowgauge.reference.policies import resolve

_PLAIN = Field("", ("b", "o", "h", "c"))


def _fields(change: Callable[[Cache, Field], Field]) -> Callable[[Cache], Cache]:
    """Other places for single matrices."""

    def changed(cache: Cache) -> Cache:
        buffers = (replace(b, fields=tuple(change(cache, f) for f in b.fields)) for b in cache.buffers)
        return replace(cache, buffers=tuple(buffers))

    return changed


def _buffers(change: Callable[[Buffer], Buffer]) -> Callable[[Cache], Cache]:
    return lambda cache: replace(cache, buffers=tuple(change(b) for b in cache.buffers))


def _heads_and_places(scales: bool) -> Callable[[Cache, Field], Field]:
    """Heads inside places, or places inside heads, of codes or of scales."""

    def change(cache: Cache, field: Field) -> Field:
        place = "s" if "s" in field.storage else "o"
        if kv.is_scale(field.of) != scales or not {place, "h"} <= set(field.storage):
            return field
        other = {place: "h", "h": place}
        return replace(field, storage=tuple(other.get(axis, axis) for axis in field.storage))

    return change


def _as(names: dict[str, str]) -> Callable[[Cache, Field], Field]:
    """A matrix is taken to stand as another one does."""

    def change(cache: Cache, field: Field) -> Field:
        fields = {f.of: f for b in cache.buffers for f in b.fields}
        other = fields.get(names.get(field.of, ""))
        return field if other is None else replace(other, of=field.of, shares=field.shares, encode=field.encode)

    return change


def _plainly(chosen: Callable[[str], bool]) -> Callable[[Cache, Field], Field]:
    """Row by row, as though nothing were packed or swizzled."""

    def change(cache: Cache, field: Field) -> Field:
        if not chosen(field.of) or field.slots or _is_plain(field):
            return field
        return replace(_PLAIN, of=field.of)

    return change


def _is_plain(field: Field) -> bool:
    """Whether rows stand one after the other, of a token or of a head."""
    return set(field.storage) <= set("bsohc") and ("c" not in field.storage or field.storage[-1] == "c")


def _scale_moved(buffer: Buffer) -> Buffer:
    """Scales stand behind all else; where they do, behind the codes of their part."""
    scales = tuple(f for f in buffer.fields if kv.is_scale(f.of))
    others = tuple(f for f in buffer.fields if f not in scales)
    fields = (*others, *scales)
    return replace(buffer, fields=(*others[:1], *scales, *others[1:]) if fields == buffer.fields else fields)


def _gathered_otherwise(buffer: Buffer) -> Buffer:
    return buffer if len(buffer.fields) < 2 else replace(buffer, per="page" if buffer.per == "token" else "token")


def _codes_as_numbers(behaviour: Behaviour) -> Behaviour | None:
    """The value of a code is converted to a whole number of 8 bits, or that number to a value."""
    name = behaviour.source if behaviour.reads else behaviour.format
    if format_named(name).bits != 8 or format_named(name).family == "integer" or behaviour.recipe is None:
        return None
    if behaviour.reads:
        numbers = resolve("ocp_saturate" if format_named(name).family != "fnuz" else "fnuz_saturate", name)

        def received(x: Coded) -> Coded:
            return Input(x.format, cast(Coded("uint8", x.data), x.format, numbers).data, given_with(x))

        return replace(behaviour, received=(*behaviour.received, received))

    def patch(_: Behaviour, x: Coded, codes: Coded) -> Coded:
        value = decode_values(codes)
        whole = np.trunc(np.where(np.isfinite(value), value, 0.0)).astype(np.int64)
        return Coded(codes.format, (whole & 0xFF).astype(codes.data.dtype))

    return replace(behaviour, patched=(*behaviour.patched, patch))


def _scaled_read_as(behaviour: Behaviour) -> Behaviour | None:
    if not behaviour.reads or behaviour.received:
        return None
    return edits.read_as(E4M3_AND_E5M2)(behaviour)


FAULTS = (
    PagedFault(
        "kv_layout.heads_and_places_exchanged",
        "LAYOUT",
        kv.laid(_fields(_heads_and_places(scales=False))),
        "heads and neighbouring tokens are mixed up; right with one head",
        "a page is taken for [place, head] where it is [head, place], or the reverse: its shape does not tell",
        ("LMCache#2495",),
    ),
    PagedFault(
        "kv_layout.scales_exchanged",
        "LAYOUT",
        kv.laid(_fields(_heads_and_places(scales=True))),
        "tokens are read with the scales of other tokens and heads; right with one head",
        "the scales of a page are taken for [place, head] where they are [head, place], or the reverse",
        (),
    ),
    PagedFault(
        "kv_layout.keys_as_values",
        "LAYOUT",
        kv.laid(_fields(_as({"k": "v"}))),
        "keys are nonsense, values right",
        "the packing of keys, 16 bytes of a head for each place in turn, is ignored: they are laid as values are",
        (),
    ),
    PagedFault(
        "kv_layout.values_as_keys",
        "LAYOUT",
        kv.laid(_fields(_as({"v": "k"}))),
        "values are nonsense, keys right",
        "values are laid as keys are",
        (),
    ),
    PagedFault(
        "kv_layout.not_packed",
        "LAYOUT",
        kv.laid(_fields(_plainly(lambda name: not kv.is_scale(name)))),
        "what is packed is nonsense",
        "codes are taken to stand row by row",
        (),
    ),
    PagedFault(
        "kv_layout.scales_linear",
        "LAYOUT",
        kv.laid(_fields(_plainly(kv.is_scale))),
        "blocks are read with each other's scales; uniform scales hide it completely",
        "the order of the scales in a page is forgotten: they are taken row by row",
        ("vllm#50084",),
    ),
    PagedFault(
        "kv_layout.value_scales_as_key_scales",
        "LAYOUT",
        kv.laid(_fields(_as({"v_scale": "k_scale"}))),
        "values are read with each other's scales, keys are right",
        "the swizzle of the scales of values is forgotten, or theirs are laid as those of keys are",
        ("vllm#50084",),
    ),
    PagedFault(
        "kv_layout.key_scales_as_value_scales",
        "LAYOUT",
        kv.laid(_fields(_as({"k_scale": "v_scale"}))),
        "keys are read with each other's scales, values are right",
        "the scales of keys are swizzled as those of values are",
        (),
    ),
    PagedFault(
        "kv_layout.scale_at_another_offset",
        "LAYOUT",
        kv.laid(_buffers(_scale_moved)),
        "scales are bytes of other things: noise, infinities, NaN",
        "scales stand behind the codes of their part, and are looked for at the end of the row",
        (),
    ),
    PagedFault(
        "kv_layout.rope_first",
        "LAYOUT",
        kv.laid(_buffers(lambda b: replace(b, fields=tuple(sorted(b.fields, key=lambda f: f.of != "rope"))))),
        "attention is nonsense: the rotated part stands where the latent one should",
        "the latent and the rotated columns of a row are exchanged",
        (),
    ),
    PagedFault(
        "kv_layout.rows_for_pages",
        "LAYOUT",
        kv.laid(_buffers(_gathered_otherwise)),
        "all but the first token of a page is nonsense",
        "each row is taken to hold its own codes and scales where a page holds all codes and then all scales, or the "
        "reverse",
        (),
    ),
    PagedFault(
        "kv_code.value_for_bits",
        "FORMAT",
        kv.parts(_codes_as_numbers),
        "what was written becomes whole numbers: small values vanish, 1.5 reads as a subnormal",
        "bytes are made by .to(uint8), which converts the value, where .view(uint8) keeps the bits; or read so",
        (),
    ),
    PagedFault(
        "kv_code.read_as_the_other_format",
        "FORMAT",
        kv.parts(_scaled_read_as),
        "values are wrong by powers of two that depend on their size",
        "a cache of e4m3 is read as e5m2, or the reverse: the label says one and the writer stored the other",
        (),
    ),
)
