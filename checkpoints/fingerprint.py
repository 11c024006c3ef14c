"""Which format bytes of unknown or doubtful label are, judged by how often each code stands there.

Three traits, each of which may leave a question open:

* Numbers are of many sizes, codes are not: a quantizer's input has a smooth density, so how often a code stands there
  jumps by two where the spacing of its format doubles, every 8 codes in E4M3, every 4 in E5M2, nowhere in int8.
* Two codes are what one flavour has and the other lacks. 0x80 is the negative zero of OCP, which small negative numbers
  become, and the NaN of FNUZ. 0x7F and 0xFF are NaN in E4M3 of OCP, and ±240 in FNUZ, to which amax / 240 brings the
  largest number. (In E5M2: 0x7C to 0x7F.)
* Where two codes of 4 bits share a byte, both nibbles have the same distribution.

OCP scaled to 448 and FNUZ scaled to 224 are the same codes but for negative zero. That is told by its absence alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from narrowgauge.checkpoints.nibbles import nibbles
from narrowgauge.checkpoints.smooth import roughness
from narrowgauge.contracts.formats import FORMATS, Format
from narrowgauge.reference.codec import values
from narrowgauge.reference.landmarks import top_code

Histogram = npt.NDArray[np.int64]

#: what a candidate of another family must be rougher by, as a sum of squares: twice the logarithm of the odds
ROUGHER = 30.0
#: a sum of squares for each code beyond which a candidate does not fit at all
FITS = 1.6
#: flavours of each family of which the spacing is the same
FLAVOURS: Mapping[str, tuple[str, ...]] = {
    "float8_e4m3fn": ("float8_e4m3fn", "float8_e4m3fnuz"),
    "float8_e5m2": ("float8_e5m2", "float8_e5m2fnuz"),
    "int8": ("int8",),
    "uint8": ("uint8",),
}
#: negative zeros that OCP would have had by its smallest negative codes: with none there, odds of e^20
EXPECTED = 20.0
#: codes that are no accident; negative zeros that have to be expected for those that are there to be surely such
SEVERAL, FEW = 8, 4.0
#: exponents of scales lie near that of 1, all but one in a hundred of a tensor's within so many, and are not few
EXPONENTS, NEAR, SCALES = range(80, 160), 8, 32
#: the zero point of symmetric data in uint8, where an exponent would stand for 2
MIDDLE = 128


@dataclass(frozen=True)
class Verdict:
    """What bytes may be: one candidate is an answer, with several it is not decided between them."""

    candidates: tuple[str, ...]
    reasons: tuple[str, ...]
    sure: bool = False  #: of a single candidate: beyond what rests on the shape of the data alone

    @property
    def format(self) -> str:
        """The answer; "" where it is not decided."""
        return self.candidates[0] if len(self.candidates) == 1 else ""


def fingerprint(codes: Histogram) -> Verdict:
    """What a tensor is of which each byte stands there so often [256]. Histograms of several tensors may be added."""
    if exponents := _exponents(codes):
        return exponents
    packed = nibbles(codes)
    if packed is not None:
        return Verdict(*packed)
    family, reasons = _family(codes)
    if not family:
        return Verdict(tuple(name for names in FLAVOURS.values() for name in names), reasons)
    if len(FLAVOURS[family]) == 1:
        return Verdict((family,), reasons)
    return flavour(codes, family, reasons)


def _exponents(codes: Histogram) -> Verdict | None:
    """The verdict on bytes that are powers of two, as E8M0 has them; None if they need not be."""
    there = np.flatnonzero(codes)
    if codes.sum() < SCALES or there[0] not in EXPONENTS or there[-1] not in EXPONENTS:
        return None
    low, high = int(there[0]), int(there[-1])
    said = f"all codes are from {low} to {high}"
    share = np.cumsum(codes) / codes.sum()
    near = int((share < 0.995).sum() - (share < 0.005).sum())
    largest = top_code(FORMATS["float8_e4m3fn"])
    if codes.argmax() == MIDDLE:
        return Verdict(("float8_e8m0fnu", "uint8"), (f"{said}, most {MIDDLE}: exponents, or zero points of uint8",))
    if near > NEAR or largest - 1 <= high <= largest:
        return Verdict(("float8_e8m0fnu", "float8_e4m3fn"), (f"{said}: exponents, or positive scales of E4M3",))
    return Verdict(("float8_e8m0fnu",), (f"{said}, nearly all within {NEAR}: 2^{low - 127} to 2^{high - 127}",))


def _family(codes: Histogram) -> tuple[str, tuple[str, ...]]:
    """The family whose spacing makes the density smooth, and why; "" where none does, or two do."""
    rough = {family: roughness(codes, family) for family in ("float8_e4m3fn", "float8_e5m2", "int8")}
    (best, (least, count)), (second, (next_, _)) = sorted(rough.items(), key=lambda item: item[1][0])[:2]
    if count == 0 or next_ - least < ROUGHER:
        return "", (f"too few codes stand there often enough to tell spacings apart ({count} do)",)
    if least > FITS * count:
        return "", ("no spacing makes the density of the numbers smooth",)
    reason = f"with the spacing of {best} the density of the numbers is smooth, with that of {second} it is not"
    if best == "int8" and codes[120:136].sum() > codes[:8].sum() + codes[-8:].sum():
        best, reason = "uint8", "evenly spaced, and most numbers are near 128"
    return best, (reason,)


def flavour(codes: Histogram, family: str, reasons: tuple[str, ...] = ()) -> Verdict:
    """Which of OCP and FNUZ the codes of a known family are; both candidates where nothing says so."""
    ocp, fnuz = FLAVOURS[family]
    fmt = FORMATS[ocp]
    top = [code for code in range(256) if not np.isfinite(values(fmt)[code])]
    zeros, tops = int(codes[fmt.sign_bit]), int(codes[top].sum())
    expected = negative_zeros_expected(codes, fmt)
    if zeros >= SEVERAL and zeros >= expected / 2 and not _goes_on(codes, fmt):
        said = f"0x80 stands there {zeros:,} times, and negative zero would about {expected:,.0f} times: NaN in FNUZ"
        also = (f"{tops:,} codes are NaN or infinite in OCP",) if tops else ()
        return Verdict((ocp,), (*reasons, said, *also), sure=not tops and expected >= FEW)
    if not zeros and expected >= EXPECTED and tops:
        said = (
            f"no 0x80, where OCP would have about {expected:,.0f} negative zeros, and {tops:,} codes that are finite "
            "in FNUZ alone"
        )
        return Verdict((fnuz,), (*reasons, said), sure=True)
    if not zeros and expected >= EXPECTED:
        said = (
            f"no 0x80, where OCP would have about {expected:,.0f} negative zeros: FNUZ, or bytes of OCP whose negative "
            "zeros somebody took out"
        )
        return Verdict((fnuz,), (*reasons, said))
    if not zeros and _goes_on(codes, fmt):
        said = f"{tops:,} codes beyond {top_code(fmt):#04x}, which go on as those below do: finite in FNUZ, NaN in OCP"
        return Verdict((fnuz,), (*reasons, said), sure=True)
    said = f"0x80 stands there {zeros:,} times, and codes that are finite in FNUZ alone {tops:,}: too little to tell"
    return Verdict((ocp, fnuz), (*reasons, said))


def negative_zeros_expected(codes: Histogram, fmt: Format) -> float:
    """How many negative zeros OCP would have: half of what a code of its smallest negative numbers has.

    Subnormal codes are evenly spaced, and negative zero stands for half such a space. Where the density falls towards
    larger numbers, as it does of weights, that is too few.
    """
    subnormal = codes[fmt.sign_bit + 1 : fmt.sign_bit + (1 << fmt.mantissa)]
    return float(subnormal.mean()) / 2


def _goes_on(codes: Histogram, fmt: Format) -> bool:
    """Whether of either sign the first code beyond the largest of OCP is common, a fourth of that largest at least.

    So it is where amax / the largest of FNUZ scaled them, by token, channel or block; NaN that somebody left behind are
    of one sign, or much rarer than the largest of OCP, which each scale brings at least one number to.
    """
    top = top_code(fmt)
    signs = ((codes[top | sign], codes[top + 1 | sign]) for sign in (0, fmt.sign_bit))
    return all(beyond >= SEVERAL and 4 * beyond >= last for last, beyond in signs)
