"""Functions that were not inlined. Each call reads the function's text anew, with names of its own, where it stands.

A call does not end a basic block, so products before it may be fused with sums after it, as the code generator may.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_DEFINE = re.compile(
    r'^define internal [^@\n]*(?P<name>@(?:"[^"]*"|[\w$.]+))\((?P<parameters>[^\n]*)\)[^()\n]*\{\n(?P<body>.*?)\n\}$',
    re.M | re.S,
)
_NAME = re.compile(r'%(?P<quote>"?)(?=[-\w$."])')
_LABEL = re.compile(r'^(?P<quote>"?)(?=[-\w$.][^\n=]*:)', re.M)


@dataclass(frozen=True)
class Function:
    """A function's text: its parameters, each with a % before it, the label of its first block, and what is in it."""

    name: str
    parameters: tuple[str, ...]
    entry: str
    body: str

    def renamed(self, prefix: str) -> Function:
        """The same with a prefix before each name of a value and each label."""

        def marked(text: str) -> str:
            return _NAME.sub(rf"%\g<quote>{prefix}", text)

        body = marked(_LABEL.sub(rf"\g<quote>{prefix}", self.body))
        return Function(self.name, tuple(map(marked, self.parameters)), prefix + self.entry, body)


def functions(text: str) -> dict[str, Function]:
    """The functions of a module, by name with @."""
    found = {}
    for match in _DEFINE.finditer(text):
        said = re.split(r",\s*(?![^(]*\))", match["parameters"]) if match["parameters"].strip() else []
        parameters = tuple(each.split()[-1] for each in said)
        unnamed = sum(name[1:].isdigit() for name in parameters)
        found[match["name"]] = Function(match["name"], parameters, str(unnamed), match["body"])
    return found
