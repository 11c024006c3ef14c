"""What an audit knows of a checkpoint before it has read a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from narrowgauge.checkpoints.findings import Finding

#: what a tensor is for: a weight or a buffer of the model, what an optimizer keeps, or neither (a step counter)
Role = Literal["model", "optimizer", "other"]


@dataclass(frozen=True)
class Stored:
    """A tensor as a file holds it."""

    name: str
    dtype: str  #: in the file's own word: "F8_E4M3" of safetensors, "Q4_K" of GGUF, "float16" of torch
    shape: tuple[int, ...]  #: of elements, outermost first; where the file packs several in one (U8, I32), of those
    path: Path
    start: int  #: first byte in the file
    size: int  #: bytes
    format: str = ""  #: our name of one element's format; "" where the file's type is none (GGUF's blocks, complex)
    role: Role = "model"


@dataclass(frozen=True)
class Checkpoint:
    """A model's directory, or one file of it."""

    path: Path
    kind: Literal["safetensors", "gguf", "torch"]
    tensors: Mapping[str, Stored]  #: by name, in the order of the files
    config: Mapping[str, Any] = field(default_factory=dict)  #: config.json; {} where there is none
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  #: other JSON files: hf_quant_config.json …
    metadata: Mapping[str, Any] = field(default_factory=dict)  #: __metadata__ of safetensors, keys and values of GGUF
    unread: tuple[str, ...] = ()  #: files of weights that were passed over, each with the reason
    findings: tuple[Finding, ...] = ()  #: what opening it found: an index that does not fit its files …
    temporary: Any = None  #: holds files alive that were written for it; they end with it
