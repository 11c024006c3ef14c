"""suites/matmul/poison.py: what it expects is what the reference gives, and kernels that lose or spread poison fail."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import Claim, Matmul
from narrowgauge.devices import discovery
from narrowgauge.devices.device import Device
from narrowgauge.reference.expected import expected
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.matmul.products import PRODUCTS
from narrowgauge.suites.judging import run_cell
from narrowgauge.suites.matmul.poison import can_be_poisoned, poisoned
from narrowgauge.suites.meta.marks import needs_torch
from narrowgauge.suites.planning import Planned

pytestmark = pytest.mark.meta
#: one claim of each product: the last pair of formats
CLAIMS = [Claim(Matmul(name, "float32"), *product.formats[-1]) for name, product in PRODUCTS.items()]
POISONED = [claim for claim in CLAIMS if can_be_poisoned(claim)]


def test_what_has_no_nan_is_not_poisoned() -> None:
    left = {claim.rule.split("+")[0] for claim in CLAIMS if claim not in POISONED}
    assert left
    assert all(PRODUCTS[name].formats[0][0] == "int8" for name in left)


@pytest.mark.parametrize("claim", POISONED, ids=lambda c: c.rule)
def test_what_is_expected_is_what_the_reference_gives(claim: Claim) -> None:
    """Of the reference's own answer to the call without poison; NaN is one class."""
    pair = poisoned(claim)
    clean, want = expected(claim, pair.clean)["codes"], expected(claim, pair.call)["codes"]
    assert clean.exact
    found = pair.expected(claim, {"codes": clean.low})["codes"].low
    np.testing.assert_array_equal(decode_values(found), decode_values(want.low))
    hit = ~np.isfinite(decode_values(found))
    assert pair.poisons
    experts = pair.call.given.get("experts")
    nowhere = [] if experts is None else np.flatnonzero(experts.data.view(np.int32).ravel() < 0).tolist()
    for poison in pair.poisons:
        line = hit[poison.row] if poison.side == "a" else np.delete(hit[:, poison.row], nowhere)
        assert line.any() == (poison.side == "b" or poison.row not in nowhere)
    assert not hit.all()


def test_scales_are_poisoned_in_the_block_of_the_element() -> None:
    """fp4 has no NaN, so its E8M0 scales have: in the first block of a row, and in the last of another."""
    call = poisoned(Claim(Matmul("ocp.mxfp4", "float32"), "float4_e2m1fn", "bfloat16")).call
    for name in ("a_scale", "b_scale"):
        rows, blocks = np.nonzero(np.isnan(decode_values(call.given[name])))
        last = call.given[name].shape[1] - 1
        assert dict(zip(rows.tolist(), blocks.tolist(), strict=True)) == {0: last, call.given[name].shape[0] - 1: 0}
        assert last > 0


KERNELS = """
import torch
from narrowgauge import Matmul, kernel

def claims(function):
    return kernel(Matmul("plain.matmul", "float32"), ["bfloat16"], ["bfloat16"], backend="torch")(function)

@claims
def right(x, format, b):
    return x @ b.T

@claims
def nan_lost(x, format, b):
    return torch.nan_to_num(x, nan=0.0) @ b.T

@claims
def infinity_clamped(x, format, b):
    largest = torch.finfo(x.dtype).max
    return x.clamp(-largest, largest) @ b.T

@claims
def zeros_skipped(x, format, b):
    # as sparse kernels do, which never see 0 times infinity
    products = torch.where(b[None] == 0, 0.0, x[:, None].float() * b[None].float())
    return products.sum(-1).to(x.dtype)

@claims
def zeros_of_a_skipped(x, format, b):
    products = torch.where(x[:, None] == 0, 0.0, x[:, None].float() * b[None].float())
    return products.sum(-1).to(x.dtype)

@claims
def rows_masked_by_a_product(x, format, b):
    # a tile of rows reads beyond its own, and multiplies what it read by 0
    wide, found = x.float(), []
    for row in range(len(x)):
        beside = wide[(row + 1) % len(x)] * 0.0
        found.append((wide[row] + beside) @ b.float().T)
    return torch.stack(found).to(x.dtype)

@claims
def tail_of_b_masked_by_a_product(x, format, b):
    mask = torch.ones(len(b))
    return ((x.float() @ b.float().T) + (b.float() * 0.0).sum(-1).roll(1) * mask).to(x.dtype)

@claims
def maximum_drops_nan(x, format, b):
    return torch.fmax(x, torch.full_like(x, -torch.inf)) @ b.T
"""


@pytest.fixture(scope="module")
def plugged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Device, list[Plugged]]]:
    file = tmp_path_factory.mktemp("kernels") / "poison.py"
    file.write_text(KERNELS, encoding="utf-8")
    device = discovery.host()
    yield device, list(device.describe(str(file)))
    device.close()


@needs_torch
def test_kernels_that_lose_or_spread_poison_fail(plugged: tuple[Device, list[Plugged]]) -> None:
    """All of them are right without it."""
    device, kernels = plugged
    verdicts = {}
    for one in kernels:
        planned = Planned(one, one.kernel.claims[0], "poison", device)
        pair = poisoned(planned.claim)
        clean = run_cell(planned, pair.clean)
        assert clean.row.result == "passed"
        assert clean.outputs is not None
        want = pair.expected(planned.claim, clean.outputs)
        verdicts[one.kernel.name] = run_cell(planned, pair.call, want, explained=False).row.result
    assert verdicts == {one.kernel.name: "passed" if one.kernel.name == "right" else "failed" for one in kernels}
