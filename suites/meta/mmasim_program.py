"""The child that has mmasim and torch: dot products by MMA-Sim's own operations, codes in and codes out.

Arguments: a file of arrays to read and one to write (numpy's .npz). ``NAME.a``, ``.b`` [n, K], ``.c`` [n] and, of block
scaled operations, ``.alpha``, ``.beta`` [n, K / block] are codes; ``NAME.how`` names the class and what it is made
with; the answer is ``NAME`` [n].
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.unsignedinteger[Any]]


def main() -> None:
    """Answer every question of the first file in the second."""
    asked = dict(np.load(sys.argv[1]))
    names = [key.removesuffix(".how") for key in asked if key.endswith(".how")]
    found: dict[str, Any] = {name: answer(asked, name) for name in names}
    np.savez(sys.argv[2], **found)


def answer(asked: dict[str, Any], name: str) -> Codes:
    """Codes of one operation's results."""
    from mmasim import amd, nv_ptx

    kind, *given = asked[f"{name}.how"].tolist()
    operation = getattr(amd if kind == "MFMA" else nv_ptx, kind)(*given)
    a, b = (as_tensor(asked[f"{name}.{side}"], getattr(operation, f"{side}_type")) for side in ("a", "b"))
    operands = [a, b, as_tensor(asked[f"{name}.c"], operation.c_type)]
    if f"{name}.alpha" in asked:
        operands += [as_tensor(asked[f"{name}.{scale}"], operation.s_type) for scale in ("alpha", "beta")]
        if operation.packing == 2:
            operands[:2] = [packed(operand) for operand in operands[:2]]
    result = operation.dpa(*operands)
    return result.numpy().view(f"<u{result.element_size()}")  # type: ignore[no-any-return]


def as_tensor(codes: Codes, dtype: Any) -> Any:
    """A tensor of those bits."""
    import torch

    signed = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    whole = torch.from_numpy(np.ascontiguousarray(codes).view({1: "u1"}.get(dtype.itemsize, f"<i{dtype.itemsize}")))
    return whole.to(signed).view(dtype)


def packed(codes: Any) -> Any:
    """Two codes of four bits a byte, the earlier one below."""
    return codes[..., 0::2] | codes[..., 1::2] << 4


if __name__ == "__main__":
    main()
