"""Counting magnitudes of torch tensors, on whatever device they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.kv_file import AMAX, CODES, COUNTS, Tensors

#: bins: magnitudes are codes of 15 bits. The code of infinity, by format of the elements
BINS_IN_ALL, INFINITY = 1 << 15, {"bfloat16": 0x7F80, "float16": 0x7C00, "float32": 0x7F80}


class Tally:
    """The magnitudes of one part of one layer. Formats other than bfloat16 and float16 are counted as float32."""

    def __init__(self, where: str, x: Any, place: str, rope: str) -> None:
        import torch

        self.where, self.place, self.rope = where, place, rope
        self.format, self.heads = _format_of(x), int(x.shape[-2])
        self.tokens = 0
        self.counts = torch.zeros(BINS_IN_ALL, dtype=torch.int64, device=x.device)
        self.nan = torch.zeros((), dtype=torch.int64, device=x.device)
        self.amax = torch.zeros(self.heads, dtype=torch.float32, device=x.device)

    def add(self, x: Any, place: str) -> None:
        """Take in a tensor [.., tokens, heads, d]. Raises ``BadInput`` for one unlike the first."""
        import torch

        unlike = (_format_of(x), int(x.shape[-2]), place)
        if unlike != (self.format, self.heads, self.place):
            raise BadInput(
                f"{self.where}: {unlike[1]} heads of {unlike[0]}, {unlike[2]}, after {self.heads} heads of "
                f"{self.format}, {self.place}; one file is of one kind: save it, and start a new capture"
            )
        if not x.numel():
            return
        x = x.reshape(-1, self.heads, x.shape[-1])
        x = x.contiguous() if self.format != "float32" else x.float().contiguous()
        nan = torch.isnan(x)
        narrow = x.element_size() == 2
        codes = x.view(torch.int16).to(torch.int32) if narrow else x.view(torch.int32) >> 16
        codes = (codes & 0x7FFF)[~nan]
        self.counts += torch.bincount(codes, minlength=BINS_IN_ALL).to(self.counts.device)
        self.nan += nan.sum().to(self.nan.device)
        finite = torch.where(torch.isfinite(x), x.abs(), torch.zeros((), dtype=x.dtype, device=x.device))
        self.amax = torch.maximum(self.amax, finite.amax(dim=(0, 2)).float().to(self.amax.device))
        self.tokens += int(x.shape[0])

    def arrays(self) -> Tensors:
        """The three tensors of the file."""
        counts = self.counts.cpu().numpy()
        codes = np.flatnonzero(counts[: INFINITY[self.format]])
        return {CODES: codes.astype(np.int16), COUNTS: counts[codes], AMAX: self.amax.cpu().numpy()}

    def about(self) -> dict[str, Any]:
        """What the file says beside them."""
        infinite = int(self.counts[INFINITY[self.format]])
        return {"format": self.format, "nan": int(self.nan), "inf": infinite, "place": self.place, "rope": self.rope}


def _format_of(x: Any) -> str:
    name = str(x.dtype).removeprefix("torch.")
    return name if name in ("bfloat16", "float16") else "float32"
