"""Mistakes in how a weight's bytes are read or were written, each as another way to read them.

Whichever brings back the original's numbers is what happened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from narrowgauge.checkpoints.passports import Passport
from narrowgauge.checkpoints.values import Raw, combined
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.layouts.codes import AWQ

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Hypothesis:
    """One mistake."""

    says: str
    remedy: str
    applies: Callable[[Passport], bool]
    read: Callable[[Raw, Passport], Values]
    less: float = 0.0  #: decibels that the true format keeps less than the one of the label: 6.02 a bit


def _element(*names: str) -> Callable[[Passport], bool]:
    return lambda passport: passport.element in names and not passport.scheme.block_size


def _decoded_as(raw: Raw, name: str, flip: int = 0) -> Values:
    codes = (raw.codes ^ flip).astype(FORMATS[name].storage)
    return combined(replace(raw, decoded=decode_values(Coded(name, codes))))


def _nibbles(raw: Raw, passport: Passport) -> Values:
    n, columns = raw.decoded.shape
    pairs = raw.decoded[:, : columns // 2 * 2].reshape(n, -1, 2)[:, :, ::-1].reshape(n, -1)
    return combined(replace(raw, decoded=np.hstack([pairs, raw.decoded[:, columns // 2 * 2 :]])))


def _plain_order(raw: Raw, passport: Passport) -> Values:
    n = len(raw.decoded) // 8 * 8
    words = raw.decoded[:n].reshape(-1, 8, raw.decoded.shape[1])[:, list(AWQ)]
    return combined(replace(raw, decoded=np.vstack([words.reshape(n, -1), raw.decoded[n:]])))


def _inverse(raw: Raw, passport: Passport) -> Values:
    with np.errstate(divide="ignore"):
        return combined(replace(raw, scale=1 / raw.scale))


def _zeros(step: int) -> Callable[[Raw, Passport], Values]:
    return lambda raw, passport: combined(replace(raw, zeros=raw.zeros + step))


def _with(field: str) -> Callable[[Passport], bool]:
    return lambda passport: field in passport.tensors


def _gptq(passport: Passport) -> bool:
    return passport.scheme.name.startswith("gptq")


_FORMAT = "Write checkpoint_format as it is."
HYPOTHESES = (
    Hypothesis(
        "the two codes of each byte stand the other way round",
        "Swap the nibbles of each byte.",
        lambda passport: passport.scheme.packing == "nibbles_low_first" and passport.scheme.packed == "columns",
        _nibbles,
    ),
    Hypothesis("zero points are stored as they are (gptq_v2) and read as less 1 (gptq)", _FORMAT, _gptq, _zeros(-1)),
    Hypothesis("zero points are stored less 1 (gptq) and read as they are (gptq_v2)", _FORMAT, _gptq, _zeros(1)),
    Hypothesis(
        "codes stand in plain order and not in that of AWQ",
        "Pack them in the order 0, 2, 4, 6, 1, 3, 5, 7.",
        lambda passport: passport.scheme.packing == "awq_4bit",
        _plain_order,
    ),
    Hypothesis(
        "the scale is the reciprocal of what it should be",
        "Store the number that codes are multiplied by.",
        _with("scale"),
        _inverse,
    ),
    Hypothesis(
        "the second scale is the reciprocal of what it should be",
        "compressed-tensors divides by it, ModelOpt multiplies.",
        _with("second"),
        lambda raw, passport: combined(replace(raw, second=1 / raw.second if raw.second else 0.0)),
    ),
    Hypothesis(
        "codes are two's complement and read as offset by 8",
        "Add 8 to each code.",
        _element("uint4"),
        lambda raw, passport: _decoded_as(raw, "uint4", 8),
    ),
    Hypothesis(
        "codes are offset by 8 and read as two's complement",
        "Subtract 8 from each code.",
        _element("int4"),
        lambda raw, passport: _decoded_as(raw, "int4", 8),
    ),
    Hypothesis(
        "bytes are of the OCP flavour and labelled FNUZ",
        "Label them F8_E4M3; or keep the bytes and double the scale.",
        _element("float8_e4m3fnuz"),
        lambda raw, passport: _decoded_as(raw, "float8_e4m3fn"),
    ),
)
#: a factor of two explains the same, but for codes that are NaN in OCP and that FNUZ has for its largest numbers
FLAVOURS = (
    Hypothesis(
        "bytes are of the FNUZ flavour and labelled OCP",
        "Convert them, or label them F8_E4M3FNUZ.",
        _element("float8_e4m3fn"),
        lambda raw, passport: _decoded_as(raw, "float8_e4m3fnuz"),
    ),
    Hypothesis(
        "bytes are E5M2 and labelled E4M3",
        "Label them F8_E5M2.",
        _element("float8_e4m3fn", "float8_e4m3fnuz"),
        lambda raw, passport: _decoded_as(raw, "float8_e5m2"),
        less=6.02,
    ),
    Hypothesis(
        "bytes are E4M3 and labelled E5M2",
        "Label them F8_E4M3.",
        _element("float8_e5m2", "float8_e5m2fnuz"),
        lambda raw, passport: _decoded_as(raw, "float8_e4m3fn"),
    ),
)


def pairs_in_blocks(w: Values) -> Values:
    """Of GGUF's MXFP4: what it reads as low and high halves of a block of 32, as neighbours."""
    blocks = w.reshape(len(w), -1, 2, 16)
    return np.asarray(blocks.transpose(0, 1, 3, 2).reshape(w.shape))


__all__ = ["FLAVOURS", "HYPOTHESES", "Hypothesis", "pairs_in_blocks"]
