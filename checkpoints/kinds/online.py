"""Kinds of findings about weights that would be quantized by a recipe."""

from __future__ import annotations

from narrowgauge.checkpoints.findings import Kind

ONLINE: dict[str, Kind] = {
    "does not fit the recipe": Kind(
        "wrong",
        "The blocks of the recipe do not divide the weight, so that it cannot go through it.",
        "Choose a recipe of another granularity for this layer, or leave it out of quantization.",
    ),
    "quantizing clips": Kind(
        "wrong",
        "Elements lie beyond the largest value and come back smaller, and that is most of an error that is not usual.",
        "Choose a recipe that takes its scale from the weight, or give one that covers its largest magnitude.",
    ),
    "quantizing costs much": Kind(
        "doubt",
        "The error is much larger than is usual in the format: the numbers lie too far apart for one scale.",
        "Choose a recipe of smaller groups or a wider format for this layer, or leave it out of quantization.",
    ),
    "quantizing flushes": Kind(
        "doubt",
        "Many more elements become 0 than is usual in the format: a few large ones make the scale too large for them.",
        "Choose a recipe of smaller groups or a wider format for this layer, or leave it out of quantization.",
    ),
    "quantizing loses": Kind(
        "wrong",
        "Finite elements come back as NaN or infinity.",
        "Choose a recipe whose cast saturates, or mend the scale.",
    ),
    "quantizing ruins": Kind(
        "wrong",
        "The error is more than a tenth of the signal, or most of the elements become 0.",
        "Leave this layer out of quantization, or choose a recipe of smaller groups or a wider format.",
    ),
}
