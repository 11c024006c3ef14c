"""Blocks of code of a page, by the language after the fence, and the lines that one types."""

from __future__ import annotations

import re


def blocks(page: str, language: str) -> list[str]:
    """Every fenced block of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def typed(page: str) -> list[str]:
    """Commands of narrowgauge in indented blocks, one a line; what is joined by a backslash is one."""
    joined = re.sub(r"\\\n\s*", "", page)
    lines = re.findall(r"^    (narrowgauge .*)$", joined, re.MULTILINE)
    return [re.split(r"\s{2,}#|\s#\s", line)[0].strip() for line in lines]
