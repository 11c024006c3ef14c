"""Kinds of findings about weights against those of the original."""

from __future__ import annotations

from narrowgauge.checkpoints.findings import Kind

AGAINST: dict[str, Kind] = {
    "not compared": Kind(
        "doubt", "A quantized weight was not compared with its original.", "Look for it there under another name."
    ),
    "nothing compared": Kind(
        "wrong",
        "No weight was compared with the original: the decisive check did not run.",
        "Give the checkpoint that this one was made from, with the same names; plain weights are not compared.",
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
