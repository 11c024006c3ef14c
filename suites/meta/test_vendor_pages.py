"""The commands of docs/nvidia.md, amd.md and first-night-amd.md are run, with stand-ins for Docker, tox and gh.

What they call of narrowgauge is parsed by its own parsers.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shutil
from pathlib import Path

import pytest

from narrowgauge.ci.lanes import Lane, lane_named
from narrowgauge.suites.meta.engine_files import CI, GITHUB
from narrowgauge.suites.meta.pages import DOCS
from narrowgauge.suites.meta.test_night_scripts import AGENT, Sandbox
from narrowgauge.suites.meta.vendor_pages import PAGES

pytestmark = [
    pytest.mark.meta,
    pytest.mark.skipif(not DOCS.exists(), reason="the package is installed without docs/"),
]

#: by page, the lane that it is about, and the architecture of its examples
OF = {"nvidia.md": ("cuda", "sm_90"), "amd.md": ("rocm", "gfx942"), "first-night-amd.md": ("rocm", "gfx942")}
#: writes down how it was called
LOGGED = '#!/bin/bash\necho "$*" >>"$LOG/$(basename "$0")"\n'
#: makes a virtual environment whose programs do the same
PYTHON3 = """#!/bin/bash
[ "$1 $2 $3" = "-m venv --system-site-packages" ] || exit 9
mkdir -p "$4/bin"
cp "$(dirname "$0")/gh" "$4/bin/pip"; cp "$(dirname "$0")/gh" "$4/bin/narrowgauge"
"""


def commands(page: str) -> str:
    """The commands of a page's hand-written part: blocks that are indented by four or more, after an empty line."""
    text = (DOCS / page).read_text().partition("<!-- below")[0]
    blocks: list[str] = re.findall(r"(?<=\n\n)((?: {4,}\S.*\n)+)", text)
    return "".join(blocks)


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    made = Sandbox(tmp_path / "checkout")
    for name in ("gh", "git", "pip", "tox"):
        made.program(name, LOGGED)
    made.program("python3", PYTHON3)
    made.program("buildkite-agent", AGENT + '[ "$1" != pipeline ] || [ -f "$3" ]\n')
    shutil.copytree(CI / "github", made.folder / "ci" / "github")
    shutil.copytree(CI / "buildkite", made.folder / "ci" / "buildkite")
    return made


def called(sandbox: Sandbox) -> list[list[str]]:
    """The words of every call of narrowgauge: in containers, by tox, by a virtual environment."""
    found = [line.split() for line in sandbox.log("narrowgauge")]
    for line in sandbox.log("tox"):
        environment, _, rest = line.removeprefix("-q -e ").partition(" -- ")
        found.append([*(["run"] if environment == "night" else []), *rest.split()])
    for call in sandbox.log("docker"):
        words = call.split("\x1f")[:-1]
        if words[0] == "create" and "narrowgauge" in words:
            found.append(words[words.index("narrowgauge") + 1 :])
    return found


@pytest.mark.parametrize("page", OF)
def test_the_commands_of_a_page_work(page: str, sandbox: Sandbox) -> None:
    lane, arch = lane_named(OF[page][0]), OF[page][1]
    code, said = sandbox.run(commands(page), {"CONTAINER_EXIT": "0"})
    assert code == 0, said
    calls = called(sandbox)
    assert calls
    for words in calls:
        parser = argparse.ArgumentParser()
        importlib.import_module(f"narrowgauge.command.{words[0]}").register(parser.add_subparsers())
        given, rest = parser.parse_known_args(words)
        assert rest == [], f"{words} has words that narrowgauge does not know"
        if words[0] == "run":
            assert lane_named(given.lane)
    assert all(word in lane.targets for word in re.findall(r"\bARCH=(\w+)", commands(page)))
    assert arch in commands(page)
    if page == "first-night-amd.md":
        _first_night(sandbox)
    else:
        _set_up(sandbox, lane, arch)


def _first_night(sandbox: Sandbox) -> None:
    """Everything that was asked for is in the one file to send back."""
    assert (sandbox.folder / "first-night-gfx942.tgz").exists()
    assert (sandbox.folder / "first" / "rocm" / "run.json").exists()
    asked = [call.split("\x1f") for call in sandbox.log("docker") if call.startswith("create")]
    assert any("narrowgauge.kernels_under_test.first_night_amd" in words for words in asked)


def _set_up(sandbox: Sandbox, lane: Lane, arch: str) -> None:
    """The template is where GitHub looks, the label has the right name, and the container is the lane's."""
    assert (sandbox.folder / ".github" / "workflows" / "nightly.yml").read_text() == GITHUB.read_text()
    assert sandbox.log("gh")[0].startswith(f"variable set {lane.runner(arch)} --body ")
    run = sandbox.docker("run")
    assert lane.image in run
    assert {o for o in lane.container if o.startswith(("--gpus", "--device", "--security", "--group"))} <= set(run)
    for shard in range(1, lane.shards + 1):
        assert (sandbox.folder / f"results-{arch}-{shard}.tgz").exists()
    assert f"gate results --expect {lane.name}/{arch}" in " ".join(sandbox.log("tox"))


@pytest.mark.parametrize("page", OF)
def test_files_that_a_page_names_are_there(page: str) -> None:
    for file in re.findall(r"\bci/[\w/.]+\w", (DOCS / page).read_text()):
        assert (CI.parent / file).exists(), file


def test_a_page_of_each_vendor_has_all_its_machines() -> None:
    assert {page.file for page in PAGES} == set(OF)
    for page, (name, _) in OF.items():
        if page != "first-night-amd.md":
            lane = lane_named(name)
            assert all(f"`{t}` | `{lane.runner(t)}`" in (DOCS / page).read_text() for t in lane.targets)
