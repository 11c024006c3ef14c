"""Second derivation of ``reference.kv``: scale delivery as straight code in the order of the engines' sources.

Written from vLLM 0.33.0's kv_cache.py, compressed_tensors.py and attention.py, and from SGLang 0.5.23's kv_cache.py and
load_model_utils.py, without the tables of guards. Numbers are NumPy's float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

#: what is used for K, V, Q, probabilities; what is logged; the exception
Outcome = tuple[list[Any], list[str], str]
#: flags of vLLM that do not quantize, and those whose scales a kernel finds for each token and head
PLAIN = ("auto", "float16", "bfloat16")
DYNAMIC = ("int4_per_token_head", "int8_per_token_head", "fp8_per_token_head")


def vllm_base(given: Mapping[str, Any], flag: str, fnuz: bool, whole: bool = True) -> Outcome:
    """``BaseKVCacheMethod``; ``whole`` with what the layer refuses before."""
    if whole and flag == "fp8_e5m2":
        return [], [], "ValueError"
    if any(np.size(scale) != 1 for scale in given.values()):
        return [], [], "ValueError"
    k, v, q, prob = (np.float32(given.get(name, -1)) for name in ("k", "v", "q", "prob"))
    double = np.float32(2 if fnuz else 1)
    log = []
    if flag in DYNAMIC:
        return [1, 1, 1, 1], [], ""
    use_k = use_v = np.float32(1)
    if flag not in PLAIN:
        if k > 0 and v > 0:
            use_k, use_v = k * double, v * double
        elif not (k < 0 and v < 0):
            if not k > 0:
                return [], [], "AssertionError"
            use_k = use_v = max(k, v) * double
        if q < 0:
            log.append("q from k")
        if use_k == 1 and use_v == 1 and "e5m2" not in flag:
            log.append("unity")
    use_q = q * double if q > 0 else np.float32(1)
    use_prob = prob * double if prob > 0 else np.float32(1)
    if flag == "fp8" and (use_q == 1 or use_prob == 1):
        log.append("uncalibrated")
    return [use_k, use_v, use_q, use_prob], log, ""


def vllm_compressed(given: Mapping[str, Any], flag: str) -> Outcome:
    """``CompressedTensorsKVCacheMethod``: what is loaded over ones, as it is."""
    if flag == "fp8_e5m2" and given:
        return [], [], "ValueError"
    return [np.float32(given.get(name, 1)) for name in ("k", "v", "q")] + [1], [], ""


def sglang_base(given: Mapping[str, Any], flag: str, fnuz: bool) -> Outcome:
    """``BaseKVCacheMethod``, then ``load_kv_cache_scales`` without a file."""
    scales = [given.get("k", -1), given.get("v", -1)]
    if any(np.size(scale) != 1 for scale in scales):
        return [], [], "AssertionError"
    k, v = (np.float32(scale) for scale in scales)
    log = ["no file"] if flag == "fp8_e4m3" else []
    if k > 0 and v > 0:
        return [k * (1 + fnuz), v * (1 + fnuz), None, None], log, ""
    if k <= 0 and v <= 0:
        return [1, 1, None, None], log, ""
    if k > 0:
        both = np.float32(max(k, v)) * (1 + fnuz)
        return [both, both, None, None], log, ""
    return [], [], "AssertionError"


def outcome(engine: str, method: str, given: Mapping[str, Any], flag: str, fnuz: bool) -> Outcome:
    """What the engine ends up with."""
    match engine, method:
        case "vllm", "base":
            return vllm_base(given, flag, fnuz)
        case "vllm", "base, the method alone":
            return vllm_base(given, flag, fnuz, whole=False)
        case "vllm", "compressed_tensors":
            return vllm_compressed(given, flag)
        case "vllm", "none":
            return [1, 1, 1, 1], [], ""
        case "sglang", "base":
            return sglang_base(given, flag, fnuz)
        case "sglang", "none":
            return [1, 1, None, None], ["no file"] if flag == "fp8_e4m3" else [], ""
        case "sglang", "json":
            number = np.float32(given.get("kv", 1)) if flag == "fp8_e4m3" else 1
            return [number, number, None, None], [], ""
    raise ValueError((engine, method))
