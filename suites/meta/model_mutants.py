"""Mutations of the models of instructions that no test can notice, with the reason."""

from __future__ import annotations

EQUIVALENT_FOR: dict[str, dict[str, tuple[str, ...]]] = {}
EQUIVALENT = {
    f"{m}: {what}" for covered in EQUIVALENT_FOR.values() for m, changes in covered.items() for what in changes
}
