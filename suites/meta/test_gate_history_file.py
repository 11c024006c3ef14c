"""The file of a history: what is written is read again, and what is damaged is never taken for a new one."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from narrowgauge.ci import history
from narrowgauge.ci.history import NIGHTS, History, Known, State
from narrowgauge.contracts.errors import BadInput
from narrowgauge.suites.meta.night_sets import night
from narrowgauge.suites.meta.test_gate_history import day, failing, name, nights

pytestmark = pytest.mark.meta


@pytest.fixture
def kept(tmp_path: Path) -> History:
    return nights(tmp_path / "nights", night(day(0)), failing(1))[1].history


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_the_file_gives_back_what_was_written(kept: History, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"history{suffix}"
    assert history.read(path) is None
    history.write(path, kept)
    assert history.read(path) == kept
    raw = path.read_bytes()
    history.write(path, kept)
    assert path.read_bytes() == raw
    assert (raw[:8] == b"\x1f\x8b\x08\0\0\0\0\0") == (suffix == ".json.gz"), "compressed, and without a time"


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_history_that_is_cut_is_never_taken_for_a_new_one(kept: History, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"history{suffix}"
    history.write(path, kept)
    raw = path.read_bytes()
    for length in (0, 1, 10, len(raw) // 2, len(raw) - 9, len(raw) - 2):
        path.write_bytes(raw[:length])
        with pytest.raises(BadInput, match=r"history .* is damaged: .*Put back the copy of the night before"):
            history.read(path)


STRANGE: dict[str, Callable[[dict], object]] = {  # type: ignore[type-arg]
    "no object": lambda data: [data],
    "another schema": lambda data: data | {"schema": "narrowgauge.history/2"},
    "no nights": lambda data: {n: v for n, v in data.items() if n != "nights"},
    "no date": lambda data: data | {"latest": "yesterday"},
    "no place": lambda data: data | {"places": {"cpu/cpu": {}}},
    "a word for a number": lambda data: data | {"places": {"cpu/cpu": _place(["passed", "", "", "1", "", ""])}},
    "too little": lambda data: data | {"places": {"cpu/cpu": _place(["passed"])}},
    "no time": lambda data: data | {"places": {"cpu/cpu": _place([]) | {"runs": {"1/1": "noon"}, "cells": {}}}},
    "a night of another form": lambda data: data | {"nights": [{"night": "x", "green": "no", "places": []}]},
}


def _place(values: list[str]) -> dict[str, object]:
    return {"narrowgauge": "", "commit": "", "depth": "", "runs": {}, "cells": {"x": values}}


@pytest.mark.parametrize("how", STRANGE)
def test_a_history_of_another_form(kept: History, tmp_path: Path, how: str) -> None:
    path = tmp_path / "history.json"
    path.write_text(json.dumps(STRANGE[how](kept.to_json())))
    with pytest.raises(BadInput, match="is damaged"):
        history.read(path)


def test_a_compressed_history_that_was_changed(kept: History, tmp_path: Path) -> None:
    """Whichever byte: gzip's own checks, zlib's, or ours notice it."""
    path = tmp_path / "history.json.gz"
    history.write(path, kept)
    raw = path.read_bytes()
    told = 0
    for place in range(10, len(raw)):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 0xFF]) + raw[place + 1 :])
        with pytest.raises(BadInput, match="is damaged"):
            history.read(path)
        told += 1
    assert told > 50


def test_a_history_that_is_too_deep(tmp_path: Path) -> None:
    (tmp_path / "history.json").write_text("[" * 200_000)
    with pytest.raises(BadInput, match="is damaged"):
        history.read(tmp_path / "history.json")


def test_a_history_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read history"):
        history.read(tmp_path)


def test_a_history_does_not_grow_with_the_nights() -> None:
    """8,000 tests, about as many as a lane has. What a year of nights adds is their list, which ends."""
    inside = "narrowgauge/suites/casts/test_casts.py::test_cell[float32-float8_e4m3fn-case-kernel-emulated-gfx942-"
    cells = {f"{inside}{n}]": State("passed", "failed", name(0), n, name(9), name(9)) for n in range(8000)}
    past = tuple(history.Past(name(n), green=True, places=("cuda/sm_90",)) for n in range(365))
    found = History(day(365), past, {"cuda/sm_90": Known("0.1.0", "c" * 40, "standard", {}, cells)})
    assert len(found.to_json()["nights"]) == NIGHTS
    raw = json.dumps(found.to_json()).encode()
    # the cpu lane's 7,605 ids with six values each: 210 bytes a test, compressed 7
    assert len(raw) < 8000 * 300
    assert len(gzip.compress(raw)) < 8000 * 30
