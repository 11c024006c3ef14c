"""What generated pages share: a mark below which a page is written from a registry, rows of tables, anchors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


@dataclass(frozen=True)
class Page:
    """A page of docs/. What stands above its mark is written by hand, what stands below by ``below``."""

    file: str  #: in docs/
    writer: str  #: the module of suites/meta that writes it
    below: Callable[[], str]

    @property
    def path(self) -> Path:
        return DOCS / self.file

    @property
    def mark(self) -> str:
        return f"<!-- below: written by python -m narrowgauge.suites.meta.{self.writer} -->\n"

    def parts(self) -> tuple[str, str]:
        """What stands above the mark and below it; two empty texts where there is no page yet."""
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        head, _, rest = text.partition(self.mark)
        return head, rest

    def write(self) -> None:
        """Write what stands below the mark anew."""
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(self.parts()[0] + self.mark + self.below(), encoding="utf-8")

    def is_current(self) -> bool:
        """Whether the page has a mark, and below it what would be written now."""
        return self.path.exists() and self.path.read_text(encoding="utf-8").partition(self.mark)[1:] == (
            self.mark,
            self.below(),
        )


def line(*cells: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """The lines of a table."""
    names = list(headings)
    return [line(*names), "|---" * len(names) + "|", *(line(*cells) for cells in rows)]


def anchor(heading: str) -> str:
    """Where a heading is found on its page: letters, digits, hyphens and underscores, in lower case."""
    return "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")
