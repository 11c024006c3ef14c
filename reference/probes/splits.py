"""What becomes of float32 operands: whole, cut to fewer bits, or split into several narrow numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.codec import decode, encode
from narrowgauge.reference.probes.probe import Answers, Finding, Findings, Probe, kept, unsaid
from narrowgauge.reference.probes.rows import Key, Row, Rows
from narrowgauge.reference.probes.setting import F64, Setting

NUMBERS = (
    1 + 2.0**-11,
    1 + 3 * 2.0**-11,
    1 + 2.0**-11 + 2.0**-23,
    1 + 2.0**-11 - 2.0**-23,
)
SIGNS = (1.0, -1.0)


def _rounded(x: F64, format_name: str, rounding: str = "nearest_even") -> F64:
    policy = replace(CastPolicy(overflow="special", infinity="special"), rounding=rounding)  # type: ignore[arg-type]
    fmt = format_named(format_name)
    return decode(encode(x, fmt, policy), fmt)


def _parts(x: F64, count: int, format_name: str, rounding: str = "nearest_even") -> F64:
    """The sum of so many narrow numbers, each of what the ones before it left."""
    total = np.zeros_like(x)
    for _ in range(count):
        total = total + _rounded(x - total, format_name, rounding)
    return total


#: what an operand of float32 may be in a product with 1; PTX ISA for .tf32 and cvt.rna, Triton for the splits
SPLITS: dict[str, tuple[str, Callable[[F64], F64]]] = {
    "float32": ("whole", lambda x: x),
    "tf32 cut": ("cut to tf32, as matrix units do", lambda x: _rounded(x, "tfloat32", "toward_zero")),
    "tf32 away": ("rounded to tf32, ties away from zero", lambda x: _rounded(x, "tfloat32", "nearest_away")),
    "tf32 even": ("rounded to tf32, ties to even", lambda x: _rounded(x, "tfloat32")),
    "tf32x3": ("split into two tf32 numbers, three products", lambda x: _parts(x, 2, "tfloat32", "nearest_away")),
    "bf16": ("rounded to bfloat16", lambda x: _rounded(x, "bfloat16")),
    "bf16x3": ("split into two bfloat16 numbers, three products", lambda x: _parts(x, 2, "bfloat16")),
    "bf16x6": ("split into three bfloat16 numbers, six products", lambda x: _parts(x, 3, "bfloat16")),
    "float16": ("rounded to float16", lambda x: _rounded(x, "float16")),
}


def _asked(setting: Setting) -> list[str]:
    return [name for name, side in (("a", setting.a), ("b", setting.b)) if format_named(side.format).bits > 19]


def _rows(setting: Setting) -> Rows:
    """x · 1, less the 1 at the other end of K, so that few bits of the result are enough."""
    rows: dict[Key, Row | None] = {}
    for name in _asked(setting):
        for sign in SIGNS:
            for n, number in enumerate(NUMBERS):
                pair = (sign * number, 1.0) if name == "a" else (1.0, sign * number)
                rows[name, sign, n] = Row(((0, *pair), (setting.k - 1, -sign, 1.0)))
    return kept(rows)


def _read(setting: Setting, answers: Answers, found: Findings) -> list[Finding]:
    asked = _asked(setting)
    if not asked:
        return [unsaid("operands", f"{setting.a.format} and {setting.b.format} enter the product as they are")]
    said = {name: _of(setting, answers, name) for name in asked}
    if len(set(said.values())) == 1:
        names = said[asked[0]]
        return [Finding("operands", " or ".join(names) or "other", _words(names))]
    text = "; ".join(f"{name}: {' or '.join(names) or 'other'}" for name, names in said.items())
    return [Finding("operands", text, "; ".join(f"{name} is {_words(names)}" for name, names in said.items()))]


def _of(setting: Setting, answers: Answers, name: str) -> tuple[str, ...]:
    """Names of the splits that give all answers."""
    x = np.array([s * n for s in SIGNS for n in NUMBERS])
    got = np.array([answers[name, s, n] for s in SIGNS for n in range(len(NUMBERS))])
    signs = np.array([s for s in SIGNS for _ in NUMBERS])
    return tuple(k for k, (_, split) in SPLITS.items() if np.array_equal(_returned(setting, split(x) - signs), got))


def _returned(setting: Setting, x: F64) -> F64:
    return x if setting.out in ("float32", "float64") else _rounded(x, setting.out)


def _words(names: tuple[str, ...]) -> str:
    if not names:
        return "entered in no known form"
    return ", or ".join(SPLITS[name][0] for name in names)


PROBE = Probe("operands", "Which bits of float32 operands enter the product?", ("operands",), _rows, _read)
