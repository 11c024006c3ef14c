"""Every opcode of PTX that is modelled, by its first word. A modifier that its builder leaves is refused."""

from __future__ import annotations

from narrowgauge.devices.emulator import ptx_convert, ptx_float, ptx_integer, ptx_matrix, ptx_memory
from narrowgauge.devices.emulator.ptx_operands import Builder

OPCODES: dict[str, Builder] = {
    **ptx_integer.OPCODES,
    **ptx_float.OPCODES,
    **ptx_convert.OPCODES,
    **ptx_memory.OPCODES,
    **ptx_matrix.OPCODES,
}
