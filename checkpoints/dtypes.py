"""What files call the types of their tensors: how many elements share how many bytes, and our name of the format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from narrowgauge.contracts.formats import FORMATS


@dataclass(frozen=True)
class Unit:
    """The smallest number of elements that fills whole bytes."""

    elements: int
    bytes: int
    format: str = ""  #: of one element; "" where we have none, or where the file does not say where its bits stand


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

#: every type of every kind of file; a name that two kinds have means the same in both
UNITS: Mapping[str, Unit] = {**SAFETENSORS}
