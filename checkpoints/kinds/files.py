"""Kinds of findings about what stands in which file."""

from __future__ import annotations

from narrowgauge.checkpoints.findings import Kind

FILES: dict[str, Kind] = {
    "index lacks tensors": Kind(
        "doubt",
        "Files hold tensors that the index does not name.",
        "Write the index anew; some loaders take them, and others pass them over.",
    ),
    "index names absent tensors": Kind(
        "wrong",
        "The index names tensors that no file holds.",
        "Fetch the files again, or write the index anew; an engine starts such weights from nothing, or not at all.",
    ),
    "index names another file": Kind(
        "doubt",
        "The index says that tensors are in one file, and they are in another.",
        "Write the index anew; a loader that opens the file that is named does not find them.",
    ),
    "index size": Kind(
        "note",
        "The index says another total size than its tensors have.",
        "Nothing reads it but progress bars; a difference can come from a conversion that the index does not know.",
    ),
    "JSON not read": Kind(
        "note",
        "A JSON file beside the weights is none, and was passed over.",
        "Correct it if something is meant to read it.",
    ),
}
