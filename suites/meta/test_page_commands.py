# SPDX-License-Identifier: Apache-2.0
"""Commands that pages show: each means something to the command; those of the porting guide are run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from narrowgauge import command
from narrowgauge.plugin import options
from narrowgauge.suites.meta import small_checkpoints
from narrowgauge.suites.meta.command_sets import ends
from narrowgauge.suites.meta.page_blocks import blocks, typed
from narrowgauge.suites.meta.page_links import pages
from narrowgauge.suites.meta.pages import DOCS

ROOT, PORTING = DOCS.parent, DOCS / "porting.md"
pytestmark = [
    pytest.mark.meta,
    pytest.mark.usefixtures("plain_terminal"),
    pytest.mark.skipif(not PORTING.exists(), reason="the package is installed without docs/"),
]

SHOWN = (
    sorted({line for page in pages(ROOT) for line in typed(page.read_text(encoding="utf-8"))}) if DOCS.exists() else []
)
#: pytest's own options, which pages show behind ours
PYTESTS = {"-k", "-m", "-n", "-x", "--alluredir"}
#: commands of the porting guide that need torch's and Triton's child, seconds or a GPU: they are parsed, and run by the
#: tests of their own
ELSEWHERE = {"test", "identify", "instructions", "devices", "run", "compare"}


@pytest.mark.parametrize("line", SHOWN)
def test_what_a_page_shows_means_something(line: str) -> None:
    """A subcommand that exists, options that it has, and the arguments that it needs."""
    words = shlex.split(re.split(r" [|>] ", line)[0])[1:]
    _, rest = command.parse(words)
    ours = set(re.findall(r'"(--[a-z-]+)"', Path(options.__file__).read_text(encoding="utf-8")))
    unknown = {word.partition("=")[0] for word in rest if re.match(r"-{1,2}[a-z]", word)} - ours - PYTESTS
    assert unknown == set()


def test_a_line_that_means_nothing_is_noticed() -> None:
    for wrong in (["audt"], ["audit", "MODEL_FOLDER", "--too", "fnuz"], ["cast", "250"], ["kv", "a", "--target"]):
        with pytest.raises(SystemExit) as end:
            command.parse(wrong)
        assert end.value.code == 4


def test_lines_are_found() -> None:
    page = "    narrowgauge cast 500 e4m3fn     # with -v: why\n    narrowgauge kv A \\\n        --top 3\n    other\n"
    assert typed(page) == ["narrowgauge cast 500 e4m3fn", "narrowgauge kv A --top 3"]
    assert blocks("```python\na\n```\n```text\nb\n```\n```python\nc\n```\n", "python") == ["a\n", "c\n"]


# --- the porting guide -----------------------------------------------------------------------------------------------

GUIDE = PORTING.read_text(encoding="utf-8") if PORTING.exists() else ""
RUN = [line for line in typed(GUIDE) if shlex.split(line)[1] not in ELSEWHERE]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, kv_file: Path) -> Path:
    """A folder in which the guide's names stand for something."""
    folder = tmp_path_factory.mktemp("guide")
    plugins = (DOCS / "plugins.md").read_text(encoding="utf-8")
    (folder / "my_kernels.py").write_text("\n\n".join(blocks(plugins, "python")), encoding="utf-8")
    (folder / "kv.safetensors").write_bytes(kv_file.read_bytes())
    small_checkpoints.write("ct_FP8_KV", folder / "MODEL_FOLDER")
    return folder


@pytest.mark.parametrize("line", RUN)
def test_what_the_guide_says_is_run(
    line: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends well, or with 1 where it found something; and says what the guide shows."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "200")
    code = ends(shlex.split(line)[1:])
    printed = capsys.readouterr()
    assert code in (0, 1), printed.err
    assert printed.out
    assert printed.err == ""
    if line.startswith("narrowgauge cast"):
        shown = GUIDE.split("The first one prints\n\n")[1].split("\n\n")[0]
        assert printed.out.strip() == re.sub(r"^    ", "", shown, flags=re.MULTILINE)


def test_the_guide_names_every_command_of_a_port() -> None:
    used = {shlex.split(line)[1] for line in typed(GUIDE)}
    assert used >= {"lint", "test", "audit", "kv", "instructions", "compare", "identify", "cast", "explain", "run"}
    assert used > ELSEWHERE
