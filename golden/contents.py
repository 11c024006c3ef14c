"""What a file of golden vectors expects, apart from how it is stored: steps and stairs and expanded tables of one
function are one content. It needs no family of that name in this version: older vectors may have others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, digest
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS, Format, format_named
from narrowgauge.contracts.kv_file import PARTS
from narrowgauge.contracts.operations import KvRead, KvWrite, Quantize
from narrowgauge.contracts.recipe import INPUTS
from narrowgauge.golden import calls, conversions, products, units
from narrowgauge.golden.families import Family, families, held_by
from narrowgauge.golden.safetensors_file import TensorFile, metadata_of, parsed
from narrowgauge.golden.steps import STAIR, spaced, unfold
from narrowgauge.reference.behaviour import resolved

Ints = npt.NDArray[np.int64]
#: operations whose vectors are a function of one pattern
FUNCTIONS = ("cast", "decode")
#: operations whose vectors are a list: each row is an input of its own
LISTS = ("stochastic", units.OPERATION)
#: what the inputs of a matrix unit are called; all else are units
_OF_UNITS = ("a", "b", "c", "a_scale", "b_scale")
#: letters of a content's digest: it tells some thousand contents apart, and can be read
DIGITS = 12


@dataclass(frozen=True, eq=False)
class Steps:
    """A function of every pattern of a source: the first pattern of each run of equal codes, and the code."""

    source: str
    format: str
    first: Ints
    code: Ints

    @property
    def expectations(self) -> int:
        return format_named(self.source).code_count


@dataclass(frozen=True, eq=False)
class Rows:
    """Inputs and expected outputs: a list, whose rows stand each for itself, or one call, which is one whole."""

    inputs: Mapping[str, Coded]
    outputs: Mapping[str, Coded]
    listed: bool

    @property
    def expectations(self) -> int:
        return sum(output.data.size for output in self.outputs.values())


Content = Steps | Rows


@dataclass(frozen=True, eq=False)
class Contents:
    """A file: its metadata, and by claim what it expects."""

    metadata: Mapping[str, str]
    claims: Mapping[str, Content]

    @property
    def digest(self) -> str:
        """The same for two files that expect the same, however they are stored."""
        parts: dict[str, Coded] = {}
        for claim, content in self.claims.items():
            if isinstance(content, Steps):
                parts |= {f"{claim} first": Coded("", content.first), f"{claim} code": Coded("", content.code)}
            else:
                parts |= {f"{claim} {n}": Coded("", t.data) for n, t in {**content.inputs, **content.outputs}.items()}
        return digest(parts)[:DIGITS]


def contents(raw: bytes, where: str) -> Contents:
    """What a file expects. Raises ``BadInput`` that names the place for content that is none."""
    path = Path(where)
    file = parsed(raw, path)
    metadata = metadata_of(file, path)
    if not {"operation", "rule", "format"} <= metadata.keys() or not all(isinstance(v, str) for v in metadata.values()):
        raise BadInput(f"{where}: its metadata {metadata} names no operation, rule and format")
    family = Family(metadata["operation"], metadata["rule"], metadata["format"])
    tensors = _with_formats(family, file)
    found: dict[str, Content] = {}
    if family.operation == units.OPERATION:
        found[f"{family.operation}/{family.rule}/{family.format}"] = _list(tensors, where, _OF_UNITS)
    else:
        for source in dict.fromkeys(name.partition(".")[0] for name in tensors):
            own = {n.partition(".")[2]: t for n, t in tensors.items() if n.partition(".")[0] == source}
            found[_claim(family, source)] = _content(family, source, own, f"{where}: {source}")
    return Contents(metadata, found)


def _content(family: Family, source: str, own: Mapping[str, Coded], where: str) -> Content:
    if family.operation in FUNCTIONS:
        to = "float32" if family.operation == "decode" else family.format
        first, code = _function(own, _known(source, where), _known(to, where), where)
        begins = np.concatenate([[True], code[1:] != code[:-1]])  # one content has one table
        return Steps(source, to, first[begins], code[begins])
    if family.operation == "stochastic":
        return _list(own, where, ("x", "bits"))
    results = {name for name in own if _is_result(family, source, name)}
    if not results:
        raise BadInput(f"{where}: no tensor is a result of {family.operation}; there are {', '.join(own)}")
    inputs = {name: tensor for name, tensor in own.items() if name not in results}
    return Rows(inputs, {name: own[name] for name in own if name in results}, listed=False)


def _is_result(family: Family, source: str, name: str) -> bool:
    """Whether a tensor of a call is what the call leaves or gives, and not what it is handed."""
    if family.operation == Quantize.operation:
        known = family_named(family.name)
        of = [claim for claim in known.claims if claim.source == source] if known else []
        return name in resolved(of[0]).outputs if of else name != "x" and name not in INPUTS
    if family.operation == KvWrite.operation:
        return name.endswith(calls.AFTER)
    if family.operation == KvRead.operation:
        return name in PARTS  # of a token
    if family.operation == conversions.OPERATION:
        return name.startswith(conversions.AFTER)
    return family.operation == products.OPERATION and name == products.RESULT


def _list(own: Mapping[str, Coded], where: str, inputs: Iterable[str]) -> Rows:
    lengths = {tensor.data.shape[:1] for tensor in own.values()}
    given = {name: own[name] for name in inputs if name in own}
    if len(lengths) != 1 or () in lengths or not given:
        raise BadInput(f"{where}: expected a list of inputs and outputs, all of one length")
    return Rows(given, {name: tensor for name, tensor in own.items() if name not in given}, listed=True)


# --- functions -------------------------------------------------------------------------------------------------------


def _function(own: Mapping[str, Coded], source: Format, fmt: Format, where: str) -> tuple[Ints, Ints]:
    """Steps of whatever form a function is stored in."""
    numbers = {name: tensor.data.astype(np.int64) for name, tensor in own.items()}
    if len({array.shape for array in numbers.values()}) != 1 or any(array.ndim != 1 for array in numbers.values()):
        raise BadInput(f"{where}: its tensors are not lists of one length")
    if numbers.keys() == set(STAIR):
        stairs = np.stack([numbers[name] for name in STAIR])
        if not spaced(stairs, source, fmt):
            raise BadInput(f"{where}: its stairs do not lie beside each other in {source.name}")
        return unfold(stairs)
    if numbers.keys() == {"first", "code"}:
        first, code = numbers["first"], numbers["code"]
        if first[:1].tolist() != [0] or not (np.diff(first) > 0).all() or first[-1] >= source.code_count:
            raise BadInput(f"{where}: its steps are not patterns of {source.name} in ascending order from 0")
        return first, code
    table = next((numbers[name] for name in ("codes", "values") if [*numbers] == [name]), None)
    if table is None or table.size != source.code_count:
        raise BadInput(f"{where}: {', '.join(own)} are no table of {source.name}")
    return np.arange(table.size), table


# --- names -----------------------------------------------------------------------------------------------------------


@cache
def _families() -> dict[str, Family]:
    return {family.name: family for family in families()}


def family_named(name: str) -> Family | None:
    """A family of this version, if there is one of that name."""
    return _families().get(name)


def _claim(family: Family, source: str) -> str:
    """The claim whose vectors are stored under a source."""
    known = family_named(family.name)
    plain = f"{family.operation}/{family.rule}/{source}/{family.format}"
    if known is None or family.operation == "stochastic":  # whose claims have a policy without a name
        return plain
    return next((str(claim) for claim in known.claims if claim.source == source), plain)


def _with_formats(family: Family, file: TensorFile) -> dict[str, Coded]:
    """The tensors, each with its format, or "" where this version does not know it."""
    known = family_named(family.name)
    held = held_by(known) if known else {}
    return {
        name: Coded(held.get(name) or _guessed(family, name), file.tensors[name].data) for name in sorted(file.tensors)
    }


def _guessed(family: Family, name: str) -> str:
    source, _, part = name.partition(".")
    if part in ("x", "first"):
        return source if source in FORMATS else ""
    return family.format if part in ("code", "codes") and family.format in FORMATS else ""


def _known(name: str, where: str) -> Format:
    if name not in FORMATS:
        raise BadInput(f"{where}: this version knows no format {name!r}, and cannot compare its codes")
    return FORMATS[name]
