"""The rules of the lint, as data. Adding one is one entry of ``RULES``.

What is found is a place that has to be changed, or at least looked at, when code goes from OCP formats to FNUZ (MI300,
gfx942) or back. Code that asks for the flavour already is no finding, nor are MX and NVFP4, whose definitions say OCP.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from narrowgauge.lint.site import Kind, Site

#: the literals that some rule looks at; sites of others are not made
NUMBER = re.compile(r"(448|240|224|57344)(\.0*)?[fl]?|0x(7f|80)u?", re.IGNORECASE)
FLOAT8 = re.compile(r"fp8|float8|\bf8|_f8|e4m3|e5m2")
#: said by code that already tells the flavours apart
FLAVOUR = re.compile(r"fnuz|float8e[45]b\d")
#: the chips whose float8 is FNUZ, or those of the same vendor whose is not
CHIP = re.compile(r"gfx94|gfx950|gfx12|mi300|mi350|hip_fp8_type")
#: in a condition: the number is chosen by the buffer's own format
BY_FORMAT = re.compile(r"e4m3_?fn\b|float8e4nv|float8_?e5m?2?\b")
#: what only casts: the scale is its caller's; and what makes the type
CONVERTS = re.compile(r"cast|convert|conversion|cvt|dtype|satur")
DEFINES = re.compile(r"\bfloat8\b|float_e[45]m[23]_t|numeric_conversion")
#: element formats of these are OCP by definition, on every vendor's hardware
OCP_BY_DEFINITION = re.compile(r"nvfp4|mxfp|fp4|e2m1|\bmx|_mx_|mx_")
E8M0 = re.compile(r"e8m0|exponent|mxfp|\bmx_|fp4|e2m1")
BOUNDS = re.compile(r"a?max|a?min|cl[ai]mp|clip|bound|limit|range|satur|scale|quant")
VENDOR = re.compile(r"\b_?(is_|on_|use_)?(hip|rocm|amd)(_available)?\b|__hip_|__hipcc__")
ARCHITECTURE = re.compile(r"gfx|gcnarch|mi3\d\d|cdna|capability|hip_fp8_type|\barch|_arch")
SCALE = re.compile(r"scale|_s\b|\bsfs?\b|_sfs?\b|\bsf[a-z]?_|amax|_inv\b|inv_|dequant|qparam|gscale")
CLAMPED = re.compile(r"cl[ai]mp|clip|minimum|maximum|\bf?max|\bf?min|_max\b|_min\b|amax|satur|satfinite|finfo|min_max")
#: of values that were made, not measured: noise and constants do not overflow
MADE = re.compile(r"\b(zeros|ones|empty|full|rand|randn|randint|arange|eye)(_like)?\b")
BYTES = re.compile(r"\bu?int8\b|\buint8_t\b|\bint8_t\b")
FNUZ_SAYS = re.compile(r"e[45]m[23]_?fnuz\b|float8e[45]b\d+|\b2(24|40)(\.0*)?f?(?![\w.])")
#: a name that asks for the flavour, and is no format's own
ASKS = re.compile(r"(?<!e4m3)(?<!e5m2)(?<!e4m3_)(?<!e5m2_)fnuz")


@dataclass(frozen=True)
class Rule:
    """What is looked for, why it bites, and what to do instead."""

    name: str
    looks_for: str
    why: str  #: with a number that one can check
    remedy: str
    rows: tuple[str, ...]  #: of docs/coverage.md
    kind: Kind
    finds: Callable[[Site], bool]


def _is(site: Site, number: str) -> bool:
    """Whether a literal is a whole number: ``448``, ``448.``, ``448.0f``."""
    return re.fullmatch(rf"{number}(\.0*)?[fFlL]?", site.text) is not None


def _told_apart(site: Site) -> bool:
    """Whether the code around it asks for the flavour, the chip or the buffer's format already."""
    near = f"{site.statement} {site.guards}"
    if CHIP.search(near) or BY_FORMAT.search(site.guards):
        return True
    return FLAVOUR.search(f"{near} {site.function} {site.names}") is not None


def _is_bound(site: Site) -> bool:
    """A number that stands where a bound of float8 does."""
    near = f"{site.statement} {site.guards} {site.names}"
    if _told_apart(site) or OCP_BY_DEFINITION.search(f"{near} {site.folder}"):
        return False
    written_as_float = "." in site.text
    if FLOAT8.search(near):
        return written_as_float or bool(BOUNDS.search(site.statement))
    inside = FLOAT8.search(site.function) or FLOAT8.search(site.module)
    return written_as_float and bool(inside and BOUNDS.search(site.statement))


def _is_bound_by_name(site: Site) -> bool:
    """The same of numbers that stand for much else: float8 must be said, and a bound too."""
    return _is_bound(site) and bool(FLOAT8.search(f"{site.statement} {site.guards}") and BOUNDS.search(site.statement))


def _is_nan_code(site: Site) -> bool:
    if site.text.lower().rstrip("u") not in ("0x7f", "0x80") or _told_apart(site):
        return False
    if DEFINES.search(site.names):
        return False
    near = f"{site.statement} {site.guards} {site.names}"
    return bool(FLOAT8.search(near)) and not E8M0.search(f"{near} {site.function} {site.folder}")


def _by_vendor(site: Site) -> bool:
    if not VENDOR.search(site.statement) or ARCHITECTURE.search(f"{site.statement} {site.guards}"):
        return False
    told = [bool(FNUZ_SAYS.search(words) and FLOAT8.search(words)) for words in site.branches]
    asked = any(ASKS.search(words) or ARCHITECTURE.search(words) for words in (site.guards, *site.branches))
    return any(told) and not all(told) and not asked


def _is_float8_cast(site: Site) -> bool:
    """Of values that were neither made for a test nor are codes already."""
    if DEFINES.search(site.names):
        return False
    return not MADE.search(site.operand) and not FLOAT8.search(site.operand) and not E8M0.search(site.text)


def _bare(site: Site) -> bool:
    if SCALE.search(f"{site.function} {site.statement}") or CONVERTS.search(site.names) or not _is_float8_cast(site):
        return False
    return not (is_view(site) and BYTES.search(f"{site.function} {site.statement}"))


def _unclamped(site: Site) -> bool:
    if is_view(site) or _bare(site) or not _is_float8_cast(site):
        return False
    return not CLAMPED.search(f"{site.function} {site.statement}")


def is_view(site: Site) -> bool:
    """Whether bits are read anew, not values cast."""
    return site.text.startswith(".view")


RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule(
            "max_448",
            "448 as a bound of float8",
            "448 is the largest of e4m3fn. The largest of e4m3fnuz is 240: with the bound 448 every value that is "
            "scaled to 248 or more becomes NaN there, or 240.",
            "Take the bound from the format of the buffer: torch.finfo(dtype).max, or a constant that the host passes.",
            ("FMT05",),
            "number",
            lambda s: _is(s, "448") and _is_bound(s),
        ),
        Rule(
            "max_240",
            "240 as a bound of float8",
            "240 is the largest of e4m3fnuz, and leaves out 240 to 448 of e4m3fn. vLLM and SGLang hold to 224 on "
            "MI300: a scale of amax / 240 is 7 % smaller than theirs.",
            "Take the bound from the format of the buffer, and from one place for scales and clamps alike.",
            ("FMT06",),
            "number",
            lambda s: _is(s, "240") and _is_bound_by_name(s),
        ),
        Rule(
            "max_224",
            "224 as a bound of float8",
            "224 is no format's largest: vLLM and SGLang hold to it for e4m3fnuz, whose largest is 240. On e4m3fn it "
            "halves the range.",
            "Ask the engine's own function for its bound; do not repeat the number.",
            ("FMT06",),
            "number",
            lambda s: _is(s, "224") and _is_bound_by_name(s),
        ),
        Rule(
            "max_57344",
            "57344 as a bound of float8",
            "57344 is the largest of e5m2 and of e5m2fnuz. From 61440 on a cast that does not saturate gives "
            "infinity in the first, and NaN in the second, which has no infinity; and code that goes on to "
            "e4m3 needs 448 or 240.",
            "Take the bound from the format of the buffer: torch.finfo(dtype).max.",
            ("FMT05",),
            "number",
            lambda s: _is(s, "57344") and _is_bound_by_name(s),
        ),
        Rule(
            "nan_code",
            "0x7F or 0x80 as a code of float8",
            "0x7F is NaN in e4m3fn and 240 in e4m3fnuz; 0x80 is -0 in OCP formats and the only NaN of FNUZ ones, which "
            "a mask with 0x7F turns into 0.",
            "Ask isnan and signbit of the decoded value, or choose codes by the format, not by the kernel.",
            ("CAST01", "FMT01"),
            "number",
            _is_nan_code,
        ),
        Rule(
            "vendor_test",
            "the flavour of float8 chosen by a test of the vendor",
            "Of AMD's GPUs only gfx940 to gfx942 (MI300) are FNUZ; gfx950 and gfx12 are OCP. The same byte has twice "
            "the value in the other flavour.",
            "Ask for the format: is_fp8_fnuz() of the engine, the architecture's name (gfx942), or the buffer's dtype.",
            ("FMT02", "FMT03"),
            "branch",
            _by_vendor,
        ),
        Rule(
            "unclamped_cast",
            "a cast to float8 with nothing that holds values below the largest",
            "1000 becomes 448 where the cast saturates, and NaN where it does not: torch until 2.12 and ml_dtypes give "
            "NaN, torch from 2.13 (e4m3fn alone) and NVIDIA's instruction 448, AMD's by a mode bit.",
            "Clamp to the format's largest before the cast; keep NaN, if it is to be seen.",
            ("CAST05", "CAST06", "CAST07", "STATIC01"),
            "cast",
            _unclamped,
        ),
        Rule(
            "no_scale",
            "float8 cast or viewed in a function that knows no scale",
            "Codes without their scale are read by whoever has one: a byte of the other flavour is off by exactly 2, "
            "and an activation above 448 is clipped or NaN with the scale 1 that is meant.",
            "Pass the scale with the codes; where it is 1 by design, say so: # narrowgauge: ignore[no_scale] why",
            ("STATIC03", "FMT01"),
            "cast",
            _bare,
        ),
    )
}
