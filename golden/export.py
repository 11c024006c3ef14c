"""Golden vectors for other languages: expanded tables in formats that any program reads, as a folder or an archive."""

from __future__ import annotations

import hashlib
import json
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.formats import format_named
from narrowgauge.golden.archive import put_away
from narrowgauge.golden.archive_text import ALIKE, README
from narrowgauge.golden.c_header import header
from narrowgauge.golden.edge_cases import edge_cases
from narrowgauge.golden.families import Family, Tensors, authority, families, rules_of
from narrowgauge.golden.manifest import NAME, load, metadata_for
from narrowgauge.golden.safetensors_file import content_of
from narrowgauge.golden.using import expanded

SCHEMA = "narrowgauge.export/1"
#: operations whose vectors are a function of one pattern: they have edge cases by name, and a C function
LOOKED_UP = ("cast", "decode")
Files = Iterator[tuple[str, bytes]]


def export(folder: Path, output: Path, formats: Sequence[str] = (), kinds: Sequence[str] = ()) -> list[str]:
    """Write the vectors of a folder in every kind of file, or in some, of all destination formats, or of some.

    ``output`` ends in .tar.gz, .tgz or .zip, or is a folder. Returns the names of the files in it. Raises ``BadInput``
    for damaged vectors, for what does not exist, and for the folder of vectors itself.
    """
    if output.resolve() == folder.resolve():
        raise BadInput(f"export to {output} would overwrite the vectors that are there; give another place")
    files = contents(folder, formats, kinds)
    put_away(output, files)
    return sorted(files)


def contents(folder: Path, formats: Sequence[str] = (), kinds: Sequence[str] = ()) -> dict[str, bytes]:
    """All files of an export, by path inside it; README.txt and manifest.json come last."""
    for kind in kinds:
        if kind not in KINDS:
            raise unknown("kind of file", kind, KINDS)
    files: dict[str, bytes] = {}
    listed: dict[str, dict[str, Any]] = {}
    chosen = _chosen(formats)
    for family in chosen:
        tensors = load(family, folder)
        for kind in kinds or KINDS:
            for name, content in KINDS[kind](family, tensors):
                files[f"{kind}/{name}"] = content
                listed[f"{kind}/{name}"] = {
                    "sha256": hashlib.sha256(content).hexdigest(),
                    "bytes": len(content),
                    "family": family.name,
                    "rules": rules_of(family),
                    "authority": authority(family),
                }
    if not files:
        raise BadInput(f"nothing to export: no golden family of {', '.join(formats)} has files of {', '.join(kinds)}")
    source = hashlib.sha256((folder / NAME).read_bytes()).hexdigest()
    # The library that reads tensors gives them in any order.
    manifest = {"schema": SCHEMA, "golden_manifest_sha256": source, "files": dict(sorted(listed.items()))}
    return files | {"README.txt": _readme(chosen, kinds or list(KINDS)).encode(), NAME: _json(manifest)}


def _readme(chosen: Sequence[Family], kinds: Sequence[str]) -> str:
    """The text, what of it is there, and the names that a family goes by."""
    named = ""
    for family in (f for f in chosen if f.operation == "cast"):
        rules = textwrap.fill(", ".join(rules_of(family)), 116, initial_indent="    ", subsequent_indent="    ")
        named += f"{family.name}\n{rules}\n"
    return f"{README}\nIn this export: {', '.join(kinds)}.\n\n{ALIKE}\n{named}"


def _chosen(formats: Sequence[str]) -> list[Family]:
    names = {format_named(name).name for name in formats}
    found = [family for family in families() if family.format in names or not names]
    if without := names - {family.format for family in found}:
        raise BadInput(f"no golden family has destination {', '.join(sorted(without))}")
    return found


# --- kinds of files --------------------------------------------------------------------------------------------------


def _tables(family: Family, tensors: Tensors) -> dict[str, Coded]:
    """Expanded tables of sources of at most 16 bits; all else as it is stored."""
    tables: dict[str, Coded] = {}
    if not family.claims:
        return dict(tensors)
    for claim in family.claims:
        prefix = f"{claim.source}."
        kept = {name: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        table = expanded(claim, tensors)
        tables |= kept if table is None or f"{prefix}values" in kept else {f"{prefix}codes": table}
    return tables


def _safetensors(family: Family, tensors: Tensors) -> Files:
    name = f"{family.name}.safetensors"
    yield name, content_of(Path(name), _tables(family, tensors), metadata_for(family), typed=False)


def _npy(family: Family, tensors: Tensors) -> Files:
    for name, tensor in _tables(family, tensors).items():
        yield f"{family.name}/{name}.npy", npy(tensor)


def npy(tensor: Coded) -> bytes:
    """A file of numpy's format 1.0. Its bytes follow from the content alone, whatever numpy writes next year."""
    data = tensor.codes
    text = f"{{'descr': {data.dtype.str!r}, 'fortran_order': False, 'shape': {data.shape}, }}"
    text = text.ljust(-(-(len(text) + 11) // 64) * 64 - 11) + "\n"  # magic, version and length are 10 bytes
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data.tobytes(order="C")


def _raw(family: Family, tensors: Tensors) -> Files:
    for name, tensor in _tables(family, tensors).items():
        yield f"{family.name}/{name}.u{8 * tensor.data.dtype.itemsize}", tensor.codes.tobytes(order="C")


def _edges(family: Family, tensors: Tensors) -> Files:
    if family.operation in LOOKED_UP:
        about = metadata_for(family) | {"schema": SCHEMA, "authority": authority(family)}
        yield f"{family.name}.json", _json(about | {"cases": edge_cases(family, tensors)})


def _header(family: Family, tensors: Tensors) -> Files:
    if family.operation in LOOKED_UP:
        yield f"{family.name}.h", header(family, tensors).encode()


#: what can be exported, each with what makes its files of a family
KINDS: dict[str, Callable[[Family, Tensors], Files]] = {
    "safetensors": _safetensors,
    "npy": _npy,
    "raw": _raw,
    "json": _edges,
    "header": _header,
}


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=1) + "\n").encode()
