"""narrowgauge diff: counts by the second derivation, the step at which two recipes part by hand, and the command."""

from __future__ import annotations

import struct
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.golden.safetensors_file import write
from narrowgauge.reference.calibrated import calibrated
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.noise import noise
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.recipe_data import named_data
from narrowgauge.reference.recipe_diff import Compared, Side, common_format, compare_recipes
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.reference.tracing import Parting, parting, trace
from narrowgauge.suites.meta.command_sets import as_json, refused, said
from narrowgauge.suites.meta.marks import needs_matplotlib
from narrowgauge.suites.meta.second_derivation import Number, decode
from narrowgauge.suites.meta.second_recipes import SECOND, Answer

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]

E4, FNUZ = "float8_e4m3fn", "float8_e4m3fnuz"
TOKEN, CTA = "vllm.fp8_per_token_dynamic", "sglang.fp8_per_token_cta"


def coded(x: npt.NDArray[np.float32]) -> Coded:
    return Coded("float32", np.ascontiguousarray(x, np.float32).view(np.uint32))


def compared(x: npt.NDArray[np.float32], one: str, other: str, format: str = E4, second: str = "") -> Compared:
    """Two recipes that are given nothing, on one matrix."""
    return compare_recipes(
        {"x": coded(x)}, Side(RECIPES[one], format, {}), Side(RECIPES[other], second or format, {})
    )  # fmt: skip


def rows() -> npt.NDArray[np.float32]:
    """[6, 128]: noise at magnitudes where minima of scales hold or do not, zeros, a NaN, largest values near 448."""
    x = noise(6 * 128, 4).reshape(6, 128).astype(np.float32)
    x[1] *= np.float32(2.0**-14)
    x[2] = 0
    x[3, 9] = np.nan
    x[4] *= np.float32(1e-12)
    x[5, 100] = 15 * 2.0**5
    return x


# --- counts ----------------------------------------------------------------------------------------------------------


def answers(x: npt.NDArray[np.float32], recipe: str, format: str) -> list[tuple[Answer, list[Number]]]:
    """Codes and scale of every group of 128, by the second derivation, with what went in."""
    groups = [[decode(int(c), "float32") for c in group] for group in coded(x).data.reshape(-1, 128)]
    return [(SECOND[recipe](group, "float32", format, {}), group) for group in groups]


def value(code: int, format: str) -> Fraction | str:
    number = decode(code, format)
    if number.kind != "finite":
        return number.kind
    return -number.magnitude if number.negative else number.magnitude


@pytest.mark.parametrize(
    ("one", "other", "format"),
    [
        (TOKEN, CTA, E4),
        (TOKEN, CTA, FNUZ),
        ("vllm.fp8_group", "vllm.fp8_native_group", E4),
        ("vllm.fp8_group", "sglang.fp8_group", E4),
        ("vllm.fp8_group_ue8m0", "vllm.fp8_group", FNUZ),
    ],
)
def test_counts_are_those_of_the_second_derivation(one: str, other: str, format: str) -> None:
    x = rows()
    pairs = list(zip(answers(x, one, format), answers(x, other, format), strict=True))
    scales = codes = values = 0
    nearer = [0, 0]
    for (a, group), (b, _) in pairs:
        s, t = value(a.scale, "float32"), value(b.scale, "float32")
        scales += s != t
        for c, d, number in zip(a.codes, b.codes, group, strict=True):
            v, w = value(c, format), value(d, format)
            codes += c != d and (v, w) != ("nan", "nan")
            back = [n if isinstance(n, str) or isinstance(m, str) else n * m for n, m in ((v, s), (w, t))]
            values += back[0] != back[1]
            if number.kind == "finite" and back[0] != back[1] and not any(isinstance(n, str) for n in back):
                exact = -number.magnitude if number.negative else number.magnitude
                errors = [abs(n - exact) for n in back if not isinstance(n, str)]
                nearer[0] += errors[0] < errors[1]
                nearer[1] += errors[1] < errors[0]
    found = compared(x, one, other, format)
    assert (found.total("codes"), found.total("scales"), found.total("values")) == (codes, scales, values)
    assert found.rows[0].nearer == tuple(nearer)
    assert scales or codes, "two recipes that agree on everything here prove nothing"


def test_both_directions_are_one_comparison() -> None:
    there, back = compared(rows(), TOKEN, CTA).rows[0], compared(rows(), CTA, TOKEN).rows[0]
    assert (there.codes, there.scales, there.values) == (back.codes, back.scales, back.values)
    assert there.nearer == back.nearer[::-1]
    assert there.measured[0].to_json() == back.measured[1].to_json()


def test_nearer_is_nearer() -> None:
    """Halves go to even in one and away from zero in the other: they part, and neither is nearer. Then 1.6 to 2, 1."""
    x = np.array([[127, 0.5, -2.5, 1.6, 1.5]], np.float32)
    found = compared(x, "vllm.int8_per_token_dynamic", "sglang.int8_per_token", "int8").rows[0]
    assert (found.values, found.nearer) == (2, (0, 0))
    cut = compared(x, "vllm.int8_per_token_dynamic", "aiter.int8_triton", "int8").rows[0]
    assert (cut.values, cut.nearer) == (2, (1, 0))


def test_a_recipe_agrees_with_itself() -> None:
    found = compared(rows(), TOKEN, TOKEN)
    assert (found.total("codes"), found.total("scales"), found.total("values")) == (0, 0, 0)
    assert found.places == ()
    assert found.apart == {}


def test_what_cannot_be_compared_is_not() -> None:
    blocks = compared(rows(), TOKEN, "ocp.mxfp8_e4m3")
    assert (blocks.total("scales"), blocks.rows[0].codes is None) == (None, False)
    formats = compared(rows(), "ocp.mxfp8_e4m3", "ocp.mxfp4", E4, "float4_e2m1fn")
    assert (formats.total("codes"), formats.rows[0].scales is None) == (None, False)
    assert formats.total("values")


def test_destinations() -> None:
    one, other, fp4 = RECIPES[TOKEN], RECIPES["sglang.fp8_group"], RECIPES["ocp.mxfp4"]
    assert common_format(one, other, None) == (E4, E4)
    assert common_format(one, other, FNUZ) == (FNUZ, E4)
    assert common_format(one, fp4, None) == (E4, "float4_e2m1fn")
    with pytest.raises(BadInput, match="neither recipe has destination 'int8'"):
        common_format(one, other, "int8")


# --- the step at which they part -------------------------------------------------------------------------------------


def parted(x: npt.NDArray[np.float32], one: str, other: str, at: tuple[int, int] = (0, 0), format: str = E4) -> Parting:
    ways = [trace(coded(x), RECIPES[name], format, {}, at) for name in (one, other)]
    found = parting(*ways)
    assert found is not None
    return found


def test_they_part_at_the_minimum_of_the_scale() -> None:
    """A row of zeros: both divide 0 by 448; vLLM then has at least 1 / (448 · 512)."""
    found = parted(np.zeros((2, 4), np.float32), TOKEN, CTA)
    assert (found.name, found.step) == ("scale", 2)
    assert float(found.one.value) == pytest.approx(1 / (448 * 512), rel=1e-7)
    assert found.other.value == "0"
    assert found.one.said == "amax, over bound, at least minimum (NaN: minimum)"
    assert found.other.said == "amax, over bound"


def test_they_part_in_how_the_scale_is_stored() -> None:
    """1.875 / 256 lies in the binade of 2^-8, which the floor takes; 1.875 / 448 is rounded up to 2^-7."""
    found = parted(np.full((1, 32), 1.875, np.float32), "ocp.mxfp8_e4m3", "nvidia.mxfp8_e4m3")
    assert (found.name, found.step) == ("scale", 1)
    assert (float(found.one.value), float(found.other.value)) == (2.0**-8, 2.0**-7)
    assert found.other.said == "amax, over bound, stored as float8_e8m0fnu by e8m0_rceil"


def test_they_part_in_the_statistic() -> None:
    """A NaN is left out by one and kept by the other."""
    x = np.ones((1, 128), np.float32)
    x[0, 5] = np.nan
    found = parted(x, "vllm.fp8_group", "vllm.fp8_native_group")
    assert (found.name, found.one.value, found.other.value) == ("amax", "1", "nan")


def test_they_part_in_the_element() -> None:
    """Of x / s and x · (1 / s), by hand: amax 3, so s = fl(3 / 448)."""
    s = np.float32(3) / np.float32(448)
    x = np.ones((1, 128), np.float32)
    x[0, 0] = 3
    x[0, 1] = next(v for v in np.linspace(1, 2, 999, dtype=np.float32) if v / s != v * (np.float32(1) / s))
    found = parted(x, TOKEN, CTA, (0, 1))
    assert (found.name, found.step) == ("element", 1)
    assert np.float32(found.one.value) == x[0, 1] / s
    assert np.float32(found.other.value) == x[0, 1] * (np.float32(1) / s)


def test_they_part_at_the_start() -> None:
    """amax over bound, and the same product begun at the other end with another number."""
    one, x = RECIPES[CTA], coded(np.full((1, 4), 3, np.float32))
    other = replace(one, steps=(("scale", ("bound", ("rdiv", 4.0))), *one.steps[1:]))
    found = parting(*(trace(x, recipe, E4, {}, (0, 0)) for recipe in (one, other)))
    assert found is not None
    assert (found.name, found.step) == ("scale", 0)
    assert (found.one.said, found.other.said) == ("amax, over bound", "bound, 4 over it")


@pytest.mark.parametrize("name", list(RECIPES))
def test_a_way_ends_at_the_code_that_the_recipe_gives(name: str) -> None:
    """For every recipe, in blocks beyond the first, one element of them NaN and one tiny."""
    recipe, x = RECIPES[name], coded(np.tile(rows(), (43, 2)))  # [258, 256]
    if not recipe.blocks.divide(*x.shape):
        pytest.fail(f"{name} has other blocks than this test's matrix")
    format = recipe.destinations[-1].format
    given = calibrated(x, recipe, format, {})
    outputs = quantize(x, recipe, format, given=given)
    codes = decode_values(outputs["codes"])
    for at in ((0, 0), (3, 9), (202, 133), (257, 255)):
        way = trace(x, recipe, format, given, at)
        assert repr(way[-1].number) == repr(float(codes[at]))
        scales = [done.number for done in way if done.name == "scale"]
        assert len(scales) == 1
        if "scale" in outputs:
            grid = outputs["scale"].shape
            i, j = (
                min(p // (b or 10**6), g - 1)
                for p, b, g in zip(at, (recipe.blocks.rows, recipe.blocks.columns), grid, strict=True)
            )
            assert repr(scales[0]) == repr(float(decode_values(outputs["scale"])[i, j]))


# --- data ------------------------------------------------------------------------------------------------------------


def test_named_rows_fill_whatever_shares_a_scale() -> None:
    """Of recipes by rows, one row each; else each row, column and block holds the numbers of the named row."""
    by_rows = named_data([RECIPES[TOKEN], RECIPES[CTA]], E4, "float32")
    square = named_data([RECIPES[TOKEN], RECIPES["vllm.fp8_block"]], E4, "float32")
    assert list(by_rows) == list(square)
    for name, x in by_rows.items():
        assert x.shape == (1, 128)
        want = np.sort(x.data[0])
        assert square[name].shape == (128, 128)
        assert (np.sort(square[name].data, axis=0) == want[:, None]).all()
        assert (np.sort(square[name].data, axis=1) == want).all()
    assert (by_rows["a signalling NaN"].data == 0x7F800001).sum() == 1
    half = named_data([RECIPES[TOKEN], RECIPES[CTA]], E4, "bfloat16")
    assert (half["a signalling NaN"].data == 0x7F81).sum() == 1
    with pytest.raises(BadInput, match="source 'float64'"):
        named_data([RECIPES[TOKEN]], E4, "float64")


def test_what_is_given_comes_from_the_data() -> None:
    x = coded(np.array([[-3.0, 5.0, np.inf, np.nan]], np.float32))

    def number(recipe: str, name: str, **chosen: float) -> float:
        entry = RECIPES[recipe]
        return float(decode_values(calibrated(x, entry, entry.destinations[0].format, chosen)[name])[0, 0])

    assert number("vllm.fp8_static_tensor", "scale") == np.float32(5 / 448)
    assert number("vllm.fp8_static_tensor", "scale", scale=0.25) == 0.25
    assert number("vllm.fp8_per_token_dynamic_bounded", "upper_bound") == 5
    assert number("vllm.nvfp4", "global_scale") == np.float32(448 * 6 / 5)
    assert number("vllm.int8_static_azp", "scale") == np.float32(8 / 255)
    assert number("vllm.int8_static_azp", "zero_point") == -32  # -128 + 3 · 255 / 8 is -32.4
    with pytest.raises(BadInput, match="is given scale beside x; upper_bound was given"):
        number("vllm.fp8_static_tensor", "scale", upper_bound=1)
    with pytest.raises(BadInput, match="whole number of 32 bits"):
        number("vllm.int8_static_azp", "zero_point", zero_point=0.5)
    zeros = calibrated(coded(np.zeros((1, 4), np.float32)), RECIPES["vllm.nvfp4"], "float4_e2m1fn", {})
    assert decode_values(zeros["global_scale"])[0, 0] == 2688


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["diff", TOKEN, CTA], capsys, code=1)
    assert text.startswith(f"{TOKEN} to {E4} and {CTA} to {E4} data 79 data sets, 10,112 elements codes ")
    assert "zeros 128 of 128 1 of 1 0 of 128 exact exact" in text
    assert f"parts at scale, step 2 {TOKEN} amax, over bound, at least minimum (NaN: minimum): 4.35965421e-06" in text


def test_the_command_where_they_agree(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["diff", "vllm.fp8_group", "sglang.fp8_group_triton_row_major", "--format", "e4m3fnuz"], capsys)
    assert text.endswith("they agree on all of it")
    assert f"to {FNUZ}" in text


def test_the_command_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json(["diff", TOKEN, "vllm.fp8_static_tensor", "--given", "scale=0.5"], capsys, code=1)
    assert data["recipes"] == [TOKEN, "vllm.fp8_static_tensor"]
    assert data["chosen"] == {"scale": 0.5}
    assert set(data["given"][1]["scale"].values()) == {0.5}
    assert {row["name"] for row in data["rows"]} >= {"zeros", "a NaN", "an infinity"}
    assert data["rows"][0]["scales"] is None
    assert data["rows"][0]["elements"] == 128
    assert data["places"][0]["parting"]["name"]


def test_the_command_on_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.safetensors"
    x = coded(rows())
    write(
        path,
        {
            "layer.x": Coded("float32", x.data.reshape(2, 3, 128)),
            "half": Coded("bfloat16", x.data.astype(np.uint16)[0]),
        },
        {},
        typed=True,
    )
    data = as_json(["diff", TOKEN, CTA, "--data", f"{path}:layer.x"], capsys, code=1)
    (row,) = data["rows"]
    want = compared(rows(), TOKEN, CTA)
    assert (row["name"], row["elements"], row["codes"]) == ("layer.x", 768, want.total("codes"))
    text = said(["diff", TOKEN, "vllm.nvfp4", "--data", f"{path}:half"], capsys, code=1)
    assert "1 data set, 128 elements global_scale of vllm.nvfp4: " in text
    assert "from the data: 448 times the bound over" in text
    assert "codes not comparable: two formats scales not comparable: two granularities" in text


def test_the_command_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.safetensors"
    tensors = {
        "codes": Coded("float8_e4m3fn", np.zeros((2, 2), np.uint8)),
        "empty": coded(np.zeros((0, 4), np.float32)),
        "odd": coded(np.zeros((2, 33), np.float32)),
    }
    write(path, tensors, {}, typed=True)
    pair = ["diff", TOKEN, CTA]
    assert "unknown recipe 'vllm.fp8_per_tokn'" in refused(["diff", "vllm.fp8_per_tokn", CTA], capsys)
    assert "neither recipe has destination 'int8'" in refused([*pair, "--format", "int8"], capsys)
    assert "unknown format" in refused([*pair, "--format", "e9m9"], capsys)
    assert "source 'float64'" in refused([*pair, "--source", "float64"], capsys)
    assert "neither recipe is given that" in refused([*pair, "--given", "scale=1"], capsys)
    assert "unknown input 'scal' in --given scal=1; did you mean scale" in refused([*pair, "--given", "scal=1"], capsys)
    static = ["diff", "vllm.fp8_static_tensor", CTA, "--given"]
    assert "expected scale=NUMBER" in refused([*static, "scale=x"], capsys)
    assert "expected a finite number above 0" in refused([*static, "scale=0"], capsys)
    assert "expected FILE.safetensors:NAME" in refused([*pair, "--data", str(path)], capsys)
    assert "unknown tensor 'code'" in refused([*pair, "--data", f"{path}:code"], capsys)
    assert "tensor 'codes' is float8_e4m3fn; expected float32" in refused([*pair, "--data", f"{path}:codes"], capsys)
    assert "tensor 'empty' is empty: [0, 4]" in refused([*pair, "--data", f"{path}:empty"], capsys)
    assert "33 columns has no whole number of blocks of 32" in refused(
        ["diff", TOKEN, "ocp.mxfp4", "--data", f"{path}:odd"], capsys
    )
    assert "cannot read" in refused([*pair, "--data", f"{tmp_path}/no.safetensors:x"], capsys)
    assert "ends in .png or .svg" in refused([*pair, "--picture", "x.jpg"], capsys)


@needs_matplotlib
@pytest.mark.parametrize(("one", "other"), [(TOKEN, CTA), ("vllm.fp8_block", "ocp.mxfp4"), (TOKEN, TOKEN)])
def test_the_picture(one: str, other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "diff.png"
    text = said(["diff", one, other, "--picture", str(path)], capsys, code=0 if one == other else 1)
    assert text.endswith(f"picture written to {path}")
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert struct.unpack(">I", content[16:20]) == (1200,)
