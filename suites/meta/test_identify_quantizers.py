"""narrowgauge identify of quantizers: matrices that no recipe takes, and kernels in parts: scales, and codes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import replace

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge import Quantize, observe
from narrowgauge.ci.ledger import Row
from narrowgauge.command.identify import reports
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.behaviour import candidates
from narrowgauge.reference.fast_codec import to_float32
from narrowgauge.reference.identify import Identity, Seen, identify
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.noise import noise
from narrowgauge.reference.parts import with_scale_given
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites import run as runs
from narrowgauge.suites.identifying import Found, _is_beyond, identify_kernel
from narrowgauge.suites.judging import Judged
from narrowgauge.suites.run import Run

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]

E4 = "float8_e4m3fn"
TOKEN, CTA = "vllm.fp8_per_token_dynamic", "sglang.fp8_per_token_cta"
KERNELS = """
    import ml_dtypes
    import numpy as np
    from narrowgauge import Quantize, kernel, observe

    watched = kernel(observe(Quantize), ["float8_e4m3fn"], ["float32"], backend="numpy")

    def quantized(x, floor=np.float32(1e-10)):
        rows, columns = x.shape
        if columns % 128:
            raise ValueError(f"{columns} columns; expected a multiple of 128")
        groups = x.reshape(rows, columns // 128, 128)
        scale = np.fmax.reduce(np.abs(groups), axis=2, initial=floor) / np.float32(448)
        with np.errstate(all="ignore"):
            y = groups * (np.float32(1) / scale)[:, :, None]
            y = np.fmin(np.fmax(y, np.float32(-448)), np.float32(448)).reshape(rows, columns)
        return {"codes": y.astype(ml_dtypes.float8_e4m3fn).view(np.uint8), "scale": scale}

    @watched
    def group(x, format):
        return quantized(x)

    @watched
    def group_with_a_higher_minimum(x, format):
        return quantized(x, np.float32(1e-3))

    @watched
    def group_with_tails(x, format):
        rows, columns = x.shape
        padded = np.zeros((rows, -(-columns // 128) * 128), np.float32)
        padded[:, :columns] = x
        found = quantized(padded)
        return found | {"codes": np.ascontiguousarray(found["codes"][:, :columns])}
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Found]]:
    """What the kernels above are, without the suite's own, which need torch."""
    path = tmp_path_factory.mktemp("kernels") / "my_kernels.py"
    path.write_text(textwrap.dedent(KERNELS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "MODULES", {})
        run = Run([str(path)], ["host"], timeout=60.0)
        names = [plugged.kernel.name for plugged in run.kernels]
        yield {name: next(iter(identify_kernel(run, name, [], []))) for name in names}
    run.close()


def test_a_recipe_refuses_what_its_kernel_refuses(found: dict[str, Found]) -> None:
    """Groups of 128, asked with 128, 131 and 5,120 columns: with 128 alone, a group would be a row."""
    one = found["group"]
    assert "vllm.fp8_group" in one.follows
    assert {RECIPES[name].blocks.columns for name in one.follows} == {128}
    assert one.problems == ()
    assert "case rows_131: raised: ValueError: 131 columns; expected a multiple of 128 (my_kernels.py:11)" in one.beyond
    assert {"rows_128", "wide"} <= set(one.cases)
    text = " ".join(line.plain for line in reports([one], 160))
    assert "not taken  case rows_131: raised: ValueError: 131 columns" in text


def test_a_kernel_may_answer_where_its_recipe_does_not(found: dict[str, Found]) -> None:
    one = found["group_with_tails"]
    assert one.follows == found["group"].follows
    assert one.problems == ()
    assert one.identity is not None
    tried = [x for x in cases_for(Claim(observe(Quantize), "float32", E4), "standard").values() if x.data.size]
    ragged = sum(x.shape[1] % 128 > 0 for x in tried)
    assert one.identity.left_out == ragged >= 2, "131 columns, and one"
    text = " ".join(line.plain for line in reports([one], 160))
    assert f"left out  {ragged} inputs that the recipes of such outputs do not all take" in text


def test_a_crash_is_a_crash(found: dict[str, Found]) -> None:
    """Where the recipe takes no such matrix either, a kernel may raise; it may not crash."""
    one = found["group"]
    assert one.identity is not None
    x = cases_for(Claim(observe(Quantize), "float32", E4), "smoke")["rows_131"]
    plain = Row(
        id="", operation="quantize", rule="?", source="float32", format=E4, case="rows_131", kernel="k", owner="o",
        own=False, target="host", device="host", how="executed", backend="numpy", result="failed",
    )  # fmt: skip
    outcomes = {how: Judged(replace(plain, outcome=how), x=x) for how in ("raised", "returned", "crashed", "hung")}
    beyond = {how for how, judged in outcomes.items() if _is_beyond(one.claim, one.identity, judged)}
    assert beyond == {"raised", "returned"}


def test_a_kernel_that_is_wrong_in_its_scales_alone(found: dict[str, Found]) -> None:
    """Zeros: 1e-3 / 448 for 1e-10 / 448."""
    one = found["group_with_a_higher_minimum"]
    assert one.follows == ()
    assert one.identity is not None
    scale, codes = one.identity.parts
    assert (scale.follows, scale.nearest) == ((), "vllm.fp8_group")
    assert scale.said == "amax, at least 1e-10 (NaN: 1e-10), over bound"
    ratio = float(np.float32(1e-3) / np.float32(448)) / float(np.float32(1e-10) / np.float32(448))
    assert f"{ratio:.9g} times" in scale.first
    assert "vllm.fp8_group" in codes.follows
    text = " ".join(" ".join(line.plain for line in reports([one], 160)).split())
    assert f"scale of no named recipe; {scale.differing:,} of {scale.of:,} differ from vllm.fp8_group (amax, at" in text
    assert (
        "more, under its own scales: x, times encode, held to ±bound (NaN: -bound); encode = scale, 1 over it" in text
    )
    assert one.to_json()["identity"]["parts"][1]["name"] == "codes"


# --- parts, without a kernel -----------------------------------------------------------------------------------------


def rows() -> npt.NDArray[np.float32]:
    """[8, 256] at several magnitudes, a row of zeros, a NaN, and elements where x / s and x · (1 / s) part in E4M3.

    By hand: of each row amax is 3 · 2^k, and its other elements are s times the ties of E4M3 between 64 and 128.
    """
    x = noise(8 * 256, 6).reshape(8, 256).astype(np.float32)
    x[1] = 0
    x[2, 7] = np.nan
    ties = np.arange(68, 128, 8, dtype=np.float32)
    for row in range(3, 8):
        s = np.float32(3 * 2.0**row) / np.float32(448)
        near = (ties * s)[:, None] * np.float32(1) + np.spacing(ties * s)[:, None] * np.arange(
            -12, 13, dtype=np.float32
        )
        x[row] = 0
        x[row, : near.size] = near.ravel()
        x[row, 250] = 3 * 2.0**row
    return x


def of(codes: npt.NDArray[np.uint8], scale: npt.NDArray[np.float32]) -> Identity:
    got = {"codes": Coded(E4, codes), "scale": Coded("float32", scale.view(np.uint32))}
    x = Coded("float32", rows().view(np.uint32))
    return identify(Claim(observe(Quantize), "float32", E4), [Seen(x, got)])


def test_scales_of_one_recipe_and_elements_of_another() -> None:
    """vLLM's scale with SGLang's product, by numpy: no recipe as a whole, one of each in parts."""
    x = rows()
    amax = np.fmax.reduce(np.abs(x), axis=1, initial=np.float32(0))[:, None]
    scale = np.maximum(amax / np.float32(448), np.float32(1) / np.float32(448 * 512))
    by = {"div": x / scale, "mul": x * (np.float32(1) / scale)}
    codes = {
        how: np.fmax(np.fmin(y, np.float32(448)), np.float32(-448)).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
        for how, y in by.items()
    }
    assert (codes["div"] != codes["mul"]).any()
    assert TOKEN in of(codes["div"], scale).follows
    mixed = of(codes["mul"], scale)
    assert mixed.follows == ()
    first, second = mixed.parts
    assert (first.name, second.name) == ("scale", "codes")
    assert TOKEN in first.follows
    assert CTA not in first.follows
    assert CTA in second.follows
    assert TOKEN not in second.follows


def test_parts_tell_nothing_of_blocks_without_a_scale() -> None:
    """A scale of 0, as SGLang's of a row of zeros, divides nothing."""
    x = Coded("float32", rows().view(np.uint32))
    got = quantize(x, RECIPES[CTA], E4)
    assert (got["scale"].data == 0).any()
    codes = got["codes"].data.copy()
    codes[1] = 0x38
    found = of(codes, got["scale"].data.view(np.float32))
    assert found.follows == ()
    assert CTA in found.parts[1].follows


@pytest.mark.parametrize("name", [c.rule for c in candidates(Claim(observe(Quantize), "float32", E4))])
def test_with_its_own_scale_given_a_recipe_is_itself(name: str) -> None:
    """What a part compares with is the recipe, for every recipe that can be nearest."""
    recipe, x = RECIPES[name], Coded("float32", np.tile(rows()[[0, 3, 4, 5]], (32, 1)).view(np.uint32))
    got = quantize(x, recipe, E4)
    given = {"scale": Coded("float32", to_float32(got["scale"]).view(np.uint32))}
    again = quantize(x, with_scale_given(recipe), E4, given=given)
    assert set(again) <= set(got) - {"scale"}
    np.testing.assert_array_equal(again["codes"].data, got["codes"].data)
