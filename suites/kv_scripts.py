"""A standalone script for a call on a cache, cut to the tokens and pages of one mismatch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.cache import Slots
from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import Attend, Claim, KvWrite
from narrowgauge.contracts.verdict import Verdict
from narrowgauge.contracts.views import View
from narrowgauge.reference.behaviour import paged_behaviour
from narrowgauge.reference.expected import expected
from narrowgauge.reference.kv.call import HELD, numbers, sizes_of, slots_of
from narrowgauge.reference.kv.memory import in_memory, to_memory
from narrowgauge.reference.kv.slots import is_padding
from narrowgauge.suites import script_lines
from narrowgauge.suites.script_lines import bits_of, head, tensor, view_of

Places = npt.NDArray[np.intp]
#: characters of all tensors in a script
LARGEST = 1 << 14
#: padding tokens that are kept where no token of a slot is at fault
PADDING = 3


def of_a_call(plugged: Plugged, claim: Claim, target: str, x: Coded, verdict: Verdict, view: View) -> str:
    """The script, or "" where it would be too large to print, or what is expected of it is not one number each."""
    indices = [mismatch.index for mismatch in verdict.mismatches]
    call = cut(claim, x, indices)
    if view == "far" or call is None:
        return ""
    asked = _tensors(plugged, claim, call, view)
    wanted = list(_wanted(claim, call))
    if not wanted or sum(map(len, [*asked, *wanted])) > LARGEST:
        return ""
    shown = [line for each in _outputs(plugged, claim, call) for line in each]
    lines = head(plugged, f"{plugged.kernel.name}: {claim} on {target}", target)
    return "\n".join([*lines, *asked, *_called(plugged, claim, call), *wanted, *shown])


# --- the call --------------------------------------------------------------------------------------------------------


def cut(claim: Claim, x: Coded, indices: Sequence[tuple[int, ...]]) -> Input | None:
    """The call that is left of x for elements that differ: of a write the tokens of one slot, of others one sequence;
    the pages that they use, and one before them that they do not. None for what has no such part."""
    block = sizes_of(given_with(x)).block
    if isinstance(claim.contract, KvWrite):
        tokens, slot = _tokens(claim, x, [index[0] for index in indices])
        return None if tokens is None else _one_slot(x, tokens, slot, block, paged_behaviour(claim).slots)
    lengths = numbers(given_with(x), "lengths").ravel()
    if isinstance(claim.contract, Attend):
        sequence = min((index[0] for index in indices), key=lambda each: int(lengths[each]))
        return _one_sequence(x, sequence, 0, int(lengths[sequence]), block)
    past = np.cumsum(lengths)
    sequence = int(np.searchsorted(past, indices[0][0], side="right"))
    token = indices[0][0] - int(past[sequence] - lengths[sequence])
    return _one_sequence(x, sequence, token // block * block, token + 1, block)


def _tokens(claim: Claim, x: Coded, rows: list[int]) -> tuple[Places | None, int]:
    """The tokens of the first of these slots that has some; where none has, padding, which may not be written."""
    paged = paged_behaviour(claim)
    slots = slots_of(paged, x, given_with(x)[HELD + paged.parts[0][0]].shape[0])
    padding = is_padding(paged.slots, slots)
    for slot in rows:
        if (of_slot := np.flatnonzero((slots == slot) & ~padding)).size:
            return of_slot, slot
    few = np.flatnonzero(padding)[:PADDING]
    return (few if few.size and not paged.slots.written else None), rows[0]


def _one_slot(x: Coded, tokens: Places, slot: int, block: int, rule: Slots) -> Input:
    given = given_with(x)
    count = next(value.shape[0] for name, value in given.items() if name.startswith(HELD))
    pages = _with_another([slot // block], count // block)
    rows = (pages[:, None] * block + np.arange(block)).ravel()
    moved = numbers(given, "slots")[:, tokens]
    moved = np.where(is_padding(rule, moved), moved, (len(pages) - 1) * block + slot % block)
    kept = {name: value for name, value in given.items() if not name.startswith(HELD)}
    kept = {
        n: v.take(tokens) if v.shape[0] == x.shape[0] and n not in ("slots", "sizes") else v for n, v in kept.items()
    }
    kept |= {name: value.take(rows) for name, value in given.items() if name.startswith(HELD)}
    kept["slots"] = _int32(moved)
    if "positions" in given:
        kept["positions"] = _int32(numbers(given, "positions")[:, tokens])
        kept["cos_sin"] = given["cos_sin"]
    return Input(x.format, x.data[tokens], kept)


def _one_sequence(x: Coded, sequence: int, first: int, past: int, block: int) -> Input:
    """Tokens ``first`` to ``past`` of a sequence; ``first`` begins a page."""
    given = given_with(x)
    used = numbers(given, "table")[sequence, first // block : -(-past // block)]
    pages = _with_another(used.tolist(), x.shape[0] // block)
    rows = (pages[:, None] * block + np.arange(block)).ravel()
    kept = {name: value.take(rows) if value.shape[0] == x.shape[0] else value for name, value in given.items()}
    before = len(pages) - used.size
    table = np.concatenate([np.arange(before, len(pages)), np.zeros(1, np.int64)])
    kept |= {"table": _int32(table[None]), "lengths": _int32([[past - first]])}
    if "query" in given:
        kept["query"] = given["query"].take(np.array([sequence]))
    return Input(x.format, x.data[rows], kept)


def _with_another(used: Sequence[int], count: int) -> Places:
    """The pages, and before them one that is not among them, so that none keeps its place by chance."""
    another = [page for page in range(count) if page not in used][:1]
    return np.array([*another, *used], np.intp)


def _int32(whole: npt.NDArray[np.integer] | list[list[int]]) -> Coded:
    return Coded("int32", np.asarray(whole, np.int32).view(np.uint32))


# --- its lines -------------------------------------------------------------------------------------------------------


def _tensors(plugged: Plugged, claim: Claim, call: Input, view: View) -> list[str]:
    sent, viewed = to_memory(claim, call), in_memory(claim, call).viewed
    lines = []
    for name, value in {"x": sent, **sent.given}.items():
        lines += tensor(plugged, name, value.format, value.data)
        if view != "contiguous" and name in viewed:
            lines += view_of(plugged, name, value.format, value.data, view)
    return lines


def _called(plugged: Plugged, claim: Claim, call: Input) -> list[str]:
    """Numbers go to a function that takes them; what is not changed in place is what it returns."""
    form, name = in_memory(claim, call), plugged.kernel.name
    asked = {"source": claim.source, "shape": form.shape, **form.numbers}
    beside = ", ".join(f"{given}={given}" for given in to_memory(claim, call).given)
    returned = [output for output in form.outputs if output not in form.in_place]
    lines = [
        f"import inspect; takes, asked = inspect.signature({name}).parameters, {asked!r}",
        f"out = {name}(x, {claim.format!r}, {beside}, **{{n: asked[n] for n in asked if n in takes}})",
    ]
    if returned:
        lines.append(
            f"out = out if isinstance(out, dict) else dict(zip({returned}, out if isinstance(out, (tuple, list)) else "
            "[out]))"
        )
    return lines


def _wanted(claim: Claim, call: Input) -> Iterator[str]:
    """What is expected, as ``want``; of attention from ``low`` to ``want``. Nothing where a buffer is not exact."""
    outputs = expected(claim, call)
    if isinstance(claim.contract, Attend):
        for name, end in (("low", outputs["output"].low), ("want", outputs["output"].high)):
            yield f'{name} = {{"output": {_values(end)}}}'
        return
    if not all(interval.exact for interval in outputs.values()):
        return
    exact = {name: interval.low for name, interval in outputs.items()}
    if isinstance(claim.contract, KvWrite):
        after = Input(call.format, call.data, {**call.given, **{HELD + name: value for name, value in exact.items()}})
        exact = {name: to_memory(claim, after).given[name] for name in in_memory(claim, call).outputs}
    pairs = ", ".join(f'"{name}": {script_lines.numbers(value.data)}' for name, value in exact.items())
    yield f"want = {{{pairs}}}"


def _values(value: Coded) -> str:
    """An expression for numbers as float32."""
    codes = script_lines.numbers(value.data)
    if value.format == "bfloat16":
        return f'({codes}.astype("u4") << 16).view("f4")'
    return f'{codes}.view("{format_named(value.format).storage.str.replace("u", "f")}").astype("f4")'


def _outputs(plugged: Plugged, claim: Claim, call: Input) -> Iterator[list[str]]:
    """How many elements of each output differ, and the first of them. Any NaN is as good as another."""
    form = in_memory(claim, call)
    for name, format_name in form.outputs.items():
        value = name if name in form.in_place else f'out["{name}"]'
        if isinstance(claim.contract, Attend):
            numbers = f"{value}.float().cpu().numpy()" if plugged.kernel.backend != "numpy" else f"{value}.astype('f4')"
            yield [
                f'got, low, high = {numbers}.reshape(want["{name}"].shape), low["{name}"], want["{name}"]',
                "wrong = ~(((low <= got) & (got <= high)) | (np.isnan(low) & np.isnan(got)))",
                f'print("{name}:", wrong.sum(), "of", wrong.size, "differ", *[f"first at {{tuple(map(int, i))}}: got '
                '{got[tuple(i)]} want {low[tuple(i)]} to {high[tuple(i)]}" for i in np.argwhere(wrong)[:1]])',
            ]
            continue
        yield [
            f'got, one = {bits_of(plugged, value, format_name)}.reshape(want["{name}"].shape), want["{name}"]',
            f"wrong = (got != one){but_nan(format_named(format_name))}",
            f'print("{name}:", wrong.sum(), "of", wrong.size, "differ", *[f"first at {{tuple(map(int, i))}}: got '
            '{got[tuple(i)]:#x} want {one[tuple(i)]:#x}" for i in np.argwhere(wrong)[:1]])',
        ]


def but_nan(fmt: Format) -> str:
    """For codes that differ: unless both are NaN. Formats that are not here have one NaN at most."""
    magnitude, infinity = fmt.sign_bit - 1, ((1 << fmt.exponent) - 1) << fmt.mantissa
    match fmt.family:
        case "ieee":
            nan = f"({{}} & {magnitude:#x}) > {infinity:#x}"
        case "fn" if fmt.bits == 8:
            nan = f"({{}} & {magnitude:#x}) == {magnitude:#x}"
        case _:
            return ""
    return f" & ~(({nan.format('got')}) & ({nan.format('one')}))"
