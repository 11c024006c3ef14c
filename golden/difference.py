"""What changed between two sets of golden vectors: expectations by input, flags, and what a file rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from narrowgauge.golden.comparing import OfClaim, compared
from narrowgauge.golden.contents import Contents, contents
from narrowgauge.golden.reasons import GONE, Reasons
from narrowgauge.golden.sets import SUFFIX, VectorSet

Kind = Literal["changed", "added", "removed", "notes", "stored otherwise"]
#: what a version that has such a difference is, by semantic versioning of the set
Version = Literal["major", "minor", "patch", "none"]


@dataclass(frozen=True)
class OfFile:
    """What changed of one file."""

    family: str
    kind: Kind
    claims: tuple[OfClaim, ...]
    flags: Mapping[str, tuple[int, int]]  #: fault: vectors that show it, before and after
    notes: Mapping[str, tuple[str, str]]  #: authority and names, before and after
    before: str  #: digest of what was expected; GONE where there was nothing
    after: str
    why: tuple[str, ...] = ()
    without_reason: bool = False  #: an expectation changed or is gone, and nobody said why

    @property
    def changed(self) -> int:
        return sum(claim.changed for claim in self.claims)

    @property
    def added(self) -> int:
        return sum(claim.added for claim in self.claims)

    @property
    def removed(self) -> int:
        return sum(claim.removed for claim in self.claims)


@dataclass(frozen=True)
class Difference:
    """What changed between two sets."""

    old: VectorSet
    new: VectorSet
    files: tuple[OfFile, ...]
    about: Mapping[str, tuple[str, str]]  #: what the manifests say of the sets, before and after
    flags_compared: bool

    @property
    def equal(self) -> bool:
        return not self.files and not self.about

    @property
    def version(self) -> Version:
        """What the next version of the set is: major where an expectation changed or is gone, minor where one came."""
        if any(file.changed or file.removed for file in self.files):
            return "major"
        if any(file.added for file in self.files):
            return "minor"
        return "none" if self.equal else "patch"


def difference(old: VectorSet, new: VectorSet, reasons: Reasons, first: int) -> Difference:
    """Everything by which two sets part, with so many examples of each claim. Raises ``BadInput`` for content that is
    none."""
    names = sorted(old.contents.keys() | new.contents.keys())
    flags = old.has_flags and new.has_flags
    files = (_file(name, old, new, reasons, first, flags) for name in names if _differs(name, old, new, flags))
    said = {
        key: (str(old.about.get(key, GONE)), str(new.about.get(key, GONE))) for key in ("generator", "second_oracle")
    }
    about = {key: pair for key, pair in said.items() if flags and pair[0] != pair[1]}
    return Difference(old, new, tuple(file for file in files if file is not None), about, flags)


def _differs(name: str, old: VectorSet, new: VectorSet, flags: bool) -> bool:
    """Whether a file has to be looked at: most are the same bytes."""
    same = old.contents.get(name) == new.contents.get(name)
    return not same or (flags and old.entries[name] != new.entries[name])


def _file(name: str, old: VectorSet, new: VectorSet, reasons: Reasons, first: int, flags: bool) -> OfFile | None:
    before, after = _contents(name, old), _contents(name, new)
    claims = tuple(_claims(before, after, first))
    shown = _flags(name, old, new) if flags else {}
    notes = _notes(name, old, new) if flags else {}
    digests = before.digest if before else GONE, after.digest if after else GONE
    kind: Kind = "changed" if claims else "notes"
    if before is None or after is None:
        kind = "added" if before is None else "removed"
    elif not claims and not shown and not notes:
        if not flags:  # an export stores tables otherwise, and that is no difference of the vectors
            return None
        kind = "stored otherwise"
    found = OfFile(name, kind, claims, shown, notes, *digests, reasons.of(name, *digests))
    return replace(found, without_reason=bool(found.changed or found.removed) and not found.why)


def _contents(name: str, of: VectorSet) -> Contents | None:
    raw = of.contents.get(name)
    return None if raw is None else contents(raw, f"{of.where}: {name}{SUFFIX}")


def _claims(before: Contents | None, after: Contents | None, first: int) -> Iterator[OfClaim]:
    olds, news = before.claims if before else {}, after.claims if after else {}
    for claim in dict.fromkeys([*olds, *news]):
        found = compared(claim, olds.get(claim), news.get(claim), first)
        if found.changed or found.added or found.removed:
            yield found


# --- what the manifest says ------------------------------------------------------------------------------------------


def _flags(name: str, old: VectorSet, new: VectorSet) -> dict[str, tuple[int, int]]:
    """The faults that other numbers of vectors show."""
    olds, news = (dict(of.entries.get(name, {}).get("flags", {})) for of in (old, new))
    both = sorted({*olds, *news}) if name in old.entries and name in new.entries else []
    return {flag: pair for flag in both if (pair := (olds.get(flag, 0), news.get(flag, 0)))[0] != pair[1]}


def _notes(name: str, old: VectorSet, new: VectorSet) -> dict[str, tuple[str, str]]:
    if name not in old.entries or name not in new.entries:
        return {}
    found = {}
    for key in ("authority", "rules"):
        was, now = (of.entries[name].get(key, "") for of in (old, new))
        if was != now:
            found[key] = tuple(
                ", ".join(map(str, each)) if isinstance(each, list) else str(each) for each in (was, now)
            )
    return {key: (pair[0], pair[1]) for key, pair in found.items()}
