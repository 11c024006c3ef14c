"""What the front ends find in a source, for the rules to judge. Words are lower case, joined by blanks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["number", "cast", "branch"]


@dataclass(frozen=True)
class Site:
    """One place of a source that a rule may find, with the words around it.

    A word is an identifier, or what stands in a string that is no docstring; comments are no words.
    """

    kind: Kind
    line: int  #: from 1
    text: str  #: the place as it is spelled: ``448.0``, ``.to(torch.float8_e4m3fn)``, the test of a branch
    statement: str = ""  #: of the smallest statement, or of the head of a compound one
    names: str = ""  #: of the functions and classes around it, and of the file
    folder: str = ""  #: of the file
    guards: str = ""  #: of the conditions under which it runs
    function: str = ""  #: of the whole function, its outer functions too; of the statement, if it is in none
    module: str = ""  #: of the whole file
    operand: str = ""  #: of a cast: what is cast
    branches: tuple[str, ...] = ()  #: of a branch: each side's words and numbers


@dataclass(frozen=True)
class Comment:
    """A comment, without its sign."""

    line: int
    text: str
    alone: bool  #: nothing else stands on its line


@dataclass(frozen=True)
class Source:
    """All that the rules need to know of a file."""

    sites: tuple[Site, ...] = ()
    comments: tuple[Comment, ...] = field(default=())
