"""A report in a real browser: Debian's Chromium, driven by playwright, and a server on this machine alone."""

from __future__ import annotations

import functools
import http.server
import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from narrowgauge.suites.meta.report_marks import CHROMIUM

#: milliseconds within which a page shows what it has
PATIENCE = 15_000
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser with an empty profile."""
    with importlib.import_module("playwright.sync_api").sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield opened
        opened.close()


@contextmanager
def opened(browser: Any, site: Path) -> Iterator[Any]:
    """The first page of a report. Whatever it asks for elsewhere than on this machine is an error."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    here = f"http://127.0.0.1:{server.server_address[1]}"
    page = browser.new_page(viewport={"width": 1500, "height": 1000})
    page.set_default_timeout(PATIENCE)
    elsewhere: list[str] = []
    page.on("request", lambda r: None if r.url.startswith((here, "data:", "blob:")) else elsewhere.append(r.url))
    try:
        page.goto(f"{here}/awesome/index.html")
        yield page
    finally:
        page.close()
        server.shutdown()
        server.server_close()
    assert elsewhere == []


def by_id(page: Any, name: str) -> Any:
    return page.locator(f"[data-testid={name}]")
