"""Named cast policies: who does what, since which version, and on whose authority."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.codec import values

#: What an expectation rests on. A kernel that parts from a ``document`` alone is disputed, not failed.
Evidence = Literal["specification", "measured", "document"]

SATURATE = CastPolicy(overflow="max", infinity="max")
NONSATURATE = CastPolicy(overflow="special", infinity="special")


@dataclass(frozen=True)
class NamedPolicy:
    """A policy per destination format, under the name of who follows it."""

    name: str
    by_format: dict[str, CastPolicy]
    evidence: Evidence
    authority: str  #: clause, document or measurement
    applies: str  #: product and version range, or "" for a specification


POLICIES: dict[str, NamedPolicy] = {
    p.name: p
    for p in (
        NamedPolicy(
            "ocp_saturate",
            {"float8_e4m3fn": SATURATE},
            "specification",
            "OCP OFP8 1.0, conversion to OFP8, saturating mode: overflow and infinity give the largest normal",
            "",
        ),
        NamedPolicy(
            "ocp_nonsaturate",
            {"float8_e4m3fn": NONSATURATE},
            "specification",
            "OCP OFP8 1.0, conversion to OFP8, non-saturating mode: overflow and infinity give NaN in E4M3",
            "",
        ),
        NamedPolicy(
            "fnuz_saturate",
            {"float8_e4m3fnuz": SATURATE},
            "specification",
            "ONNX Cast (opset 19 and later), saturate=1: overflow and infinity give the largest finite value",
            "",
        ),
        NamedPolicy(
            "fnuz_nonsaturate",
            {"float8_e4m3fnuz": NONSATURATE},
            "specification",
            "ONNX Cast (opset 19 and later), saturate=0: overflow and infinity give NaN",
            "",
        ),
        NamedPolicy(
            "torch_until_2_12",
            {"float8_e4m3fn": NONSATURATE, "float8_e4m3fnuz": NONSATURATE},
            "measured",
            "released torch wheels up to 2.12.0 (pytorch#178817 changed the cast)",
            "torch <2.13",
        ),
        NamedPolicy(
            "torch_from_2_13",
            {"float8_e4m3fn": SATURATE, "float8_e4m3fnuz": NONSATURATE},
            "measured",
            "torch 2.13.0 wheel, CPU (pytorch#178817): e4m3fn saturates, infinity too; FNUZ still gives NaN",
            "torch >=2.13",
        ),
        NamedPolicy(
            "ml_dtypes",
            {"float8_e4m3fn": NONSATURATE, "float8_e4m3fnuz": NONSATURATE},
            "measured",
            "ml_dtypes 0.6.0 astype (ml_dtypes#147, #260: NaN is intended)",
            "ml_dtypes <=0.6",
        ),
        NamedPolicy(
            "triton_amd_fnuz",
            {"float8_e4m3fnuz": CastPolicy(overflow="max", infinity="special")},
            "document",
            "Triton 3.9 lowering for AMD: finite overflow saturates, infinity gives NaN (triton#11667); "
            "what the gfx942 instruction itself does with infinity is not settled",
            "triton 3.9 on gfx942",
        ),
    )
}


def policy_named(name: str) -> NamedPolicy:
    """The named policy. Raises ``BadInput`` with near names."""
    if name not in POLICIES:
        raise unknown("cast policy", name, POLICIES)
    return POLICIES[name]


def resolve(policy: str | CastPolicy, format_name: str) -> CastPolicy:
    """The choices for one destination. Raises ``BadInput`` where the policy does not fit the format."""
    fmt = format_named(format_name)
    if isinstance(policy, str):
        named = policy_named(policy)
        if fmt.name not in named.by_format:
            raise BadInput(
                f"policy {policy!r} does not fit {fmt.name}: it is defined for {', '.join(named.by_format)}; "
                f"for {fmt.name} there are {', '.join(fitting(fmt.name)) or 'none'}"
            )
        policy = named.by_format[fmt.name]
    check_fits(policy, fmt)
    return policy


def fitting(format_name: str) -> list[str]:
    """Names of the policies that are defined for a destination format."""
    return [name for name, named in POLICIES.items() if format_name in named.by_format]


def check_fits(policy: CastPolicy, fmt: Format) -> None:
    """Raise ``BadInput`` for a choice that the format cannot express."""
    if policy.limit is not None and policy.limit not in values(fmt):
        raise BadInput(f"cast policy: limit={policy.limit} is not a value of {fmt.name}")
