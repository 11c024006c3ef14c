"""The census of a tensor against counting in exact fractions: every count, every place, piece by piece."""

from __future__ import annotations

import math
import pickle
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import pytest

from narrowgauge.checkpoints import census, counted, tally_codes
from narrowgauge.checkpoints.census import census_of_run, take_census
from narrowgauge.checkpoints.landing import NARROW, landing
from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.tally_codes import read_as
from narrowgauge.checkpoints.tally_floats import Masks
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.suites.meta import second_census as second
from narrowgauge.suites.meta.census_sets import mixture, plain, said, stored
from narrowgauge.suites.meta.second_derivation import decode as decode_second

pytestmark = pytest.mark.meta

EIGHT_BITS = [name for name, f in FORMATS.items() if f.bits == 8]
EVERY_16 = np.arange(1 << 16, dtype=np.uint16)


@pytest.mark.parametrize(("source", "to"), [("bfloat16", "float16"), ("float16", "bfloat16")])
def test_every_code_of_16_bits_in_runs(source: str, to: str, tmp_path: Path) -> None:
    """1,024 runs of 64 consecutive codes: no two mistakes make up for each other within one."""
    tensor = stored(tmp_path, EVERY_16, source)
    runs = [census_of_run(tensor, skip, 128, (to,), exactness=True) for skip in range(0, 1 << 17, 128)]
    for number, run in enumerate(runs):
        codes = EVERY_16[64 * number :][:64].tolist()
        assert said(run) == second.count(codes, source, [to]), f"codes from {codes[0]:#x} on"
    assert said(reduce(add, runs)) == said(take_census(tensor, (to,), exactness=True))


def test_what_is_known_of_all_bfloat16(tmp_path: Path) -> None:
    """Of 65,280 finite codes 28,672 become infinite in float16, 26,112 zero and 1,792 another number: torch 2.13."""
    taken = take_census(stored(tmp_path, EVERY_16, "bfloat16"), exactness=True)
    there = taken.into["float16"]
    assert (taken.finite, there.beyond, there.flushed) == (65280, 28672, 26112)
    assert there.inexact == 28672 + 26112 + 1792
    assert list(taken.into) == ["float16"], "nothing is asked of the format that it is"


@pytest.mark.parametrize("source", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("to", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2fnuz", "float4_e2m1fn"])
def test_codes_at_random_in_pieces(source: str, to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 64 elements, so that what one has and the next has not meets each order."""
    if source == to:
        return
    codes = mixture(source, 1000, seed=len(source + to)).reshape(10, 100)
    tensor = stored(tmp_path, codes, source)
    monkeypatch.setattr(census, "PIECE", 64 * FORMATS[source].storage.itemsize)
    taken = take_census(tensor, (to,), exactness=True)
    flat = codes.ravel().tolist()
    assert said(taken) == second.count(flat, source, [to])
    for kind, field in ((counted.beyond(to), "beyond"), (counted.flushed(to), "flushed")):
        places = [index[0] * 100 + index[1] for index in (place.index for place in taken.places(kind))]
        assert places == second.first(flat, source, to, field)


@pytest.mark.parametrize("source", [*EIGHT_BITS, "float4_e2m1fn"])
def test_codes_of_at_most_8_bits(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each code another number of times, in pieces of odd length; of all destinations of a census."""
    fmt = FORMATS[source]
    often = np.arange(fmt.code_count) * 5 % 7
    codes = np.random.default_rng(3).permutation(np.repeat(np.arange(fmt.code_count), often))
    codes = np.append(codes, np.zeros(codes.size % 2, np.int64))  # two share a byte
    often[0] += codes.size - int(often.sum())
    monkeypatch.setattr(census, "CODES_PIECE", 37)
    into = () if fmt.family == "integer" else NARROW
    tensor = stored(tmp_path, codes, source)
    taken = take_census(tensor, into)
    assert said(taken) == second.count(codes.tolist(), source, [to for to in into if to != source])
    assert taken.codes is not None
    assert taken.codes.tolist() == often.tolist()
    half = tensor.size // 2 // 2 * 2
    runs = census_of_run(tensor, 0, half, into) + census_of_run(tensor, half, tensor.size - half, into)
    assert (said(runs), runs.seen) == (said(taken), taken.seen)
    if fmt.bits == 8:
        for code in (0x80, 0xFF, 0x7F):
            found = [place.index for place in taken.places(counted.code(code))]
            assert found == [(at,) for at in np.flatnonzero(codes == code)[:5].tolist()], hex(code)
        nan = [at for at, code in enumerate(codes.tolist()) if decode_second(code, source).kind == "nan"]
        assert [place.index for place in taken.places(counted.NAN)] == [(at,) for at in nan[:5]]


def test_a_table_that_is_full_is_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = np.random.default_rng(6).integers(0, 256, 1001)
    tensor = stored(tmp_path, codes, "float8_e4m3fn")
    monkeypatch.setattr(census, "CODES_PIECE", 100)
    monkeypatch.setattr(tally_codes, "FULL", 120)
    taken = take_census(tensor)
    assert taken.codes is not None
    assert taken.codes.tolist() == np.bincount(codes, minlength=256).tolist()
    found = [place.index for place in taken.places(counted.code(0x80))]
    assert found == [(at,) for at in np.flatnonzero(codes == 0x80)[:5].tolist()]


def test_what_is_exact_without_a_count(tmp_path: Path) -> None:
    """float16 has three bits more than bfloat16, so down to 2^-17 it holds all of them; below that nobody counted."""
    edge = (127 - 17) << 7  # the code of 2^-17
    for codes, inexact in (([edge, 0x3F81, 0], 0), ([edge - 1, 0x3F81], None), ([edge, 0x4780], None)):
        taken = take_census(stored(tmp_path, np.array(codes), "bfloat16"))
        assert taken.into["float16"].inexact == inexact
    assert take_census(stored(tmp_path, np.array([0x3F800000]), "float32")).into["float16"].inexact is None


def test_signs_of_large_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = stored(tmp_path, EVERY_16, "bfloat16")
    exact = take_census(tensor)
    monkeypatch.setattr(census, "SIGNED", tensor.size - 1)
    large, half = take_census(tensor), census_of_run(tensor, 0, tensor.size // 2)
    assert (large.negative, half.negative, (half + exact).negative) == (None, None, None)
    assert (large.nan, large.minus_infinite, large.seen) == (exact.nan, exact.minus_infinite, exact.seen)
    assert take_census(tensor, exactness=True).negative == exact.negative == 0x7F80, "finite ones but zero, and -inf"


def test_bytes_read_as_another_format(tmp_path: Path) -> None:
    codes = np.random.default_rng(4).integers(0, 256, 3001)
    taken = take_census(stored(tmp_path, codes, "uint8"))
    for name in EIGHT_BITS:
        other = read_as(taken, name)
        direct = take_census(stored(tmp_path, codes, name))
        assert said(other) == said(direct)
        assert other.codes is not None
        assert other.codes.tolist() == np.bincount(codes, minlength=256).tolist()


@pytest.mark.parametrize("dtype", ["I64", "I16", "U16", "U32", "U64", "BOOL", "int32"])
def test_whole_numbers(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts alone, of extremes too; in pieces, of which some have no zero and some only numbers of one sign."""
    kind = np.dtype(census.INTEGERS.get(dtype, "int32"))
    ends = np.iinfo(kind)
    rng = np.random.default_rng(5)
    numbers = rng.choice(np.array([ends.min, ends.max, 0, 1, 7], kind), 401)
    numbers[:40] = 5
    numbers[40:80] = ends.min
    monkeypatch.setattr(census, "PIECE", 16 * kind.itemsize)
    tensor = stored(tmp_path, numbers.view(np.uint32), "int32") if dtype == "int32" else plain(tmp_path, numbers, dtype)
    taken, real = take_census(tensor), numbers.tolist()
    assert (taken.elements, taken.zeros, taken.negative) == (401, real.count(0), sum(x < 0 for x in real))
    assert (taken.amax, taken.least) == (max(map(abs, real)), min(abs(x) for x in real if x))
    assert taken.into == {}
    below = [at for at, x in enumerate(real) if x < 0][:5]
    assert [place.index for place in taken.places(counted.NEGATIVE)] == [(at,) for at in below]


def test_whole_numbers_of_one_sign(tmp_path: Path) -> None:
    for numbers, least in (([-9, -3], 3), ([9, 3], 3), ([-9, 0, 3], 3), ([0, 0], math.inf), ([-(2**63)], 2**63)):
        taken = take_census(plain(tmp_path, np.array(numbers, np.int64), "I64"))
        assert (taken.least, taken.amax) == (least, max(map(abs, numbers)))


def test_thresholds_of_float16() -> None:
    """IEEE 754 to nearest even: 65520 is halfway between 65504 and 65536, 2^-25 halfway between 0 and 2^-24."""
    source, to = FORMATS["float32"], FORMATS["float16"]
    there = landing(source, to)
    real = np.array([there.some, there.normal, there.beyond], np.uint32).view(np.float32)
    assert real[0] == np.nextafter(np.float32(2.0**-25), np.float32(1))
    assert real[1] == np.float32(2.0**-14 - 2.0**-25), "halfway to the largest subnormal, and 2^-14 is even"
    assert real[2] == 65520


def test_more_pieces_than_a_byte_counts() -> None:
    masks, total = Masks(2, 3), np.zeros(2, int)
    for turn in range(600):
        size = 3 - turn % 2
        mask = masks.of(size)
        mask[0], mask[1] = True, turn % 3 == 0
        total += (size, size * (turn % 3 == 0))
        masks.count(size)
    assert masks.totals() == total.tolist()


def test_infinities_and_nan_have_places(tmp_path: Path) -> None:
    codes = np.zeros((3, 4), np.uint16)
    codes[0, 3], codes[1, 0], codes[2, 2], codes[2, 3] = 0x7F80, 0xFF80, 0xFFC1, 0x7FC0
    taken = take_census(stored(tmp_path, codes, "bfloat16"))
    assert [(p.index, p.value) for p in taken.places(counted.PLUS_INFINITE)] == [((0, 3), "inf (0x7f80)")]
    assert [p.index for p in taken.places(counted.MINUS_INFINITE)] == [(1, 0)]
    assert [p.index for p in taken.places(counted.NAN)] == [(2, 2), (2, 3)]
    assert (taken.amax, taken.least, taken.negative) == (0, math.inf, 1)


def test_nothing_and_a_single_number(tmp_path: Path) -> None:
    nothing = take_census(stored(tmp_path, np.zeros((0, 5), np.uint32), "float32"))
    assert (nothing.elements, nothing.amax, nothing.least) == (0, 0, math.inf)
    one = take_census(stored(tmp_path, np.array(0x47F2C400, np.uint32), "float32"))
    assert [(p.index, p.value) for p in one.places(counted.beyond("float16"))] == [((), "124296 (0x47f2c400)")]


def test_what_is_refused(tmp_path: Path) -> None:
    blocks = Stored("blk.0.ffn_up.weight", "Q4_K", (256,), tmp_path / "m.gguf", 0, 144)
    assert not census.countable(blocks)
    with pytest.raises(BadInput, match=r"blk\.0\.ffn_up\.weight.*Q4_K"):
        take_census(blocks)
    tensor = stored(tmp_path, EVERY_16[:6], "bfloat16")
    with pytest.raises(BadInput, match="int8 is no destination"):
        take_census(tensor, ("int8",))
    with pytest.raises(BadInput, match="do not add up"):
        take_census(tensor) + take_census(tensor, ())


def test_it_travels_and_is_data(tmp_path: Path) -> None:
    taken = take_census(stored(tmp_path, np.array([[0x80, 0x7F], [0x38, 0]]), "float8_e4m3fn"))
    back = pickle.loads(pickle.dumps(taken))
    assert back.to_json() == taken.to_json()
    assert taken.to_json()["first"]["NaN"] == [{"index": [0, 1], "value": "nan (0x7f)"}]
    assert taken.to_json()["codes"] == {"0x00": 1, "0x38": 1, "0x7f": 1, "0x80": 1}
