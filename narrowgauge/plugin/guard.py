"""The installed plugin (entry point ``pytest11``). It adds no option and does nothing in runs of other people's tests.

It keeps our suites from being run under another configuration than ours, where a typing error in -m selects nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

SUITES = Path(__file__).absolute().parents[1] / "suites"
#: the ini key that our pytest.toml sets, and its value
KEY, OURS = "narrowgauge_ini", "suite"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(KEY, "set to 'suite' in the configuration that narrowgauge's suites need", default="")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> None:
    config = parent.config
    if SUITES.resolve() in file_path.resolve().parents and config.getini(KEY) != OURS:
        pytest.exit(
            f"these are narrowgauge's suites, but the configuration in force is {config.inipath or 'none'}; "
            "run 'narrowgauge test', or pass '-c' with the path of narrowgauge's pytest.toml",
            returncode=pytest.ExitCode.USAGE_ERROR,
        )
