"""docs/torch-types.md: the installed torch gives what was recorded of it. A kernel gives the dtype that it claims."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.devices import discovery
from narrowgauge.devices.device import Device
from narrowgauge.reference.expected import expected
from narrowgauge.reference.form import form_of
from narrowgauge.suites.meta import measure_types
from narrowgauge.suites.meta.marks import needs_torch
from narrowgauge.suites.meta.torch_types import Types, load, news, recorded
from narrowgauge.suites.meta.versions import Wheel

pytestmark = pytest.mark.meta
TYPES = load()
LAST = TYPES.of(TYPES.versions[-1])


@needs_torch
def test_the_torch_that_is_installed_gives_what_was_recorded_of_it() -> None:
    command = [sys.executable, measure_types.__file__]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    told = json.loads(done.stdout)
    assert news(TYPES, told["version"].split("+")[0], told["found"]) == ""


def test_news_is_told() -> None:
    last = TYPES.versions[-1]
    assert news(TYPES, last, LAST) == ""
    text = news(TYPES, last, LAST | {"sum bfloat16": "float32"})
    assert text.endswith("sum bfloat16: bfloat16, now float32")
    assert "sum bfloat16: bfloat16, now not asked" in news(
        TYPES, last, {k: v for k, v in LAST.items() if k != "sum bfloat16"}
    )
    assert "torch 9.9 was never measured" in news(TYPES, "9.9", LAST)


def test_versions_of_one_answer_stand_together() -> None:
    types = Types((), {})
    for version, given in (("2.9.1", "bfloat16"), ("2.10.0", "bfloat16"), ("2.11.0", "float32")):
        types = recorded(types, Wheel("torch", version, "", "2026-11-30", "here"), {"sum bfloat16": given})
    assert types.answers == {"sum bfloat16": {"bfloat16": ("2.9.1", "2.10.0"), "float32": ("2.11.0",)}}
    again = recorded(types, types.wheels[1], {"sum bfloat16": "float32"})
    assert again.answers["sum bfloat16"] == {"bfloat16": ("2.9.1",), "float32": ("2.10.0", "2.11.0")}
    assert again.versions == ["2.9.1", "2.10.0", "2.11.0"]


def test_what_the_page_says_was_measured() -> None:
    assert LAST["0-dim bfloat16 float32"] == LAST["promote bfloat16 int32"] == "bfloat16"
    assert LAST["number float8_e4m3fn float"] == LAST["matmul float8_e4m3fn"] == "float8_e4m3fn"
    assert LAST["x * 2.0 float8_e4m3fn"].startswith("!")
    assert LAST["promote bfloat16 float16"] == "float32"
    assert LAST["matmul by float32 bfloat16"].startswith("!")
    assert LAST["addmm, float32 bias bfloat16"].startswith("!")


# --- a kernel's own dtype --------------------------------------------------------------------------------------------

KERNELS = """
import torch
from narrowgauge import Matmul, kernel

def claims(function):
    return kernel(Matmul("plain.matmul"), ["bfloat16"], ["bfloat16"], backend="torch")(function)

@claims
def right(x, format, b):
    return x @ b.T

@claims
def wide(x, format, b):
    return x.float() @ b.T.float()

@claims
def other(x, format, b):
    return (x @ b.T).half()

@claims
def double(x, format, b):
    return (x @ b.T).double()
"""
WRONG = {
    "right": (),
    "wide": ("codes is float32, want bfloat16",),
    "other": ("codes is float16, want bfloat16",),
    "double": ("codes is float64, want bfloat16",),
}


@pytest.fixture(scope="module")
def here() -> Iterator[Device]:
    device = discovery.host()
    yield device
    device.close()


@needs_torch
def test_a_kernel_gives_the_dtype_that_it_claims(here: Device, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Numbers that both dtypes hold: nothing but the dtype is wrong."""
    file = tmp_path_factory.mktemp("kernels") / "dtypes.py"
    file.write_text(KERNELS, encoding="utf-8")
    ones = np.full((3, 5), 0x3F80, np.uint16)
    x = Input("bfloat16", ones, {"b": Coded("bfloat16", ones[:2])})
    said = {}
    for plugged in here.describe(str(file)):
        claim = plugged.kernel.claims[0]
        ran = here.run(plugged, claim, x)
        assert ran.malformed == ()
        said[plugged.kernel.name] = form_of(ran.outputs, expected(claim, x))
    assert said == WRONG
