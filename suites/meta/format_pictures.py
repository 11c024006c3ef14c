"""Pictures of docs/formats: each carries a digest of the numbers that it shows, so that a stale one is noticed.

Bytes of a picture depend on the version of matplotlib; the numbers in it do not.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

from narrowgauge.command.plot import WIDEST, plot
from narrowgauge.contracts.files import write_whole
from narrowgauge.contracts.formats import Format
from narrowgauge.reference.codec import values
from narrowgauge.reference.format_words import bits
from narrowgauge.reference.number_line import at_the_top, parting_codes, shown_codes, sibling, spacings, top_points

#: the name under which the digest stands in a file
KEY = "numbers"


def drawn(fmt: Format) -> bool:
    """Whether there is a picture of it."""
    return fmt.bits <= WIDEST


def digest(fmt: Format) -> str:
    """Of everything that the picture of a format shows: its values, and what policies give around the largest."""
    shown: list[object] = [fmt.name, fmt.authority, bits(fmt), shown_codes(fmt).tolist()]
    shown += [[list(map(float.hex, map(float, each))) for each in spacings(fmt)], top_points(fmt), at_the_top(fmt)]
    other = sibling(fmt)
    if other is not None:
        ratio, parting = parting_codes(fmt, other)
        shown += [other.name, ratio, parting.tolist(), values(fmt).tolist(), values(other).tolist()]
    return hashlib.sha256(repr(shown).encode()).hexdigest()


def write_picture(fmt: Format, path: Path) -> None:
    """Draw a format into a .png with the digest in it."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    plot(fmt, path)
    said, content = PngInfo(), io.BytesIO()
    said.add_text(KEY, digest(fmt))
    Image.open(path).save(content, "png", optimize=True, pnginfo=said)
    write_whole(path, content.getvalue())


def is_current(fmt: Format, path: Path) -> bool:
    """Whether a picture shows the numbers of today."""
    return path.exists() and f"{KEY}\0{digest(fmt)}".encode() in path.read_bytes()
