"""What tests of reports need, and why they cannot run on some machine."""

from __future__ import annotations

import importlib.util
import shutil

import pytest

from narrowgauge.ci.allure import node
from narrowgauge.contracts.errors import Infrastructure

#: Debian's name, and those of others
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)


def _missing() -> str:
    try:
        node.find_node()
        node.installed()
    except Infrastructure as error:
        return str(error).splitlines()[0]
    return ""


MISSING = _missing()
needs_allure = pytest.mark.skipif(bool(MISSING), reason=f"not executed: {MISSING}")
needs_allure_pytest = pytest.mark.skipif(
    importlib.util.find_spec("allure_pytest") is None, reason="not executed: allure-pytest is not installed"
)
needs_browser = pytest.mark.skipif(
    not CHROMIUM or importlib.util.find_spec("playwright") is None,
    reason="not executed: no Chromium on the path, or no playwright (extra 'selftest')",
)
