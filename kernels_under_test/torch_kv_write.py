"""Writers of key-value caches by torch's own operations: a cast, and index_put."""

from __future__ import annotations

import torch

from narrowgauge import KvWrite, kernel
from narrowgauge.kernels_under_test.claiming import BFLOAT16, E4M3, E5M2, FLOAT32, FNUZ, FP4
from narrowgauge.kernels_under_test.hadamard_signs import signs_of
from narrowgauge.kernels_under_test.kv_checks import check_bytes
from narrowgauge.kernels_under_test.kv_places import (
    by_columns,
    flat,
    hnd,
    in_heads,
    in_row,
    in_words,
    index_of,
    nhd,
    packed_keys,
    patterns,
    scales,
)
from narrowgauge.kernels_under_test.kv_rows import SKIP_NEGATIVE, WRITE_ALL, Rows, checked

FLOAT16, INT8, UINT4 = ("float16",), ("int8",), ("uint4",)
#: what vLLM divides by
BOUNDS = {"float8_e4m3fn": 448.0, "float8_e4m3fnuz": 224.0}


def torch_writer(cache, formats, sources):
    return kernel(KvWrite(cache), formats, sources, owner="narrowgauge", backend="torch")


# --- the frame -------------------------------------------------------------------------------------------------------


def put(view, slots, rows):
    """Rows of elements [tokens, heads, elements] into slots."""
    words = in_words(view)
    if words is None:
        patterns(view)[index_of(view, slots)] = patterns(rows).unflatten(-1, view.shape[4:])
    else:
        words[slots.long()] = rows.flatten(1).contiguous().view(torch.int64)


def write(slots, *parts, rule=SKIP_NEGATIVE):
    """Write parts of tokens into their slots. A recipe is given a part, and returns codes and scales or None."""
    slots = checked(slots, parts, rule)
    for part in parts:
        for few, to in zip(part.pieces(), slots.split(part.at_once), strict=True):
            codes, scale = part.recipe(few) if part.recipe else (few.x, None)
            kept = (to >= rule.lowest).nonzero().ravel()
            put(part.view, to[kept], taken(codes, kept))
            if scale is not None:
                put(part.scales, to[kept], taken(scale, kept))


def taken(rows, kept):
    """The rows that are kept, without a copy where all are."""
    return rows if len(kept) == len(rows) else rows[kept]


def held(value, format):
    """The nearest codes, held to the largest value; NaN stays. The values are overwritten."""
    dtype = getattr(torch, format)
    return value.clamp_(-torch.finfo(dtype).max, torch.finfo(dtype).max).to(dtype)


def grouped(part):
    """Float32 [tokens, heads, groups, elements], and the largest magnitude of each group; NaN counts as nothing."""
    x = part.x.float().unflatten(-1, (-1, part.group))
    return x, x.abs().nan_to_num(nan=0.0, posinf=torch.inf).amax(-1, keepdim=True)


def in_nibbles(codes):
    """Two codes a byte, the even one low."""
    return (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8)


# --- recipes ---------------------------------------------------------------------------------------------------------


def divided(part):
    return held(part.x / part.given[:, None], part.format), None  # a float32, whatever x is


def in_own_format(part):
    """SGLang's division in the format of x, and torch's own cast."""
    return (part.x / part.given.to(part.x.dtype)[:, None]).to(getattr(torch, part.format)), None


def token_head(part):
    x, amax = grouped(part)
    scale = (amax / BOUNDS[part.format]).clamp(min=1e-6)
    value = (x * (1.0 / scale)).nan_to_num(nan=-torch.inf)  # the engine's clamp makes of NaN the smallest
    return held(value.clamp(-BOUNDS[part.format], BOUNDS[part.format]), part.format).flatten(2), scale.flatten(2)


def add_half(value):
    """Half a unit away from zero is added; what is cut then is the nearest."""
    return (value + torch.copysign(torch.full_like(value, 0.5), value)).trunc()


def token_head_int8(part):
    x, amax = grouped(part)
    scale = (amax / 127.0).clamp(min=1e-6)
    whole = add_half(x * (1.0 / scale)).nan_to_num(nan=-128.0).clamp(-128.0, 127.0)
    return whole.to(torch.int8).flatten(2), scale.flatten(2)


def rotated_by_hadamard(x):
    """Signs, then butterflies within the largest power of two that divides a head; bfloat16, as float32 numbers."""
    width, distance = x.shape[-1], 1
    turned = x.float() * signs_of(width, x.device)
    while distance < width & -width:
        above, below = turned.unflatten(-1, (-1, 2, distance)).unbind(-2)
        turned = torch.stack([above + below, above - below], dim=-2).flatten(-3)
        distance *= 2
    return turned.to(torch.bfloat16).float()


def token_head_int4(part):
    x = rotated_by_hadamard(part.x)
    largest = x.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf).amax(-1, keepdim=True)
    smallest = x.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf).amin(-1, keepdim=True)
    none = x.isnan().all(-1, keepdim=True)
    largest, smallest = largest.masked_fill(none, 0.0), smallest.masked_fill(none, 0.0)
    scale = ((largest - smallest) / 15.0).nan_to_num(nan=0.0, posinf=torch.inf).clamp(min=1e-6)
    zero = add_half(-smallest / scale).nan_to_num(nan=0.0).clamp(0.0, 15.0)
    code = add_half(x * (1.0 / scale) + zero).nan_to_num(nan=0.0).clamp(0.0, 15.0).to(torch.uint8)
    return in_nibbles(code), ((scale.view(torch.int32) & -16) | zero.int()).view(torch.float32)


def ds_mla(part):
    x, amax = grouped(part)
    fraction, exponent = torch.frexp((amax / torch.finfo(torch.float8_e4m3fn).max).clamp(min=1e-4))
    scale = torch.ldexp(torch.ones_like(amax), exponent - (fraction == 0.5).int())  # up to a power of two, exactly
    scale = torch.where(amax.isinf(), amax, scale)
    return held(x / scale, part.format).flatten(2), scale.flatten(2)


def fp4_block16_eager(part):
    """Step by step in the format of x, ties away from zero."""
    x = part.x.unflatten(-1, (-1, 16))
    amax = x.abs().amax(-1, keepdim=True)
    power = torch.exp2(torch.ceil(torch.log2((amax / 6.0).clamp(min=1e-10))))
    value = (x / power).float()
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], device=x.device)
    code = (value.abs()[..., None] >= ties).sum(-1) | (value < 0).long() << 3
    exponent = power.float().nan_to_num(nan=0.0, posinf=0.0).view(torch.int32) >> 23
    return in_nibbles(code.flatten(2)), exponent.to(torch.uint8).flatten(2)


def rotated(part):
    """Halves of the first columns in pairs, by cosines and sines of each position; the other columns as they are."""
    cosine, sine = part.beside[part.positions.long()].float()[:, None].chunk(2, dim=-1)
    half = cosine.shape[-1]
    one, two = part.x[..., :half].float(), part.x[..., half : 2 * half].float()
    turned = torch.cat([one * cosine - two * sine, two * cosine + one * sine], dim=-1)
    return torch.cat([turned.to(part.x.dtype), part.x[..., 2 * half :]], dim=-1), None


# --- the kernels -----------------------------------------------------------------------------------------------------


@torch_writer("vllm.flash_copy", BFLOAT16, BFLOAT16)
def torch_kv_copy(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    write(slot_mapping, Rows("k", x, nhd(k_cache), format=format), Rows("v", v, nhd(v_cache), format=format))


@torch_writer("vllm.paged_copy", FLOAT16, FLOAT16)
def torch_kv_paged_copy(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    write(
        slot_mapping,
        Rows("k", x, packed_keys(k_cache), format=format),
        Rows("v", v, by_columns(v_cache), format=format),
    )


@torch_writer("vllm.flash_copy_rope", BFLOAT16, BFLOAT16)
def torch_kv_rope_copy(x, format, v, slot_mapping, k_cache, v_cache, cos_sin, positions):
    k = Rows("k", x, nhd(k_cache), rotated, format, formats=BFLOAT16, beside=cos_sin, positions=positions)
    write(slot_mapping, k, Rows("v", v, nhd(v_cache), format=format))


def by_scale(slots, k, v, format, recipe=divided, per_head=False, rule=SKIP_NEGATIVE):
    """K and V over their static scales; each comes with its view and its scale."""
    parts = ("k", *k), ("v", *v)
    write(slots, *(Rows(n, x, to, recipe, format, given=g, per_head=per_head) for n, x, to, g in parts), rule=rule)


@torch_writer("vllm.flash_fp8", (*E4M3, *E5M2), FLOAT32)
def torch_kv_fp8(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    by_scale(slot_mapping, (x, nhd(k_cache), k_scale), (v, nhd(v_cache), v_scale), format)


@torch_writer("vllm.flash_fp8_rocm_hnd", FNUZ, BFLOAT16)
def torch_kv_fp8_rocm_hnd(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    by_scale(slot_mapping, (x, hnd(k_cache), k_scale), (v, hnd(v_cache), v_scale), format)


@torch_writer("vllm.flash_fp8_head", E4M3, FLOAT16)
def torch_kv_fp8_head(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    by_scale(slot_mapping, (x, nhd(k_cache), k_scale), (v, nhd(v_cache), v_scale), format, per_head=True)


@torch_writer("sglang.fp8", (*E4M3, *E5M2), BFLOAT16)
def torch_kv_pool_fp8(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    k, v = (x, flat(k_cache), k_scale), (v, flat(v_cache), v_scale)
    by_scale(slot_mapping, k, v, format, in_own_format, rule=WRITE_ALL)


def token_heads(slots, x, v, caches, scale_caches, recipe, format, **more):
    """K and V, each with a scale of each head of a token."""
    parts = zip(("k", "v"), (x, v), caches, scale_caches, strict=True)
    write(slots, *(Rows(n, e, nhd(c), recipe, format, scales=scales(s), **more) for n, e, c, s in parts))


@torch_writer("vllm.fp8_token_head", (*E4M3, *FNUZ), BFLOAT16)
def torch_kv_fp8_token_head(x, format, v, slot_mapping, k_cache, v_cache, k_scale_cache, v_scale_cache):
    token_heads(slot_mapping, x, v, (k_cache, v_cache), (k_scale_cache, v_scale_cache), token_head, format)


@torch_writer("vllm.int8_token_head", INT8, FLOAT32)
def torch_kv_int8_token_head(x, format, v, slot_mapping, k_cache, v_cache, k_scale_cache, v_scale_cache):
    token_heads(
        slot_mapping, x, v, (k_cache, v_cache), (k_scale_cache, v_scale_cache), token_head_int8, format, formats=INT8
    )


@torch_writer("vllm.int4_token_head", UINT4, BFLOAT16)
def torch_kv_int4_token_head(x, format, v, slot_mapping, k_cache, v_cache, k_scale_cache, v_scale_cache):
    caches, scale_caches = (k_cache, v_cache), (k_scale_cache, v_scale_cache)
    token_heads(slot_mapping, x, v, caches, scale_caches, token_head_int4, format, formats=UINT4, pack=2)


@torch_writer("vllm.fp8_ds_mla", E4M3, BFLOAT16)
def torch_kv_ds_mla(x, format, rope, slot_mapping, kv_cache):
    check_bytes("kv_cache", kv_cache, 656)
    codes, of = in_row(kv_cache, 0, 512), in_row(kv_cache, 512, 4, torch.float32)
    latent = Rows("latent", x[:, None], codes, ds_mla, format, size=128, scales=of)
    write(
        slot_mapping, latent, Rows("rope", rope[:, None], in_row(kv_cache, 528, 64, torch.bfloat16), format="bfloat16")
    )


@torch_writer("sglang.fp4_block16_eager", FP4, BFLOAT16)
def torch_kv_fp4_block16_eager(x, format, v, slot_mapping, k_cache, v_cache, k_scale_cache, v_scale_cache):
    parts = ("k", x, k_cache, k_scale_cache), ("v", v, v_cache, v_scale_cache)
    write(
        slot_mapping,
        *(
            Rows(
                name, each, flat(codes), fp4_block16_eager, format, formats=FP4, size=16, pack=2,
                scales=flat(in_heads(of, each.shape[1])), scale_format="float8_e8m0fnu",
            )
            for name, each, codes, of in parts
        ),
        rule=WRITE_ALL,
    )  # fmt: skip
