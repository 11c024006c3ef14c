"""Kinds of findings about weights against those of the original."""

from __future__ import annotations

from narrowgauge.checkpoints.findings import Kind

AGAINST: dict[str, Kind] = {
    "not compared": Kind(
        "doubt", "A quantized weight was not compared with its original.", "Look for it there under another name."
    ),
    "weights lost": Kind(
        "wrong",
        "What the bytes stand for is further from the original than any correct quantization is.",
        "Quantize again, or correct how the bytes are read.",
    ),
    "weights rescaled": Kind(
        "note",
        "The columns of a weight have other sizes than in the original, as after AWQ or SmoothQuant.",
        "Nothing, if the layer before has the factors.",
    ),
}
