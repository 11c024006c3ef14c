"""All claims, and their page: ``python -m narrowgauge.suites.meta.claims.catalogue > docs/claims.md``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from narrowgauge.suites.meta.claims import (
    left_out,
    of_blocks,
    of_casts,
    of_formats,
    of_outliers,
    of_products,
    of_ranges,
    of_scales,
    of_sums,
    of_torch,
)
from narrowgauge.suites.meta.claims.claim import FALSE, TRUE, SeedClaim, claims_in

#: the articles, by the number of their file among the material that the project started from
ARTICLES = {
    "000": "Numerics: FP32 to INT4, and why bf16 won",
    "002": "FP8 Quantization for LLM Inference: E4M3 vs E5M2, Scaling Factors and Accuracy",
    "003": "Torch 数据类型与低精度表示",
}
THEMES = {
    "Formats": claims_in(vars(of_formats)),
    "Ranges": claims_in(vars(of_ranges)),
    "Casts": claims_in(vars(of_casts)),
    "Scales": claims_in(vars(of_scales)),
    "Outliers": claims_in(vars(of_outliers)),
    "Blocks and bytes": claims_in(vars(of_blocks)),
    "Sums, norms, products": claims_in(vars(of_sums)),
    "Matrix units": claims_in(vars(of_products)),
    "torch": of_torch.CLAIMS,
}
CLAIMS: tuple[SeedClaim, ...] = tuple(c for theme in THEMES.values() for c in theme)


def page() -> str:
    """The text of docs/claims.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    counts = Counter(c.verdict for c in CLAIMS)
    yield "# What is claimed about these formats, and what one measures"
    yield ""
    yield f"{len(CLAIMS)} statements of three articles that this project started from, in our words. Each is computed"
    yield "by suites/meta/test_claims.py, which fails when a verdict or a measured number is another than stands here."
    yield f"Today {counts[TRUE]} are true and {counts[FALSE]} are false."
    yield "A sentence that says two things has two rows. What torch does was measured with 2.13.0 and 2.14.1 on a CPU;"
    yield "what it did before 2.13 was measured with its 2.12.1 wheel, and is tested where such a wheel is installed;"
    yield "what stands for the time before 2.8 is from documents."
    yield ""
    yield from (f"* {number}: {title}" for number, title in ARTICLES.items())
    for theme, claims in THEMES.items():
        yield from (
            "",
            f"## {theme}",
            "",
            "| article:line | claim | verdict | what one measures |",
            "|---|---|---|---|",
        )
        yield from (_row(c) for c in claims)
    yield from ("", "## Left out", "", "| article:line | what stands there |", "|---|---|")
    yield from (f"| {where} | {_cell(what)} |" for where, what in left_out.LEFT_OUT)


def _row(c: SeedClaim) -> str:
    measured = c.measured if c.before is None else f"{c.measured}; before {c.before.version}: {c.before.measured}"
    return f"| {c.where} | {_cell(c.text)} | {c.words()} | {_cell(measured)} |"


def _cell(text: str) -> str:
    """A text as a cell of a table: bars and signs of Markdown are taken as they are."""
    for sign in "\\|*_<":
        text = text.replace(sign, f"\\{sign}")
    return text


if __name__ == "__main__":
    print(page(), end="")
