"""Why a recipe of an engine is not run against its source here."""

from __future__ import annotations

UNRUN: dict[str, str] = {}
