"""The manifest: which files there are, their hashes, what each is for; and the commands that keep it true."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.files import write_whole
from narrowgauge.contracts.operations import Claim
from narrowgauge.golden.families import (
    Family,
    authority,
    families,
    family_of,
    held_by,
    rules_of,
    vectors,
)
from narrowgauge.golden.safetensors_file import metadata_of, read, write
from narrowgauge.golden.using import as_case, flags, misshapen
from narrowgauge.reference.interval import Expected

SCHEMA = "narrowgauge.golden/1"
#: version of the generator: raised when the same tables would give other bytes
GENERATOR = 1
#: what agreed with every vector: tested in suites/meta/test_golden.py
SECOND_ORACLE = (
    "suites/meta/second_derivation.py: exact fractions, written from the specifications alone; of caches "
    "suites/meta/second_kv_calls.py: loops over tokens; of conversions suites/meta/second_conversions.py; of matrix "
    "units suites/meta/second_units.py: exact fractions"
)
NAME = "manifest.json"
#: the vectors that come with the suite
VECTORS = Path(__file__).parent / "vectors"


def regenerate(folder: Path) -> list[str]:
    """Write every family and the manifest into a folder, and take away what its manifest listed and is no family any
    more. Returns the names of the files that changed."""
    changed = []
    try:
        listed = load_manifest(folder)["files"]
    except BadInput:  # there is none yet, or one that is to be mended
        listed = {}
    files: dict[str, Any] = {}
    for family in families():
        name = f"{family.name}.safetensors"
        path = folder / name
        before = path.read_bytes() if path.exists() else b""
        tensors = vectors(family)
        write(path, tensors, metadata_for(family), typed=False)
        after = path.read_bytes()
        changed += [name] if before != after else []
        files[name] = {
            "sha256": hashlib.sha256(after).hexdigest(),
            "bytes": len(after),
            "authority": authority(family),
            "rules": rules_of(family),
            "flags": flags(family, tensors),
        }
    for name in sorted(listed.keys() - files.keys()):
        (folder / name).unlink(missing_ok=True)
        changed.append(name)
    manifest = {"schema": SCHEMA, "generator": GENERATOR, "second_oracle": SECOND_ORACLE, "files": files}
    text = json.dumps(manifest, indent=2, sort_keys=True).encode() + b"\n"
    path = folder / NAME
    changed += [NAME] if not path.exists() or path.read_bytes() != text else []
    write_whole(path, text)
    return changed


def metadata_for(family: Family) -> dict[str, str]:
    return {"schema": SCHEMA, "operation": family.operation, "rule": family.rule, "format": family.format}


def load_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder. Raises ``BadInput`` if it is missing, unreadable or of an unknown schema."""
    path = folder / NAME
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"no golden manifest: cannot read {path}: {error.strerror}") from error
    return manifest_of(content, str(path))


def manifest_of(content: bytes, where: str, schemas: Sequence[str] = (SCHEMA,)) -> dict[str, Any]:
    """A manifest's content, of one of the schemas. Raises ``BadInput`` that says where it lies."""
    try:
        manifest: dict[str, Any] = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise BadInput(f"golden manifest {where} is not JSON: {error}") from error
    schema = manifest.get("schema") if isinstance(manifest, dict) else None
    if schema not in schemas:
        raise BadInput(
            f"golden manifest {where} has schema {schema!r}; this version reads {' or '.join(map(repr, schemas))}"
        )
    files = manifest.get("files")
    if not isinstance(files, dict):
        raise BadInput(f"golden manifest {where} has no table 'files'")
    for name, entry in files.items():
        if schema == SCHEMA and not re.fullmatch(r"[\w.-]+\.safetensors", name):
            raise BadInput(
                f"golden manifest {where} lists {name!r}; expected the name of a .safetensors file beside it"
            )
        if not isinstance(entry, dict) or not entry.keys() >= {"sha256", "bytes"}:
            raise BadInput(f"golden manifest {where}: {name} has no sha256 and bytes")
    return manifest


def problems(folder: Path) -> list[str]:
    """Everything by which the files of a folder part from their manifest; empty if they are intact."""
    manifest, found = load_manifest(folder), []
    for name, entry in sorted(manifest["files"].items()):
        try:
            content = (folder / name).read_bytes()
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            found.append(f"{name} is missing" if missing else f"{name} cannot be read: {error.strerror}")
            continue
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
    metadata = metadata_of(file, path)
    if (schema := metadata.get("schema")) != SCHEMA:
        raise BadInput(f"{path} has schema {schema!r}; this version reads {SCHEMA!r}")
    if metadata != metadata_for(family):
        raise BadInput(f"{path} says that it holds {metadata}; expected {metadata_for(family)}")
    held = held_by(family)
    if file.tensors.keys() != held.keys():
        raise BadInput(f"{path} holds {', '.join(sorted(file.tensors)) or 'no tensors'}; expected {sorted(held)}")
    tensors = {name: stored.as_format(held[name]) for name, stored in file.tensors.items()}
    wrong = [name for name, tensor in tensors.items() if tensor.format != held[name] or not tensor.well_formed]
    for name in wrong or misshapen(family, tensors):
        raise BadInput(f"{path}: tensor {name!r} {list(tensors[name].shape)} is not what {family.name} has there")
    return tensors


def stored_case(claim: Claim, folder: Path) -> tuple[Coded, Expected]:
    """Inputs and expected outputs for a claim, from the vectors. Raises ``BadInput`` where no family holds for it."""
    family = family_of(claim)
    if family is None:
        raise BadInput(f"{claim}: no golden family holds for it")
    return as_case(claim, load(family, folder))
