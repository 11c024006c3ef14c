"""What files call the types of their tensors: how many elements share how many bytes, and our name of the format."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from narrowgauge.contracts.formats import FORMATS

#: axes of a tensor (torch and numpy have no more), and a number of elements that none has
AXES, TOO_MANY = 64, 1 << 58


@dataclass(frozen=True)
class Unit:
    """The smallest number of elements that fills whole bytes."""

    elements: int
    bytes: int
    format: str = ""  #: of one element; "" where we have none, or where the file does not say where its bits stand

    def size(self, shape: Sequence[int]) -> int | None:
        """Bytes of a tensor; None for a shape that none can have."""
        count = math.prod(shape)
        # an axis of none does not excuse the others
        if len(shape) > AXES or math.prod(n or 1 for n in shape) >= TOO_MANY or count % self.elements:
            return None
        return count // self.elements * self.bytes


_FORMAT_OF = {f.safetensors: f.name for f in FORMATS.values() if f.safetensors and f.bits % 4 == 0}


def _plain(count: int, *names: str) -> dict[str, Unit]:
    return {name: Unit(1, count, _FORMAT_OF.get(name, "")) for name in names}


#: of safetensors 0.8 (``Dtype`` of its tensor.rs). Two codes of F4 share a byte, the first in the low nibble, as
#: torch.float4_e2m1fn_x2 has them; how four codes of F6 share three bytes no document says
SAFETENSORS: Mapping[str, Unit] = {
    **_plain(1, "BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"),
    **_plain(2, "I16", "U16", "F16", "BF16"),
    **_plain(4, "I32", "U32", "F32"),
    **_plain(8, "I64", "U64", "F64", "C64"),
    "F4": Unit(2, 1, _FORMAT_OF["F4"]),
    "F6_E2M3": Unit(4, 3),
    "F6_E3M2": Unit(4, 3),
}

#: of ggml, by the number in a GGUF file: the name, elements of a block, its bytes (ggml.h, ggml-common.h and
#: gguf-py/gguf/constants.py at 0024aa74; Q8_1 by ggml-common.h, where its two numbers are halves)
_GGML = (
    (0, "F32", 1, 4), (1, "F16", 1, 2), (2, "Q4_0", 32, 18), (3, "Q4_1", 32, 20), (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24), (8, "Q8_0", 32, 34), (9, "Q8_1", 32, 36), (10, "Q2_K", 256, 84), (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144), (13, "Q5_K", 256, 176), (14, "Q6_K", 256, 210), (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66), (17, "IQ2_XS", 256, 74), (18, "IQ3_XXS", 256, 98), (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18), (21, "IQ3_S", 256, 110), (22, "IQ2_S", 256, 82), (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1), (25, "I16", 1, 2), (26, "I32", 1, 4), (27, "I64", 1, 8), (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56), (30, "BF16", 1, 2), (34, "TQ1_0", 256, 54), (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17), (40, "NVFP4", 64, 36), (41, "Q1_0", 128, 18),
)  # fmt: skip
GGML: Mapping[int, str] = {number: name for number, name, _, _ in _GGML}
#: numbers that ggml gave once and does not read any more
GGML_REMOVED: Mapping[int, str] = {
    4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}  # fmt: skip

#: of torch, by the name of the dtype; what is packed or complex has no format of one element
TORCH: Mapping[str, Unit] = {
    **{f.name: Unit(1, f.bits // 8, f.name) for f in FORMATS.values() if f.bits in (8, 16, 32, 64)},
    **{name: Unit(1, 2) for name in ("int16", "uint16")},
    **{name: Unit(1, 8) for name in ("int64", "uint64", "complex64")},
    "bool": Unit(1, 1), "uint32": Unit(1, 4), "complex32": Unit(1, 4), "complex128": Unit(1, 16),
    "qint8": Unit(1, 1, "int8"), "quint8": Unit(1, 1, "uint8"), "qint32": Unit(1, 4, "int32"),
    "float4_e2m1fn_x2": Unit(2, 1, "float4_e2m1fn"),
}  # fmt: skip

#: every type of every kind of file; a name that two kinds have means the same in both
UNITS: Mapping[str, Unit] = {
    **{name: Unit(elements, size, _FORMAT_OF.get(name, "")) for _, name, elements, size in _GGML},
    **TORCH,
    **SAFETENSORS,
}
