"""What an engine makes of a checkpoint: which names it loads, drops or stops at, and which scales it ends up using.

Rules are data of the engines' sources, at the versions that are named here, with file and lines of each.
"""

from __future__ import annotations

#: the releases whose sources were read and run
VERSIONS = {"vllm": "vLLM 0.33.0", "sglang": "SGLang 0.5.23"}
