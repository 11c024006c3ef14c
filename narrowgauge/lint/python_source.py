"""Python sources, by their syntax tree: torch code and Triton kernels alike."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from narrowgauge.contracts.errors import BadInput
from narrowgauge.lint.rules import FLOAT8, NUMBER, VENDOR
from narrowgauge.lint.site import Comment, Kind, Site, Source

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (*FUNCTIONS, ast.ClassDef)
COMPOUND = (*SCOPES, ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match, ast.AsyncFor, ast.AsyncWith)
#: elements from which on a list is data, not a pair of bounds
LISTED = 4
CASTS = {"to", "view", "astype", "type", "cast"}


def read(path: Path, text: str) -> Source:
    """The sites and comments of a Python file. Raises ``BadInput`` for what is no Python."""
    try:
        tree = ast.parse(text)
        comments = tuple(_comments(text))
    except (SyntaxError, ValueError, tokenize.TokenError) as error:
        raise BadInput(f"{path} cannot be read as Python: {error}; give a file of Python 3, or leave it out") from None
    return Source(tuple(_Reader(path, text, tree).sites()), comments)


def _comments(text: str) -> Iterator[Comment]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield Comment(token.start[0], token.string.lstrip("#").strip(), not token.line[: token.start[1]].strip())


class _Reader:
    def __init__(self, path: Path, text: str, tree: ast.Module) -> None:
        self.lines = text.splitlines()
        self.tree = tree
        self.parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self.module = _words(tree)
        self.file, self.folder = path.stem.lower(), path.resolve().parent.name.lower()
        self.known: dict[int, str] = {}

    def sites(self) -> Iterator[Site]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant) and type(node.value) in (int, float):
                if NUMBER.fullmatch(spelled := self._spelled(node)) and not self._is_data(node):
                    yield self._site("number", node, spelled)
            elif isinstance(node, ast.Call):
                yield from self._cast(node)
            elif isinstance(node, ast.If | ast.IfExp) and VENDOR.search(self._words(node.test)):
                yield self._branch(node)

    def _site(self, kind: Kind, node: ast.expr, text: str, operand: str = "") -> Site:
        around = list(self._around(node))
        scopes = [n for n in around if isinstance(n, SCOPES)]
        functions = [n for n in scopes if isinstance(n, FUNCTIONS)]
        guards = [n.test for n in around if isinstance(n, ast.If | ast.IfExp | ast.While) and not _inside(node, n.test)]
        statement = self._statement(node)
        return Site(
            kind=kind,
            line=node.lineno,
            text=text,
            statement=statement,
            names=" ".join([self.file, *(scope.name.lower() for scope in scopes)]),
            folder=self.folder,
            guards=" ".join(map(self._words, guards)),
            function=self._words(functions[-1]) if functions else statement,
            module=self.module,
            operand=operand,
        )

    def _cast(self, call: ast.Call) -> Iterator[Site]:
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in CASTS:
            return
        given = [*call.args, *(k.value for k in call.keywords if k.arg in ("dtype", "bitcast"))]
        types = [n for n in given if isinstance(n, ast.Name | ast.Attribute) and FLOAT8.search(_last(n).lower())]
        if call.func.attr == "cast":
            types = [n for n in types if n is not call.args[0]] if call.args else []
        if not types:
            return
        bits = call.func.attr == "view" or any(k.arg == "bitcast" for k in call.keywords)
        operand = call.args[0] if call.func.attr == "cast" else call.func.value
        yield self._site(
            "cast", call, f".{'view' if bits else call.func.attr}({ast.unparse(types[0])})", _words(operand)
        )

    def _branch(self, node: ast.If | ast.IfExp) -> Site:
        def side(part: list[ast.stmt] | ast.expr) -> str:
            return " ".join(_words(n, numbers=True) for n in (part if isinstance(part, list) else [part]))

        site = self._site("branch", node.test, ast.unparse(node.test))
        words = {**vars(site), "statement": self._words(node.test), "branches": (side(node.body), side(node.orelse))}
        return Site(**words)

    def _statement(self, node: ast.AST) -> str:
        """Of a compound statement only the part that the node is in, with a function's name."""
        part = node
        for above in self._around(node):
            if isinstance(above, ast.keyword) and isinstance(part, ast.Constant | ast.UnaryOp):
                return self._words(above)
            if isinstance(above, ast.arguments):
                return self._words(_given_to(above, part))
            if isinstance(above, COMPOUND):
                return self._words(part)
            part = above
            if isinstance(above, ast.stmt):
                break
        return self._words(part)

    def _around(self, node: ast.AST) -> Iterator[ast.AST]:
        above = self.parents.get(id(node))
        while above is not None:
            yield above
            above = self.parents.get(id(above))

    def _words(self, node: ast.AST) -> str:
        if id(node) not in self.known:
            self.known[id(node)] = _words(node)
        return self.known[id(node)]

    def _is_data(self, node: ast.Constant) -> bool:
        """Whether a number is one of many in a list (inputs of a test, sizes of tiles), or stands under its format.

        So is a whole number that is compared: a count, and no bound.
        """
        part: ast.AST = node
        for above in self._around(node):
            if isinstance(above, ast.Compare) and part is node and isinstance(node.value, int):
                return True
            if isinstance(above, ast.List | ast.Tuple) and isinstance(part, ast.Constant | ast.UnaryOp):
                return len(above.elts) >= LISTED
            if isinstance(above, ast.Dict) and part in above.values:
                key = above.keys[above.values.index(part)]
                return key is not None and bool(FLOAT8.search(self._words(key)))
            if isinstance(above, ast.stmt):
                break
            part = above
        return False

    def _spelled(self, node: ast.Constant) -> str:
        line = self.lines[node.lineno - 1].encode()
        return line[node.col_offset : node.end_col_offset].decode()


def _inside(node: ast.AST, tree: ast.AST) -> bool:
    return any(n is node for n in ast.walk(tree))


def _given_to(arguments: ast.arguments, default: ast.AST) -> ast.AST:
    """The argument that has this default; all of them, if it is an annotation."""
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [*zip(reversed(positional), reversed(arguments.defaults), strict=False)]
    pairs += [(arg, value) for arg, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value]
    return next((arg for arg, value in pairs if value is default), arguments)


def _last(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _words(tree: ast.AST, numbers: bool = False) -> str:
    docstrings = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}
    return " ".join(w for n in ast.walk(tree) if id(n) not in docstrings for w in _of(n, numbers)).lower()


def _of(node: ast.AST, numbers: bool) -> Iterator[str]:
    for name in ("id", "attr", "arg", "name"):
        if isinstance(word := getattr(node, name, None), str):
            yield word
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield re.sub(r"\s+", " ", node.value)
    if numbers and isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield str(node.value)
