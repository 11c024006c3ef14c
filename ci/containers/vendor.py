"""Say which torch and Triton an environment has, exactly: name, version and a digest of what was installed.

Run before and after an installation (ci/containers/install.sh): equal lines mean that the vendor's build was kept. It
imports nothing of narrowgauge, which is not there yet, and not torch, which may need a GPU's driver.
"""

from __future__ import annotations

import hashlib
import sys
from importlib.metadata import Distribution, distributions

#: under which names builds of torch and Triton were published, by their vendors and by PyTorch
NAMES = {"torch", "triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm", "triton-windows", "amd-triton"}


def main() -> int:
    found: dict[str, Distribution] = {}
    for distribution in distributions():  # in the order in which imports look; what was half removed has no name
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        found.setdefault(name, distribution)
    for name in sorted(NAMES & set(found)):
        # RECORD lists every installed file with its hash: another build of the same version differs in it.
        record = found[name].read_text("RECORD") or ""
        print(f"{name} {found[name].version} {hashlib.sha256(record.encode()).hexdigest()[:16]}")
    if "torch" not in found:
        print("this Python has no torch: take an image that has its vendor's build", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
