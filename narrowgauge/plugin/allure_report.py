"""What an owner finds attached to a mismatch: table, picture, codes, and the script. Nothing without Allure."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from narrowgauge.contracts.errors import NarrowgaugeError
from narrowgauge.plugin import mismatches
from narrowgauge.suites.judging import Judged
from narrowgauge.suites.offline import inputs_content, outputs_content
from narrowgauge.suites.planning import Planned

#: the name under which allure-pytest registers what collects results, where there is a folder for them
LISTENER = "allure_listener"
#: what was judged in a test
JUDGED: pytest.StashKey[Judged] = pytest.StashKey()
#: bytes of a file of codes; a larger one is not attached
LARGEST = 1024 * 1024
#: pictures of one process: a kernel that is wrong everywhere would else cost a night
MOST = 100
_drawn = itertools.count(1)


def attach(item: pytest.Item, judged: Judged) -> None:
    """Attach what shows a mismatch to the current test. A cell that passed has nothing, and costs nothing."""
    item.stash[JUDGED] = judged
    if item.config.pluginmanager.get_plugin(LISTENER) is None or not judged.message:
        return
    import allure

    kinds = allure.attachment_type
    call: Any = getattr(item, "callspec", None)
    planned = None if call is None else call.params.get("planned")
    table = mismatches.Differing.of(judged) if isinstance(planned, Planned) else None
    left_out: list[str] = []
    files: list[tuple[str, bytes]] = []
    if table is not None and isinstance(planned, Planned):
        files = _files(planned, judged, left_out)
        picture = _picture(judged, table, left_out)
        if picture:
            allure.attach(picture, name="picture", attachment_type=kinds.PNG)
    if judged.row.mismatches:
        allure.attach(mismatches.page(judged.row, left_out), name="mismatches", attachment_type=kinds.HTML)
    if judged.script:
        allure.attach(judged.script, name="standalone script", attachment_type="text/plain", extension="py")
    if table is not None:
        allure.attach(table.csv(), name="differing elements", attachment_type=kinds.CSV)
    for name, content in files:
        allure.attach(content, name=name, attachment_type="application/octet-stream", extension="safetensors")


def _picture(judged: Judged, table: mismatches.Differing, left_out: list[str]) -> bytes:
    """The picture of a mismatch as PNG; b"" without matplotlib, or where this process has drawn enough."""
    if importlib.util.find_spec("matplotlib") is None:
        left_out.append("no picture: matplotlib is not installed (the extra 'plot')")
        return b""
    if next(_drawn) > MOST:
        left_out.append(f"no picture: {MOST} were drawn in this process already")
        return b""
    from narrowgauge.command import mismatch_picture

    return mismatch_picture.png(judged, table)


def _files(planned: Planned, judged: Judged, left_out: list[str]) -> list[tuple[str, bytes]]:
    """Inputs and outputs in the files that ``narrowgauge judge`` takes, where they are not too large."""
    x, memory = judged.x, judged.memory
    assert x is not None
    assert memory is not None
    makers: dict[str, Callable[[], bytes]] = {
        "inputs.safetensors": lambda: inputs_content(planned.claim, {planned.case: x}),
        "outputs.safetensors": lambda: outputs_content(planned.case, memory),
    }
    made = []
    for name, make in makers.items():
        try:
            content = make()
        except NarrowgaugeError as error:  # what a kernel returned may be no codes at all
            left_out.append(f"no {name}: {error}")
            continue
        if len(content) > LARGEST:
            left_out.append(f"no {name}: {len(content):,} bytes are more than a report holds ({LARGEST:,})")
            continue
        made.append((name, content))
    return made
