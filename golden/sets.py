"""A set of golden vectors wherever it lies: a folder, an export, a revision of git, or what this version generates."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from narrowgauge.contracts.errors import BadInput
from narrowgauge.golden import export
from narrowgauge.golden.archive import form_of
from narrowgauge.golden.manifest import NAME, SCHEMA, manifest_of, regenerate

SUFFIX = ".safetensors"
#: the folder of an export in which the vectors are
_EXPORTED = "safetensors/"
#: a manifest, or a file of vectors, has some hundred kilobytes; a damaged archive may claim any size
_LARGEST = 1 << 26


@dataclass(frozen=True)
class VectorSet:
    """Files of vectors, each with what its manifest says; their bytes are those of the manifest."""

    where: str
    manifest: str  #: sha256 of the manifest
    about: Mapping[str, Any]  #: what the manifest says besides its files
    entries: Mapping[str, Mapping[str, Any]]  #: by family
    contents: Mapping[str, bytes]  #: by family

    @property
    def has_flags(self) -> bool:
        """An export has none."""
        return bool(self.about["schema"] == SCHEMA)


#: how an export's name ends
ARCHIVES = (".tar.gz", ".tgz", ".zip")


def at(place: Path) -> VectorSet:
    """The vectors of a folder, an export as a folder, or an archive of one. Raises ``BadInput`` that names the place
    for whatever is wrong with it."""
    if place.is_dir():
        return _checked(str(place), _of_folder(place))
    if not place.exists() or not place.name.endswith(ARCHIVES):
        what = "no golden vectors at" if not place.exists() else "not golden vectors:"
        raise BadInput(f"{what} {place}; expected a folder of vectors, or an export ({', '.join(ARCHIVES)})")
    _, kind = form_of(place)
    try:
        files = dict(_of_tar(place.read_bytes()) if kind == ".tar.gz" else _of_zip(place))
    except (
        OSError,
        EOFError,
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise BadInput(f"{place} is not a whole {kind} archive of golden vectors: {error}") from error
    # an archive has one folder at its top
    return _checked(str(place), {name.partition("/")[2]: content for name, content in files.items()})


def of_git(revision: str, folder: Path) -> VectorSet:
    """The vectors that lay in a folder at a revision. Raises ``BadInput`` where there are none, or no git."""
    found = _git(folder, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    commit = found.decode().strip()
    packed = _git(folder, "archive", "--format=tar", commit)
    return _checked(f"{folder} at {revision} ({commit[:12]})", dict(_of_tar(packed)))


def generated() -> VectorSet:
    """What this version would write."""
    with tempfile.TemporaryDirectory() as scratch:
        regenerate(Path(scratch))
        return _checked("what this version generates", _of_folder(Path(scratch)))


def _git(folder: Path, *words: str) -> bytes:
    try:
        done = subprocess.run(["git", *words], cwd=folder.resolve(), capture_output=True, check=False)
    except OSError as error:
        raise BadInput(f"--git: git cannot be run in {folder}: {error.strerror}") from error
    if done.returncode:
        said = next(iter(done.stderr.decode(errors="replace").strip().splitlines()), "no message")
        raise BadInput(f"--git: 'git {' '.join(words)}' in {folder} failed: {said}")
    return done.stdout


# --- files by their path inside the set ------------------------------------------------------------------------------


def _of_folder(folder: Path) -> dict[str, bytes]:
    inside = [folder / NAME, *folder.glob(f"*{SUFFIX}"), *folder.glob(f"{_EXPORTED}*{SUFFIX}")]
    try:
        return {str(path.relative_to(folder).as_posix()): path.read_bytes() for path in inside if path.exists()}
    except OSError as error:
        raise BadInput(f"cannot read {error.filename}: {error.strerror}") from error


def _of_tar(content: bytes) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for entry in archive:
            file = archive.extractfile(entry) if entry.isfile() and _wanted(entry.name) else None
            if file is not None:
                yield entry.name, file.read(_LARGEST)


def _of_zip(path: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for name in filter(_wanted, archive.namelist()):
            with archive.open(name) as file:
                yield name, file.read(_LARGEST)


def _wanted(name: str) -> bool:
    return name.endswith((SUFFIX, NAME))


def _checked(where: str, files: Mapping[str, bytes]) -> VectorSet:
    """The set, once every file is as its manifest says and none is there beside them."""
    if NAME not in files:
        raise BadInput(f"no golden vectors at {where}: there is no {NAME}")
    manifest = manifest_of(files[NAME], f"{where}: {NAME}", (SCHEMA, export.SCHEMA))
    listed = _vectors(manifest, where)
    for name, entry in listed.items():
        if name not in files:
            raise BadInput(f"{where}: {name} is missing; its manifest lists it")
        if hashlib.sha256(files[name]).hexdigest() != entry["sha256"]:
            raise BadInput(f"{where}: {name} has other bytes than the manifest's sha256 says")
    if others := sorted(files.keys() - listed.keys() - {NAME}):
        raise BadInput(f"{where}: {others[0]} is not in the manifest")
    families = {name: name.rpartition("/")[2].removesuffix(SUFFIX) for name in listed}
    return VectorSet(
        where,
        hashlib.sha256(files[NAME]).hexdigest(),
        {key: value for key, value in manifest.items() if key != "files"},
        {families[name]: entry for name, entry in listed.items()},
        {families[name]: files[name] for name in listed},
    )


def _vectors(manifest: Mapping[str, Any], where: str) -> dict[str, Mapping[str, Any]]:
    """The files of vectors of a manifest: of an export, those that are safetensors."""
    if manifest["schema"] == SCHEMA:
        return dict(manifest["files"])
    found = {name: entry for name, entry in manifest["files"].items() if name.startswith(_EXPORTED)}
    if not found:
        raise BadInput(f"{where} is an export without safetensors files; export with --kind safetensors, or all kinds")
    return found
