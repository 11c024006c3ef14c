"""What pages of HTML share: one file, nothing fetched, every text of a stranger escaped."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
from pathlib import Path
from typing import Any

from narrowgauge.contracts.errors import BadInput, Infrastructure

TEMPLATES = Path(__file__).parent / "templates"


class Safe(str):
    """Text of ours that is not to be escaped: a script."""

    def __html__(self) -> str:
        return self


def check(path: Path) -> None:
    """Raise before anything is read: ``BadInput`` for another kind of file, ``Infrastructure`` without Jinja."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise BadInput(f"--html {path}: expected a file that ends in .html")
    if importlib.util.find_spec("jinja2") is None:
        raise Infrastructure("--html needs Jinja, which is not installed: pip install jinja2")


def rendered(template: str, script: str, **values: Any) -> str:
    """A page as a text. The template is given ``script`` and its hash, which alone its policy of content lets run."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=False
    ).get_template(template)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return made.render(script=Safe(script), script_hash=f"sha256-{digest}", **values)
