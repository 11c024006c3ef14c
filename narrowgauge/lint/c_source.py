"""C++, CUDA and HIP sources, by a small tokenizer: no types, no macros expanded, but blocks, statements and #if."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from narrowgauge.lint.rules import NUMBER
from narrowgauge.lint.site import Comment, Kind, Site, Source

TOKEN = re.compile(
    r"""
    (?P<comment> //[^\n]* | /\*.*?(?:\*/|\Z) )
  | (?P<directive> ^[ \t]*\#(?:\\\r?\n|/\*.*?\*/|(?!//|/\*)[^\n])* )
  | (?P<string> R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)" | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' )
  | (?P<number> 0[xX][0-9a-fA-F']+\w* | \.?\d(?:'?[\d.])*(?:[eE][+-]?\d+)?[a-zA-Z]* )
  | (?P<word> [A-Za-z_]\w* )
  | (?P<sign> ->|::|\S )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
DECLARES = {"namespace", "struct", "class", "union", "enum", "extern"}
#: types whose values are float8; a pointer to one, or its storage, is plumbing
TYPE = re.compile(r"(nv_|hip_)?(fp8_|float8_|float_)e[45]m[23](fn|fnuz|_t|_fnuz)*$")
#: what stands before a type that is called to cast
CALLS = {"=", "(", ",", "return", "?", ":", "{", "+", "<<"}
#: a routine of CUDA's or HIP's headers, and what it is told of values that are too large
UNSATURATED = {"__nv_nosat", "__hip_nosat"}


@dataclass
class Chain:
    """An #if with its #elif and #else."""

    line: int
    conditions: list[str]
    outer: tuple[str, ...]
    branches: list[list[str]] = field(default_factory=lambda: [[]])
    inner: list[str] = field(default_factory=list)  #: conditions of those inside it

    @property
    def guard(self) -> str:
        """What it asks. One with an #else asks all that is asked inside it; an include guard does not."""
        return " ".join([*self.conditions, *(self.inner if len(self.branches) > 1 else ())])


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    line: int
    chains: tuple[Chain, ...] = ()  #: the #if around it


@dataclass
class Block:
    """What stands between braces, with the head before them."""

    head: range
    body: range
    kind: str  #: "declares", "function", or "inner"


def read(path: Path, text: str) -> Source:
    """The sites and comments of a source of the C family. Whatever is no such source gives few tokens, and no error."""
    tokens, comments, chains = _tokens(text)
    reader = _Reader(path, tokens)
    branches = (_branch(chain, reader) for chain in chains)
    return Source((*reader.sites(), *branches), comments)


def _tokens(text: str) -> tuple[list[Token], tuple[Comment, ...], list[Chain]]:
    tokens: list[Token] = []
    comments: list[Comment] = []
    chains: list[Chain] = []
    opened: list[Chain] = []
    line, seen = 1, 0
    for match in TOKEN.finditer(text):
        line, seen = line + text.count("\n", seen, match.start()), match.start()
        kind, spelled = str(match.lastgroup if match.lastgroup != "mark" else "string"), match[0]
        if kind == "comment":
            alone = not text[text.rfind("\n", 0, seen) + 1 : seen].strip()
            comments.append(Comment(line, spelled.strip("/* \n"), alone))
        elif kind == "directive":
            _direct(spelled, line, opened, chains)
            if re.match(r"\s*#\s*define\b", spelled):
                tokens += _defined(spelled, line, opened)
        elif kind != "string":
            tokens.append(Token(kind, spelled, line, tuple(opened)))
            for chain in opened:
                chain.branches[-1].append(spelled.lower())
    return tokens, tuple(comments), chains


def _direct(spelled: str, line: int, opened: list[Chain], chains: list[Chain]) -> None:
    word, _, rest = re.sub(r"^\s*#\s*", "", spelled).replace("\\\n", " ").partition(" ")
    word, rest = word.strip(), f"{word} {rest}".lower()
    for chain in opened:
        chain.branches[-1].append(rest)
        chain.inner.append(rest)
    if word in ("if", "ifdef", "ifndef"):
        opened.append(Chain(line, [rest], tuple(" ".join(c.conditions) for c in opened)))
        chains.append(opened[-1])
    elif word in ("else", "elif") and opened:
        opened[-1].conditions.append(f"{rest} {opened[-1].conditions[-1]}")
        opened[-1].branches.append([])
    elif word == "endif" and opened:
        opened.pop()


def _defined(spelled: str, line: int, opened: list[Chain]) -> Iterator[Token]:
    """A macro's body, as a statement of its own."""
    chains = tuple(opened)
    yield Token("sign", ";", line, chains)
    for match in TOKEN.finditer(spelled.strip().removeprefix("#").strip().removeprefix("define")):
        if match.lastgroup in ("word", "number") or match[0] in "<>(),":
            place = line + spelled.count("\n", 0, spelled.find(match[0]))
            yield Token(str(match.lastgroup), match[0], place, chains)
    yield Token("sign", ";", line, chains)


def _branch(chain: Chain, reader: _Reader) -> Site:
    sides = [" ".join(side) for side in chain.branches]
    tests = " ".join(chain.conditions)
    first = f"#{chain.conditions[0]}"
    return Site(
        "branch", chain.line, first, statement=tests, guards=" ".join(chain.outer), names=reader.file,
        module=reader.module, branches=tuple(sides) if len(sides) > 1 else (*sides, ""),
    )  # fmt: skip


class _Reader:
    def __init__(self, path: Path, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.file, self.folder = path.stem.lower(), path.resolve().parent.name.lower()
        self.module = _words(tokens)
        self.blocks: list[Block] = []
        self.statements: list[range] = []
        self._divide()

    def sites(self) -> Iterator[Site]:
        for statement in self.statements:
            for place in statement:
                token = self.tokens[place]
                if token.kind == "number" and NUMBER.fullmatch(token.text):
                    yield self._site("number", token, token.text, statement)
                elif TYPE.search(token.text.lower()):
                    yield from self._cast(place, statement)
                elif token.text.lower() in UNSATURATED:
                    yield self._site("cast", token, token.text, statement)

    def _divide(self) -> None:
        """Statements and blocks. A brace that opens an initializer is a part of its statement."""
        start, opened, depth = 0, list[tuple[Block | None, int]](), 0
        for place, token in enumerate(self.tokens):
            if token.kind != "sign":
                continue
            if token.text in "()":
                depth += 1 if token.text == "(" else -1
            elif token.text == "{":
                head = range(start, place)
                block = self._opened(head, [b for b, _ in opened if b])
                opened.append((block, depth))
                if block is not None:
                    self.statements.append(head)
                    start, depth = place + 1, 0
            elif token.text == "}" and opened:
                block, depth = opened.pop()
                if block is not None:
                    self.statements.append(range(start, place))
                    block.body = range(block.head.start, place)
                    self.blocks.append(block)
                    start = place + 1
            elif token.text == ";" and depth <= 0:
                self.statements.append(range(start, place))
                start = place + 1
        self.statements.append(range(start, len(self.tokens)))
        for block, _ in opened:  # #if and #else may both open what is closed once
            if block is not None:
                block.body = range(block.head.start, len(self.tokens))
                self.blocks.append(block)
        self.statements.sort(key=lambda s: s.start)

    def _opened(self, head: range, around: Sequence[Block]) -> Block | None:
        words = {self.tokens[place].text for place in head}
        last = self.tokens[head[-1]].text if head else ""
        inside = any(block.kind == "function" for block in around)
        if not inside and words & DECLARES and "(" not in words:
            return Block(head, head, "declares")
        if last in (")", "else", "do", "try", "const", "noexcept", "override", "") or (not inside and "(" in words):
            return Block(head, head, "inner" if inside else "function")
        return Block(head, head, "inner") if last in (":", "]") else None

    def _site(self, kind: Kind, token: Token, text: str, statement: range, operand: str = "") -> Site:
        blocks = sorted((b for b in self.blocks if statement.start in b.body), key=lambda b: b.body.start)
        functions = [b for b in blocks if b.kind == "function"]
        inner = [b for b in blocks if b.kind == "inner" and b.head != statement]
        words = self._words(statement)
        return Site(
            kind=kind,
            line=token.line,
            text=text,
            statement=words,
            names=" ".join([self.file, *(self._words(b.head) for b in blocks if b.kind != "inner")]),
            folder=self.folder,
            guards=" ".join([*(chain.guard for chain in token.chains), *(self._words(b.head) for b in inner)]),
            function=self._words(functions[0].body) if functions else words,
            module=self.module,
            operand=operand,
        )

    def _cast(self, place: int, statement: range) -> Iterator[Site]:
        """``static_cast<TYPE>(…)`` and ``TYPE(…)`` of a value; declarations, pointers and arguments are none."""
        near = [self.tokens[p].text if p in statement else "" for p in range(place - 4, place + 3)]
        while near[3] == "::":  # the name's own namespace
            near[:4] = ["", "", *near[:2]]
        *_, opens, before, _, after, then = near
        template = (opens, before) == ("static_cast", "<") and (after, then) == (">", "(")
        value = before in CALLS and after == "(" and then not in ("", ")")
        if template or value:
            stop = place + 2 if template else place + 1
            text = f"static_cast<{near[4]}>" if template else f"{near[4]}(…)"
            yield self._site("cast", self.tokens[place], text, statement, self._words(range(stop, statement.stop)))

    def _words(self, places: range) -> str:
        return _words(self.tokens[places.start : places.stop])


def _words(tokens: Sequence[Token]) -> str:
    return " ".join(t.text for t in tokens if t.kind == "word").lower()
