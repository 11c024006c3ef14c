"""The policies that the killer tries, written down once more: what each named one means, and single choices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from narrowgauge.suites.meta import second_derivation as second

Policy = dict[str, Any]

PLAIN: Policy = {
    "rounding": "nearest_even", "overflow": "max", "infinity": "max", "nan": "nan",
    "negative_zero": "keep", "subnormals": "keep", "limit": None,
}  # fmt: skip
SPECIAL = PLAIN | {"overflow": "special", "infinity": "special"}
CLAMPED = PLAIN | {"infinity": "special"}
OCP, FNUZ = ("float8_e4m3fn", "float8_e5m2"), ("float8_e4m3fnuz", "float8_e5m2fnuz")
FINITE, IEEE_8 = ("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"), ("float8_e4m3", "float8_e3m4")
#: destinations of an intermediate rounding; a few policies say all there is to say of them
WIDER = ("float16", "bfloat16", "tfloat32")
B11, E8M0, INTEGERS = "float8_e4m3b11fnuz", "float8_e8m0fnu", ("int8", "uint8", "int4", "uint4")


def _of(formats: Iterable[str], policy: Policy) -> dict[str, Policy]:
    return dict.fromkeys(formats, policy)


def _unsigned(rounding: str) -> Policy:
    """Of an E8M0 rule that looks at magnitudes alone."""
    return PLAIN | {"rounding": rounding, "negative": "magnitude"}


#: what each named policy means, from the documents named in its authority; torch's and ml_dtypes' as measured
MEANT: dict[str, dict[str, Policy]] = {
    "ocp_saturate": _of(OCP, PLAIN),
    "ocp_nonsaturate": _of(OCP, SPECIAL),
    "fnuz_saturate": _of(FNUZ, PLAIN),
    "fnuz_nonsaturate": _of(FNUZ, SPECIAL),
    "ieee": _of(("float32", "tfloat32", "bfloat16", "float16", *IEEE_8), SPECIAL),
    "torch_until_2_12": _of((*OCP, *FNUZ), SPECIAL)
    | {E8M0: SPECIAL | {"rounding": "nearest_away", "negative": "magnitude"}},
    "torch_from_2_13": _of(("float8_e5m2", *FNUZ), SPECIAL)
    | {"float8_e4m3fn": PLAIN, E8M0: SPECIAL | {"rounding": "nearest_away", "negative": "magnitude"}},
    "torch_ieee": _of(("bfloat16", "float16"), SPECIAL),
    "ml_dtypes": _of((*OCP, *FNUZ, *IEEE_8, B11, "bfloat16"), SPECIAL)
    | _of(FINITE, PLAIN | {"nan": "opposite_zero"})
    | {E8M0: SPECIAL | {"rounding": "nearest_away", "negative": "nan", "zero": "nan"}},
    "ml_dtypes_0_5_0": _of((*OCP, *FNUZ, *IEEE_8, B11, "bfloat16"), SPECIAL)
    | _of(FINITE, PLAIN | {"nan": "opposite_zero"})
    | {E8M0: SPECIAL | {"rounding": "nearest_even", "negative": "nan", "zero": "nan"}},
    "gfloat_saturate": _of((*OCP, *FNUZ, *IEEE_8, B11, *WIDER, E8M0), PLAIN) | _of(FINITE, PLAIN | {"nan": "zero"}),
    "gfloat_nonsaturate": _of((*OCP, *FNUZ, *IEEE_8, B11, *WIDER, E8M0), SPECIAL),
    "ptx_satfinite": _of((*OCP, *WIDER), PLAIN) | _of(FINITE, PLAIN | {"nan": "max"}),
    "ptx_ue8m0_rp_satfinite": {E8M0: _unsigned("up")},
    "ptx_ue8m0_rz_satfinite": {E8M0: _unsigned("toward_zero")},
    "e8m0_floor": {E8M0: _unsigned("toward_zero")},
    "e8m0_ceil": {E8M0: _unsigned("up")},
    "e8m0_rceil": {E8M0: _unsigned("up")},
    "e8m0_even": {E8M0: _unsigned("nearest_even")},
    "e8m0_nearest": {E8M0: _unsigned("nearest_away")},
    "e4m3_ceil": {"float8_e4m3fn": PLAIN | {"rounding": "up"}},
    "ptx_tf32_rna": {"tfloat32": SPECIAL | {"rounding": "nearest_away"}},
    "ptx_tf32_rn": {"tfloat32": SPECIAL},
    "tf32_truncated": {"tfloat32": SPECIAL | {"rounding": "toward_zero"}},
    "onnx_saturate": _of((*OCP, *FNUZ), PLAIN) | {E8M0: _unsigned("up")},
    "onnx_saturate_until_23": _of(OCP, PLAIN) | _of(FNUZ, CLAMPED),
    "onnx_nonsaturate": _of((*OCP, *FNUZ), SPECIAL),
    "triton_nvidia": _of(OCP, PLAIN),
    "triton_amd_ocp": _of(OCP, PLAIN),
    "triton_amd_fnuz": _of(FNUZ, CLAMPED),
    "amd_native": _of((*OCP, *FNUZ), SPECIAL),
    "amd_native_clamped": _of((*OCP, *FNUZ), CLAMPED),
    "integer_nearest": _of(INTEGERS, PLAIN | {"nan": "zero"}),
    "integer_away": _of(INTEGERS, PLAIN | {"nan": "zero", "rounding": "nearest_away"}),
    "integer_truncated": _of(INTEGERS, PLAIN | {"nan": "zero", "rounding": "toward_zero"}),
}
#: one choice changed at a time, and combinations in which two choices meet in one value
VARIANTS: tuple[Policy, ...] = (
    *({"rounding": r} for r in ("nearest_away", "nearest_zero", "toward_zero", "up", "down")),
    {"overflow": "special"},
    {"infinity": "special"},
    *({"nan": n} for n in ("max", "min", "signed_max", "zero", "opposite_zero")),
    {"negative_zero": "drop"},
    {"subnormals": "flush"},
    {"negative": "magnitude"},
    {"negative": "magnitude", "rounding": "up"},
    {"negative": "magnitude", "rounding": "down"},
    {"negative": "nan"},
    {"zero": "nan"},
    {"limit": 224.0},
    {"limit": 224.0, "nan": "max"},
    {"limit": 224.0, "overflow": "special"},
    {"limit": 0.015625, "overflow": "special"},
    {"subnormals": "flush", "rounding": "up", "negative_zero": "drop"},
    {"rounding": "down", "overflow": "special"},
    {"rounding": "toward_zero", "overflow": "special"},
    {"zero_point": 3},
    {"zero_point": -5, "rounding": "nearest_away"},
    {"zero_point": 128, "nan": "zero"},
    {"limit": 7.0},
    {"limit": 7.0, "zero_point": 3, "nan": "signed_max"},
    {"limit": 7.0, "nan": "min"},
)
#: destinations of at most 8 bits; the first two in every policy and from every source
DESTINATIONS = ("float8_e4m3fn", "float8_e4m3fnuz", *OCP[1:], *FNUZ[1:], *IEEE_8, B11, *FINITE, E8M0, *INTEGERS)
IN_FULL = DESTINATIONS[:2]
SOURCES = ("float32", "bfloat16", "float16")


def key_of(policy: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(policy.items()))


def policies_of(source: str, destination: str) -> list[Policy]:
    """The policies in which a destination is tried from a source."""
    if destination in WIDER:
        return [PLAIN, SPECIAL, SPECIAL | {"rounding": "up"}]
    layout = second.LAYOUTS[destination]
    base = PLAIN if layout.nan is not None else PLAIN | {"nan": "max"}
    named = [by_format[destination] for by_format in MEANT.values() if destination in by_format]
    if destination in IN_FULL or source == "float32":
        named += [base, *(base | v for v in VARIANTS)]
    return [policy for policy in named if fits(policy, destination)]


def fits(policy: Mapping[str, Any], destination: str) -> bool:
    """Whether a format can express the choices, from its layout."""
    layout = second.LAYOUTS[destination]
    special = layout.nan is not None or layout.infinity is not None
    floating = layout.sign == "bit"
    limit = policy["limit"]
    grid = [second.decode(c, destination).magnitude for c in range(layout.largest + 1)]
    return (
        (special or "special" not in (policy["overflow"], policy["infinity"]))
        and (layout.nan is not None or "nan" not in (policy["nan"], policy.get("negative")))
        and (layout.has_negative_zero or policy["nan"] != "opposite_zero")
        and (layout.sign != "none" or policy["nan"] not in ("min", "signed_max"))
        and (floating or (policy["subnormals"], policy["negative_zero"]) == ("keep", "keep"))
        and (layout.sign == "none" or policy.get("negative", "smallest") == "smallest")
        and (destination == E8M0 or policy.get("zero", "smallest") == "smallest")
        and (limit is None or (limit in grid and destination != E8M0))
        and (layout.is_integer or policy.get("zero_point", 0) == 0)
    )
