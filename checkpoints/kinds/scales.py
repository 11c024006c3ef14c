"""Kinds of findings about scales, zero points and how they fit their codes."""

from __future__ import annotations

from narrowgauge.checkpoints.findings import Kind

_AGAIN = "Quantize the layer again, and look at its calibration."

SCALES: dict[str, Kind] = {
    "E8M0 not a number": Kind(
        "wrong", "A scale of E8M0 is 255, which is NaN: its block is NaN, or infinite where a reader says so.", _AGAIN
    ),
    "E8M0 zero": Kind(
        "doubt",
        "A scale of E8M0 is 0, which is 2^-127: in bfloat16 its block is subnormal or 0.",
        "Look whether the block is 0 in the original; a writer that stores 0 for 'no scale' is wrong.",
    ),
    "all scales one": Kind(
        "doubt",
        "Every scale is exactly 1, as where nobody calibrated.",
        "Compare with the original weights by --against; quantize again where they differ.",
    ),
    "blocks do not fit": Kind(
        "wrong",
        "A scale's shape does not divide its weight as the scheme says.",
        "Look for a transposed scale, another block size, or a shard of another layer.",
    ),
    "codes saturate": Kind(
        "doubt",
        "Many codes are the largest of their format: the scale is too small and the weights are clipped.",
        "Look for a scale that is inverted, halved, or of another shard.",
    ),
    "order missing": Kind(
        "wrong",
        "The configuration says that columns were quantized in another order, and no g_idx says in which.",
        "Take g_idx from the export, or set desc_act false where the order is that of the columns.",
    ),
    "order out of range": Kind(
        "wrong", "g_idx names a group that has no scale.", "Take g_idx and scales from the same run of the quantizer."
    ),
    "scale implausible": Kind(
        "doubt",
        "What the scale makes of the largest code is no size that weights have.",
        "Look for a scale that is inverted, or exponents that are read with another bias.",
    ),
    "scale in bfloat16": Kind(
        "note",
        "Scales are stored in bfloat16, which moves each weight by up to 2^-9 of it.",
        "Nothing, where the codes were found with the rounded scale.",
    ),
    "scale missing": Kind(
        "wrong",
        "The codes are there, and the tensor that scales them is not.",
        "Look for it under another name, or in a shard that is missing.",
    ),
    "scale negative": Kind("wrong", "A scale is below 0: the signs of its weights turn.", _AGAIN),
    "scale not finite": Kind("wrong", "A scale is infinite or NaN, and so is each weight under it.", _AGAIN),
    "scale of another type": Kind(
        "wrong", "A scale is of a dtype in which no engine expects it.", "Convert it, or rename it to what it is."
    ),
    "scale orphaned": Kind(
        "doubt",
        "A tensor is named as a scale, and no codes belong to it.",
        "Look for codes under another name; an engine may drop it without a word.",
    ),
    "scale stored as uint8": Kind(
        "wrong",
        "A scale that is a number is stored as uint8, so an engine reads its bytes as numbers or as exponents.",
        "Store it as float32; or as E8M0, if it is a power of two.",
    ),
    "scale subnormal": Kind(
        "doubt",
        "A scale is a subnormal number of its format: few bits are left of it, and some hardware flushes it to 0.",
        "Store the scales in float32 or bfloat16, or use larger groups.",
    ),
    "scale too large": Kind(
        "doubt",
        "The codes of most groups stay far below the largest: range is given away, or the scale is of something else.",
        "Look for a doubled scale (FNUZ), an inverted one, or one of another shard.",
    ),
    "scale zero over zeros": Kind("note", "A scale is 0 and all codes under it are 0: nothing is lost.", "Nothing."),
    "scale zero": Kind("wrong", "A scale is 0: all weights under it become 0.", _AGAIN),
    "second scale inverted": Kind(
        "wrong",
        "The tensor's scale fits only the other way round: compressed-tensors divides by it, ModelOpt multiplies.",
        "Store its reciprocal, or rename it.",
    ),
    "shards differ": Kind(
        "wrong",
        "Shards that an engine fuses have different second scales: it takes one for all, and the others are off by the "
        "ratio.",
        "Quantize q, k and v (and gate and up) with a common second scale, or requantize to it.",
    ),
    "shards' inputs differ": Kind(
        "doubt",
        "Shards that an engine fuses have different static scales of the same activations: it takes the largest.",
        "Calibrate again, or give them one scale.",
    ),
    "shards requantized": Kind(
        "note",
        "Shards that an engine fuses have a scale each: it takes the largest and requantizes the others.",
        "Nothing; a common scale from the start loses less.",
    ),
    "zeros out of step": Kind(
        "wrong",
        "The configuration says symmetric, and zero points are not half of the range: all weights are off by a step.",
        "Correct checkpoint_format (gptq stores them less 1, gptq_v2 as they are).",
    ),
    "zeros out of range": Kind(
        "doubt", "A zero point lies at or beyond an end of the codes.", "Look at checkpoint_format (gptq, gptq_v2)."
    ),
}
