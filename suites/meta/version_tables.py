"""The tables of docs/proof.md about versions of libraries, from versions.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from narrowgauge.suites.meta.proof import LIBRARIES, table
from narrowgauge.suites.meta.versions import Measured, exceptions, policy_of, span


@dataclass(frozen=True)
class Run:
    """Versions one after another between which a cast to a format changed from no source."""

    kernel: str
    format: str
    versions: tuple[str, ...]
    codes: Mapping[str, str]
    only: bool  #: the cast never changed

    @property
    def policies(self) -> str:
        """What is claimed of them; a star where exceptions to that are listed."""
        names = dict.fromkeys(policy_of(self.kernel, v, self.format) for v in self.versions)
        return ", ".join(names) + (" *" if exceptions(self.kernel, self.versions[0], self.format) else "")


def runs(data: Measured) -> Iterator[Run]:
    """Of every kernel and format, in the order of the releases."""
    for kernel, name in sorted({(a.kernel, a.format) for a in data.answers}):
        library = LIBRARIES[kernel]
        each = {v: [a for a in data.of(library, v).values() if (a.kernel, a.format) == (kernel, name)]
                for v in data.versions_of(library)}  # fmt: skip
        groups = [(a, tuple(g)) for a, g in groupby((v for v in each if each[v]), key=lambda v: each[v])]
        for answers, versions in groups:
            codes = next(a.codes for a in answers if a.source == "float32")
            yield Run(kernel, name, versions, codes, len(groups) == 1)


def version_table(data: Measured) -> str:
    """A line for the formats of a kernel that have one history and one policy."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for run in runs(data):
        lines.setdefault((run.kernel, span(run.versions), run.policies), []).append(run.format)
    return table(
        ("kernel", "versions", "formats", "policy"),
        ((kernel, versions, ", ".join(formats), policies) for (kernel, versions, policies), formats in lines.items()),
    )


def change_table(data: Measured) -> str:
    """Codes of the casts that changed."""
    probes = ("448", "465", "2^20", "inf", "-inf", "nan", "-1", "1.5", "3", "1.5 x 2^127")
    changed = [run for run in runs(data) if not run.only]
    rows = ((run.kernel, run.format, span(run.versions), *(run.codes[p] for p in probes)) for run in changed)
    return table(("kernel", "format", "versions", *probes), rows)


def wheel_table(data: Measured) -> str:
    """What was run; the wheels' names are in versions.json."""
    groups = groupby(data.wheels, key=lambda w: (w.library, w.measured, w.how))
    return table(
        ("library", "versions", "measured", "how"),
        ((library, ", ".join(w.version for w in group), day, how) for (library, day, how), group in groups),
    )
