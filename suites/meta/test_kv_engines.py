"""Caches as the engines' own writers leave them: kernels by Triton's interpreter, torch code as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from narrowgauge.suites.meta.engines.loading import folder_of

pytestmark = pytest.mark.meta

#: cache, format of x, format of the codes, what is not usual of the shape
CALLS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("vllm.flash_copy", "bfloat16", "bfloat16", {}),
    ("vllm.flash_copy", "float16", "float16", {"heads": 3, "block": 32, "width": 80}),
    ("vllm.flash_copy_hnd", "bfloat16", "bfloat16", {"heads": 3}),
    ("vllm.paged_copy", "bfloat16", "bfloat16", {}),
    ("vllm.interleaved_copy", "float16", "float16", {"block": 32}),
    ("vllm.int8_token_head", "bfloat16", "int8", {}),
    ("vllm.fp8_token_head", "bfloat16", "float8_e4m3fn", {"heads": 3}),
    ("vllm.int4_token_head", "bfloat16", "uint4", {}),
    ("vllm.int4_token_head", "float16", "uint4", {"width": 128}),
    ("vllm.int4_token_head", "bfloat16", "uint4", {"width": 96}),  # in blocks of 32
    ("vllm.indexer_tiled", "bfloat16", "float8_e4m3fn", {}),
    ("vllm.indexer_tiled_ue8m0", "bfloat16", "float8_e4m3fn", {}),
    ("sglang.copy_vectorized", "bfloat16", "bfloat16", {}),
    ("sglang.fp4_block16_eager", "bfloat16", "float4_e2m1fn", {}),
    ("sglang.nvfp4", "bfloat16", "float4_e2m1fn", {"heads": 3}),
    ("sglang.nvfp4_native", "bfloat16", "float4_e2m1fn", {"width": 128}),
    ("sglang.mxfp8", "bfloat16", "float8_e4m3fn", {"heads": 3}),
    ("sglang.mla_copy", "bfloat16", "bfloat16", {}),
    ("sglang.dsa", "bfloat16", "float8_e4m3fn", {}),
)


@cache
def answers(engine: str) -> dict[int, list[str]]:
    """What the reference finds wrong, by the number of a call; one process for each engine."""
    if folder_of(engine) is None:
        pytest.skip(f"{engine} is not in the path: its writers cannot be run")
    mine = [i for i, (cache, *_) in enumerate(CALLS) if cache.startswith(engine)]
    asked = [dict(zip(("cache", "source", "held", "shape"), CALLS[i], strict=True)) for i in mine]
    command = [sys.executable, "-W", "ignore", "-m", "narrowgauge.suites.meta.engines.kv_writers"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        command, input="\n".join(map(json.dumps, asked)), capture_output=True, text=True, check=True, env=environment
    )
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {i: answer["wrong"] for i, answer in zip(mine, said, strict=True)}


@pytest.mark.parametrize("number", range(len(CALLS)), ids=[f"{name}-{x}-{n}" for n, (name, x, *_) in enumerate(CALLS)])
def test_an_engine_writes_what_the_reference_expects(number: int) -> None:
    assert answers(CALLS[number][0].split(".")[0])[number] == []
