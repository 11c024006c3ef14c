"""Which scheme the tensors of a module fit best, and what does not fit: by names, dtypes and shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil, prod

from narrowgauge.checkpoints.configured import Configuration
from narrowgauge.checkpoints.cutting import Cutting, cutting
from narrowgauge.checkpoints.families import Asked
from narrowgauge.checkpoints.model import Checkpoint, Stored
from narrowgauge.checkpoints.schemes import SCHEMES, Part, Scheme
from narrowgauge.checkpoints.schemes.scheme import FLOATS
from narrowgauge.reference.layouts import layout_named

#: bits of codes that a file stores in whole bytes or words
_FILE_BITS = {"U8": 8, "I8": 8, "I32": 32, "U32": 32, "F4": 4}


#: weight of a problem, kind of finding ("" for none), what is so, tensor
Problem = tuple[int, str, str, str]


@dataclass(frozen=True)
class Fit:
    """How well a scheme fits the tensors of a module."""

    module: str
    scheme: Scheme
    tensors: Mapping[str, Stored]
    shape: tuple[int, ...]
    cutting: Cutting | None
    asked: Asked | None
    problems: tuple[Problem, ...]

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


@cache
def weight_suffixes() -> tuple[str, ...]:
    """Every suffix of a tensor of codes."""
    return tuple(dict.fromkeys(suffix for scheme in SCHEMES.values() for suffix in scheme.weights))


def best_fit(tensor: Stored, checkpoint: Checkpoint, said: Configuration) -> Fit | None:
    """The scheme with the least against it, of those whose codes such a tensor can be. None for a plain tensor."""
    best: Fit | None = None
    if are_bytes(tensor, checkpoint) is not None:
        return None
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


def are_bytes(tensor: Stored, checkpoint: Checkpoint) -> Stored | None:
    """The scale of a tensor of bytes of no format: a float for all of them, or for each of their own rows.

    Whoever packs nibbles has a scale for each group; these are eight bits, and nothing says what they are.
    """
    if tensor.dtype != "U8" or not tensor.name.endswith(".weight") or len(tensor.shape) < 2:
        return None
    module, rows = tensor.name.removesuffix(".weight"), tensor.shape[-2]
    for end in (".weight_scale", ".weight_scale_inv", ".scale"):
        scale = checkpoint.tensors.get(module + end)
        if scale is not None and scale.dtype in FLOATS:
            return scale if prod(scale.shape) == 1 or scale.shape in ((rows,), (rows, 1)) else None
    return None


def _may_be(tensor: Stored, scheme: Scheme, said: Configuration) -> bool:
    if scheme.only_when and any(said.keys.get(key) not in values for key, values in scheme.when):
        return False
    axes = 1 if scheme.vectors else 2 + scheme.merged
    return len(tensor.shape) >= axes and all(tensor.shape)


def _fit(module: str, scheme: Scheme, tensor: Stored, checkpoint: Checkpoint, said: Configuration) -> Fit:
    asked = said.of(module)
    problems: list[Problem] = []
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
    return Fit(module, scheme, {"weight": tensor, **tensors}, shape, cut, asked, tuple(problems))


def zeros_shape(grid: tuple[int, int], scheme: Scheme) -> tuple[int, int]:
    """Of packed zero points: [groups, words of rows] where weights are stored as [K, N], else the other way round."""
    words = ceil(grid[0] * layout_named(scheme.packing).bits / 32)
    return (grid[1], words) if scheme.transposed else (words, grid[1])


def _asked_otherwise(
    scheme: Scheme, tensors: Mapping[str, Stored], asked: Asked | None, module: str
) -> Iterator[Problem]:
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
    if scale is None or scheme.unread:
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
