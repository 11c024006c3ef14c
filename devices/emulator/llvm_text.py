"""The text of LLVM IR: tokens, types, constants, source lines. What is not known is refused, never guessed."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator.engine import Machine
from narrowgauge.devices.emulator.memory import Array

Reader = Callable[[Machine], Array]
#: a type is the kinds of its parts: a scalar has one, a vector or struct several, a buffer its address and its size
Kinds = tuple[str, ...]


#: how NumPy holds a part: patterns, except that i1 is bool
class _Held(dict[str, np.dtype[Any]]):
    """An integer of another width is held in the next wider one; its upper bits are zero."""

    def __missing__(self, kind: str) -> np.dtype[Any]:
        if not re.fullmatch(r"i[1-9]\d?", kind) or int(kind[1:]) > 64:
            raise KeyError(kind)
        return next(np.dtype(f"u{size}") for size in (1, 2, 4, 8) if 8 * size >= int(kind[1:]))

    def __contains__(self, kind: object) -> bool:
        try:
            return bool(self[str(kind)])
        except KeyError:
            return False


HELD: dict[str, np.dtype[Any]] = _Held({
    "i1": np.dtype(bool), "i8": np.dtype(np.uint8), "i16": np.dtype(np.uint16), "i32": np.dtype(np.uint32),
    "i64": np.dtype(np.uint64), "half": np.dtype(np.uint16), "bfloat": np.dtype(np.uint16),
    "float": np.dtype(np.uint32), "double": np.dtype(np.uint64), "p0": np.dtype(np.uint64), "p1": np.dtype(np.uint64),
    "p3": np.dtype(np.uint32), "p4": np.dtype(np.uint64), "p8": np.dtype(np.uint64), "records": np.dtype(np.uint64),
})  # fmt: skip
FLOATS = ("half", "bfloat", "float", "double")

_TOKEN = re.compile(
    r'"[^"]*"|[%@](?:"[^"]*"|[-\w.$]+)|[-+]?f0x[0-9A-Fa-f]+|[-+]?\d[\w.]*(?:(?<=[eE])[-+]\d+)?|[-+]?[A-Za-z_][\w.]*|\S'
)
_ATTACHED = re.compile(r",?\s*!([\w.]+) !(\d+)")
_LOCATION = re.compile(r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+),.*?scope: !(\d+)", re.M)
_SCOPE = re.compile(r"^!(\d+) = (?:distinct )?!DI(?:Subprogram|LexicalBlock\w*)\(.*?file: !(\d+)", re.M)
_FILE = re.compile(r'^!(\d+) = !DIFile\(filename: "([^"]*)"', re.M)
#: said of an argument; those with words in parentheses are skipped with them
_SAID = {
    "noundef", "nonnull", "zeroext", "signext", "inreg", "nofree", "readonly", "writeonly", "readnone", "noalias",
    "captures", "range", "dereferenceable", "dereferenceable_or_null", "align", "immarg", "nocapture", "nofpclass",
    "returned",
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One part of a value: a pattern for each lane. ``constant`` where the text has it."""

    kind: str
    read: Reader
    constant: int | None = None


Value = tuple[Part, ...]


def bits(kind: str) -> int:
    """Width of a kind."""
    return int(kind[1:]) if re.fullmatch(r"i\d+", kind) else 8 * HELD[kind].itemsize


def constant(kind: str, number: int) -> Part:
    """A part with a pattern."""
    pattern = number & (1 << bits(kind)) - 1
    held = np.array([pattern]).astype(bool) if kind == "i1" else np.array([pattern], HELD[kind])
    return Part(kind, lambda machine: held, pattern)


def unspecified(machine: Machine, kind: str) -> Array:
    """What stands for a value that the program leaves open: the fill of the launch, as fresh memory has it."""
    if kind == "i1":
        return np.array([bool(machine.fill & 1)])
    return np.frombuffer(bytes([machine.fill]) * HELD[kind].itemsize, HELD[kind])


def poison(kind: str) -> Part:
    """A part that the program leaves open."""
    return Part(kind, lambda machine: unspecified(machine, kind))


class Tokens:
    """The rest of a line, read from the left. ``named``: values defined so far; ``symbols``: addresses of variables."""

    def __init__(self, line: str, named: Mapping[str, Value], symbols: Mapping[str, int]) -> None:
        self.line, self.named, self.symbols = line, named, symbols
        self.left: list[str] = _TOKEN.findall(line)

    def peek(self) -> str:
        """The next token; "" at the end."""
        return self.left[0] if self.left else ""

    def take(self) -> str:
        """The next token, consumed."""
        if not self.left:
            raise self.refuse()
        return self.left.pop(0)

    def accept(self, *tokens: str) -> str:
        """The next token, consumed where it is one of these; else ""."""
        return self.left.pop(0) if self.left and self.left[0] in tokens else ""

    def expect(self, token: str) -> None:
        """Consume this token."""
        if self.take() != token:
            raise self.refuse()

    def ahead(self) -> Tokens:
        """A copy, to look at what comes without consuming it."""
        copy = Tokens("", self.named, self.symbols)
        copy.line, copy.left = self.line, list(self.left)
        return copy

    def refuse(self) -> NotExecuted:
        """The error for text that nothing here knows."""
        return NotExecuted(f"LLVM IR '{self.line.strip()}'")

    def type(self) -> Kinds:
        """The next type."""
        token = self.take()
        if token == "ptr":
            space = "0"
            if self.accept("addrspace"):
                self.expect("(")
                space = self.take()
                self.expect(")")
            if f"p{space}" not in HELD:
                raise self.refuse()
            return ("p8", "records") if space == "8" else (f"p{space}",)
        if token in "<[":
            count = int(self.take())
            self.expect("x")
            kinds = self.type() * count
            self.expect(">" if token == "<" else "]")
            return kinds
        if token == "{":
            found: Kinds = ()
            while not self.accept("}"):
                found += self.type()
                self.accept(",")
            return found
        if token == "void":
            return ()
        if token not in HELD or token in ("records",):
            raise NotExecuted(f"type {token}")
        return (token,)

    def spans(self) -> list[tuple[int, int]]:
        """Where the parts of each member of the next type, which is not consumed, begin and end."""
        ahead, sizes = self.ahead(), []
        if ahead.accept("{"):
            while not ahead.accept("}"):
                sizes.append(len(ahead.type()))
                ahead.accept(",")
        elif ahead.accept("<", "["):
            count = int(ahead.take())
            ahead.expect("x")
            sizes = [len(ahead.type())] * count
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        return list(zip([0, *ends], ends, strict=False))

    def typed(self) -> Value:
        """A type and a value of it."""
        kinds = self.type()
        self.skip_said()
        return self.value(kinds)

    def skip_said(self) -> None:
        """Skip what is said of an argument or a result."""
        while self.peek() in _SAID:
            word = self.take()
            if word == "align" and self.peek() != "(":
                self.take()
            elif self.accept("("):
                depth = 1
                while depth:
                    depth += {"(": 1, ")": -1}.get(self.take(), 0)

    def value(self, kinds: Kinds) -> Value:
        """A value of a type."""
        token = self.take()
        if token[0] == "%":
            if token not in self.named:
                raise NotExecuted(f"value {token} before its definition")
            return self.named[token]
        if token in ("poison", "undef"):
            return tuple(poison(kind) for kind in kinds)
        if token in ("zeroinitializer", "null"):
            return tuple(constant(kind, 0) for kind in kinds)
        if token == "splat":
            self.expect("(")
            (part,) = self.typed()
            self.expect(")")
            return (part,) * len(kinds)
        if token in "<[":
            parts: Value = ()
            while not self.accept(">", "]"):
                parts += self.typed()
                self.accept(",")
            return parts
        if token == "getelementptr":
            return (self._place(),)
        if len(kinds) != 1:
            raise self.refuse()
        if token.lstrip("+-") == "nan":
            return (constant(kinds[0], self._payload(token[0] == "-", kinds[0])),)
        if token[0] == "@":
            if token[1:] not in self.symbols:
                raise self.refuse()
            return (constant(kinds[0], self.symbols[token[1:]]),)
        return (constant(kinds[0], self._pattern(token, kinds[0])),)

    def _place(self) -> Part:
        """A constant address: a variable and a number of bytes."""
        while self.peek() in ("inbounds", "nuw", "nusw"):
            self.take()
        self.expect("(")
        unit = self.type()
        self.expect(",")
        (base,) = self.typed()
        self.expect(",")
        (step,) = self.typed()
        self.expect(")")
        if unit != ("i8",) or base.constant is None or step.constant is None:
            raise self.refuse()
        return constant(base.kind, base.constant + step.constant)

    def _payload(self, negative: bool, kind: str) -> int:
        """A quiet NaN with a payload: ``+nan(0x1)``."""
        self.expect("(")
        payload = int(self.take(), 16)
        self.expect(")")
        return _SPECIAL["qnan"][FLOATS.index(kind)] | payload | negative << bits(kind) - 1

    def _pattern(self, token: str, kind: str) -> int:
        if kind not in FLOATS:
            if token in ("true", "false"):
                return int(token == "true")
            if not re.fullmatch(r"-?\d+", token):
                raise self.refuse()
            return int(token)
        return _float_pattern(token, kind, self.refuse)


_SPECIAL = {"qnan": (0x7E00, 0x7FC0, 0x7FC00000, 0x7FF8 << 48), "inf": (0x7C00, 0x7F80, 0x7F800000, 0x7FF0 << 48)}


def _float_pattern(token: str, kind: str, refuse: Callable[[], NotExecuted]) -> int:
    """The pattern of a literal. A hexadecimal literal of float is a double with the same value."""
    negative, bare = token[0] == "-", token.lstrip("+-")
    if bare in _SPECIAL:
        return _SPECIAL[bare][FLOATS.index(kind)] | negative << bits(kind) - 1
    if bare.startswith("f0x"):
        return int(bare[3:], 16) | negative << bits(kind) - 1
    if bare.startswith(("0xH", "0xR")):
        return int(bare[3:], 16)
    if bare.startswith("0x"):
        number = struct.unpack("<d", int(bare[2:], 16).to_bytes(8, "little"))[0]
    elif re.fullmatch(r"\d+\.\d*(e[-+]?\d+)?", bare):
        number = float(token)
    else:
        raise refuse()
    if kind == "double":
        return int.from_bytes(struct.pack("<d", number), "little")
    with np.errstate(all="ignore"):
        single = np.float32(number)
    if kind == "half":
        return int(np.float16(number).view(np.uint16))
    return int(single.view(np.uint32)) >> (16 if kind == "bfloat" else 0)


def attached(line: str) -> tuple[str, dict[str, str]]:
    """A line without what is attached to it, and that: kind to number."""
    found = dict(_ATTACHED.findall(line))
    return re.sub(r"\s+#\d+\s*$", "", _ATTACHED.sub("", line)), found


def source_lines(text: str) -> dict[str, str]:
    """ "file:line" by the number of a DILocation."""
    files = dict(_FILE.findall(text))
    scopes = {scope: files.get(file, "?") for scope, file in _SCOPE.findall(text)}
    return {number: f"{scopes.get(scope, '?')}:{line}" for number, line, scope in _LOCATION.findall(text)}
