# SPDX-License-Identifier: Apache-2.0
"""Bad calls of our writers of key-value caches, made in a process of its own; prints what came of each as JSON.

``python -m narrowgauge.suites.meta.kv_bad_calls``. A call is a good one with one thing wrong. Triton kernels run in
Triton's interpreter, torch ones on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from narrowgauge.suites.meta.kv_bad_sets import Call, tell

if TYPE_CHECKING:  # who imports this module is not to load torch
    import torch

TOKENS, HEADS, WIDTH, PAGES, BLOCK = 5, 2, 64, 3, 16


def ones(*shape: int) -> torch.Tensor:
    """Numbers that every cache can hold."""
    import torch

    return torch.ones(shape, dtype=torch.bfloat16)


def zeros(*shape: int, of: str = "uint8") -> torch.Tensor:
    """A cache with nothing in it."""
    import torch

    dtype: torch.dtype = getattr(torch, of)
    return torch.zeros(shape, dtype=torch.uint8 if dtype.itemsize == 1 else dtype).view(dtype)


def slots() -> torch.Tensor:
    """Scattered slots, one of them padding."""
    import torch

    return torch.tensor([47, 3, -1, 16, 9], dtype=torch.int32)


def heads(format: str = "float8_e4m3fn") -> Call:
    """x, and v beside it."""
    return {
        "x": ones(TOKENS, HEADS, WIDTH), "format": format, "v": ones(TOKENS, HEADS, WIDTH), "slot_mapping": slots()
    }  # fmt: skip


def pair(*shape: int, of: str = "float8_e4m3fn") -> Call:
    """Caches of K and of V."""
    return {"k_cache": zeros(*shape, of=of), "v_cache": zeros(*shape, of=of)}


def given(name: str, count: int = 1) -> Call:
    """Static numbers of K and of V."""
    import torch

    return {f"k_{name}": torch.full((count,), 0.5), f"v_{name}": torch.full((count,), 0.25)}


PAGED = (PAGES, BLOCK, HEADS, WIDTH)


def good() -> dict[str, tuple[Callable[..., None], Call]]:
    """A kernel of each kind, and a good call of it."""
    import torch

    from narrowgauge.kernels_under_test import (
        torch_kv_write,
        triton_kv_write,
        triton_kv_write_fp4,
        triton_kv_write_groups,
        triton_kv_write_pool,
    )

    token_scales = {f"{part}_scale_cache": zeros(PAGES, BLOCK, HEADS, of="float32") for part in "kv"}
    per_token_head = {**heads(), **pair(*PAGED), **token_scales}
    positions = {"cos_sin": ones(32, WIDTH), "positions": torch.arange(TOKENS, dtype=torch.int32)}
    latent = {"x": ones(TOKENS, 512), "format": "float8_e4m3fn", "rope": ones(TOKENS, 64), "slot_mapping": slots()}
    pool = {**heads(), "slot_mapping": slots().clamp(min=0)}
    fp8 = {**heads(), **pair(*PAGED), **given("scale")}
    return {
        "copy": (
            triton_kv_write.triton_soft_kv_copy,
            {**heads("bfloat16"), **pair(*PAGED, of="bfloat16"), **given("scale")},
        ),
        "fp8": (triton_kv_write.triton_soft_kv_fp8, fp8),
        "native": (triton_kv_write.triton_native_kv_fp8, fp8),
        "torch": (torch_kv_write.torch_kv_fp8, fp8),
        "by_head": (
            triton_kv_write.triton_soft_kv_fp8_head, {**heads(), **pair(*PAGED), **given("scale", HEADS)},
        ),
        "packed": (
            triton_kv_write.triton_soft_kv_paged_fp8,
            {**fp8, "k_cache": zeros(PAGES, HEADS, 4, BLOCK, 16, of="float8_e4m3fn"),
             "v_cache": zeros(PAGES, HEADS, WIDTH, BLOCK, of="float8_e4m3fn")},
        ),
        "token_head": (triton_kv_write_groups.triton_soft_kv_fp8_token_head, per_token_head),
        "int4": (
            triton_kv_write_groups.triton_soft_kv_int4_token_head,
            {**heads("uint4"), **pair(PAGES, BLOCK, HEADS, WIDTH // 2, of="uint8"), **token_scales},
        ),
        "ds_mla": (triton_kv_write_groups.triton_soft_kv_ds_mla, {**latent, "kv_cache": zeros(PAGES, BLOCK, 656)}),
        "pool": (
            triton_kv_write_pool.triton_soft_kv_pool_fp8,
            {**pool, **pair(PAGES * BLOCK, HEADS, WIDTH), **given("scale")},
        ),
        "rope": (triton_kv_write_pool.triton_soft_kv_rope_fp8, {**fp8, **positions}),
        "indexer": (
            triton_kv_write_groups.triton_soft_kv_indexer_tiled,
            {"x": ones(TOKENS, 128), "format": "float8_e4m3fn", "slot_mapping": slots(),
             "k_cache": zeros(PAGES, BLOCK * 132), "block_size": BLOCK},
        ),
        "nvfp4": (
            triton_kv_write_fp4.triton_soft_kv_nvfp4,
            {**heads("float4_e2m1fn"), "kv_cache": zeros(PAGES, BLOCK * HEADS * WIDTH * 9 // 8), "block_size": BLOCK,
             **given("global_scale")},
        ),
    }  # fmt: skip


def set_to(name: str, at: int, value: float) -> Callable[[Call], Call]:
    """One number of a tensor is another."""

    def change(call: Call) -> Call:
        changed = call[name].clone()
        changed[at] = value
        return {name: changed}

    return change


def by(name: str, edit: Callable[[Any], Any]) -> Callable[[Call], Call]:
    """One argument is another."""
    return lambda call: {name: edit(call[name])}


STATIC = ("fp8", "native", "torch", "by_head", "packed", "pool", "rope")
PAIRS = ("copy", *STATIC, "token_head", "int4", "nvfp4")
EVERY = (*PAIRS, "ds_mla", "indexer")
#: what is wrong -> kernels that are called so, and what is changed in the call
WRONG: dict[str, tuple[tuple[str, ...], Callable[[Call], Call]]] = {
    "slot_beyond": (EVERY, set_to("slot_mapping", 3, PAGES * BLOCK)),
    "slot_far_beyond": (EVERY, set_to("slot_mapping", 0, 2**31 - 1)),
    "negative_slot_in_a_pool": (("pool",), set_to("slot_mapping", 1, -1)),
    "slots_of_another_type": (EVERY, by("slot_mapping", lambda t: t.float())),
    "too_few_slots": (EVERY, by("slot_mapping", lambda t: t[:-1])),
    "slots_as_a_matrix": (EVERY, by("slot_mapping", lambda t: t[None])),
    "heads_of_k": (PAIRS, by("x", lambda t: ones(TOKENS, HEADS + 1, WIDTH))),
    "heads_of_v": (PAIRS, by("v", lambda t: t[:, :1])),
    "columns_of_k": (PAIRS, by("x", lambda t: t[..., : WIDTH // 2])),
    "columns_of_v": (PAIRS, by("v", lambda t: t[..., : WIDTH // 2])),
    "tokens_of_v": (PAIRS, by("v", lambda t: t[:-1])),
    "no_heads_of_k": (PAIRS, by("x", lambda t: t.flatten(1))),
    "heads_too_many": (("ds_mla", "indexer"), by("x", lambda t: t[:, None])),
    "no_heads_of_v": (PAIRS, by("v", lambda t: t.flatten(1))),
    "type_of_k": (EVERY, by("x", lambda t: t.double())),
    "type_of_v": (PAIRS, by("v", lambda t: t.float())),
    "columns_of_rope": (("ds_mla",), by("rope", lambda t: t[:, :32])),
    "tokens_of_rope": (("ds_mla",), by("rope", lambda t: t[1:])),
    "columns_of_the_latent": (("ds_mla",), by("x", lambda t: t[:, :256])),
    "scale_of_heads": (STATIC, by("k_scale", lambda t: t[:1].repeat(HEADS + 1))),
    "scale_as_a_matrix": (STATIC, by("v_scale", lambda t: t[None])),
    "scale_of_another_type": (STATIC, by("k_scale", lambda t: t.double())),
    "scale_zero": (STATIC, set_to("v_scale", 0, 0.0)),
    "scale_negative": (STATIC, set_to("k_scale", 0, -0.5)),
    "scale_nan": (STATIC, set_to("v_scale", 0, float("nan"))),
    "scale_infinite": (STATIC, set_to("k_scale", 0, float("inf"))),
    "last_scale_zero": (("by_head",), set_to("v_scale", HEADS - 1, 0.0)),
    "one_scale_for_all_heads": (("by_head",), by("k_scale", lambda t: t[:1])),
    "global_scale_nan": (("nvfp4",), set_to("v_global_scale", 0, float("nan"))),
    "global_scale_of_heads": (("nvfp4",), by("k_global_scale", lambda t: t.repeat(HEADS))),
    "unknown_format": (EVERY, lambda call: {"format": "float8_e9m9"}),
    "format_of_others": (EVERY, lambda call: {"format": "int8"}),
    "cache_of_another_type": (STATIC, by("v_cache", lambda t: zeros(*t.shape, of="float16"))),
    "cache_of_another_format": (("fp8", "by_head"), lambda call: {"format": "float8_e5m2"}),
    "pages_of_v": (("copy", *STATIC, "token_head", "int4"), by("v_cache", lambda t: t[:-1])),
    "heads_of_a_cache": (("fp8", "token_head"), by("k_cache", lambda t: t[:, :, :1])),
    "axes_of_a_cache": (("copy", *STATIC, "token_head"), by("k_cache", lambda t: t.flatten(1))),
    "heads_of_a_scale_cache": (("token_head", "int4"), by("k_scale_cache", lambda t: t[..., :1])),
    "pages_of_a_scale_cache": (("token_head", "int4"), by("v_scale_cache", lambda t: t[:-1])),
    "type_of_a_scale_cache": (("token_head", "int4"), by("v_scale_cache", lambda t: t.bfloat16())),
    "bytes_of_a_row": (("ds_mla",), lambda call: {"kv_cache": zeros(PAGES, BLOCK, 655)}),
    "bytes_of_a_page": (("nvfp4",), by("kv_cache", lambda t: t[:, :-1])),
    "bytes_of_a_page_of_keys": (("indexer",), by("k_cache", lambda t: t[:, 4:])),
    "columns_of_keys": (("indexer",), by("x", lambda t: t[:, :64])),
    "position_beyond": (("rope",), set_to("positions", 4, 32)),
    "position_negative": (("rope",), set_to("positions", 0, -1)),
    "angles_of_another_type": (("rope",), by("cos_sin", lambda t: t.float())),
    "too_many_angles": (("rope",), by("cos_sin", lambda t: ones(32, 2 * WIDTH))),
    "positions_of_another_type": (("rope",), by("positions", lambda t: t.float())),
}
#: what is right, though seldom
RIGHT: dict[str, Callable[[Call], Call]] = {
    "as_it_is": lambda call: {},
    "slots_of_64_bits": by("slot_mapping", lambda t: t.long()),
    "no_tokens": lambda call: {
        n: t[:0] for n, t in call.items() if n in ("x", "v", "rope", "slot_mapping", "positions")
    },
}


if __name__ == "__main__":
    tell(good, RIGHT, WRONG, EVERY)
