"""The libraries that the reference is held against, what they are asked, and the tables of docs/proof.md."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np
import numpy.typing as npt
from packaging.specifiers import SpecifierSet

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.contracts.kernels import ATTRIBUTE, Kernel
from narrowgauge.contracts.operations import Cast, Claim
from narrowgauge.kernels_under_test.gfloat_cast import gfloat_nonsaturate, gfloat_saturate
from narrowgauge.kernels_under_test.ml_dtypes_cast import ml_dtypes_astype
from narrowgauge.reference.compare import compare
from narrowgauge.reference.deviations import DEVIATIONS, Deviation, in_powers
from narrowgauge.reference.expected import expected
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.inputs import case_named
from narrowgauge.reference.policies import POLICIES
from narrowgauge.suites.meta.wrong_codecs import CODECS, differing, input_sets

Codes = npt.NDArray[np.integer]
Ask = Callable[[Claim, Coded], Codes]
IN_PROCESS: dict[str, Callable[[npt.NDArray[np.generic], str], Codes]] = {
    f.__name__: f for f in (ml_dtypes_astype, gfloat_saturate, gfloat_nonsaturate)
}
LIBRARIES = {
    "ml_dtypes_astype": "ml_dtypes",
    "gfloat_saturate": "gfloat",
    "gfloat_nonsaturate": "gfloat",
    "torch_eager": "torch",
}
#: what is declared of these libraries; of others, which do not run here, nothing can be looked for
DISAGREEMENTS = tuple(d for d in DEVIATIONS if d.library in LIBRARIES.values())
#: the whole of a 16-bit source; every tie, boundary and special and 4,096 mantissas for every exponent of float32
CASES = {"float32": ("edges", "stratified_2m"), "bfloat16": ("every_code",), "float16": ("every_code",)}
#: gfloat takes a second for ten million values, and rounds by the same lines in both of its modes
FEWER = {"gfloat_nonsaturate": ("edges", "stratified")}


def record_of(kernel: str) -> Kernel:
    """The record of a kernel that runs in this process."""
    record: Kernel = getattr(IN_PROCESS[kernel], ATTRIBUTE)
    return record


def ask_here(claim: Claim, x: Coded, kernel: str) -> Codes:
    """What a library of NumPy returns, as integers of whatever width."""
    typed = x.data.view(ml_dtypes.bfloat16 if x.format == "bfloat16" else x.format)
    with np.errstate(all="ignore"):
        out = np.asarray(IN_PROCESS[kernel](typed, claim.format))
    return out if out.dtype.kind in "ui" else out.view(FORMATS[claim.format].storage)


@dataclass(frozen=True)
class Compared:
    """One claim of one library: the inputs, and which of them it casts otherwise than the reference."""

    kernel: str
    claim: Claim
    x: Coded
    differs: npt.NDArray[np.bool_]

    def expected_to(self, known: Iterable[Deviation]) -> npt.NDArray[np.bool_]:
        """The inputs on which it is known to differ."""
        found = np.zeros(self.x.shape, np.bool_)
        for deviation in known:
            if deviation.concerns(self.claim.source, self.claim.format):
                found |= deviation.where.holds(decode_values(self.x))
        return found


def compared(kernel: str, claim: Claim, ask: Ask) -> Compared:
    """Ask a library for everything that there is to ask of a claim."""
    x = inputs_of(kernel, claim)
    got = {"codes": Coded(claim.format, ask(claim, x))}
    return Compared(kernel, claim, x, compare(got, expected(claim, x)).mask("codes"))


def inputs_of(kernel: str, claim: Claim) -> Coded:
    names = FEWER.get(kernel, CASES[claim.source]) if claim.source == "float32" else CASES[claim.source]
    parts = [_case(name, claim) for name in names if case_named(name).applies(claim)]
    return Coded(claim.source, np.concatenate([x.data for x in parts]))


def _case(name: str, claim: Claim) -> Coded:
    return case_named(name).make(claim) if name == "edges" else _of_source(name, claim.source)


@cache
def _of_source(name: str, source: str) -> Coded:
    """A case that is the same for every destination."""
    return case_named(name).make(Claim(Cast("ieee"), source, "float8_e4m3"))


def known(kernel: str) -> list[Deviation]:
    """Where a kernel's library is listed to part from its policy, in the version that is installed."""
    version = importlib.metadata.version(LIBRARIES[kernel]).split("+")[0]
    return [d for d in DISAGREEMENTS if d.library == LIBRARIES[kernel] and SpecifierSet(d.versions).contains(version)]


def kernels_of(library: str) -> list[str]:
    return [kernel for kernel, of in LIBRARIES.items() if of == library]


# --- the tables of docs/proof.md -------------------------------------------------------------------------------------


def comparison_table(rows: Sequence[Compared]) -> str:
    """A line for each library and source: formats, inputs in all, and how many differ."""
    groups: dict[tuple[str, str], list[Compared]] = {}
    for row in rows:
        groups.setdefault((row.kernel, row.claim.source), []).append(row)
    return table(
        ("kernel", "policy", "source", "formats", "inputs, each", "differ"),
        (
            (kernel, found[0].claim.rule, source, f"{len(found)}", _range(r.x.data.size for r in found),
             f"{sum(int(r.differs.sum()) for r in found):,}")
            for (kernel, source), found in groups.items()
        ),
    )  # fmt: skip


def _range(sizes: Iterable[int]) -> str:
    ends = sorted(set(sizes))
    return f"{ends[0]:,}" if len(ends) == 1 else f"{ends[0]:,} to {ends[-1]:,}"


def disagreement_table() -> str:
    return table(
        ("kernel", "versions", "formats", "inputs", "example", "gives", "policy says", "reason"),
        (
            (", ".join(kernels_of(d.library)), d.versions, d.format, str(d.where), f"{d.example:.9g}", d.given,
             says(d), f"{d.reason} ([link]({d.link.removeprefix('docs/')}))")
            for d in DISAGREEMENTS
        ),
    )  # fmt: skip


def says(deviation: Deviation) -> str:
    """What the policies say of its example."""
    x = Coded("float32", np.array([deviation.example], np.float32).view(np.uint32))
    named = (p.name for p in POLICIES.values() if deviation in p.exceptions)
    codes = {int(expected(Claim(Cast(name), x.format, deviation.format), x)["codes"].low.data[0]) for name in named}
    return ", ".join(f"{code:#04x}" for code in sorted(codes))


#: what libraries are asked where they part: at the ends of every format's range, and about E8M0
ENDS = (1e5, np.inf, -np.inf, np.nan, -np.nan, -0.0, -(2.0**-149))
OF_E8M0 = (1.5, 3.0, 2.0**-127, 1.25 * 2.0**-127, 2.0**-149, 0.0, -1.0, 1.5 * 2.0**127, np.inf, np.nan)


def edge_tables(asks: Mapping[str, Ask], claims: Sequence[tuple[str, Claim]]) -> Iterator[str]:
    """The codes that each library gives for the same inputs: in the formats of 4 to 8 bits, and in E8M0."""
    narrow = [(k, c) for k, c in claims if c.source == "float32" and FORMATS[c.format].bits <= 8]
    for probes, exponents in ((ENDS, False), (OF_E8M0, True)):
        x = Coded("float32", np.array(probes, np.float32).view(np.uint32))
        asked = [(k, c) for k, c in narrow if (FORMATS[c.format].family == "exponent") == exponents]
        yield table(
            ("format", "kernel", *map(in_powers, probes)),
            ((c.format, k, *shown(asks[k](c, x))) for k, c in sorted(asked, key=lambda pair: pair[1].format)),
        )


def shown(codes: Codes) -> list[str]:
    """Codes in hexadecimal; a number that is below every code in decimal."""
    signed = codes.astype(np.int64).tolist()
    return [f"{code:#04x}" if code >= 0 else str(code) for code in signed]


@cache
def wrong_codec_counts() -> dict[str, dict[str, int]]:
    """For each wrong codec, on how many inputs of each set it differs."""
    sets = input_sets()
    return {codec.name: {name: differing(codec, x) for name, x in sets.items()} for codec in CODECS}


def wrong_codec_table() -> str:
    counts = wrong_codec_counts()
    return table(
        ("wrong codec", *next(iter(counts.values())), "named"),
        ((c.name, *(f"{n:,}" for n in counts[c.name].values()), c.named or "unexplained") for c in CODECS),
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|x|', 'abs(x)') for cell in line)} |" for line in lines)
