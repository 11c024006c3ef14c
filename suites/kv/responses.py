"""How what a kernel gives must follow the scales that it is given: relations that need no expected value.

Powers of two are exact everywhere between subnormals and overflow, in any order of operations. So a writer that is
given x·2^n under the scale s·2^n leaves the bytes that it leaves of x under s; a reader that is given s·2^n returns 2^n
times what it returns for s; attention under k_scale·2^n and a query of 2^-n gives what it gave, and under v_scale·2^n
2^n times that. n is another one for each part and each head. A scale that is dropped, taken twice, inverted, of the
other part or of another head breaks the relation; a round trip through writer and reader shows none of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Attend, Claim, KvWrite
from narrowgauge.reference.behaviour import paged_behaviour
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.interval import Expected, Interval
from narrowgauge.reference.kv.cases import Shape, call
from narrowgauge.reference.kv.contents import nearest
from narrowgauge.reference.noise import noise

F64 = npt.NDArray[np.float64]
#: n of each part's first head; the next head has one more, and one less again
POWERS = {"k": 4, "v": 2, "latent": 3, "rope": 5}
_NONE = np.zeros(1, np.int64)
_SHAPE = Shape(tokens=11, at="in_order", lengths=(3, 18), fill="numbers")


@dataclass(frozen=True)
class Response:
    """Two calls of a kernel, and the power of two between what they give: by output, for each column, or 0."""

    first: Input
    second: Input
    powers: Mapping[str, npt.NDArray[np.int64]]

    def expected(self, outputs: Mapping[str, Coded]) -> Expected:
        """What the second call must give, from what the first one gave. What was rounded to a subnormal number there
        may have been any within half a step."""
        return {
            n: Interval.exactly(v) if n not in self.powers else _times(v, self.powers[n]) for n, v in outputs.items()
        }


def _times(value: Coded, power: npt.NDArray[np.int64]) -> Interval:
    fmt, numbers = format_named(value.format), decode_values(value)
    least = 2.0 ** (1 - fmt.bias)
    half = np.where(np.abs(numbers) < least, least * 2.0 ** (-fmt.mantissa - 1), 0.0)
    if not half.any():
        return Interval.exactly(scaled(value, power))
    by = power[None, :].astype(np.int32)
    low, high = (nearest(np.ldexp(numbers + end, by), fmt) for end in (-half, half))
    return Interval(Coded(value.format, low), Coded(value.format, high))


def scaled(value: Coded, power: npt.NDArray[np.int64]) -> Coded:
    """Numbers [rows, columns] times 2^power [columns], in their format; what has no exact place there is rounded."""
    with np.errstate(over="ignore"):
        numbers = np.ldexp(decode_values(value), power[None, :].astype(np.int32))
    return Coded(value.format, nearest(numbers, format_named(value.format)))


def responds(claim: Claim) -> bool:
    """Whether a kernel is given scales in float32, by its caller or, if it reads, in the cache."""
    given = given_with(call(_SHAPE)(claim))
    writes = isinstance(claim.contract, KvWrite)
    return any(given[scale].shape[0] == 1 or not writes for scale in _scales(given).values())


def _scales(given: Mapping[str, Coded]) -> dict[str, str]:
    """Parts, and the name of the float32 scale of each, given or of a cache: its own, or that above narrower ones."""
    names = {part: [f"{part}_scale", f"{part}_global_scale"] for part in POWERS}
    of = {part: [n for n in each if n in given and given[n].format == "float32"] for part, each in names.items()}
    return {part: found[0] for part, found in of.items() if found}


def response_of(claim: Claim) -> Response:
    """The pair of calls for a claim."""
    ordinary = _ordinary(claim, call(_SHAPE)(claim))
    return _of_writer(claim, ordinary) if isinstance(claim.contract, KvWrite) else _of_reader(claim, ordinary)


def _ordinary(claim: Claim, x: Coded) -> Input:
    """The same call with numbers that stay normal ones in every format when they are made 2^5 times as large.

    Values that are attended to are positive, so that no sum of them comes near zero.
    """
    given = dict(given_with(x))

    def rows(value: Coded, seed: int, sign: bool = True) -> Coded:
        each = noise(value.data.size, seed)
        size = (0.5 + np.abs(each)) * 2.0 ** (np.arange(each.size) % 9 - 5.0)
        numbers = np.where(sign & (each < 0), -size, size).reshape(value.shape)
        return Coded(value.format, nearest(numbers, format_named(value.format)))

    attends = isinstance(claim.contract, Attend)
    given |= {name: rows(given[name], 70 + len(name), not attends) for name in POWERS if name in given}
    first = rows(Coded(x.format, x.data), 69)
    return Input(first.format, first.data, given)


def _heads(x: Coded) -> int:
    return int(given_with(x)["sizes"].data.ravel()[0])


def _by_head(power: int, count: int) -> npt.NDArray[np.int64]:
    return power + np.arange(count) % 2


def _first_part(claim: Claim) -> str:
    """The name of the part that x holds."""
    return paged_behaviour(claim).cache.parts[0].name


def _powers(claim: Claim, x: Coded) -> dict[str, npt.NDArray[np.int64]]:
    """n for each block of each part under a scale; 0 where a scale is given and must not matter."""
    parts = {part.name: part for part in paged_behaviour(claim).cache.parts}
    found = {part: 0 * power if parts[part].unused_scale else power for part, power in _of_scales(x).items()}
    return found | {n: found[part.scale_of] for n, part in parts.items() if part.scale_of in found}


def _of_scales(x: Coded) -> dict[str, npt.NDArray[np.int64]]:
    """n for each number of the scale of a part."""
    given = given_with(x)
    return {part: _by_head(POWERS[part], given[scale].shape[1]) for part, scale in _scales(given).items()}


def _larger_scales(x: Coded) -> dict[str, Coded]:
    given, powers = given_with(x), _of_scales(x)
    return {scale: scaled(given[scale], powers[part]) for part, scale in _scales(given).items()}


def _over_columns(power: npt.NDArray[np.int64], columns: int) -> npt.NDArray[np.int64]:
    return np.repeat(power, columns // power.size)


def _of_writer(claim: Claim, x: Input) -> Response:
    powers, given = _powers(claim, x), dict(given_with(x))
    parts = {_first_part(claim): Coded(x.format, x.data)} | {name: given[name] for name in POWERS if name in given}
    larger = {n: scaled(v, _over_columns(powers[n], v.shape[1])) if n in powers else v for n, v in parts.items()}
    first = larger.pop(_first_part(claim))
    return Response(x, Input(x.format, first.data, given | larger | _larger_scales(x)), {})


def _of_reader(claim: Claim, x: Input) -> Response:
    powers, given = _powers(claim, x), dict(given_with(x))
    larger = given | _larger_scales(x)
    if not isinstance(claim.contract, Attend):
        columns = {name: (x if name == _first_part(claim) else given[name]).shape[1] for name in powers}
        return Response(
            x,
            replace(x, given=larger),
            {name: _over_columns(power, columns[name]) for name, power in powers.items()},
        )
    heads, query = _heads(x), given["query"]
    first = _first_part(claim)
    parts = {first: Coded(x.format, x.data)} | {name: given[name] for name in POWERS if name in given}
    by_head = {n: _over_columns(powers.get(n, _NONE), v.shape[1]).reshape(heads, -1) for n, v in parts.items()}
    of_keys = np.concatenate([by_head[n] for n in parts if n != "v"], axis=1)
    shared = query.shape[1] // of_keys.size  # so many heads of the query for one of the cache
    larger["query"] = scaled(query, -np.repeat(of_keys, shared, axis=0).ravel())
    of_values = by_head["v" if "v" in parts else first]
    return Response(x, replace(x, given=larger), {"output": np.repeat(of_values, shared, axis=0).ravel()})
