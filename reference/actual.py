"""What who follows a named policy really gives: the policy's answer, but for its known deviations."""

from __future__ import annotations

from dataclasses import dataclass

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.deviations import Deviation
from narrowgauge.reference.fast_codec import cast, decode_values
from narrowgauge.reference.policies import policy_named, resolve


@dataclass(frozen=True)
class Actual:
    """The code of one value, and the deviation that made it. A code below zero is none of the format."""

    code: int
    deviation: Deviation | None = None


def is_known_from(name: str, source: str) -> bool:
    """Whether what a named policy rests on says anything of values of a source format."""
    sources = policy_named(name).sources
    return not sources or source in sources


def check_known_from(name: str, source: str) -> None:
    """Raise ``BadInput`` where it says nothing."""
    named = policy_named(name)
    if not is_known_from(name, source):
        known = "measured" if named.evidence == "measured" else "documented"
        raise BadInput(f"{name} is {known} from {', '.join(named.sources)}; not from {source}")


def actual(name: str, x: Coded, format_name: str) -> Actual:
    """What one value (0-d) becomes. Raises ``BadInput`` for a source that nothing is known of, or a policy of another
    destination."""
    policy = resolve(name, format_name)
    check_known_from(name, x.format)
    for deviation in policy_named(name).exceptions:
        if deviation.concerns(x.format, format_name) and deviation.where.holds(decode_values(x)).all():
            return Actual(deviation.gives, deviation)
    return Actual(int(cast(x, format_name, policy).data))
