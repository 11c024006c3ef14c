"""What each quantized tensor is: which tensors belong to it, how its codes are scaled, what it takes.

Told from names, dtypes and shapes; the configuration decides where these leave a choice. Only headers are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from narrowgauge.checkpoints.configured import configuration
from narrowgauge.checkpoints.cutting import Cutting
from narrowgauge.checkpoints.families import Asked
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.fitting import Fit, are_bytes, best_fit, part_suffixes, weight_suffixes
from narrowgauge.checkpoints.model import Checkpoint, Stored
from narrowgauge.checkpoints.schemes import Scheme

#: suffixes that norms and others have too
_COMMON = (".scale", ".scales", "_scales")


@dataclass(frozen=True)
class Passport:
    """One quantized weight."""

    module: str  #: its name without the suffix of the weight
    scheme: Scheme
    tensors: Mapping[str, Stored]  #: by role: "weight", and those of ``schemes.scheme.Role`` that are there
    shape: tuple[int, ...]  #: of the weight it stands for: [N, K], experts before
    cutting: Cutting | None  #: which elements share a scale; None without one, or where it does not fit
    logical: str  #: the dtype that config.json gives the model; "" where it gives none
    known: Literal["configuration", "names alone"]
    asked: Asked | None = None  #: what the configuration says of this module

    @property
    def weight(self) -> Stored:
        return self.tensors["weight"]

    @property
    def scale(self) -> Stored | None:
        return self.tensors.get("scale")

    @property
    def element(self) -> str:
        """The format of one code; GGUF's own word where it has none."""
        return self.scheme.element or self.weight.format or self.weight.dtype

    @property
    def count(self) -> int:
        return prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes of the codes and of all that is needed to read them."""
        return sum(tensor.size for role, tensor in self.tensors.items() if role not in ("input", "second_input"))

    @property
    def bits(self) -> float:
        """Bits a parameter, scales included."""
        return 8 * self.size / self.count if self.count else 0.0

    @property
    def granularity(self) -> str:
        if self.scheme.block_size:
            return f"blocks of {self.scheme.block_size}"
        return self.cutting.says if self.cutting else "no scale that fits"

    @property
    def scaled(self) -> str:
        """Which tensor multiplies and which divides: "x weight_scale F8_E4M3, / weight_global_scale F32"."""
        said = []
        for role in ("scale", "second"):
            part, tensor = self.scheme.part(role), self.tensors.get(role)
            if part is not None and tensor is not None:
                leaf = tensor.name.removeprefix(self.module).lstrip("._")
                said.append(f"{'/' if part.divides else 'x'} {leaf} {tensor.dtype}")
        return ", ".join(said) or ("within the block" if self.scheme.block_size else "none")

    @property
    def inputs(self) -> str:
        """How activations are scaled, as far as the checkpoint says."""
        if "second_input" in self.tensors:
            return "static, and dynamic in groups"
        if "input" in self.tensors:
            return "static"
        return self.asked.inputs if self.asked and self.asked.inputs else "not said"

    def to_json(self) -> dict[str, Any]:
        return {
            "module": self.module,
            "scheme": self.scheme.name,
            "says": self.scheme.says,
            "tensors": {role: tensor.name for role, tensor in self.tensors.items()},
            "stored": self.weight.dtype,
            "element": self.element,
            "logical": self.logical,
            "shape": list(self.shape),
            "packing": self.scheme.packing,
            "transposed": self.scheme.transposed,
            "granularity": self.granularity,
            "scaled": self.scaled,
            "zeros": self.scheme.zeros,
            "activations": self.inputs,
            "bits": self.bits,
            "bytes": self.size,
            "known": self.known,
            "unread": self.scheme.unread,
        }


def passports(checkpoint: Checkpoint) -> tuple[list[Passport], list[Finding]]:
    """A passport for each quantized tensor, and what does not fit: by headers and configuration alone."""
    said = configuration(checkpoint)
    logical = _logical(checkpoint)
    found: list[Passport] = []
    wrong: list[Finding] = []
    for tensor in checkpoint.tensors.values():
        if tensor.role != "model":
            continue
        best = best_fit(tensor, checkpoint, said)
        if best is None:
            continue
        found.append(_issued(best, logical))
        wrong += [Finding(kind, what, where) for _, kind, what, where in best.problems if kind]
    return found, wrong


def _issued(best: Fit, logical: str) -> Passport:
    known: Literal["configuration", "names alone"] = "configuration" if best.asked else "names alone"
    return Passport(best.module, best.scheme, best.tensors, best.shape, best.cutting, logical, known, best.asked)


def passport_of(module: str, checkpoint: Checkpoint) -> Passport | None:
    """The passport of one module; None where it is not quantized, or not there."""
    said = configuration(checkpoint)
    for end in weight_suffixes():
        tensor = checkpoint.tensors.get(module + end)
        best = best_fit(tensor, checkpoint, said) if tensor is not None else None
        if best is not None:
            return _issued(best, _logical(checkpoint))
    return None


def _logical(checkpoint: Checkpoint) -> str:
    inner = checkpoint.config.get("text_config")
    for section in (checkpoint.config, inner if isinstance(inner, Mapping) else {}):
        for key in ("torch_dtype", "dtype"):
            if isinstance(section.get(key), str):
                return str(section[key]).removeprefix("torch.")
    return ""


def unclaimed(checkpoint: Checkpoint, found: list[Passport]) -> Iterator[Stored]:
    """Tensors beside codes that belong to no passport."""
    mine = {tensor.name for passport in found for tensor in passport.tensors.values()}
    bytes_ = (are_bytes(tensor, checkpoint) for tensor in checkpoint.tensors.values())
    mine |= {scale.name for scale in bytes_ if scale is not None}
    suffixes = tuple(suffix for suffix in part_suffixes() if suffix not in _COMMON)
    for tensor in checkpoint.tensors.values():
        stray = tensor.role == "model" and tensor.name not in mine and tensor.name.endswith(suffixes)
        if stray and "_fake_quantizer." not in tensor.name:  # Mistral's scales of K and V
            yield tensor
