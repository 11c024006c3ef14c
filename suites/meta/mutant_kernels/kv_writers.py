"""Wrong writers of caches, in torch, from public reports. Each says its mistake in its first words."""

from __future__ import annotations

import torch

from narrowgauge import KvWrite, kernel
from narrowgauge.suites.meta.mutant_kernels.encode import e4m3fn
from narrowgauge.suites.meta.mutant_kernels.kv_right import placed, saturated, store, write_fp8

FP8, HEAD, COPY = KvWrite("vllm.flash_fp8"), KvWrite("vllm.flash_fp8_head"), KvWrite("vllm.flash_copy")
TOKEN_HEAD, E4, WIDE = KvWrite("vllm.fp8_token_head"), ["float8_e4m3fn"], ["bfloat16"]


@kernel(FP8, E4, WIDE)
def kv_writer_at_unity(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """No scale is used, for K or V: sglang#18818 (set_kv_buffer is given None), vllm#54623, vllm#35656."""
    write_fp8(x, v, slot_mapping, k_cache, v_cache, block_size, saturated, saturated)


@kernel(FP8, E4, WIDE)
def kv_writer_v_at_unity(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """V's scale alone is dropped: sglang#39942 (of three spellings of names one is remapped)."""
    write_fp8(x, v, slot_mapping, k_cache, v_cache, block_size, lambda y: saturated(y / k_scale), saturated)


@kernel(FP8, E4, WIDE)
def kv_writer_ks_scale_for_v(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """K's scale is used for V: vLLM's loader duplicates the larger one where it takes one to be missing
    (kv_cache.py:129-141); no report of just this is known."""
    write_fp8(x, v, slot_mapping, k_cache, v_cache, block_size, *(lambda y: saturated(y / k_scale),) * 2)


@kernel(FP8, E4, WIDE)
def kv_writer_scales_twice(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """Scales are applied by two layers: vllm#48016, vllm#39407."""
    k_encode, v_encode = (lambda y, s=s: saturated(y / s / s) for s in (k_scale, v_scale))
    write_fp8(x, v, slot_mapping, k_cache, v_cache, block_size, k_encode, v_encode)


@kernel(FP8, E4, WIDE)
def kv_writer_multiplies(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """The scale is taken for its reciprocal: modular#6600 (a divisor stored where a multiplier is expected)."""
    k_encode, v_encode = (lambda y, s=s: saturated(y * s) for s in (k_scale, v_scale))
    write_fp8(x, v, slot_mapping, k_cache, v_cache, block_size, k_encode, v_encode)


@kernel(FP8, E4, WIDE)
def kv_writer_fnuz_bytes(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """FNUZ codes stand under the OCP label: vllm#45562 (the cache is written as e4m3fnuz and viewed as e4m3fn)."""

    def encode(y):
        code = e4m3fn((y * 2.0).contiguous())  # a code of FNUZ is that of OCP for twice the number
        code = torch.where(y.abs() > 232.0, code & 0x80 | 0x7F, code)
        return torch.where(y.isnan() | (code == 0x80), torch.where(y.isnan(), 0x80, 0), code).to(torch.uint8)

    write_fp8(
        x, v, slot_mapping, k_cache, v_cache, block_size, lambda y: encode(y / k_scale), lambda y: encode(y / v_scale)
    )


@kernel(FP8, ["float8_e5m2"], WIDE)
def kv_writer_e4m3_for_e5m2(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """e4m3 codes stand in a cache of e5m2: vLLM's Triton writer for fp8_e5m2
    (triton_reshape_and_cache_flash.py:423-435)."""
    k_encode, v_encode = (lambda y, s=s: saturated(y / s) for s in (k_scale, v_scale))
    write_fp8(x, v, slot_mapping, k_cache, v_cache, block_size, k_encode, v_encode)


@kernel(FP8, E4, WIDE)
def kv_writer_converts_to_uint8(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """Numbers become whole numbers where bytes should be looked at as such: ``.to(uint8)`` for ``.view(uint8)``; no
    report of just this is known."""

    def encode(y):
        rounded = saturated(y).view(torch.float8_e4m3fn).float()
        return rounded.nan_to_num(0.0).to(torch.int32).to(torch.uint8)

    write_fp8(
        x, v, slot_mapping, k_cache, v_cache, block_size, lambda y: encode(y / k_scale), lambda y: encode(y / v_scale)
    )


@kernel(FP8, E4, WIDE)
def kv_writer_overflows_to_nan(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """Nothing is clamped, and the cast makes NaN of what is beyond 464: SGLang's set_kv_buffer under torch 2.12 and
    before (memory_pool.py:2926-2936)."""

    def encode(y):
        code = saturated(y)
        return torch.where(y.abs() > 464.0, code & 0x80 | 0x7F, code).to(torch.uint8)

    write_fp8(
        x, v, slot_mapping, k_cache, v_cache, block_size, lambda y: encode(y / k_scale), lambda y: encode(y / v_scale)
    )


@kernel(FP8, E4, WIDE)
def kv_writer_divides_in_bfloat16(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """The quotient is rounded to bfloat16 and then once more: SGLang's set_kv_buffer (memory_pool.py:2926-2936), as a
    kernel that claims vLLM's cache."""
    k_encode, v_encode = (lambda y, s=s: saturated((y / s).bfloat16().float()) for s in (k_scale, v_scale))
    write_fp8(x, v, slot_mapping, k_cache, v_cache, block_size, k_encode, v_encode)


@kernel(FP8, E4, WIDE)
def kv_writer_divides_in_place(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """The caller's K is divided where it lies: SGLang's set_kv_buffer (memory_pool.py:2926-2936). Bytes are right."""
    k_encode, v_encode = (lambda y, s=s: saturated(y / s) for s in (k_scale, v_scale))
    write_fp8(x, v, slot_mapping, k_cache, v_cache, block_size, k_encode, v_encode)
    x.div_(k_scale.to(x.dtype))


@kernel(HEAD, E4, WIDE)
def kv_writer_first_heads_scale(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """The first head's scale is used for all heads: aiter#1258 (the mode of one scale is left on)."""
    k_encode, v_encode = (lambda y, s=s: saturated(y / s[0]) for s in (k_scale, v_scale))
    write_fp8(x, v, slot_mapping, k_cache, v_cache, block_size, k_encode, v_encode)


_FROZEN: dict[str, torch.Tensor] = {}


@kernel(FP8, E4, WIDE)
def kv_writer_keeps_the_first_scale(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """The scale of the first call is used for ever: vllm#21640, vllm#25513, vllm#37554 (captured in a graph)."""
    frozen_k, frozen_v = (_FROZEN.setdefault(n, s.clone()) for n, s in (("k", k_scale), ("v", v_scale)))
    k_encode, v_encode = (lambda y, s=s: saturated(y / s) for s in (frozen_k, frozen_v))
    write_fp8(x, v, slot_mapping, k_cache, v_cache, block_size, k_encode, v_encode)


@kernel(FP8, E4, WIDE)
def kv_writer_dirties_slot_0(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """Padding is written to slot 0 under a rule that skips it: vllm#57156, sglang#36207."""
    write_fp8(
        x,
        v,
        slot_mapping.clamp(min=0),
        k_cache,
        v_cache,
        block_size,
        lambda y: saturated(y / k_scale),
        lambda y: saturated(y / v_scale),
    )


@kernel(COPY, WIDE, WIDE)
def kv_writer_wraps_negative_slots(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """A negative slot counts from the end, as Python's indices do; no report of just this is known."""
    slots = slot_mapping.long() % (k_cache.shape[0] * block_size)
    for token, slot in enumerate(slots.tolist()):
        k_cache[slot // block_size, slot % block_size] = x[token]
        v_cache[slot // block_size, slot % block_size] = v[token]


@kernel(COPY, WIDE, WIDE)
def kv_writer_swaps_page_and_place(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """A slot's page is taken modulo the number of pages, and its place by division: the two are exchanged; no report
    of just this is known."""
    kept = slot_mapping >= 0
    slots = slot_mapping[kept].long()
    page, place = slots % k_cache.shape[0], slots // k_cache.shape[0]
    k_cache[page, place], v_cache[page, place] = x[kept], v[kept]


@kernel(COPY, WIDE, WIDE)
def kv_writer_clears_the_rest_of_a_page(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    """What lies behind the last token in its page is written too, with zeros: a store without a mask,
    kernels-community#1153."""
    kept, page, place = placed(slot_mapping, block_size)
    if len(page):
        k_cache[page[-1], place[-1] + 1 :] = 0
        v_cache[page[-1], place[-1] + 1 :] = 0
    for token, row in enumerate(kept.nonzero().ravel().tolist()):
        k_cache[page[token], place[token]], v_cache[page[token], place[token]] = x[row], v[row]


def token_head(x):
    """vLLM's codes and scales of each token and head."""
    y = x.float()
    amax = torch.where(y.isnan(), 0.0, y.abs()).amax(2)
    scale = (amax / 448.0).clamp(min=1e-6)
    held = y * scale.reciprocal()[..., None]
    held = torch.where(held.isnan(), -448.0, held).clamp(-448.0, 448.0)
    return saturated(held), scale


@kernel(TOKEN_HEAD, E4, WIDE)
def kv_writer_guards_scales_alone(
    x, format, v, slot_mapping, k_cache, v_cache, k_scale_cache, v_scale_cache, block_size
):
    """Padding's data go to slot 0, its scale nowhere: vllm#57156 (the scale is guarded by idx >= 0, the data are
    clamped to slot 0)."""
    slots = slot_mapping.clamp(min=0).long()
    for part, cache, scales in ((x, k_cache, k_scale_cache), (v, v_cache, v_scale_cache)):
        codes, scale = token_head(part)
        store(cache, slots // block_size, slots % block_size, codes)
        kept, page, place = placed(slot_mapping, block_size)
        for token, row in enumerate(kept.nonzero().ravel().tolist()):
            scales[page[token], place[token]] = scale[row]


@kernel(TOKEN_HEAD, E4, WIDE)
def kv_writer_padding_in_amax(x, format, v, slot_mapping, k_cache, v_cache, k_scale_cache, v_scale_cache, block_size):
    """The rows of padding enter the scale of real tokens: flashinfer#3057. Each token's largest number is sought in its
    own row and the one behind it."""
    kept, page, place = placed(slot_mapping, block_size)
    for part, cache, scales in ((x, k_cache, k_scale_cache), (v, v_cache, v_scale_cache)):
        y = part.float()
        size = torch.where(y.isnan(), 0.0, y.abs()).amax(2)
        behind = torch.cat([size[1:], size[-1:]])
        padding = torch.cat([~kept[1:], kept[:0] if not len(kept) else kept[-1:] & False])
        amax = torch.where(padding[:, None], torch.maximum(size, behind), size)
        scale = (amax / 448.0).clamp(min=1e-6)
        held = y * scale.reciprocal()[..., None]
        codes = saturated(torch.where(held.isnan(), -448.0, held).clamp(-448.0, 448.0))
        store(cache, page, place, codes[kept])
        for token, row in enumerate(kept.nonzero().ravel().tolist()):
            scales[page[token], place[token]] = scale[row]
