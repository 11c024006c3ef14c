# SPDX-License-Identifier: Apache-2.0
"""Makes instructions.json anew of what ``narrowgauge instructions --json`` printed.

``python -m narrowgauge.suites.meta.record_instructions FILE…``
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

PLACE = Path(__file__).parent / "instructions.json"


def recorded(one: dict[str, Any]) -> Any:
    """What the record keeps of a row: one word of one that does not compile."""
    return {name: one[name] for name in ("units", "sums_in_loop", "instructions")} if "units" in one else "refused"


def key(one: dict[str, Any]) -> str:
    """Kernel, source and target."""
    return f"{one['kernel']}/{one['claim'].split('/')[2]}/{one['target']}"


def main() -> None:
    """Write the record."""
    rows = [one for name in sys.argv[1:] for one in json.loads(Path(name).read_text())]
    found = {key(one): recorded(one) for one in sorted(rows, key=key)}
    lines = [f"  {json.dumps(name)}: {json.dumps(found[name])}" for name in found]
    version = json.dumps(importlib.metadata.version("triton"))
    PLACE.write_text(f'{{"triton": {version}, "found": {{\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    main()
