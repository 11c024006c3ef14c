"""Which named policy a library's cast follows, by the library's version. What was measured: docs/proof.md."""

from __future__ import annotations


def torch_policy(version: str) -> str:
    """The policy of torch's casts to fp8 and e8m0. A version that was never measured has the newest one's claim."""
    release = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    # Nightly builds numbered 2.12 saturated already; the releases of that number did not.
    saturates = release >= (2, 13) or (release == (2, 12) and "dev" in version)
    return "torch_from_2_13" if saturates else "torch_until_2_12"


def ml_dtypes_policy(version: str) -> str:
    """The policy of ml_dtypes' astype."""
    return "ml_dtypes_0_5_0" if version == "0.5.0" else "ml_dtypes"
