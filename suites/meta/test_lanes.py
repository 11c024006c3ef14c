"""Lanes are strict in form, and the suite's own say what they must of every vendor."""

from __future__ import annotations

from pathlib import Path

import pytest

from narrowgauge.ci.lanes import OWN, Lane, lane_named, load
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import OPERATIONS
from narrowgauge.devices.targets import TARGETS

pytestmark = pytest.mark.meta

#: the lines of a lane that is as it must be
RIGHT = {
    "vendor": '"hip"', "targets": '["gfx942"]', "devices": '["gpu"]', "depth": '"smoke"', "shards": "2", "workers": "1",
    "minutes": "60", "patience": "600", "paths": '["cast"]', "hosted": '""', "image": '"mine:1.0"',
    "container": '["--gpus=all"]', "days": "7",
}  # fmt: skip


def table(name: str = "mine", **changed: str | None) -> str:
    """A [lane.NAME] with lines replaced, added, or left out (None)."""
    lines = {key: value for key, value in (RIGHT | changed).items() if value is not None}
    return "\n".join([f"[lane.{name}]", *(f"{key} = {value}" for key, value in lines.items())]) + "\n"


def loaded(folder: Path, text: str) -> dict[str, Lane]:
    (folder / "lanes.toml").write_text(text)
    return load(folder / "lanes.toml")


def test_a_right_lane_is_read_as_it_stands(tmp_path: Path) -> None:
    (lane,) = loaded(tmp_path, table()).values()
    assert lane == Lane(
        "mine", "hip", ("gfx942",), ("gpu",), "smoke", 2, 1, 60, 600, ("cast",), "", "mine:1.0", ("--gpus=all",), 7
    )
    assert lane.runner("gfx942") == "GFX942_RUNNER"


def test_a_hosted_lane_needs_no_label(tmp_path: Path) -> None:
    text = table(hosted='"ubuntu-24.04"', image='""', container="[]")
    assert loaded(tmp_path, text)["mine"].runner("gfx942") == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected tables [lane.NAME]"),
        ("x = 1\n", "expected tables [lane.NAME]"),
        ("[lane]\nmine = 1\n", "expected a table"),
        ("[lane", "are not TOML"),
        (table(depth=None), "depth missing"),
        (table(silence="600"), "unknown field silence"),
        (table(vendor='"amd"'), "expected one of none, cuda, hip"),
        (table(shards="0"), "shards = 0; expected a whole number of at least 1"),
        (table(shards="true"), "shards = True; expected a whole number"),
        (table(targets="[]"), "targets = []; expected a list of texts"),
        (table(targets='["gfx942", "gfx942"]'), "names something twice"),
        (table(depth='""'), "depth = ''; expected a text"),
        (table(hosted='"ubuntu-24.04"'), "expected either hosted, or image and container"),
        (table(image='""', container="[]"), "expected either hosted, or image and container"),
        (table(container="[]"), "expected either hosted, or image and container"),
        (table() + table("other"), "gfx942 in two lanes"),
    ],
)  # fmt: skip
def test_a_wrong_lane_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        loaded(tmp_path, text)
    assert said in str(error.value)
    assert "lanes.toml" in str(error.value)


def test_a_lane_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"unknown lane 'cud'.*did you mean cuda"):
        lane_named("cud")
    with pytest.raises(BadInput, match="cannot read lanes"):
        load(tmp_path / "none.toml")


def test_our_lanes_are_of_known_targets_and_operations() -> None:
    for lane in load(OWN).values():
        assert set(lane.paths) <= set(OPERATIONS)
        for target in lane.targets:
            if lane.vendor != "none":
                assert TARGETS[target].backend == lane.vendor
