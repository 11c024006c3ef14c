"""What each quantized tensor is: which tensors belong to it, how its codes are scaled, what it takes.

Told from names, dtypes and shapes; the configuration decides where these leave a choice. Only headers are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil, prod
from typing import Any, Literal

from narrowgauge.checkpoints.configured import Asked, Configuration, configuration
from narrowgauge.checkpoints.cutting import Cutting, cutting
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.model import Checkpoint, Stored
from narrowgauge.checkpoints.schemes import SCHEMES, Part, Scheme
from narrowgauge.reference.layouts import layout_named

#: suffixes that norms and others have too
_COMMON = (".scale", ".scales", "_scales")
#: bits of codes that a file stores in whole bytes or words
_FILE_BITS = {"U8": 8, "I8": 8, "I32": 32, "U32": 32, "F4": 4}


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
        best = _best(tensor, checkpoint, said)
        if best is None:
            continue
        known: Literal["configuration", "names alone"] = "configuration" if best.asked else "names alone"
        found.append(
            Passport(best.module, best.scheme, best.tensors, best.shape, best.cutting, logical, known, best.asked)
        )
        wrong += [Finding(kind, what, where) for _, kind, what, where in best.problems if kind]
    return found, wrong


def _logical(checkpoint: Checkpoint) -> str:
    inner = checkpoint.config.get("text_config")
    for section in (checkpoint.config, inner if isinstance(inner, Mapping) else {}):
        for key in ("torch_dtype", "dtype"):
            if isinstance(section.get(key), str):
                return str(section[key]).removeprefix("torch.")
    return ""


#: weight of a problem, kind of finding ("" for none), what is so, tensor
_Problem = tuple[int, str, str, str]


@dataclass(frozen=True)
class _Fit:
    """How well a scheme fits the tensors of a module."""

    module: str
    scheme: Scheme
    tensors: Mapping[str, Stored]
    shape: tuple[int, ...]
    cutting: Cutting | None
    asked: Asked | None
    problems: tuple[_Problem, ...]

    @property
    def weight(self) -> int:
        return sum(problem[0] for problem in self.problems)


@cache
def _by_dtype() -> Mapping[str, tuple[tuple[str, Scheme], ...]]:
    found: dict[str, list[tuple[str, Scheme]]] = {}
    for scheme in sorted(SCHEMES.values(), key=lambda scheme: not scheme.only_when):  # what is said before what fits
        for dtype in scheme.stored:
            found.setdefault(dtype, []).extend((suffix, scheme) for suffix in scheme.weights)
    return {dtype: tuple(each) for dtype, each in found.items()}


@cache
def part_suffixes() -> tuple[str, ...]:
    """Every suffix of a tensor that stands beside codes, the longest first."""
    each = {suffix for scheme in SCHEMES.values() for part in scheme.parts for suffix in part.suffixes}
    return tuple(sorted(each, key=len, reverse=True))


def _best(tensor: Stored, checkpoint: Checkpoint, said: Configuration) -> _Fit | None:
    """The scheme with the least against it, of those whose codes such a tensor can be. None for a plain tensor."""
    best: _Fit | None = None
    for suffix, scheme in _by_dtype().get(tensor.dtype, ()):
        if tensor.name.endswith(suffix) and len(tensor.name) > len(suffix) and _may_be(tensor, scheme, said):
            module = tensor.name[: len(tensor.name) - len(suffix)] if suffix else tensor.name
            if scheme.complete and _parts(module, scheme, checkpoint)[1]:
                continue
            fit = _fit(module, scheme, tensor, checkpoint, said)
            if best is None or fit.weight < best.weight:
                best = fit
            if not best.weight:
                break
    return best


def _may_be(tensor: Stored, scheme: Scheme, said: Configuration) -> bool:
    if scheme.only_when and any(said.keys.get(key) not in values for key, values in scheme.when):
        return False
    axes = 1 if scheme.vectors else 2 + scheme.merged
    return len(tensor.shape) >= axes and all(tensor.shape)


def _fit(module: str, scheme: Scheme, tensor: Stored, checkpoint: Checkpoint, said: Configuration) -> _Fit:
    asked = said.of(module)
    problems: list[_Problem] = []
    tensors, missing = _parts(module, scheme, checkpoint)
    problems += [(8, "scale missing", f"{scheme.says} has no tensor {module}{part.suffixes[0]}", tensor.name)
                 for part in missing]  # fmt: skip
    problems += [
        (3, _of_type(part, found), f"{found.dtype}; expected {' or '.join(part.dtypes)}", found.name)
        for part in scheme.parts
        if (found := tensors.get(part.role)) is not None and found.dtype not in part.dtypes
    ]
    problems += [(6, "", "", "") for key, values in scheme.when if key in said.keys and said.keys[key] not in values]
    problems += _asked_otherwise(scheme, tensors, asked, module)
    names = {found.name for found in tensors.values()}
    problems += [
        (5, "", "", "") for suffix in part_suffixes()
        if module + suffix in checkpoint.tensors and module + suffix not in names
    ]  # fmt: skip
    if said.keys.get("desc_act") == "True" and scheme.part("order") is not None and "order" not in tensors:
        problems.append((0, "order missing", f"desc_act is true; there is no {module}.g_idx", tensor.name))
    shape = logical_shape(tensor, scheme)
    cut, against = _cut(shape, scheme, tensors, asked)
    if against:
        problems.append((4, "blocks do not fit", against, tensors["scale"].name))
    elif cut is not None and (zeros := tensors.get("zeros")) is not None and scheme.zeros:
        expected = zeros_shape(cut.grid(*shape[-2:]), scheme)
        if zeros.shape[-2:] != expected:
            over = f"zero points of shape {list(zeros.shape)} over a weight of {list(shape)}; expected {list(expected)}"
            problems.append((4, "blocks do not fit", over, zeros.name))
    return _Fit(module, scheme, {"weight": tensor, **tensors}, shape, cut, asked, tuple(problems))


def zeros_shape(grid: tuple[int, int], scheme: Scheme) -> tuple[int, int]:
    """Of packed zero points: [groups, words of rows] where weights are stored as [K, N], else the other way round."""
    words = ceil(grid[0] * layout_named(scheme.packing).bits / 32)
    return (grid[1], words) if scheme.transposed else (words, grid[1])


def _asked_otherwise(
    scheme: Scheme, tensors: Mapping[str, Stored], asked: Asked | None, module: str
) -> Iterator[_Problem]:
    """What the configuration says that this scheme does not have. It decides between schemes that fit alike."""
    scale = scheme.part("scale")
    if asked is None or scale is None:
        return
    if asked.scale and asked.scale != (scale.format or "float"):
        yield (4, "", "", "")
    static = [part for part in scheme.parts if part.role in ("input", "second_input")]
    if asked.inputs == "static" and static and static[0].role not in tensors:
        missing = module + static[0].suffixes[0]
        yield (0, "scale missing", f"activations are said to have static scales; there is no {missing}", module)


def _of_type(part: Part, found: Stored) -> str:
    bytes_for_numbers = found.dtype in ("U8", "I8") and "U8" not in part.dtypes
    return "scale stored as uint8" if bytes_for_numbers else "scale of another type"


def _parts(module: str, scheme: Scheme, checkpoint: Checkpoint) -> tuple[dict[str, Stored], list[Part]]:
    found: dict[str, Stored] = {}
    for part in scheme.parts:
        names = [module + suffix for suffix in part.suffixes if module + suffix in checkpoint.tensors]
        if names:
            found[part.role] = checkpoint.tensors[names[0]]
    return found, [part for part in scheme.parts if part.needed and part.role not in found]


def logical_shape(tensor: Stored, scheme: Scheme) -> tuple[int, ...]:
    """[.., N, K] of the weight that a tensor of codes stands for, by its shape alone."""
    shape = tensor.shape
    if scheme.merged:
        shape = (*shape[: -1 - scheme.merged], prod(shape[-1 - scheme.merged :]))
    *lead, rows, columns = shape if len(shape) > 1 else (1, *shape)
    if scheme.packing and tensor.dtype != "F4":  # safetensors counts elements of F4
        each = _FILE_BITS[tensor.dtype] // layout_named(scheme.packing).bits
        rows, columns = (rows * each, columns) if scheme.packed == "rows" else (rows, columns * each)
    if scheme.block_bytes and tensor.dtype == "U8":
        columns = columns // scheme.block_bytes * scheme.block_size
    return (*lead, columns, rows) if scheme.transposed else (*lead, rows, columns)


def _cut(
    shape: tuple[int, ...], scheme: Scheme, tensors: Mapping[str, Stored], asked: Asked | None
) -> tuple[Cutting | None, str]:
    """How the scale cuts the weight, and what is against it."""
    if scheme.block_size:
        return Cutting(1, scheme.block_size), ""
    scale = tensors.get("scale")
    if scale is None:
        return None, ""
    hint = asked.block if asked else (0, 0)
    found = cutting(shape, scale.shape, scheme.transposed, (0, scheme.group) if scheme.group else hint)
    over = f"a scale of shape {list(scale.shape)} over a weight of {list(shape)}"
    if found is None:
        return None, f"{over}: it does not divide it"
    if found.cut not in scheme.cuts:
        return found, f"{over}: {found.says}; expected {' or '.join(scheme.cuts)}"
    if scheme.group and found.columns != scheme.group:
        return found, f"{over}: {found.says}; expected groups of {scheme.group}"
    if asked and all(asked.block) and found.grid(*shape[-2:]) != Cutting(*asked.block).grid(*shape[-2:]):
        return found, f"{over}: {found.says}; the configuration has {Cutting(*asked.block).says}"
    return found, ""


def unclaimed(checkpoint: Checkpoint, found: list[Passport]) -> Iterator[Stored]:
    """Tensors beside codes that belong to no passport."""
    mine = {tensor.name for passport in found for tensor in passport.tensors.values()}
    suffixes = tuple(suffix for suffix in part_suffixes() if suffix not in _COMMON)
    for tensor in checkpoint.tensors.values():
        if tensor.role == "model" and tensor.name not in mine and tensor.name.endswith(suffixes):
            yield tensor
