"""What ``-m`` selects: a marker names what a cell is about, its operation, its formats, where it runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from narrowgauge.contracts.kernels import Kernel, Plugged
from narrowgauge.contracts.operations import Claim
from narrowgauge.devices import discovery
from narrowgauge.plugin.cells import Bench, parametrize
from narrowgauge.suites.planning import Planned

pytestmark = pytest.mark.meta

#: a claim, and the markers of its cells on the host
MARKED = {
    "kv_write/vllm.flash_fp8/bfloat16/float8_e4m3fn": {"kv_cache", "ocp"},
    "kv_write/plain.fp8_tensor/bfloat16/float8_e5m2fnuz": {"kv_cache", "fnuz"},
    "kv_read/plain.fp8_head/float8_e4m3fnuz/bfloat16": {"kv_cache", "fnuz"},
    "attend/vllm.flash_fp8_rocm/float8_e4m3fnuz/float16": {"kv_cache", "fnuz"},
    "kv_write/vllm.flash_copy/bfloat16/bfloat16": {"kv_cache"},
    "kv_write/vllm.int8_token_head/bfloat16/int8": {"kv_cache", "integer"},
    "dequantize/vllm.fp8_per_token_dynamic/float8_e4m3fnuz/float32": {"quantizer", "fnuz"},
    "quantize/vllm.fp8_per_token_dynamic/float32/float8_e4m3fn": {"quantizer", "ocp"},
    "cast/ocp_saturate/float32/float8_e4m3fn": {"cast", "ocp"},
}


@pytest.mark.parametrize("text", MARKED)
def test_a_cell_is_marked_by_operation_and_formats(text: str) -> None:
    """Of a reader it is the format of the codes; every cell is about a failure that raises nothing."""
    claim = Claim.parse(text)
    of = (claim.format,), (claim.source,)
    kernel = Kernel("one", claim.contract, *of, "somebody", "torch", "soft", "", "", canary=False)
    cell = Planned(Plugged(kernel, "own.py", {}), claim, "permuted", discovery.host())
    assert set(cell.markers) == MARKED[text] | {"silent_failure"}


@pytest.mark.parametrize(("expression", "plans"), [("meta", 0), ("", 1), ("meta or cast", 1), ("not meta", 1)])
def test_the_tests_of_the_suite_itself_do_without_a_plan(expression: str, plans: int) -> None:
    """No cell has the marker, and to plan them takes seconds; any other expression may select some."""
    asked: list[object] = []
    made: list[tuple[Any, ...]] = []
    stash = {Bench.KEY: SimpleNamespace(run=None, whole=set())}
    config = SimpleNamespace(option=SimpleNamespace(markexpr=expression), stash=stash)
    metafunc: Any = SimpleNamespace(
        fixturenames=["planned"], config=config, function=test_a_cell_is_marked_by_operation_and_formats,
        parametrize=lambda *given: made.append(given),
    )  # fmt: skip

    def cells(run: object) -> list[Planned]:
        asked.append(run)
        return []

    parametrize(metafunc, cells)
    assert len(asked) == plans
    assert made == [("planned", [])]
