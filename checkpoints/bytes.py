"""Bytes a parameter, bytes of all weights, and the time that reading them once takes at least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from narrowgauge.checkpoints.model import Checkpoint
from narrowgauge.checkpoints.passports import Passport

#: bytes in a terabyte, as vendors count
TERABYTE = 1e12


@dataclass(frozen=True)
class Weighed:
    """What a model takes. Parameters are counted as what codes stand for; scales add bytes and no parameters."""

    parameters: int
    quantized: int  #: parameters that are stored as codes
    size: int  #: bytes of all tensors of the model
    codes: int  #: of these, bytes of codes and all that belongs to them

    @property
    def each(self) -> float:
        """Bytes a parameter, over the whole model."""
        return self.size / self.parameters if self.parameters else 0.0

    @property
    def each_quantized(self) -> float:
        """Bytes a parameter of those that are quantized."""
        return self.codes / self.quantized if self.quantized else 0.0

    def to_json(self, bandwidth: float) -> dict[str, Any]:
        """Bytes, and the floor in milliseconds at that many TB/s."""
        return {
            "parameters": self.parameters,
            "quantized_parameters": self.quantized,
            "bytes": self.size,
            "bytes_of_quantized": self.codes,
            "bytes_per_parameter": self.each,
            "bytes_per_quantized_parameter": self.each_quantized,
            "bandwidth_tb_s": bandwidth,
            "decode_floor_ms": 1000 * self.floor(bandwidth),
        }

    def floor(self, bandwidth: float) -> float:
        """Seconds that one token takes at least, where each weight is read once: ``bandwidth`` in TB/s."""
        return self.size / (bandwidth * TERABYTE)


def weigh(checkpoint: Checkpoint, passports: Sequence[Passport]) -> Weighed:
    """What the model's own tensors take; an optimizer's do not count."""
    mine = {tensor.name for passport in passports for tensor in passport.tensors.values()}
    model = [tensor for tensor in checkpoint.tensors.values() if tensor.role == "model"]
    plain = sum(prod(tensor.shape) for tensor in model if tensor.name not in mine)
    quantized = sum(passport.count for passport in passports)
    return Weighed(
        plain + quantized,
        quantized,
        sum(tensor.size for tensor in model),
        sum(passport.size for passport in passports),
    )
