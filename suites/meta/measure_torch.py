"""What the casts of the torch that is installed here give, as JSON on standard output.

A program of its own: it needs Python and torch, neither narrowgauge nor numpy, so that it runs beside any version:

    python measure_torch.py [FLOAT32 FOLDER]

From bfloat16 and float16 every input is cast. FLOAT32 is a file of float32 patterns and FOLDER gets the codes of each
cast, as they are in memory: suites/meta/versions.py writes the one and reads the other. Each cast is made twice, of a
contiguous tensor and of every second element of one: torch has vector code for the first alone, and it gives a NaN
another code. The digests are of the codes as they are, so they too tell one NaN from another.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import struct
import sys
from array import array
from pathlib import Path
from typing import Any

FORMATS = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
WIDE = ("bfloat16", "float16")  #: destinations from float32 alone
#: inputs that a person wants to see, by name, as float32 patterns
PROBES = {
    "240": 0x43700000, "248": 0x43780000, "248 + ulp": 0x43780001, "448": 0x43E00000, "464": 0x43E80000,
    "465": 0x43E88000, "500": 0x43FA0000, "57344": 0x47600000, "61440": 0x47700000, "2^20": 0x49800000,
    "inf": 0x7F800000, "-inf": 0xFF800000, "nan": 0x7FC00000, "-nan": 0xFFC00000, "signalling nan": 0x7F800001,
    "0": 0, "-0": 0x80000000, "-1": 0xBF800000, "1.5": 0x3FC00000, "3": 0x40400000,
    "2^-149": 1, "2^-127": 0x400000, "1.25 x 2^-127": 0x500000, "1.5 x 2^-127": 0x600000,
    "1.5 x 2^127": 0x7F400000,
}  # fmt: skip


def main(arguments: list[str]) -> None:
    """Cast everything, and print what came back."""
    import torch

    inputs = {name: array("H", range(1 << 16)).tobytes() for name in WIDE}
    folder = None
    if arguments:
        inputs["float32"], folder = Path(arguments[0]).read_bytes(), Path(arguments[1])
        folder.mkdir(parents=True, exist_ok=True)
    casts = [
        measured(torch, data, source, destination, folder)
        for source, data in inputs.items()
        for destination in (FORMATS + WIDE if source == "float32" else FORMATS)
        if hasattr(torch, destination)
    ]
    probes = struct.pack(f"={len(PROBES)}I", *PROBES.values())
    shown = {
        destination: dict(zip(PROBES, in_hexadecimal(codes(torch, probes, "float32", destination, 1)), strict=True))
        for destination in FORMATS + WIDE
        if hasattr(torch, destination)
    }
    capability = torch.backends.cpu.get_cpu_capability()
    found = json.dumps({"version": torch.__version__, "cpu": capability, "casts": casts, "probes": shown})
    if folder is not None:
        (folder / "measured.json").write_text(found)
    print(found)


def measured(torch: Any, data: bytes, source: str, destination: str, folder: Path | None) -> dict[str, str]:
    """The digests of one cast; its codes go into the folder."""
    found = {"source": source, "format": destination}
    for name, step in (("contiguous", 1), ("strided", 2)):
        raw = codes(torch, data, source, destination, step)
        found[name] = hashlib.sha256(raw).hexdigest()
        if folder is not None:
            (folder / f"{source}-{destination}-{name}").write_bytes(raw)
    return found


def codes(torch: Any, data: bytes, source: str, destination: str, step: int) -> bytes:
    """The codes of ``data``, patterns of the source; the tensor that is cast has one of them in ``step`` elements."""
    kind, to = getattr(torch, source), getattr(torch, destination)
    plain = torch.frombuffer(bytearray(data), dtype=torch.int32 if source == "float32" else torch.int16)
    spaced = torch.zeros(plain.numel() * step, dtype=plain.dtype)
    spaced[::step] = plain
    out = spaced.view(kind)[::step].to(to).contiguous()
    return ctypes.string_at(out.data_ptr(), out.numel() * out.element_size())


def in_hexadecimal(raw: bytes) -> list[str]:
    """As many codes as there are probes, of one byte or of two."""
    size = len(raw) // len(PROBES)
    return [f"{code:#0{2 + 2 * size}x}" for code in array("BH"[size - 1], raw)]


if __name__ == "__main__":
    main(sys.argv[1:])
