"""Kinds of findings about what an engine or a target makes of it, and about what an engine's log tells."""

from __future__ import annotations

from narrowgauge.checkpoints.findings import Kind

_RENAME = "Rename the tensors as the engine looks for them, or serve by an engine that loads them."
_CALIBRATE = "Calibrate, and export with names that the engine loads."

ENGINES: dict[str, Kind] = {
    "architecture not known": Kind(
        "note",
        "How the engine's model file loads names is not known here.",
        "Look in the engine's log for names that were not found.",
    ),
    "cache scales dropped": Kind(
        "wrong", "The engine drops scales of K and V while loading: the cache runs at 1.0.", _RENAME
    ),
    "cache scales end loading": Kind(
        "wrong", "The engine ends at a scale of the cache whose name its model does not have.", _RENAME
    ),
    "cache scales not looked at": Kind(
        "wrong", "The engine has no method that takes scales of K and V for this checkpoint.", _CALIBRATE
    ),
    "cache scales used otherwise": Kind(
        "doubt", "The engine uses other scales of the cache than the checkpoint gives.", "Look which are meant."
    ),
    "converted for the target": Kind(
        "doubt",
        "The target's 8-bit floats are FNUZ: the engine converts OCP bytes while loading.",
        "See by --to fnuz which values change; NaN bytes must not be there.",
    ),
    "emulated on the target": Kind(
        "note",
        "The target has no units for the format: codes are read as 16-bit numbers before each product.",
        "Expect the speed of 16 bits, and other roundings than where the units are.",
    ),
    "engine does not know the method": Kind(
        "wrong", "The engine knows no method of that name.", "Convert the checkpoint, or take another engine."
    ),
    "path not known": Kind("note", "What the engine does on this target is not known here.", "Look in its log."),
    "refused on the target": Kind(
        "wrong", "The engine does not load this on the target.", "Take another target, engine or format."
    ),
    "requantized for the kernel": Kind(
        "doubt",
        "The engine rounds block scales up to powers of two and quantizes the codes again.",
        "Compare answers with the option that keeps the scales (VLLM_USE_DEEP_GEMM_E8M0=0 in vLLM).",
    ),
    "requantized to the largest": Kind(
        "doubt",
        "Fused shards have a scale each: the engine quantizes all to the largest, by way of float16.",
        "Give the shards one scale when the checkpoint is made.",
    ),
    "requantizing overflows": Kind(
        "wrong",
        "The engine multiplies codes and scale in float16, where they go beyond 65504.",
        "Give the shards one scale when the checkpoint is made, or a scale for each channel.",
    ),
    "scales of another name": Kind(
        "wrong",
        "The engine's method has its scales under another name than the file: they are dropped, or loading ends.",
        "Rename them, or correct weight_block_size: scales of blocks end as weight_scale_inv.",
    ),
    "scales renamed away": Kind(
        "wrong",
        "The engine's model file renames the scales to a name that its method does not have: they are not loaded.",
        "Serve by another engine, or convert the checkpoint to a scale for each channel.",
    ),
    "weights only on the target": Kind(
        "note",
        "The target has no units for the format: weights are unpacked in the kernel, activations stay in 16 bits.",
        "Nothing for accuracy; scales of activations are not used.",
    ),
    # what a log tells
    "log: a method is deprecated": Kind("note", "The engine will drop a method or a spelling.", "Convert in time."),
    "log: a scale is dropped": Kind("wrong", "The engine did not load a scale that the checkpoint has.", _RENAME),
    "log: a tensor has no place": Kind(
        "wrong", "The engine found no parameter for a tensor, and left it out.", "Compare names; look for a scale."
    ),
    "log: activation scales merged": Kind(
        "doubt",
        "Static scales of activations differ where one is used: it is the largest.",
        "Calibrate them together.",
    ),
    "log: cache at 1.0": Kind(
        "doubt", "The cache of K and V runs at a scale of 1.0.", "Calibrate, or see by `narrowgauge kv` what it costs."
    ),
    "log: cast between 16 bits": Kind(
        "doubt",
        "Weights are cast between bfloat16 and float16, without a look at what overflows.",
        "Run the audit with --to of the dtype that is cast to.",
    ),
    "log: cast from 32 bits": Kind("note", "Weights are cast from float32.", "Run the audit with --to that dtype."),
    "log: emulated": Kind(
        "note", "Narrow weights are read as 16-bit numbers, for want of units or of a kernel.", "Expect 16-bit speed."
    ),
    "log: not the fast path": Kind("note", "A slower way than the usual one is taken.", "Nothing for accuracy."),
    "log: formats do not go together": Kind(
        "wrong",
        "A product of two formats has no kernel, as of OCP weights and FNUZ activations that a loader left so.",
        "Take a later engine, or convert the checkpoint.",
    ),
    "log: not quantized": Kind(
        "doubt", "A layer that was to be quantized runs unquantized, or as another format.", "Look which one."
    ),
    "log: query or probabilities at 1.0": Kind(
        "doubt", "Attention in fp8 runs without a scale for queries or probabilities.", "Calibrate them."
    ),
    "log: requantized": Kind(
        "doubt", "The engine quantized weights again while loading.", "Compare answers with the original."
    ),
    "log: scale ignored": Kind("wrong", "The engine has a scale or a scheme and does not use it.", _CALIBRATE),
    "log: scale of the wrong sign": Kind(
        "wrong", "The kernel takes scales for positive, and some are not.", "Quantize the layer again."
    ),
    "log: shards differ": Kind(
        "wrong",
        "Fused shards have different second scales: one is used for all.",
        "Quantize q, k and v (and gate and up) with a common second scale.",
    ),
    "log: weights only": Kind(
        "note", "Activations are not quantized: weights alone are narrow on this GPU.", "Nothing for accuracy."
    ),
}  # fmt: skip
