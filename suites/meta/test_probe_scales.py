"""Where simulated kernels apply their scales is found out, in the formats that hide most of it too."""

from __future__ import annotations

import pytest

from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.expected import expected
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.matmul.call import check_call
from narrowgauge.reference.probes import scales
from narrowgauge.reference.probes.calls import call_of, product_of, setting_of
from narrowgauge.reference.probes.portrait import portrait
from narrowgauge.reference.probes.rows import Key, sheets
from narrowgauge.reference.probes.scale_rows import LAUNCHES, telling
from narrowgauge.reference.probes.setting import Setting, Side
from narrowgauge.suites.meta.probe_sets import BF16, E4M3, F32, scaled_answers

pytestmark = pytest.mark.meta

BLOCK = Side(E4M3, rows=1, along=128, scales=F32), Side(E4M3, rows=128, along=128, scales=F32)
TOKEN = (Side(E4M3, rows=1, scales=F32),) * 2
TENSOR = (Side(E4M3, scales=F32),) * 2
MX = (Side(E4M3, rows=1, along=32, scales="float8_e8m0fnu"),) * 2
W4A16 = Side(BF16), Side("uint4", zero=8.0, rows=1, along=128, scales=BF16)
FIRST, SECOND, PRODUCT = "(d·a)·b", "(d·b)·a", "d·(a·b)"
#: sides, how scales are applied by contract, the simulated kernel's way, and what must be among what is found
CASES = [
    (BLOCK, "stretches", {"site": "stretch", "order": FIRST}, {"scales": "stretch", "scale_order": FIRST}),
    (BLOCK, "stretches", {"site": "stretch", "order": PRODUCT}, {"scales": "stretch", "scale_order": PRODUCT}),
    (BLOCK, "stretches", {"site": "stretch", "order": SECOND}, {"scales": "stretch", "scale_order": SECOND}),
    (BLOCK, "stretches", {"site": "first"}, {"scales": "first"}),
    (BLOCK, "stretches", {"site": "last"}, {"scales": "last"}),
    (BLOCK, "stretches", {"site": "ignored"}, {"scales": "ignored"}),
    (BLOCK, "stretches", {"site": "stretch", "kept": BF16}, {"scales": "stretch", "scale_kept": "bfloat16"}),
    (TOKEN, "sum", {"site": "sum", "order": FIRST}, {"scales": "sum", "scale_order": FIRST}),
    (TOKEN, "sum", {"site": "sum", "order": PRODUCT}, {"scales": "sum", "scale_order": PRODUCT}),
    (TOKEN, "sum", {"site": "operands"}, {"scales": "operands"}),
    (TOKEN, "sum", {"site": "sum", "kept": BF16}, {"scales": "sum", "scale_kept": "bfloat16"}),
    (TENSOR, "sum", {"site": "sum", "order": SECOND}, {"scales": "sum", "scale_order": SECOND}),
    (MX, "unit", {"site": "stretch"}, {"scales": "stretch"}),
    (MX, "unit", {"site": "operands"}, {"scales": "operands"}),
    (W4A16, "operands", {"site": "operands"}, {"scales": "operands"}),
]
#: found together with others: which cannot be told apart there, with why
BOTH = {
    # a float32 product of float32 operands is the sum under its scales, where a row has one product
    "stretch or operands", "sum or operands", "sum or operands or exact", "operands or exact",
    f"{PRODUCT} or {SECOND}", f"{FIRST} or {SECOND}",
}  # fmt: skip


@pytest.mark.parametrize("out", [F32, BF16])
@pytest.mark.parametrize(("sides", "scaled", "way", "want"), CASES, ids=range(len(CASES)))
def test_the_way_of_scaling_is_found(
    sides: tuple[Side, Side], scaled: str, way: dict[str, str], want: dict[str, str], out: str
) -> None:
    k = 512 if way["site"] == "last" else 256  # of two blocks the second is the last
    asked = Setting(*sides, out, k, scaled)  # type: ignore[arg-type]
    found = portrait(asked, scaled_answers(asked, **way)).findings
    for name, value in want.items():
        assert found[name].value == value or (found[name].value in BOTH and value in found[name].value.split(" or "))
    blocked = [side for side in sides if side.along]
    if blocked and way["site"] in ("stretch", "operands"):
        assert found["scale_block"].value == str(blocked[0].along)
    if blocked and way["site"] in ("first", "last", "ignored"):
        assert found["scale_block"].value == "none"


def test_ways_that_results_tell_apart_are_told_apart() -> None:
    """In float32 of a block scaled kernel only float32 operands look like another way, and only in one order."""
    asked, ways = telling(Setting(*BLOCK, F32, 256, "stretches"))
    alike: dict[tuple[float | None, ...], set[str]] = {}
    for way, results in ways.items():
        if None not in results:
            alike.setdefault(results, set()).add(way.site)
    assert len(asked) <= LAUNCHES
    assert all(len(sites) == 1 for sites in alike.values())


#: a claim of each kind of operands, and how far a scale reaches along K; of the last the index says so
CLAIMS = {
    "matmul/vllm.fp8_block/float8_e4m3fn/bfloat16": "128",
    "matmul/ocp.mxfp4/float4_e2m1fn/float32": "32",
    "matmul/nvidia.nvfp4/float4_e2m1fn/bfloat16": "16",
    "matmul/vllm.w4a16_uint4b8_bf16/bfloat16/bfloat16": "128",
    "matmul/gptq.gemm_act_order/float16/float16": "128",
    "matmul/vllm.int8_azp_token_bias/int8/bfloat16": "",
    "matmul/vllm.moe_fp8_block/float8_e4m3fn/bfloat16": "128",
}


@pytest.mark.parametrize("text", CLAIMS)
def test_sheets_are_calls_of_which_the_reference_says_the_same(text: str) -> None:
    """What probes think a scale belongs to is what the contract's own reference thinks."""
    claim = Claim.parse(text)
    setting = setting_of(claim, 256)
    rows = {("scales", *key): row for key, row in scales.PROBE.rows(setting).items() if key[0] == "reach"}
    if not rows:
        rows = {("scales", *key): row for key, row in list(scales.PROBE.rows(setting).items())[:1]}
    got: dict[Key, float] = {}
    for sheet in sheets(setting, rows):
        x = call_of(claim, sheet)
        check_call(product_of(claim), claim.source, claim.format, x)
        result = expected(claim, x)["codes"]
        values = decode_values(result.low).diagonal().tolist()
        got |= dict(zip((key[1:] for key in sheet.keys), values, strict=False))
    if CLAIMS[text]:
        assert scales._block(setting, got).value == CLAIMS[text]
