# SPDX-License-Identifier: Apache-2.0
"""A portrait in a contract is held to what probes find."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim, Matmul
from narrowgauge.devices import discovery
from narrowgauge.devices.device import Device
from narrowgauge.reference.judge import check_claim
from narrowgauge.suites.judging import Judged
from narrowgauge.suites.matmul.test_portrait import judged
from narrowgauge.suites.planning import Planned

pytestmark = pytest.mark.meta
FILE = Path(__file__).absolute().parent / "mutant_kernels" / "portraits.py"


@pytest.fixture(scope="module")
def host() -> Iterator[Device]:
    device = discovery.host()
    yield device
    device.close()


def _of(name: str, host: Device) -> Judged:
    (plugged,) = (p for p in host.describe(str(FILE)) if p.kernel.name == name)
    return judged(Planned(plugged, plugged.kernel.claims[0], "portrait", host), 60.0)


def test_a_right_portrait_passes(host: Device) -> None:
    found = _of("chain_as_it_says", host)
    assert (found.row.result, found.message) == ("passed", "")


def test_every_wrong_finding_is_told(host: Device) -> None:
    found = _of("chain_that_says_hopper", host)
    assert (found.row.result, found.row.breaks) == ("failed", "its own claim")
    for words in (
        "fused is claimed to be 32; found: 1",
        "promotion is claimed to be 128; found: none",
        "width is claimed to be 13; found: 23",
    ):
        assert words in found.message


def test_a_finding_that_there_is_not_is_refused_before_anything_runs() -> None:
    claim = Claim(Matmul("plain.matmul", portrait={"widht": "23"}), "float16", "float32")
    with pytest.raises(BadInput, match="unknown finding 'widht' in portrait of a contract; did you mean width"):
        check_claim(claim)
