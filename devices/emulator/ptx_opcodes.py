"""Every opcode of PTX that is modelled, by its first word. A modifier that its builder leaves is refused."""

from __future__ import annotations

from narrowgauge.devices.emulator import (
    ptx_async,
    ptx_atomic,
    ptx_carry,
    ptx_convert,
    ptx_float,
    ptx_integer,
    ptx_matrix,
    ptx_memory,
    ptx_warp,
)
from narrowgauge.devices.emulator.ptx_operands import Builder

_PLAIN: dict[str, Builder] = {
    **ptx_integer.OPCODES,
    **ptx_float.OPCODES,
    **ptx_convert.OPCODES,
    **ptx_memory.OPCODES,
    **ptx_matrix.OPCODES,
    **ptx_carry.OPCODES,
    **ptx_atomic.OPCODES,
    **ptx_async.OPCODES,
    **ptx_warp.OPCODES,
}
OPCODES: dict[str, Builder] = _PLAIN | {name: ptx_carry.or_carrying(_PLAIN[name]) for name in ("add", "sub", "mad")}
