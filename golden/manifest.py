"""The manifest: which files there are, their hashes, what each is for; and the commands that keep it true."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.operations import Claim
from narrowgauge.golden.families import Family, as_case, authority, expanded, families, family_of, flags, vectors
from narrowgauge.golden.safetensors_file import metadata_of, read, write, write_whole
from narrowgauge.reference.expected import Expected

SCHEMA = "narrowgauge.golden/1"
#: version of the generator: raised when the same tables would give other bytes
GENERATOR = 1
#: what agreed with every vector: tested in suites/meta/test_golden.py
SECOND_ORACLE = "suites/meta/second_derivation.py: exact fractions, written from the specifications alone"
NAME = "manifest.json"
#: the vectors that come with the suite
VECTORS = Path(__file__).parent / "vectors"


def regenerate(folder: Path) -> list[str]:
    """Write every family and the manifest into a folder. Returns the names of the files whose bytes changed."""
    changed = []
    files: dict[str, Any] = {}
    for family in families():
        name = f"{family.name}.safetensors"
        path = folder / name
        before = path.read_bytes() if path.exists() else b""
        write(path, vectors(family), _metadata(family), typed=False)
        after = path.read_bytes()
        changed += [name] if before != after else []
        files[name] = {
            "sha256": hashlib.sha256(after).hexdigest(),
            "bytes": len(after),
            "authority": authority(family),
            "flags": flags(family),
        }
    manifest = {"schema": SCHEMA, "generator": GENERATOR, "second_oracle": SECOND_ORACLE, "files": files}
    text = json.dumps(manifest, indent=2, sort_keys=True).encode() + b"\n"
    path = folder / NAME
    changed += [NAME] if not path.exists() or path.read_bytes() != text else []
    write_whole(path, text)
    return changed


def _metadata(family: Family) -> dict[str, str]:
    return {"schema": SCHEMA, "operation": family.operation, "rule": family.rule, "format": family.format}


def load_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder. Raises ``BadInput`` if it is missing, unreadable or of an unknown schema."""
    path = folder / NAME
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
    except OSError as error:
        raise BadInput(f"no golden manifest: cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"golden manifest {path} is not JSON: {error}") from error
    schema = manifest.get("schema") if isinstance(manifest, dict) else None
    if schema != SCHEMA:
        raise BadInput(f"golden manifest {path} has schema {schema!r}; this version reads {SCHEMA!r}")
    return manifest


def problems(folder: Path) -> list[str]:
    """Everything by which the files of a folder part from their manifest; empty if they are intact."""
    manifest, found = load_manifest(folder), []
    for name, entry in sorted(manifest["files"].items()):
        path = folder / name
        if not path.exists():
            found.append(f"{name} is missing")
            continue
        content = path.read_bytes()
        if len(content) != entry["bytes"]:
            found.append(f"{name} has {len(content)} bytes; the manifest says {entry['bytes']}")
        elif hashlib.sha256(content).hexdigest() != entry["sha256"]:
            found.append(f"{name} has other bytes than the manifest's sha256 says")
    listed = {*manifest["files"], NAME}
    found += [f"{p.name} is not in the manifest" for p in sorted(folder.iterdir()) if p.name not in listed]
    return found


def drift(folder: Path) -> list[str]:
    """Names of files that would change if they were generated again by this version."""
    with tempfile.TemporaryDirectory() as scratch:
        regenerate(Path(scratch))
        fresh = {p.name: p.read_bytes() for p in Path(scratch).iterdir()}
    return [name for name in sorted(fresh) if (folder / name).exists() and (folder / name).read_bytes() != fresh[name]]


def load(family: Family, folder: Path) -> dict[str, Coded]:
    """A family's tensors, after checking the file against the manifest. Raises ``BadInput`` that names the file."""
    entry = load_manifest(folder)["files"].get(f"{family.name}.safetensors")
    if entry is None:
        raise unknown("golden family", family.name, load_manifest(folder)["files"], str(folder))
    path = folder / f"{family.name}.safetensors"
    file = read(path)
    if hashlib.sha256(path.read_bytes()).hexdigest() != entry["sha256"]:
        raise BadInput(f"{path} has other bytes than the manifest's sha256 says; run 'narrowgauge golden verify'")
    schema = metadata_of(file, path).get("schema")
    if schema != SCHEMA:
        raise BadInput(f"{path} has schema {schema!r}; this version reads {SCHEMA!r}")
    return {name: stored.as_format(_format_of(family, name)) for name, stored in file.tensors.items()}


def stored_case(claim: Claim, folder: Path) -> tuple[Coded, Expected]:
    """Inputs and expected outputs for a claim, from the vectors. Raises ``BadInput`` where no family holds for it."""
    family = family_of(claim)
    if family is None:
        raise BadInput(f"{claim}: no golden family holds for it")
    return as_case(family, claim, load(family, folder))


def _format_of(family: Family, tensor: str) -> str:
    source, _, part = tensor.partition(".")
    if part in ("first", "x"):
        return source
    return "float32" if part == "scale" else family.format


def export(folder: Path, target: Path) -> list[Path]:
    """Write tables that need no bisection to read: a file per cast, the code of every 16-bit pattern in order.

    float32 sources and quantizers keep the form of their family. Returns the files written.
    """
    written = []
    for family in families():
        tensors = load(family, folder)
        out: dict[str, Coded] = {}
        for claim in family.claims:
            table = expanded(claim, tensors) if family.operation == "cast" else None
            kept = {n: t for n, t in tensors.items() if n.startswith(f"{claim.source}.")}
            out |= kept if table is None else {f"{claim.source}.codes": table}
        path = target / f"{family.name}.safetensors"
        write(path, out, _metadata(family), typed=False)
        written.append(path)
    return written
