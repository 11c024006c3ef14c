"""Files put away as a folder, a .tar.gz or a .zip: the same content gives the same bytes."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.files import write_whole

#: what a zip archive calls no time
_NO_TIME = (1980, 1, 1, 0, 0, 0)
_MODE = 0o644


def put_away(output: Path, files: Mapping[str, bytes]) -> None:
    """Write files, by their paths inside: an archive by the suffix of ``output``, or a folder if it has none.

    An archive is written whole or not at all, with a folder of its own name at its top.
    """
    top, kind = form_of(output)
    if kind == ".zip":
        write_whole(output, _zip(top, files))
    elif kind == ".tar.gz":
        write_whole(output, _tar_gz(top, files))
    else:
        _refuse_others(output, files)
        for name, content in files.items():
            write_whole(output / name, content)


def _refuse_others(output: Path, files: Mapping[str, bytes]) -> None:
    """Raise ``BadInput`` for a folder with files that would not be written now, and that no manifest would list."""
    there = sorted(str(path.relative_to(output)) for path in output.rglob("*") if path.is_file())
    others = [name for name in there if name not in files]
    if others:
        raise BadInput(
            f"{output} holds {len(others)} other files, for example {others[0]}: they would look like part of this "
            "export; give an empty or a new folder"
        )


def form_of(output: Path) -> tuple[str, str]:
    """The archive's name without its suffix, and the suffix: ".zip", ".tar.gz", or "" for a folder.

    Raises ``BadInput`` for a suffix that is no archive's, unless a folder of that name is there.
    """
    for suffix, kind in ((".tar.gz", ".tar.gz"), (".tgz", ".tar.gz"), (".zip", ".zip")):
        if output.name.endswith(suffix):
            return output.name.removesuffix(suffix), kind
    if output.suffix and not output.is_dir():
        raise BadInput(
            f"cannot write {output}: {output.suffix!r} is no archive that is written here; give .tar.gz, .tgz or .zip, "
            "or a folder (make it first if its name has a dot)"
        )
    return output.name, ""


def _tar_gz(top: str, files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with (
        gzip.GzipFile("", "wb", fileobj=packed, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name in sorted(files):
            entry = tarfile.TarInfo(f"{top}/{name}")  # no time, nobody's
            entry.size, entry.mode = len(files[name]), _MODE
            tar.addfile(entry, io.BytesIO(files[name]))
    return packed.getvalue()


def _zip(top: str, files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(f"{top}/{name}", _NO_TIME)
            entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, _MODE << 16, 3
            archive.writestr(entry, files[name])
    return packed.getvalue()
