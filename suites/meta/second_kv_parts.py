# SPDX-License-Identifier: Apache-2.0
"""The second derivation of caches: which parts each has, by which recipe, and what is done before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A part as engines have it: its recipe, what is done before, its columns where they are no heads."""

    name: str
    recipe: str = ""
    columns: int = 0
    first: str = ""
    keeps: str = ""  #: without a recipe: a format other than that of the codes
    scale_of: str = ""  #: whose given scale it takes


def _parts(recipe: str, first: str = "", only_k: bool = False) -> tuple[Part, ...]:
    return Part("k", recipe, first=first), Part("v", recipe, first="" if only_k else first)


def _mla(recipe: str, rope: str = "", keeps: str = "") -> tuple[Part, ...]:
    return Part("latent", recipe, 512), Part("rope", rope, 64, keeps=keeps, scale_of="latent")


#: by the name of a cache without the order of its axes
PARTS: Mapping[str, tuple[Part, ...]] = {
    **{
        f"vllm.{n}": _parts(recipe)
        for n, recipe in (
            *((f"{layout}_copy", "") for layout in ("flash", "paged", "interleaved")),
            ("flash_copy_hnd", ""),
            *((f"{layout}_fp8", "vllm.kv_fp8_tensor") for layout in ("flash", "paged")),
            ("flash_fp8_hnd", "vllm.kv_fp8_tensor"),
            *((f"flash_fp8_head{hnd}", "vllm.kv_fp8_head") for hnd in ("", "_hnd")),
            *(
                (f"{layout}_fp8_rocm{half}", f"vllm.kv_fp8_tensor_rocm{half}")
                for layout in ("flash", "paged") for half in ("", "_float16")
            ),
            *((f"flash_fp8_rocm{half}_hnd", f"vllm.kv_fp8_tensor_rocm{half}") for half in ("", "_float16")),
            *(
                (f"flash_fp8_rocm{half}_head{hnd}", f"vllm.kv_fp8_head_rocm{half}")
                for half in ("", "_float16") for hnd in ("", "_hnd")
            ),
            *((f"{layout}_fp8_triton", "vllm.kv_fp8_tensor_triton") for layout in ("flash", "paged", "interleaved")),
            ("int8_token_head", "vllm.kv_int8_token_head"),
            ("fp8_token_head", "vllm.kv_fp8_token_head"),
            *((f"nvfp4{at}", "vllm.nvfp4_kv") for at in ("", "_linear", "_linear_hnd")),
        )
    },
    "vllm.int4_token_head": _parts("vllm.int4_per_token_head", "hadamard"),
    **{
        f"vllm.flash_{n}_{rope}": _parts(recipe, rope, only_k=True)
        for n, recipe in (("copy", ""), ("fp8", "vllm.kv_fp8_tensor"))
        for rope in ("rope", "rope_interleaved")
    },
    "vllm.mla_copy": _mla(""),
    "vllm.mla_fp8": _mla("vllm.kv_fp8_tensor", "vllm.kv_fp8_tensor"),
    "vllm.mla_fp8_rocm": _mla("vllm.kv_fp8_tensor_rocm", "vllm.kv_fp8_tensor_rocm"),
    "vllm.mla_fp8_rocm_float16": _mla("vllm.kv_fp8_tensor_rocm_float16", "vllm.kv_fp8_tensor_rocm_float16"),
    "vllm.fp8_ds_mla": _mla("vllm.fp8_ds_mla", keeps="bfloat16"),
    "vllm.nvfp4_ds_mla": _mla("vllm.nvfp4_ds_mla", keeps="float8_e4m3fn"),
    **{
        f"vllm.indexer{at}{power}": (Part("k", f"vllm.fp8_indexer{power}", 128),)
        for at in ("", "_tiled") for power in ("", "_ue8m0")
    },
    **{f"sglang.copy{at}": _parts("") for at in ("", "_hnd", "_vectorized")},
    **{f"sglang.fp8{n}": _parts(f"sglang.kv_fp8{n}") for n in ("", "_number", "_commit", "_commit_number")},
    **{f"sglang.fp4_block16{n}": _parts(f"sglang.fp4_kv_block16{n}") for n in ("", "_eager")},
    "sglang.nvfp4": _parts("sglang.nvfp4_kv_sm90"),
    "sglang.nvfp4_native": _parts("sglang.nvfp4_kv_sm90"),
    "sglang.mxfp8": _parts("sglang.mxfp8_kv"),
    "sglang.mla_copy": _mla(""),
    "sglang.dsa": _mla("sglang.fp8_dsa", keeps="bfloat16"),
    "plain.fp8_tensor": _parts("plain.kv_fp8_tensor"),
    "plain.fp8_head": _parts("plain.kv_fp8_head"),
}  # fmt: skip
