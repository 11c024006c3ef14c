"""The text of PTX: statements, scopes of names, functions, operands."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator.ptx_operands import Build, Operand

_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)")
_LABEL = re.compile(r"^([$\w]+):\s*")
_GUARD = re.compile(r"^@(!?)([%\w$]+)\s+")
_ADDRESS = re.compile(r"^\[\s*([%\w$]+)\s*(?:\+\s*(-?\w+))?\s*\]$")
_BITS = {"f16": "b16", "f32": "b32", "f64": "b64"}
#: a function: what it returns, its name, what it is given, and how its text goes on
_FUNCTION = re.compile(
    r"^[ \t]*(?:\.\w+[ \t]+)*\.func\b\s*(?:\(([^)]*)\)\s*)?([\w$]+)\s*\(([^)]*)\)(?:\s|//[^\n]*|\.\w+)*([{;])", re.M
)
_NAME = re.compile(r"([\w$]+)\s*(?:\[\d*\])?\s*$")


@dataclass(frozen=True)
class Function:
    """A function with a body: names of what it returns and is given, and the text after its opening brace."""

    returns: tuple[str, ...]
    parameters: tuple[str, ...]
    body: str


def functions(text: str) -> dict[str, Function | None]:
    """The functions of a module by name; None for one that has no body here."""
    found: dict[str, Function | None] = {}
    for match in _FUNCTION.finditer(text):
        returns, name, given, end = match.groups()
        if end == "{":
            found[name] = Function(_names(returns or ""), _names(given), text[match.end() :])
        else:
            found.setdefault(name, None)
    return found


def _names(text: str) -> tuple[str, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(found[1] for part in parts if (found := _NAME.search(part)))


@dataclass
class Names:
    """The names that are known while the statements of a kernel are read."""

    scopes: list[dict[str, tuple[str, str]]] = field(default_factory=lambda: [{}])  #: names to type and own name
    labels: dict[str, int] = field(default_factory=dict)
    scoped: int = 0
    passed: set[tuple[str, str]] = field(default_factory=set)  #: what a call passes, by place and type

    def parameter(self, declaration: str) -> None:
        """A variable that a call passes: its bytes are registers, by their place."""
        (name,) = _names(declaration)
        self.scopes[-1][name] = ("param", f"{self.scoped}:{name}")

    def declare(self, type: str, names: str) -> None:
        """Registers."""
        for name in (n.strip() for n in names.split(",")):
            stem, counted, _ = name.partition("<")
            own = f"{stem}" if len(self.scopes) == 1 else f"{self.scoped}:{stem}"
            self.scopes[-1][f"{stem}<" if counted else stem] = (_BITS.get(type, type), own)

    def find(self, name: str) -> tuple[str, str] | None:
        """Type and full name of a register; None if there is none of that name."""
        stem = name.rstrip("0123456789")
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
            if stem != name and f"{stem}<" in scope:
                type, own = scope[f"{stem}<"]
                return type, own + name[len(stem) :]
        return None


def statements(body: str) -> Iterator[tuple[str, str, bool]]:
    """Each statement of a kernel without its ';', its last .loc, and whether it is a brace."""
    where, pending, inline, depth = "", "", False, 1
    for raw in body.splitlines():
        if "begin inline asm" in raw:
            inline, fresh = True, True
        elif "end inline asm" in raw:
            inline = False
        line = raw.partition("//")[0].strip()
        if line.startswith(".loc"):
            if not inline or fresh:  # within inline assembly lines are counted on, past the source's own
                where, fresh = line, False
            continue
        pending = f"{pending} {line}".strip()
        while pending:
            if pending[0] in "{}":
                depth += 1 if pending[0] == "{" else -1
                yield pending[0], where, True
                pending = pending[1:].strip()
                if not depth:
                    return
            elif label := _LABEL.match(pending):
                yield label[0].strip(), where, False
                pending = pending[label.end() :]
            elif ";" in pending:
                statement, _, pending = pending.partition(";")
                pending = pending.strip()
                if statement.strip():
                    yield statement.strip(), where, False
            else:
                break


def line_of(loc: str, files: dict[str, str]) -> str:
    found = _LOC.search(loc)
    return f"{files.get(found[1], '?')}:{found[2]}" if found else ""


def split(statement: str, state: Names, symbols: dict[str, int], parameters: set[str]) -> tuple[Operand | None, Build]:
    guard = None
    if found := _GUARD.match(statement):
        register = state.find(found[2])
        if register is None or register[0] != "pred":
            raise NotExecuted(f"guard of '{statement}'")
        guard = Operand(register=register[1], type="pred", negated=bool(found[1]))
        statement = statement[found.end() :]
    opcode, _, rest = statement.partition(" ") if " " in statement else statement.partition("\t")
    opcode, _, tail = opcode.partition("\t")
    base, *modifiers = opcode.replace("::", "_").split(".")
    operands = tuple(_operand(o, state, symbols, parameters) for o in _commas(f"{tail} {rest}"))
    return guard, Build(statement, base, modifiers, operands, symbols)


def _commas(text: str) -> list[str]:
    """Parts between the commas that no brace holds; 'p|q' is two parts."""
    parts, depth, last = [], 0, ""
    for sign in text:
        depth += (sign in "{[") - (sign in "}]")
        if sign in ",|" and not depth:
            parts.append(last)
            last = ""
        else:
            last += sign
    return [p.strip() for p in [*parts, last] if p.strip()]


def _operand(text: str, state: Names, symbols: dict[str, int], parameters: set[str]) -> Operand:
    if text[0] == "{":
        return Operand(vector=tuple(_operand(o, state, symbols, parameters) for o in _commas(text.strip("{} "))))
    if text[0] == "[":
        found = _ADDRESS.match(text)
        if found is None:
            raise NotExecuted(f"address {text}")
        of = _operand(found[1], state, symbols, parameters)
        offset = int(found[2], 0) if found[2] else 0
        return Operand(of.register, of.type, of.value, symbol=of.symbol, offset=offset, address=True)
    negated, name = text[0] == "!", text.lstrip("!")
    if register := state.find(name):
        return Operand(register=register[1], type=register[0], negated=negated)
    if name == "_":
        return Operand(register="_")
    if name in symbols or name in parameters or name.startswith("$L"):
        return Operand(symbol=name)
    if name[0] == "%":
        return Operand(special=name[1:])
    if re.fullmatch(r"0[fF][0-9A-Fa-f]{8}", name) or re.fullmatch(r"0[dD][0-9A-Fa-f]{16}", name):
        return Operand(value=int(name[2:], 16))
    if re.fullmatch(r"-?(0[xX][0-9A-Fa-f]+|\d+)U?", name):
        return Operand(value=int(name.rstrip("U"), 0))
    if re.fullmatch(r"-?\d+\.\d*(e[+-]?\d+)?", name):
        return Operand(value=int.from_bytes(struct.pack("<d", float(name)), "little"))
    return Operand(symbol=name)
