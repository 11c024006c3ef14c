# SPDX-License-Identifier: Apache-2.0
"""The audit of small checkpoints: nothing wrong in a clean one, the right finding in each that has a mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from narrowgauge.checkpoints.asked import Asked, destinations
from narrowgauge.checkpoints.audit import audit
from narrowgauge.checkpoints.report import Found, Report
from narrowgauge.checkpoints.values import rows
from narrowgauge.contracts.errors import BadInput
from narrowgauge.suites.meta.small_checkpoints import FLAWS, KINDS, Written, write, write_original

pytestmark = [pytest.mark.meta, pytest.mark.checkpoint]
#: these need torch in a child, twice; the tests of files open them
TORCH = {"torch_bin", "torch_pth", "torch_training"}
PLAIN = [kind for kind in KINDS if kind not in TORCH]

Original = Callable[[str], Path]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    """The plain weights of a kind, written once."""
    root = tmp_path_factory.mktemp("originals")

    def of(kind: str) -> Path:
        folder = root / kind
        return folder if folder.exists() else write_original(kind, folder)

    return of


def found(folder: Path, original: Path | None = None, **ask: Any) -> list[Found]:
    """What an audit finds, that is asked ``to``, ``target``, ``kv_cache_dtype``."""
    to = destinations([ask.pop("to")], ask.get("target", "")) if "to" in ask else ()
    asked = Asked(folder, to=to, against=original, **ask)
    return [event for event in audit(asked) if isinstance(event, Found)]


# ---------------- clean


@pytest.mark.parametrize("kind", PLAIN)
def test_nothing_is_wrong_or_doubtful_in_a_clean_one(kind: str, tmp_path: Path) -> None:
    """And its weights are read as they were written, exactly: two ways to the same float64 numbers."""
    written = write(kind, tmp_path)
    *said, report = audit(Asked(tmp_path))
    assert isinstance(report, Report)
    doubts = [(f.finding.kind, f.finding.tensor) for f in said if isinstance(f, Found) and f.level != "note"]
    assert doubts == []
    assert {p.module.removesuffix(".weight") for p in report.passports} == set(quantized(written))
    for passport in report.passports:
        parts = [piece.values for piece in rows(passport)]
        weight = written.weights.get(f"{passport.module}.weight", written.weights.get(passport.module))
        assert weight is not None, passport.module
        assert np.array_equal(np.concatenate(parts), weight.reshape(-1, weight.shape[-1])), passport.module


def test_an_optimizers_numbers_decide_nothing(tmp_path: Path) -> None:
    """Its steps are infinite in float16 and its moments are 0; the model is well."""
    write("training", tmp_path)
    said = found(tmp_path, to="float16")
    assert {f.finding.kind for f in said if f.role == "optimizer"} == {"lost outside the model"}
    assert not any(f.decides for f in said)


def quantized(written: Written) -> Iterator[str]:
    """Weights that are more than 60 dB away from where they came: float16 of bfloat16 is not."""
    for name, x in written.originals.items():
        if ((written.weights[name] - x) ** 2).sum() > 1e-6 * (x**2).sum():
            yield name.removesuffix(".weight")


# ---------------- mistakes


@pytest.mark.parametrize("name", FLAWS)
def test_a_mistake_is_found(name: str, tmp_path: Path, original: Original) -> None:
    flaw = FLAWS[name]
    write(flaw.kind, tmp_path, name)
    ask: Mapping[str, Any] = {key: value for key, value in flaw.ask.items() if key != "against"}
    if flaw.finds == ("",):
        with pytest.raises(BadInput, match=r"model-00002-of-00003\.safetensors"):
            found(tmp_path, **ask)
        return
    said = found(tmp_path, original(flaw.kind) if flaw.ask.get("against") else None, **ask)
    right = [f.finding for f in said if f.finding.kind in flaw.finds]
    assert right, sorted({f.finding.kind for f in said})
    assert flaw.says in right[0].said
