"""Kinds of findings about what the configuration says against what the tensors are."""

from __future__ import annotations

from narrowgauge.checkpoints.findings import Kind

_BOTH = "Take config.json and weights from the same export."

CONFIG: dict[str, Kind] = {
    "KV scales absent": Kind(
        "doubt",
        "A cache of fp8 is asked for, and no tensor scales K or V: engines take 1.0.",
        "Calibrate the cache, or see by `narrowgauge kv` what 1.0 costs.",
    ),
    "KV scales alike": Kind(
        "note", "Scales of K and V are the same where one expects them to differ.", "Nothing, if the exporter does so."
    ),
    "KV scales in part": Kind(
        "wrong",
        "Some layers have scales of K and V, and others have none: these run at 1.0.",
        "Calibrate the cache for all layers, or take the scales out.",
    ),
    "KV scales not declared": Kind(
        "doubt",
        "There are scales of K and V, and the configuration says that the cache is not quantized.",
        "Set kv_cache_scheme, or an engine may not load them.",
    ),
    "KV scales promised": Kind(
        "wrong",
        "The configuration asks for a cache of fp8, and no tensor scales K or V: engines take 1.0.",
        "Calibrate the cache and export again; look at the names of the scales.",
    ),
    "KV scheme dropped": Kind(
        "doubt",
        "A cache of fp8 is asked for, kv_cache_scheme is null and no scales are there: the tool dropped the request.",
        "Use a version of compressed-tensors that knows this model's attention, or give scales otherwise.",
    ),
    "configuration unusable": Kind(
        "wrong", "A value of the configuration is of no type that it can be.", "Correct it; engines end there."
    ),
    "no configuration": Kind(
        "doubt",
        "The folder holds codes, and no configuration says how they are quantized: engines take them as numbers.",
        "Take config.json from the export.",
    ),
    "configuration disagrees": Kind(
        "wrong", "The tensors of a module are not what the configuration says of it.", _BOTH
    ),
    "dtype disagrees": Kind(
        "note",
        "The configuration names another dtype than most plain tensors have: they are cast while loading.",
        "Look at what the cast does to them by --to.",
    ),
    "float16 refused": Kind(
        "wrong",
        "Engines refuse this model in float16: its activations go beyond 65504.",
        "Use bfloat16 or float32.",
    ),
    "head missing": Kind(
        "wrong", "tie_word_embeddings is false and there is no lm_head.", "Look for a missing shard, or set it true."
    ),
    "ignore names nothing": Kind(
        "doubt", "An entry of what is not quantized names no module.", "Look for another spelling of the name."
    ),
    "layers disagree": Kind(
        "wrong", "num_hidden_layers is not the number of layers that are there.", "Look for a missing shard."
    ),
    "low bits unexplained": Kind(
        "doubt",
        "A tensor of a narrow format belongs to no scheme that is known here.",
        "Look for its scale by hand; nothing of it was checked.",
    ),
    "method in part": Kind(
        "note", "Of the method of quantization not everything is read here.", "Look by hand where it is used."
    ),
    "method not understood": Kind(
        "doubt", "The method of quantization is not yet read here.", "Nothing of its values was checked."
    ),
    "not compressed": Kind(
        "note",
        "quantization_status says that the weights are not compressed.",
        "Nothing, where the tensors are codes: older exports say so too. Else export again.",
    ),
    "pattern is none": Kind("wrong", "An entry that begins with re: is no regular expression.", "Correct it."),
    "quantized and ignored": Kind(
        "wrong",
        "A module is quantized in the file, and the configuration leaves it out or says nothing: engines read its "
        "codes as numbers.",
        _BOTH,
    ),
    "quantized in name only": Kind(
        "wrong",
        "The configuration has a module quantized, and the file holds plain numbers without a scale.",
        "Add it to what is not quantized, or export it again.",
    ),
    "shape disagrees": Kind("wrong", "A tensor's shape is not what the configuration's sizes make it.", _BOTH),
    "tied and stored": Kind(
        "note",
        "tie_word_embeddings is true and an lm_head is stored: engines drop it.",
        "Nothing, where it is the same as the embedding.",
    ),
    "unity KV scales": Kind(
        "doubt",
        "All scales of K and V are exactly 1.",
        "Calibrate, unless an export that holds them to at least 1 wrote them.",
    ),
    "zeros version not said": Kind(
        "doubt",
        "checkpoint_format is not there: whether zero points are stored less 1 (gptq) or as they are (gptq_v2) is a "
        "guess, and the wrong one shifts all weights by one step.",
        "Write checkpoint_format into the configuration.",
    ),
}
