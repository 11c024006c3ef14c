"""Libraries that share no code with the reference, over everything that one value can be; and wrong codecs caught.

docs/proof.md shows what is compared here; its tables are held to what is measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import gfloat
import ml_dtypes
import numpy as np
import pytest

import narrowgauge
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import Cast, Claim
from narrowgauge.devices.device import Device
from narrowgauge.kernels_under_test import gfloat_cast
from narrowgauge.reference.codec import decode, values
from narrowgauge.reference.deviations import Deviation, Values
from narrowgauge.reference.expected import expected
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.inputs import case_named, nan_payloads
from narrowgauge.reference.judge import judge
from narrowgauge.suites.meta import proof
from narrowgauge.suites.meta.wrong_codecs import CLAIM, CODECS, WrongCodec, input_sets

pytestmark = pytest.mark.meta

PAGE = Path(narrowgauge.__file__).parents[1] / "docs" / "proof.md"
TORCH = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
NUMBERS = [name for name, fmt in FORMATS.items() if fmt.family != "integer" and fmt.bits <= 19]


# --- encode ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch_eager(host: Device) -> Plugged:
    found = {p.kernel.name: p for p in host.describe("narrowgauge.kernels_under_test.torch_cast")}
    return found["torch_eager"]


@pytest.fixture(scope="module")
def asks(host: Device, torch_eager: Plugged) -> dict[str, proof.Ask]:
    """How each library is asked: torch in a child process, the others here."""

    def ask_torch(claim: Claim, x: Coded) -> proof.Codes:
        outcome = host.run(torch_eager, claim, x)
        assert (outcome.malformed, outcome.reason) == ((), "")
        return outcome.outputs["codes"].data

    here = {kernel: partial(proof.ask_here, kernel=kernel) for kernel in proof.IN_PROCESS}
    return {**here, "torch_eager": ask_torch}


@pytest.fixture(scope="module")
def claims(torch_eager: Plugged) -> list[tuple[str, Claim]]:
    here = [(kernel, claim) for kernel in proof.IN_PROCESS for claim in proof.record_of(kernel).claims]
    return here + [("torch_eager", claim) for claim in torch_eager.kernel.claims]


@pytest.fixture(scope="module")
def rows(asks: dict[str, proof.Ask], claims: list[tuple[str, Claim]]) -> list[proof.Compared]:
    return [proof.compared(kernel, claim, asks[kernel]) for kernel, claim in claims]


@pytest.mark.parametrize("kernel", proof.LIBRARIES)
def test_a_library_differs_just_where_it_is_listed(kernel: str, rows: list[proof.Compared]) -> None:
    """No more, which would be news; no less, which would be a defect gone, or a range of versions that is too wide."""
    mine = [row for row in rows if row.kernel == kernel]
    assert len(mine) >= len(TORCH)
    for row in mine:
        want = row.expected_to(proof.known(kernel))
        wrong = np.flatnonzero(want != row.differs)
        assert not wrong.size, f"{row.claim}: differs, or no longer does, on {decode_values(row.x.take(wrong))}"


@pytest.mark.parametrize("listed", proof.DISAGREEMENTS, ids=lambda d: f"{d.library}-{d.where}")
def test_a_disagreement_is_what_it_says(
    listed: Deviation, asks: dict[str, proof.Ask], claims: list[tuple[str, Claim]]
) -> None:
    """Its example, both ways."""
    x = Coded("float32", np.array([listed.example], np.float32).view(np.uint32))
    assert listed.where.holds(decode_values(x)).all()
    assert not listed.where.holds(np.array([np.nan])).any()
    for kernel, claim in claims:
        if claim.source == "float32" and claim.format == listed.format and listed in proof.known(kernel):
            assert proof.shown(asks[kernel](claim, x)) == [listed.given.removesuffix(", no code")]
            assert proof.shown(expected(claim, x)["codes"].low.codes) == [proof.says(listed)]


def test_gfloat_refuses_what_a_format_has_no_code_for() -> None:
    """Why its kernel gives it 0 for a NaN in fp4 and fp6, and claims nothing of them without saturation."""
    for name in gfloat_cast.FINITE:
        info = gfloat_cast.described(name)
        with pytest.raises(AssertionError):
            gfloat.encode_ndarray(info, np.array([np.nan]))
        with pytest.raises(ValueError, match="No Infs or NaNs"):
            gfloat.round_ndarray(info, np.array([np.inf]), sat=False)


def test_the_float32_set_holds_what_it_promises() -> None:
    """Every value and midpoint of the destination and one ulp either side; 4,096 mantissas an exponent; every NaN."""
    for format_name in ("float8_e4m3fn", "float8_e5m2fnuz", "float4_e2m1fn"):
        claim = Claim(Cast("ieee"), "float32", format_name)
        x, edges = proof.inputs_of("torch_eager", claim).data, case_named("edges").make(claim).data
        grid = np.unique(np.abs(values(FORMATS[format_name])[np.isfinite(values(FORMATS[format_name]))]))
        places = np.concatenate([grid, (grid[1:] + grid[:-1]) / 2]).astype(np.float32).view(np.uint32)
        near = (places[:, None].astype(np.int64) + np.array([-1, 0, 1])).ravel()
        payloads = np.array(nan_payloads(23)) | 0x7F800000
        wanted = np.concatenate([near[near >= 0], payloads]).astype(np.uint32)
        assert np.isin(np.concatenate([wanted, wanted | np.uint32(1 << 31)]), edges).all()
        np.testing.assert_array_equal(x[: edges.size], edges)


@pytest.mark.parametrize(("case", "mantissas"), [("stratified", 64), ("stratified_2m", 4096)])
def test_every_exponent_has_so_many_mantissas(case: str, mantissas: int) -> None:
    """All different; in the larger set every tie of eight bits with its neighbours, and every stretch has some."""
    x = case_named(case).make(CLAIM).data
    grid = np.sort((x[: 512 * mantissas] & 0x7FFFFF).reshape(512, mantissas).astype(np.int64), axis=1)
    assert (np.diff(grid) > 0).all()
    np.testing.assert_array_equal(np.unique(x[: 512 * mantissas] >> 23), np.arange(512))
    assert np.diff(grid[:, :: mantissas // 16]).max() < 1 << 22
    if mantissas == 4096:
        ties = ((np.arange(256)[:, None] << 15) + np.array([-1, 0, 1])).ravel() & 0x7FFFFF
        assert all(np.isin(ties, row).all() for row in grid[::73])


def test_nan_payloads_are_of_every_class() -> None:
    """Signalling and quiet; the least and the most; one bit; what a cut of the lower half would make an infinity of."""
    payloads = set(nan_payloads(23))
    assert 0 not in payloads
    assert payloads >= {1, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFF, 0xFFFF, 0x7F0000, 0x155555, 0x2AAAAA}
    assert payloads >= {1 << place for place in range(23)}
    assert max(payloads) < 1 << 23


# --- decode ----------------------------------------------------------------------------------------------------------


def test_every_code_is_read_as_ml_dtypes_reads_it() -> None:
    read = [name for name in NUMBERS if hasattr(ml_dtypes, name)]
    assert len(read) == 12
    for name in read:
        codes = np.arange(FORMATS[name].code_count, dtype=FORMATS[name].storage)
        with np.errstate(invalid="ignore"):
            same_values(codes.view(getattr(ml_dtypes, name)).astype(np.float64), name)


def test_every_code_is_read_as_gfloat_reads_it() -> None:
    for name in gfloat_cast.FORMATS:
        codes = np.arange(FORMATS[name].code_count)
        same_values(gfloat.decode_ndarray(gfloat_cast.described(name), codes), name)


def test_every_code_is_read_as_torch_reads_it() -> None:
    script = (
        "import json, torch\n"
        "def bits(name, view):\n"
        "    n = 1 << 8 * getattr(torch, name).itemsize\n"
        "    codes = torch.arange(n, dtype=torch.int32).to(view).view(getattr(torch, name))\n"
        "    return codes.float().view(torch.int32).tolist()\n"
        f"print(json.dumps({{n: bits(n, torch.uint8) for n in {TORCH}}}"
        " | {n: bits(n, torch.int16) for n in ('bfloat16', 'float16')}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    for name, bits in json.loads(done.stdout).items():
        with np.errstate(invalid="ignore"):
            same_values(np.array(bits, np.int32).view(np.float32).astype(np.float64), name)


def same_values(got: Values, name: str) -> None:
    """Equal, signs of zero included; NaN where we have NaN."""
    want = decode(np.arange(FORMATS[name].code_count, dtype=FORMATS[name].storage), FORMATS[name])
    np.testing.assert_array_equal(got, want, err_msg=name)
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]), err_msg=name)


# --- wrong codecs ----------------------------------------------------------------------------------------------------

#: measured before this suite was, by another oracle, over the same two spaces (facts of 2026-08)
EXHAUSTIVE = {
    "ties away": (126, 126), "ties toward zero": (126, 126), "truncate": (2402, 20098),
    "flush subnormals": (990, 7934), "lost -0": (14977, 5121), "overflow to NaN": (30512, 14720),
    "threshold 448 for 464": (16, 128), "infinity alone to NaN": (2, 2), "NaN to max": (254, 2046),
    "double rounding, fp16": (0, 0), "double rounding, bf16": (0, 1008), "sticky bit lost": (0, 0),
}  # fmt: skip


def test_wrong_codecs_are_wrong_as_often_as_was_counted() -> None:
    counts = proof.wrong_codec_counts()
    assert {name: (c["every bf16"], c["every fp16"]) for name, c in counts.items()} == EXHAUSTIVE
    # Each kind of input misses some; ours miss none.
    for name in ("randn 1M", "uniform 1M", "every bf16", "every fp16"):
        assert not all(c[name] for c in counts.values()), name
    assert all(c["our edges"] for c in counts.values())


@pytest.mark.parametrize("codec", CODECS, ids=lambda c: c.name)
def test_a_wrong_codec_is_caught_and_named(codec: WrongCodec) -> None:
    """By the cases of a smoke run, under the policy that it claims."""
    claim = Claim(Cast(codec.policy), CLAIM.source, CLAIM.format)
    x = Coded("float32", input_sets()["our smoke"].view(np.uint32))
    codes = codec.codes(x.data.view(np.float32)).astype(np.uint8)
    verdict = judge(claim, x, {"codes": Coded(claim.format, codes)})
    assert verdict.result == "failed"
    named = [e for e in verdict.explanations if e.left == 0]
    assert [n for e in named for n in e.faults] == [codec.named]


@pytest.mark.parametrize("right", ["ocp_saturate", "ocp_nonsaturate"])
def test_right_codecs_of_that_arithmetic_are_right(right: str) -> None:
    """Or a wrong one might be caught for another mistake than its own."""
    claim = Claim(Cast(right), CLAIM.source, CLAIM.format)
    codec = next(c for c in CODECS if c.policy == right)
    for x in input_sets().values():
        codes = Coded(claim.format, codec.right(x).astype(np.uint8))
        assert judge(claim, Coded("float32", x.view(np.uint32)), {"codes": codes}).result == "passed"


# --- the page --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text()


def test_the_page_shows_what_is_compared(page: str, rows: list[proof.Compared]) -> None:
    stands_in(page, proof.comparison_table(rows))
    stands_in(page, proof.disagreement_table())


def test_the_page_shows_where_libraries_part(
    page: str, asks: dict[str, proof.Ask], claims: list[tuple[str, Claim]]
) -> None:
    for table in proof.edge_tables(asks, claims):
        stands_in(page, table)


def test_the_page_shows_which_inputs_catch_which_codec(page: str) -> None:
    print(proof.wrong_codec_table())
    stands_in(page, proof.wrong_codec_table())


def stands_in(page: str, table: str) -> None:
    assert table in page, f"docs/proof.md has another table than this, which is what was measured now:\n{table}"
