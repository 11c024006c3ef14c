"""OCP codes for devices whose units read FNUZ, and back: by bytes, with the scale doubled or halved, or requantized."""

from __future__ import annotations

from narrowgauge.contracts.conversion import FIRST, Conversion, Held
from narrowgauge.contracts.recipe import TENSOR, Blocks

#: a byte stands for half as much in FNUZ, but for these: 0x80 is -0 in OCP and the NaN of FNUZ, and 0x7F and 0xFF are
#: the NaNs of OCP and ±240 in FNUZ
_TO, _BACK = (("float8_e4m3fn", "float8_e4m3fnuz"),), (("float8_e4m3fnuz", "float8_e4m3fn"),)
_ZERO, _ZERO_AND_NAN = "80:00", "80:00 7f:80 ff:80"
#: FNUZ's ±240 are 480 in OCP's measure, beyond its largest: 448 is the nearest
_FROM_FNUZ = "80:7f 7f:7e ff:fe"
_W8A8 = "vLLM 0.33.0 model_executor/layers/quantization/utils/w8a8_utils.py:109-130"
_DEFINED = "OCP 8-bit floating point 1.0 and the FNUZ types of LLVM APFloat: the two tables of 256 values"


def _scaled(blocks_name: str, blocks: Blocks, swapped: str, source: str, name: str) -> Conversion:
    beside = (Held("scale", "block", "float32"),)
    return Conversion(
        name=f"{name}_{blocks_name}",
        formats=_TO,
        takes=(Held(FIRST), *beside, Held("input_scale", "tensor", "float32")),
        gives=(Held(FIRST), *beside, Held("input_scale", "tensor", "float32")),
        steps=(
            ("swap", FIRST, swapped),
            ("relabel", FIRST),
            ("times", "scale", 2.0),
            ("times", "input_scale", 2.0),
        ),
        source=source,
        evidence="specification" if swapped == _ZERO_AND_NAN else "source",
        blocks=blocks,
        exact=swapped == _ZERO_AND_NAN,
    )


_GRANULARITIES = {"tensor": TENSOR, "channel": Blocks(1, 0), "block": Blocks(128, 128, ragged=True)}


def _exponents(name: str, swapped: str, last: tuple[str | float, ...], source: str) -> Conversion:
    """Scales are E8M0: doubling is one more in the exponent."""
    return Conversion(
        name=name,
        formats=_TO,
        takes=(Held(FIRST), Held("scale", "block", "float8_e8m0fnu")),
        gives=(Held(FIRST), Held("scale", "block", "float8_e8m0fnu")),
        steps=(("swap", FIRST, swapped), ("relabel", FIRST), ("plus", "scale", *last)),
        source=source,
        evidence="specification" if swapped == _ZERO_AND_NAN else "source",
        blocks=Blocks(1, 32),
    )


CONVERSIONS = (
    *(_scaled(n, b, _ZERO_AND_NAN, _DEFINED, "ocp_to_fnuz") for n, b in _GRANULARITIES.items()),
    *(_scaled(n, b, _ZERO, _W8A8, "vllm.ocp_to_fnuz") for n, b in _GRANULARITIES.items()),
    Conversion(
        name="fnuz_to_ocp",
        formats=_BACK,
        takes=(Held(FIRST), Held("scale", "block", "float32")),
        gives=(Held(FIRST), Held("scale", "block", "float32")),
        steps=(("swap", FIRST, _FROM_FNUZ), ("relabel", FIRST), ("times", "scale", 0.5)),
        source=_DEFINED,
        evidence="specification",
        exact=True,
    ),
    #: 254 has no double, and 255 is NaN: both are NaN, since a smaller number would say nothing
    _exponents("ue8m0_to_fnuz", _ZERO_AND_NAN, (1, 0, 255), f"{_DEFINED}; OCP MX 1.0, 5.4.1: E8M0 255 is NaN"),
    _exponents(
        "vllm.ue8m0_to_fnuz", _ZERO, (1, 0, 254),
        "vLLM 0.33.0 model_executor/layers/quantization/utils/fp8_utils.py:1502-1523",
    ),
    Conversion(
        name="ocp_to_fnuz_requantized",
        formats=_TO,
        takes=(Held(FIRST), Held("scale", "block", "float32")),
        gives=(Held(FIRST), Held("scale", "tensor", "float32")),
        steps=(("values", "float32"), ("quantized", "plain.fp8_tensor")),
        source="its own definition: numbers in float32, and a quantizer of the catalogue",
        blocks=TENSOR,
    ),
    Conversion(
        name="fnuz_to_ocp_requantized",
        formats=_BACK,
        takes=(Held(FIRST), Held("scale", "block", "float32")),
        gives=(Held(FIRST), Held("scale", "tensor", "float32")),
        steps=(("values", "float32"), ("quantized", "plain.fp8_tensor")),
        source="its own definition: numbers in float32, and a quantizer of the catalogue",
        blocks=TENSOR,
    ),
)  # fmt: skip
