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
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.interval import Expected, Interval
from narrowgauge.reference.kv.cases import Shape, call
from narrowgauge.reference.kv.contents import nearest
from narrowgauge.reference.noise import noise

F64 = npt.NDArray[np.float64]
#: n of each part's first head; the next head has one more, and one less again
POWERS = {"k": 4, "v": 2, "latent": 3, "rope": 5}
_SHAPE = Shape(tokens=11, at="in_order", lengths=(3, 18), fill="numbers")


@dataclass(frozen=True)
class Response:
    """Two calls of a kernel, and the power of two between what they give: by output, for each column, or 0."""

    first: Input
    second: Input
    powers: Mapping[str, npt.NDArray[np.int64]]

    def expected(self, outputs: Mapping[str, Coded]) -> Expected:
        """What the second call must give, from what the first one gave."""
        found = {}
        for name, value in outputs.items():
            power = self.powers.get(name)
            found[name] = Interval.exactly(value if power is None else scaled(value, power))
        return found


def scaled(value: Coded, power: npt.NDArray[np.int64]) -> Coded:
    """Numbers [rows, columns] times 2^power [columns], in their format; what has no exact place there is rounded."""
    with np.errstate(over="ignore"):
        numbers = np.ldexp(decode_values(value), power[None, :].astype(np.int32))
    return Coded(value.format, nearest(numbers, format_named(value.format)))


def responds(claim: Claim) -> bool:
    """Whether a caller gives the scales: only then can another be given for the same codes."""
    given = given_with(call(_SHAPE)(claim))
    return any(name in given for name in scale_names(claim))


def scale_names(claim: Claim) -> tuple[str, ...]:
    return tuple(f"{part}_scale" for part in POWERS)


def response_of(claim: Claim) -> Response:
    """The pair of calls for a claim."""
    ordinary = _ordinary(claim, call(_SHAPE)(claim))
    return _of_writer(ordinary) if isinstance(claim.contract, KvWrite) else _of_reader(claim, ordinary)


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


def _first_part(x: Coded) -> str:
    """The name of the part that x holds."""
    return "k" if "v" in given_with(x) else "latent"


def _powers(x: Coded) -> dict[str, npt.NDArray[np.int64]]:
    """n for each of the scales of a part that has given ones."""
    found = {}
    for part, power in POWERS.items():
        scale = given_with(x).get(f"{part}_scale")
        if scale is not None and scale.format == "float32":
            found[part] = _by_head(power, scale.shape[1])
    return found


def _larger_scales(x: Coded, powers: Mapping[str, npt.NDArray[np.int64]]) -> dict[str, Coded]:
    given = given_with(x)
    return {f"{part}_scale": scaled(given[f"{part}_scale"], power) for part, power in powers.items()}


def _over_columns(power: npt.NDArray[np.int64], columns: int) -> npt.NDArray[np.int64]:
    return np.repeat(power, columns // power.size)


def _of_writer(x: Input) -> Response:
    powers, given = _powers(x), dict(given_with(x))
    parts = {_first_part(x): Coded(x.format, x.data)} | {name: given[name] for name in POWERS if name in given}
    larger = {n: scaled(v, _over_columns(powers[n], v.shape[1])) if n in powers else v for n, v in parts.items()}
    first = larger.pop(_first_part(x))
    return Response(x, Input(x.format, first.data, given | larger | _larger_scales(x, powers)), {})


def _of_reader(claim: Claim, x: Input) -> Response:
    powers, given = _powers(x), dict(given_with(x))
    larger = given | _larger_scales(x, powers)
    if not isinstance(claim.contract, Attend):
        columns = {name: (x if name == _first_part(x) else given[name]).shape[1] for name in powers}
        return Response(
            x,
            replace(x, given=larger),
            {name: _over_columns(power, columns[name]) for name, power in powers.items()},
        )
    query = given["query"]
    if "k" in powers:
        larger["query"] = scaled(query, -_over_columns(powers["k"], query.shape[1]))
    out = _over_columns(powers["v"], _output_columns(x)) if "v" in powers else None
    return Response(x, replace(x, given=larger), {} if out is None else {"output": out})


def _output_columns(x: Input) -> int:
    """Query heads times the columns of a value head."""
    given, heads = given_with(x), _heads(x)
    query_heads = given["query"].shape[1] // (x.shape[1] // heads)
    return query_heads * (given["v"].shape[1] // heads)
