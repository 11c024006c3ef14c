"""Mutate the reference, one small change at a time, and see whether the second derivation notices.

Mutants are made from the syntax tree: comparisons, arithmetic, constants, choices by name, branches. Each is imported
in place of the real module, in this process, and the killer is run on it.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import importlib.abc
import importlib.machinery
import sys
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import narrowgauge
from narrowgauge.suites.meta.killer import Killer

ROOT = Path(narrowgauge.__file__).parent
#: what is mutated: all that decides a code or a scale
MODULES = (
    "contracts.formats",
    "reference.codec",
    "reference.fast_codec",
    "reference.policies",
    "reference.steps",
    "reference.quantize",
)
#: words that stand for a choice; each is replaced by every other of its group
WORDS: tuple[tuple[str, ...], ...] = (
    ("nearest_even", "nearest_away", "nearest_zero", "toward_zero", "up", "down"),
    ("max", "special"),
    ("nan", "max", "zero"),
    ("keep", "flush"),
    ("keep", "drop"),
    ("ieee", "fn", "fnuz"),
    ("mul", "div"),
    ("fmin_first", "fmax_first", "keep_nan"),
    ("left", "right"),
    ("amax", "scale"),
    ("bound", "minimum"),
)
#: functions that are easily confused
FUNCTIONS = (("fmax", "fmin"), ("maximum", "minimum"))
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
#: where a node stands: the node around it, the field, and its place in the field where that is a list
Step = tuple[ast.AST, str, int | None]
#: keyword arguments and fields that are words for people
PROSE = {"authority", "applies", "source", "evidence", "name", "safetensors", "aliases", "markers"}


@dataclass(frozen=True)
class Mutant:
    """One change in one module: at the ``place``-th node that may be touched, the ``variant``-th change."""

    module: str
    line: int
    what: str  #: "a < b becomes a <= b"
    place: int
    variant: int

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.what}"

    @property
    def function(self) -> str:
        """The function or method that is changed, by name; "" where none is."""
        names = [n.name for n, _, _ in self._way() if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        return ".".join(names)

    def tree(self) -> ast.Module:
        """The changed module. Only what lies around the change is new: nobody may write into the rest."""
        node = _places(self.module)[self.place]
        replacement = copy.copy(list(_changes(node))[self.variant][1])
        changed: ast.AST = ast.fix_missing_locations(ast.copy_location(replacement, node))
        for parent, field, position in reversed(self._way()):
            parent = copy.copy(parent)
            if position is None:
                setattr(parent, field, changed)
            else:
                siblings = getattr(parent, field)
                setattr(parent, field, [*siblings[:position], changed, *siblings[position + 1 :]])
            changed = parent
        assert isinstance(changed, ast.Module)
        return changed

    def _way(self) -> list[Step]:
        """The nodes around the place, from the module inwards."""
        around, way = _around(self.module), []
        node = _places(self.module)[self.place]
        while (step := around.get(id(node))) is not None:
            way.append(step)
            node = step[0]
        return way[::-1]


def mutants(module: str) -> Iterator[Mutant]:
    """Every mutant of a module."""
    around = _around(module)
    for place, node in enumerate(_places(module)):
        # Of a constant alone, nobody could say which one is meant.
        where = f" in {ast.unparse(around[id(node)][0])}" if isinstance(node, ast.Constant) else ""
        for variant, (what, _) in enumerate(_changes(node)):
            yield Mutant(module, getattr(node, "lineno", 0), what + where, place, variant)


@cache
def _parsed(module: str) -> ast.Module:
    return ast.parse(_path(module).read_text())


@cache
def _places(module: str) -> list[ast.AST]:
    """The nodes that may be changed."""
    untouched = _untouched(_parsed(module))
    return [node for node in ast.walk(_parsed(module)) if id(node) not in untouched]


@cache
def _around(module: str) -> dict[int, Step]:
    """Where each node of a module stands, by the node's ``id``."""
    found: dict[int, Step] = {}
    for node in ast.walk(_parsed(module)):
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                found[id(value)] = (node, field, None)
            elif isinstance(value, list):
                found |= {id(v): (node, field, i) for i, v in enumerate(value) if isinstance(v, ast.AST)}
    return found


def _path(module: str) -> Path:
    return ROOT / (module.replace(".", "/") + ".py")


def _untouched(tree: ast.AST) -> set[int]:
    """Nodes that say nothing about numbers: docstrings, annotations, error messages, words for people."""
    found: set[int] = set()

    def leave(node: ast.AST | None) -> None:
        if node is not None:
            found.update(id(n) for n in ast.walk(node))

    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            leave(node)
        if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom):
            leave(node)
        if isinstance(node, ast.AnnAssign | ast.arg):
            leave(node.annotation)
        if isinstance(node, ast.FunctionDef):
            leave(node.returns)
        if isinstance(node, ast.ClassDef):
            for decorator in node.decorator_list:
                leave(decorator)
        if isinstance(node, ast.keyword) and node.arg in PROSE:
            leave(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "NamedPolicy":
            for argument in (node.args[0], *node.args[2:], *node.keywords):
                leave(argument)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Format":
            for argument in (node.args[0], *node.args[5:]):
                leave(argument)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in (
            "Evidence",
            "Family",
            "Codes",
            "Values",
            "F32",
        ):
            leave(node)
    return found


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The changes that can be made at a node, each with what replaces it."""
    before = ast.unparse(node) if isinstance(node, ast.expr) else ""

    def changed(replacement: ast.AST) -> tuple[str, ast.AST]:
        return f"{before} becomes {ast.unparse(replacement)}", replacement

    match node:
        case ast.Compare(left=left, ops=[op], comparators=right) if type(op) in COMPARISONS:
            yield changed(ast.Compare(left, [COMPARISONS[type(op)]()], right))
        case ast.BinOp(left=left, op=operator, right=other) if type(operator) in OPERATORS:
            yield changed(ast.BinOp(left, OPERATORS[type(operator)](), other))
        case ast.UnaryOp(op=ast.Invert() | ast.USub() | ast.Not(), operand=operand):
            yield changed(operand)
        case ast.BoolOp(op=ast.And(), values=values):
            yield changed(ast.BoolOp(ast.Or(), values))
        case ast.BoolOp(op=ast.Or(), values=values):
            yield changed(ast.BoolOp(ast.And(), values))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield changed(ast.IfExp(test, orelse, body))
        case ast.Constant(value=bool()):
            yield changed(ast.Constant(not node.value))
        case ast.Constant(value=int() | float() as number):
            yield changed(ast.Constant(number + 1))
        case ast.Constant(value=str() as word):
            for other_word in dict.fromkeys(w for group in WORDS if word in group for w in group if w != word):
                yield changed(ast.Constant(other_word))
        case ast.Attribute(attr=name, value=value, ctx=context):
            for pair in FUNCTIONS:
                if name in pair:
                    yield changed(ast.Attribute(value, pair[1 - pair.index(name)], context))
        case ast.If(test=test, body=body, orelse=orelse):
            yield f"if {ast.unparse(test)} is never so", ast.If(ast.Constant(False), body, orelse)


# --- running ---------------------------------------------------------------------------------------------------------


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives one module of the package from a syntax tree."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.name, self.tree = name, tree

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self) if name == self.name else None

    def exec_module(self, module: types.ModuleType) -> None:
        exec(compile(self.tree, f"<mutant of {self.name}>", "exec"), module.__dict__)


@contextlib.contextmanager
def in_its_place(mutant: Mutant) -> Iterator[None]:
    """While this holds, importing the module gives the mutated one. What was imported before comes back after.

    Only what imports the mutated module, itself or by others, is imported anew: the rest has nothing of it.
    """
    name = f"narrowgauge.{mutant.module}"
    finder = Finder(name, mutant.tree())
    saved = _taken_out(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        _taken_out(name)
        for other, module in saved.items():
            sys.modules[other] = module
            package, _, last = other.rpartition(".")
            setattr(sys.modules[package], last, module)


def _taken_out(name: str) -> dict[str, types.ModuleType]:
    """The module and all that were made with it, which are no longer imported after this."""
    saved = {other: sys.modules.pop(other) for other in _made_with(name) if other in sys.modules}
    for other in saved:
        package, _, last = other.rpartition(".")
        # ``from package import module`` asks the package first.
        vars(sys.modules.get(package) or saved[package]).pop(last, None)
    return saved


@cache
def _made_with(name: str) -> frozenset[str]:
    """The modules of the reference and below it that import a module, directly or by others; itself among them."""
    found = {name}
    while more := {other for other, names in _imports().items() if names & found} - found:
        found |= more
    return frozenset(found)


@cache
def _imports() -> dict[str, frozenset[str]]:
    """What each module that a mutant may be in, or reach, imports anywhere in it; a package imports what is in it."""
    found = {}
    for room in ("contracts", "reference", "devices/emulator"):
        for path in (ROOT / room).rglob("*.py"):
            name = ".".join(("narrowgauge", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
            found[name] = frozenset(_imported(ast.parse(path.read_text())))
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def survives(mutant: Mutant, killer: Killer) -> bool:
    """Whether the second derivation sees nothing wrong. A mutant that cannot even run is seen."""
    with in_its_place(mutant), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return killer.first_disagreement(f"{mutant.module}.{mutant.function}") is None
