"""The shape of a claim: what an article says, the verdict, what one measures, and the function that measures it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from packaging.version import Version

VerdictWord = Literal["true", "false"]
TRUE: VerdictWord = "true"
FALSE: VerdictWord = "false"

#: where a check gets its answer: computed in the process of the test, or by torch in a child
Asks = Literal["", "torch"]


class Found(NamedTuple):
    """What a check found: whether the claim holds, and the numbers, as text that is the same on every machine."""

    holds: bool
    measured: str


#: A check of a claim about torch takes the module; every other takes nothing.
Check = Callable[..., Found]


@dataclass(frozen=True)
class Before:
    """What held before a version of the library that the claim is about."""

    version: str
    verdict: VerdictWord
    measured: str


@dataclass(frozen=True)
class SeedClaim:
    """One statement of an article, in our words, with the verdict on it."""

    name: str
    where: str  #: article and line: "000:74"
    text: str
    verdict: VerdictWord
    measured: str  #: what one gets today
    check: Check
    asks: Asks = ""
    before: Before | None = None

    def words(self) -> str:
        """The verdict, with the version at which it changed: "true before torch 2.13, false since"."""
        if self.before is None or self.before.verdict == self.verdict:
            return self.verdict
        return f"{self.before.verdict} before {self.asks} {self.before.version}, {self.verdict} since"

    def expected(self, version: str) -> Found:
        """What the check must find with that version of the library ("" where the claim is about none)."""
        old = self.before is not None and Version(version) < Version(self.before.version)
        now: SeedClaim | Before = self.before if old and self.before is not None else self
        return Found(now.verdict == TRUE, now.measured)


def claim(
    where: str, text: str, verdict: VerdictWord, measured: str, *, asks: Asks = "", before: Before | None = None
) -> Callable[[Check], SeedClaim]:
    """Make a claim of its check; the function's name is the claim's."""

    def make(check: Check) -> SeedClaim:
        return SeedClaim(check.__name__, where, text, verdict, measured, check, asks, before)

    return make


def disagreement(claimed: SeedClaim, found: Found, version: str = "") -> str:
    """Why what was found is not what the list says; "" where it is."""
    expected = claimed.expected(version)
    if found == expected:
        return ""
    about = f" with {claimed.asks} {version}" if claimed.asks else ""
    return (
        f"{claimed.where} {claimed.name}{about}: {claimed.text}\n"
        f"  the list says {expected.holds} ({expected.measured})\n  measured      {found.holds} ({found.measured})"
    )


def claims_in(names: dict[str, Any]) -> tuple[SeedClaim, ...]:
    """The claims that a module declares, in their order."""
    return tuple(thing for thing in names.values() if isinstance(thing, SeedClaim))
