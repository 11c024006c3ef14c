"""The JSON files beside the weights."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.listing import INDEX, names_in
from narrowgauge.checkpoints.objects import as_object, object_at, parsed, text_of
from narrowgauge.contracts.errors import BadInput

CONFIG = "config.json"
#: engines look into these for how the weights are quantized (get_config_filenames of vLLM's methods): one that cannot
#: be read is an error; of others it is a finding
TRUSTED = (
    "hf_quant_config.json", "quantize_config.json", "quant_config.json", "quantization_config.json", "params.json",
)  # fmt: skip
#: what is not about weights
PASSED_OVER = (
    "tokenizer*", "vocab*", "added_tokens*", "special_tokens_map*", "merges*", "*_results.json", "trainer_state.json",
    f"*{INDEX}",
)  # fmt: skip


def configs_of(folder: Path, every: bool) -> tuple[dict[str, Any], dict[str, Mapping[str, Any]], list[Finding]]:
    """config.json, the other objects by the names of their files, and what was wrong with those that nobody needs.

    ``every``: all JSON files of a folder, and not only those that engines look into.
    Raises ``BadInput`` with file and byte for a configuration of the model or its weights that is no JSON object.
    """
    others: dict[str, Mapping[str, Any]] = {}
    findings = []
    for name in names_in(folder, strict=False):
        if name == CONFIG or not name.endswith(".json") or not (every or name in TRUSTED):
            continue
        if any(fnmatch(name, pattern) for pattern in PASSED_OVER):
            continue
        path = folder / name
        try:
            found = parsed(text_of(path), path, configuration=True)
        except BadInput as error:
            if name in TRUSTED:
                raise
            findings.append(Finding("JSON not read", str(error)))
            continue
        if isinstance(found, dict) or name in TRUSTED:
            others[name] = as_object(found, path)
    return object_at(folder / CONFIG), others, findings
