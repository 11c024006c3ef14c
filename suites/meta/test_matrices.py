"""The matrices that quantizers are judged on: what each holds, and a wrong quantizer that only it catches."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import given_with
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.operations import Claim, Quantize, observe
from narrowgauge.contracts.recipe import TENSOR, TOKEN, Blocks, group
from narrowgauge.reference.behaviour import behaviour_of, blocks_of
from narrowgauge.reference.codec import decode
from narrowgauge.reference.compare import compare
from narrowgauge.reference.expected import expected
from narrowgauge.reference.fast_codec import to_float32
from narrowgauge.reference.form import form_of, takes
from narrowgauge.reference.inputs import CASES, case_named
from narrowgauge.reference.matrices import graded
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites.meta.wrong_quantizers import WRONG, Wrong

pytestmark = pytest.mark.meta

QUANTIZERS = [case for case in CASES if case.operation == Quantize.operation]
MUTANTS = [(case, claim, wrong) for case, found in WRONG.items() for claim, wrong in found]
F64 = npt.NDArray[np.float64]


def claim_of(recipe: str, format_name: str = "float8_e4m3fn", source: str = "float32") -> Claim:
    return Claim(Quantize(recipe), source, format_name)


def numbers(case: str, claim: Claim) -> F64:
    return to_float32(case_named(case).make(claim)).astype(np.float64)


# --- mutants ---------------------------------------------------------------------------------------------------------


def caught(case: str, claim: Claim, wrong: Wrong) -> bool:
    x = case_named(case).make(claim)
    got, want = wrong(claim, x), expected(claim, x)
    return bool(form_of(got, want)) or compare(got, want).total > 0


@pytest.mark.parametrize(("case", "text", "wrong"), MUTANTS, ids=[f"{m[0]}-{k}" for k, m in enumerate(MUTANTS)])
def test_a_case_catches_what_the_named_rows_do_not(case: str, text: str, wrong: Wrong) -> None:
    claim = Claim.parse(text)
    assert case_named(case).applies(claim)
    assert caught(case, claim, wrong)
    assert not caught("rows_128", claim, wrong)


def test_every_case_has_a_mutant() -> None:
    """Those of views are kernels: test_views.py."""
    assert {c.name for c in QUANTIZERS if c.view == "contiguous"} == WRONG.keys() | {"rows_128"}


# --- all recipes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
def test_every_case_is_a_matrix_of_its_claim(name: str) -> None:
    """Of the claim's source, of a shape that the blocks divide; and enough cases apply at each depth."""
    recipe = RECIPES[name]
    for destination in recipe.destinations:
        for source in ("float32", "bfloat16", "float16"):
            claim = claim_of(name, destination.format, source)
            fitting = [case for case in QUANTIZERS if case.applies(claim)]
            assert {"rows_128", "no_rows", "sliced"} < {case.name for case in fitting if case.depth == "smoke"}
            few = recipe.blocks == TENSOR or "tensor_amax" in str(recipe.steps)
            assert {"tensor_ties" if few else "blocks"} < {case.name for case in fitting}
            if source == "bfloat16":  # shapes do not depend on the source, and the large ones take their time
                continue
            for case in fitting:
                if case.depth == "smoke" or case.name in ("shape_3x129", "scale_ties"):
                    x = case.make(claim)
                    assert x.format == source
                    assert x.well_formed
                    assert takes(claim, x.shape), case.name


@pytest.mark.parametrize(
    "blocks",
    [
        group(1),
        group(2),
        group(3),
        Blocks(2, 1),
        Blocks(3, 5),
        Blocks(0, 7),
        Blocks(7, 0),
        Blocks(128, 128),
        Blocks(64, 96, True),
    ],
    ids=str,
)
def test_blocks_of_any_shape_have_cases(blocks: Blocks) -> None:
    """Of a recipe that somebody brings."""
    own = replace(RECIPES["ocp.mxfp4"], name="own", blocks=blocks)
    claim = Claim(Quantize(own), "bfloat16", "float4_e2m1fn")
    for case in QUANTIZERS:
        if case.applies(claim) and case.name not in ("tall", "large_blocks"):
            x = case.make(claim)
            assert takes(claim, x.shape), case.name
            assert x.data.size <= 1 << 20


def test_observations_have_matrices_that_every_group_divides() -> None:
    claim = Claim(observe(Quantize), "float32", "float8_e4m3fn")
    for name in ("rows_128", "blocks", "sliced", "every_tie"):
        assert case_named(name).applies(claim)
        assert case_named(name).make(claim).shape[1] % 128 == 0


# --- ties ------------------------------------------------------------------------------------------------------------

E4M3 = decode(np.arange(0x7F, dtype=np.uint8), format_named("float8_e4m3fn"))
MIDPOINTS = (E4M3[1:] + E4M3[:-1]) / 2
#: recipes whose arithmetic is written out here: x / s, and x * (1 / s), with s = amax / 448
SCALED = {
    "vllm.fp8_per_token_dynamic": lambda x, s: x / s,
    "sglang.fp8_per_token_cta": lambda x, s: x * (np.float32(1) / s),
}


def beside(x: npt.NDArray[np.float32], y: npt.NDArray[np.float32], middle: float) -> tuple[bool, bool]:
    """Whether an element is scaled to a tie exactly; and whether the tie is hit or lies between two elements that are
    neighbours in float32."""
    low, high = x[y < middle].max(initial=-np.inf), x[y > middle].min(initial=np.inf)
    hit = bool((y == middle).any())
    return hit, hit or np.nextafter(low, np.float32(np.inf)) == high


@pytest.mark.parametrize("recipe", SCALED)
@pytest.mark.parametrize("case", ["blocks", "every_tie"])
def test_every_tie_is_hit_or_straddled_at_each_scale(recipe: str, case: str) -> None:
    """In float32, both signs; at an exact scale every tie is hit, with the next float32 on either side."""
    matrix = numbers(case, claim_of(recipe)).astype(np.float32)
    tied = matrix[matrix[:, 0] == -matrix[:, 1]]
    seen = 0
    for amax in np.unique(tied[:, 0]):
        scale = np.float32(amax) / np.float32(448)
        if not scale >= np.float32(1 / (448 * 512)):
            continue
        x = np.unique(tied[tied[:, 0] == amax])
        if x.size < 1000:
            continue
        seen += 1
        y = SCALED[recipe](x, scale)
        exact = np.frexp(scale)[0] == 0.5
        for sign in (1, -1):
            found = [beside(x * sign, y * sign, m) for m in MIDPOINTS]
            assert all(either for _, either in found)
            assert np.mean([hit for hit, _ in found]) >= (1.0 if exact else 0.3)
        if exact:
            for middle in MIDPOINTS.astype(np.float32) * scale:
                assert {np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(9e9))} <= set(x.tolist())
    assert seen >= (1 if case == "blocks" else 4)


@pytest.mark.parametrize("source", ["bfloat16", "float16"])
def test_ties_of_16_bit_sources_are_hit_at_an_exact_scale(source: str) -> None:
    """Where the source holds them; with the next value of the source on either side."""
    x = case_named("blocks").make(claim_of("vllm.fp8_per_token_dynamic", source=source))
    fmt = format_named(source)
    unit = to_float32(x)
    codes = set(x.data[(unit[:, 0] == 448) & (unit[:, 1] == -448)].ravel().tolist())
    tied = [m for m in MIDPOINTS if m in decode(np.arange(1 << 15, dtype=np.uint16), fmt)]
    assert len(tied) == len(MIDPOINTS)
    for code in np.searchsorted(decode(np.arange(fmt.code_count // 2, dtype=np.uint16), fmt)[: infinity(fmt)], tied):
        assert {int(code) + step | sign for step in (-1, 0, 1) for sign in (0, fmt.sign_bit)} <= codes


def infinity(fmt: Format) -> int:
    return ((1 << fmt.exponent) - 1) << fmt.mantissa


@pytest.mark.parametrize(
    ("recipe", "format_name"),
    [("ocp.mxfp8_e5m2", "float8_e5m2"), ("ocp.mxfp6_e2m3", "float6_e2m3fn"), ("ocp.mxfp4", "float4_e2m1fn")],
)
def test_ties_are_hit_in_blocks_of_a_power_of_two(recipe: str, format_name: str) -> None:
    """x over the stored scale is exact; the scale comes from the definition: 2^(floor(log2 amax) - emax)."""
    claim = claim_of(recipe, format_name)
    blocks = numbers("every_tie", claim).reshape(-1, 32)
    emax = {"float8_e5m2": 15, "float6_e2m3fn": 2, "float4_e2m1fn": 2}[format_name]
    fmt = format_named(format_name)
    top = {"float8_e5m2": 0x7B, "float6_e2m3fn": 31, "float4_e2m1fn": 7}[format_name]
    grid = decode(np.arange(top + 1, dtype=fmt.storage), fmt)
    for amax in np.unique(blocks[:, 0])[1:]:
        x = blocks[blocks[:, 0] == amax]
        y = x / 2.0 ** (np.floor(np.log2(amax)) - emax)
        middles = [m for m in (grid[1:] + grid[:-1]) / 2 if m <= y.max()]
        assert set(middles) | {-m for m in middles} <= set(y.ravel().tolist())


@pytest.mark.parametrize("case", ["blocks", "every_tie"])
def test_ties_under_a_scale_of_the_tensor_that_is_given(case: str) -> None:
    """NVFP4 with a global scale: x * (1 / (stored scale * (1 / global))), written out from the engine's lines."""
    claim = claim_of("vllm.nvfp4_emulated", "float4_e2m1fn")
    x = case_named(case).inputs(claim)
    stored = to_float32(behaviour_of(claim).run(x)["scale"]).ravel()
    (given,) = (to_float32(value).ravel()[0] for value in given_with(x).values())
    blocks = to_float32(x).reshape(-1, 16)
    tied, seen = (blocks[:, 0] == -blocks[:, 1]) & (blocks[:, 0] > 0) & (blocks[:, 0] < 1e30) & (stored > 0), 0
    for scale in np.unique(stored[tied]):
        elements = np.unique(blocks[tied & (stored == scale)])
        if elements.size < 50:
            continue
        seen += 1
        y = elements * (np.float32(1) / (scale * (np.float32(1) / given)))
        for middle in (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, -0.25, -2.5):
            assert beside(elements, y, middle)[1], (scale, middle)
    assert seen >= 2


def test_scales_are_tied_under_a_scale_of_the_tensor_that_is_given() -> None:
    """The one that is given is that of the amax in the middle: 2,688 gives 1."""
    claim = claim_of("vllm.nvfp4_emulated", "float4_e2m1fn")
    x = case_named("scale_ties").inputs(claim)
    (given,) = (to_float32(value) for value in given_with(x).values())
    assert given.tolist() == [[1.0]]


def test_ties_of_one_tensor() -> None:
    claim = claim_of("vllm.fp8_per_tensor_dynamic")
    x = np.unique(numbers("tensor_ties", claim))
    assert x.max() == 448
    assert set(MIDPOINTS) <= set(x)
    assert set(-MIDPOINTS) <= set(x)
    odd = np.unique(numbers("tensor_ties_odd", claim).astype(np.float32))
    y = odd * (np.float32(1) / (odd.max() / np.float32(448)))
    assert all(beside(odd, y, m)[1] for m in MIDPOINTS)


# --- amax ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("recipe", "bound"), [("ocp.mxfp8_e4m3", 448.0), ("nvidia.mxfp8_e5m2", 57344.0)])
def test_every_amax_at_which_a_scale_changes(source: str, recipe: str, bound: float) -> None:
    """Each power of two that the source can hold, and fmax times it, with the next values on either side."""
    claim = claim_of(recipe, "float8_e4m3fn" if bound == 448 else "float8_e5m2", source)
    fmt = format_named(source)
    blocks = case_named("every_amax").make(claim).data.reshape(-1, 32) & np.array(fmt.sign_bit - 1, fmt.storage)
    amaxs = set(blocks.max(axis=1).tolist())  # of magnitudes, codes are ordered as values are
    for k in range(1 - fmt.bias - fmt.mantissa, fmt.bias + 1):
        for value in (np.ldexp(1.0, k), np.ldexp(bound, k)):
            code = pattern(value, source)
            if code is not None:
                assert {c for c in (code - 1, code, code + 1) if 0 < c < infinity(fmt)} <= amaxs, (k, value)


def pattern(value: float, source: str) -> int | None:
    """The code of a value that the source holds exactly; by numpy's own types, a bfloat16 being half of a float32."""
    with np.errstate(over="ignore"):
        wide = np.float16(value) if source == "float16" else np.float32(value)
    if float(wide) != value:
        return None
    code = int(wide.view(f"<u{wide.itemsize}"))
    if source != "bfloat16":
        return code
    return code >> 16 if code & 0xFFFF == 0 else None


def test_scales_of_nvfp4_meet_every_tie_of_e4m3() -> None:
    """With 2,688 for amax the tensor's scale is 1, and a block's is amax / 6."""
    matrix = numbers("scale_ties", claim_of("nvidia.nvfp4_divisor", "float4_e2m1fn"))
    assert np.abs(matrix).max() == 2688
    amaxs = np.abs(matrix).reshape(-1, 16).max(axis=1).astype(np.float32)
    for value in (6 * MIDPOINTS).astype(np.float32):
        near = {value, np.nextafter(value, np.float32(0)), np.nextafter(value, np.float32(9e9))}
        assert near <= set(amaxs.tolist())


# --- places and magnitudes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "width"), [("vllm.fp8_per_token_dynamic", 128), ("vllm.fp8_group", 128), ("ocp.mxfp8_e4m3", 32)]
)
def test_an_outlier_stands_in_every_place_of_a_block(recipe: str, width: int) -> None:
    """Alone: eight times all others and more."""
    blocks = np.abs(numbers("blocks", claim_of(recipe)).reshape(-1, width))
    ordered = np.sort(blocks, axis=1)
    alone = (ordered[:, -1] >= 8) & (ordered[:, -2] < 1) & (ordered[:, -1] < 16)
    assert set(blocks[alone].argmax(axis=1)) == set(range(width))


@pytest.mark.parametrize(("recipe", "width"), [("ocp.mxfp4", 32), ("nvidia.mxfp8_e4m3", 32)])
def test_a_bad_element_stands_in_every_place_and_its_neighbours_are_plain(recipe: str, width: int) -> None:
    claim = claim_of(recipe, RECIPES[recipe].destinations[0].format)
    matrix = numbers("bad_lanes", claim)
    blocks = matrix.reshape(matrix.shape[0], -1, width)
    for bad in (np.isnan, np.isinf):
        assert set(np.argwhere(bad(blocks))[:, 2]) == set(range(width))
    lost = np.count_nonzero(~np.isfinite(blocks), axis=2)
    assert set(lost.ravel().tolist()) == {0, 1}
    assert not (lost[:-1] & lost[1:]).any()
    assert not (lost[:, :-1] & lost[:, 1:]).any()


@pytest.mark.parametrize(
    ("rows", "columns", "blocks"),
    [
        (7, 2880, Blocks(1, 32)),
        (257, 384, group(128)),
        (257, 384, Blocks(128, 128, ragged=True)),
        (7, 2880, TOKEN),
        (5, 144, TENSOR),
        (6, 64, Blocks(0, 1)),
        (16, 256, group(16)),
    ],
    ids=str,
)
def test_every_block_has_another_exponent_than_those_beside_it(rows: int, columns: int, blocks: Blocks) -> None:
    """Beside, below, and at the mirrored place: so a swapped, shared or transposed scale shows, in E8M0 too."""
    matrix = np.abs(graded(rows, columns, blocks))
    r, c = (1, columns) if blocks == TENSOR else (blocks.rows or rows, blocks.columns or columns)
    amax = np.array([[matrix[i : i + r, j : j + c].max() for j in range(0, columns, c)] for i in range(0, rows, r)])
    exponent = np.frexp(amax)[1]
    assert (np.diff(exponent, axis=0) != 0).all()
    assert (np.diff(exponent, axis=1) != 0).all()
    side = min(exponent.shape)
    mirrored = exponent[:side, :side] == exponent[:side, :side].T
    assert not mirrored[~np.eye(side, dtype=bool) & (np.subtract.outer(range(side), range(side)) % 13 != 0)].any()
    assert matrix.max() / amax.min() < 2**13


def test_no_two_blocks_that_are_given_out_are_alike() -> None:
    """In a packed matrix each block of numbers is another one: a block in another's place shows."""
    blocks = case_named("blocks").make(claim_of("ocp.mxfp8_e4m3")).data.reshape(-1, 32)
    rows = [row.tobytes() for row in blocks]
    assert all(one != other for one, other in pairwise(rows))
    assert len(set(rows)) >= 0.98 * len(rows)


def test_large_blocks_have_an_outlier_in_each_corner() -> None:
    claim = claim_of("vllm.fp8_block")
    matrix = np.abs(numbers("large_blocks", claim))
    tiles = matrix.reshape(-1, 128, 4, 128).transpose(0, 2, 1, 3).reshape(-1, 128, 128)
    ordered = np.sort(tiles.reshape(len(tiles), -1), axis=1)
    alone = (ordered[:, -1] >= 8) & (ordered[:, -2] < 1)
    places = {tuple(int(i) for i in np.unravel_index(tile.argmax(), tile.shape)) for tile in tiles[alone]}
    assert places == {(r, c) for r in (0, 64, 127) for c in (0, 64, 127)}
    assert blocks_of(claim) == Blocks(128, 128, ragged=True)


def test_blocks_of_one_kind_of_number_are_there() -> None:
    """Zeros of either sign, one NaN, one infinity, subnormals alone."""
    x = case_named("blocks").make(claim_of("ocp.mxfp8_e4m3")).data.reshape(-1, 32)
    value = x.view(np.float32)
    magnitude = x & 0x7FFFFFFF
    assert (x == 0).all(axis=1).any()
    assert (x == 0x80000000).all(axis=1).any()
    assert ((np.isnan(value).sum(axis=1) == 1) & (np.isfinite(value).sum(axis=1) == 31)).any()
    assert ((np.isinf(value).sum(axis=1) == 1) & (np.isfinite(value).sum(axis=1) == 31)).any()
    assert ((magnitude > 0) & (magnitude < 1 << 23)).all(axis=1).any()


def test_what_is_expected_of_the_cases_is_not_all_alike() -> None:
    """A matrix of which every code is 0 or the largest would hide what stands in it."""
    for recipe in ("ocp.mxfp8_e4m3", "vllm.fp8_group", "vllm.fp8_per_token_dynamic"):
        claim = claim_of(recipe)
        codes = behaviour_of(claim).run(case_named("blocks").make(claim))["codes"]
        assert len(np.unique(codes.data)) >= 250
