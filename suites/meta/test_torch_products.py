"""docs/torch-products.md: what torch's products do here, and that a switch is set around a call and nowhere else."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from narrowgauge.kernels_under_test.torch_switches import SWITCHES
from narrowgauge.suites.meta import torch_products
from narrowgauge.suites.meta.marks import needs_torch
from narrowgauge.suites.meta.torch_products import against_the_claims, load, news, recorded

pytestmark = pytest.mark.meta
HELD = load()
LAST = HELD[-1]


@cache
def program(*arguments: str) -> Any:
    """What a program prints as JSON; it imports torch, which this process does not."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=300)
    return json.loads(done.stdout)


@needs_torch
def test_torch_does_here_what_was_measured_and_claimed() -> None:
    """On a processor like one that was measured, the same; on every other what the kernels claim."""
    found = program("-m", "narrowgauge.suites.meta.measure_products")
    assert against_the_claims(found) == []
    assert news(HELD, found) == ""


def changed(part: str, name: str, asked: str, given: str) -> dict[str, Any]:
    each = LAST[part][name] | {asked: given} if asked else given
    return LAST | {part: LAST[part] | {name: each}}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (LAST, []),
        (
            changed("products", "bfloat16, 64 x 64 x 64", "bits", "13"),
            ["bfloat16, 64 x 64 x 64: bits 13, want 23"],
        ),
        (
            changed("products", "float16, 4 x 4 x 64", "with a bias", "rounded twice"),
            ["float16, 4 x 4 x 64: with a bias rounded twice, want rounded once"],
        ),
        (
            changed("switches", "precision_medium", "", "operands bfloat16"),
            ["precision_medium: operands bfloat16, want float32"],
        ),
        (changed("switches", "precision_medium", "", "operands bfloat16") | {"cpu": "AVX512 AMX"}, []),
        (
            changed("switches", "precision_high", "", "operands bfloat16") | {"cpu": "AVX512 AMX"},
            ["precision_high: operands bfloat16, want float32 or tfloat32"],
        ),
        (changed("switches", "precision_high", "", "operands tfloat32, cut") | {"cpu": "AVX512 AMX"}, []),
        (
            changed("switches", "fp16_accumulation", "", "sums narrow, 4,096 ones are 2048"),
            ["fp16_accumulation: sums narrow, 4,096 ones are 2048, want float32"],
        ),
        (changed("switches", "fp16_accumulation", "", "raises: torch refuses"), []),
    ],
)
def test_what_no_processor_may_do(found: dict[str, Any], words: list[str]) -> None:
    assert against_the_claims(found) == words


def test_news_is_of_one_version_and_processor() -> None:
    other = changed("others", "mm of bfloat16 to float32", "", "torch.float32")
    assert news(HELD, other).endswith("'mm of bfloat16 to float32': 'torch.float32'}")
    assert news(HELD, other | {"cpu": "AVX2"}) == ""
    assert news(HELD, LAST) == ""
    assert [m["cpu"] for m in recorded([LAST], other | {"cpu": "AVX2"})] == ["AVX2", LAST["cpu"]]
    assert recorded([LAST], other) == [other]


def test_what_was_measured_is_every_switch_and_answer() -> None:
    assert set(LAST["switches"]) == set(SWITCHES)
    assert tuple(k for k in LAST if isinstance(LAST[k], dict)) == torch_products.ANSWERS


# --- switches --------------------------------------------------------------------------------------------------------

PROGRAM = """
import json, warnings
warnings.filterwarnings("ignore")
from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.kernels_under_test.torch_switches import SWITCHES, Switch, state, switched
found = {}
for name, switch in SWITCHES.items():
    before = state(switch)
    try:
        with switched(name):
            inside = state(switch)[switch.path]
            raise KeyError("a kernel that fails")
    except KeyError:
        outcome = "set" if inside == switch.value and before[switch.path] != switch.value else f"{inside}"
    except NotExecuted as reason:
        outcome = f"not executed: {reason}"
    found[name] = [outcome, "restored" if state(switch) == before else f"left {state(switch)}"]
refused = (("none", "backends.cuda.matmul.allow_everything", True), ("odd", "backends.fp32_precision", "int4"))
for name, path, value in refused:
    SWITCHES[name] = Switch(name, path, value, "float32", "")
    try:
        with switched(name):
            found[name] = "set"
    except NotExecuted as reason:
        found[name] = str(reason).split(":")[0]
print(json.dumps(found))
"""


@needs_torch
def test_a_switch_is_set_around_a_call_and_nowhere_else() -> None:
    """Also where the call raises. One that torch does not have, or refuses, is a reason not to execute."""
    found = program("-c", PROGRAM)
    assert found.pop("none") == "torch refuses backends.cuda.matmul.allow_everything = True"
    assert found.pop("odd") == "torch refuses backends.fp32_precision = int4"
    assert found == {name: ["set", "restored"] for name in SWITCHES}
