"""Where a run leaves its files: apart from the plugin, since the command asks for it before pytest is there."""

from __future__ import annotations

from pathlib import Path

#: where a run leaves its ledger, unless told otherwise
OUT = Path(".narrowgauge")
