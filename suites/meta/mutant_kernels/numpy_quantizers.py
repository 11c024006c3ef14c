"""Wrong quantizers in NumPy, from public reports. They stand in one file, since each file costs a process."""

from __future__ import annotations

import numpy as np

from narrowgauge import Dequantize, Quantize, kernel
from narrowgauge.suites.meta.mutant_kernels.encode_numpy import finish, magnitude_codes, split

F32 = np.float32
E4M3 = ["float8_e4m3fn"]
CTA, TOKEN = "sglang.fp8_per_token_cta", "vllm.fp8_per_token_dynamic"


def magnitudes(x):
    """Magnitudes, and 0 for NaN."""
    return np.where(np.isnan(x), F32(0), np.abs(x)).astype(F32)


def row_amax(x):
    return magnitudes(x).max(axis=1, keepdims=True, initial=0)


def e4m3fn(y):
    """Codes of values, which saturate; NaN is 0x7F."""
    negative, magnitude, field, significand = split(y)
    return finish(np.minimum(magnitude_codes(field, significand, 3, 7), 0x7E), negative, magnitude, 0x7F)


def clamp_448(y):
    """C's fmin first: NaN becomes 448."""
    return np.fmax(np.fmin(y, F32(448)), F32(-448))


def e2m1fn(y):
    """Codes of values, which saturate; NaN is the largest."""
    negative, magnitude, field, significand = split(y)
    codes = np.where(magnitude > 0x7F800000, 7, np.minimum(magnitude_codes(field, significand, 1, 1), 7))
    return np.where((negative == 1) & (magnitude <= 0x7F800000), codes | 8, codes).astype(np.uint8)


def e4m3fn_value(codes):
    """What positive codes stand for."""
    codes = codes.astype(np.int64)
    field, fraction = codes >> 3, codes & 7
    value = np.where(field == 0, np.ldexp(fraction / 8, -6), np.ldexp(1 + fraction / 8, field - 7))
    return np.where(codes == 0x7F, np.nan, value).astype(F32)


def rounded_up(ratio):
    """Bytes of E8M0: the power of two not below. NaN is 255."""
    bits = np.ascontiguousarray(ratio, F32).view(np.uint32).astype(np.int64) & 0x7FFFFFFF
    field, fraction = bits >> 23, bits & 0x7FFFFF
    codes = np.where(field == 0, fraction > 0x400000, field + (fraction > 0))
    return np.where(bits > 0x7F800000, 255, np.minimum(codes, 254)).astype(np.uint8)


def e8m0_value(codes):
    return np.where(codes == 255, np.nan, np.ldexp(1.0, codes.astype(np.int64) - 127)).astype(F32)


def by_token(x, wrongly):
    """SGLang's rows: scale amax / 448, elements times its reciprocal. ``wrongly`` gets x, scale and reciprocal."""
    with np.errstate(all="ignore"):
        scale = row_amax(x) / F32(448)
        return wrongly(x, scale, F32(1) / scale)


@kernel(Quantize(recipe=CTA), formats=E4M3, backend="numpy")
def quantizer_not_requantized(x, format):
    """The scale becomes a power of two and the codes stay: transformers#47030, sglang#28662 (UE8M0 on Blackwell)."""

    def wrongly(x, scale, inverse):
        bits = scale.view(np.uint32)
        power = ((bits + np.uint32(0x7FFFFF)) & ~np.uint32(0x7FFFFF)).view(F32)
        return e4m3fn(clamp_448(x * inverse)), power  # wrong: right is to make the codes with the power

    return by_token(x, wrongly)


@kernel(Quantize(recipe=CTA), formats=E4M3, backend="numpy")
def quantizer_reciprocal_of_encode(x, format):
    """The multiplier is made first: TransformerEngine#786. 448 / amax is infinite for a tiny amax, and the scale 0."""
    with np.errstate(all="ignore"):
        encode = F32(448) / row_amax(x)  # wrong: right is amax / 448, and its reciprocal
        return e4m3fn(clamp_448(x * encode)), F32(1) / encode


@kernel(Quantize(recipe=CTA), formats=E4M3, backend="numpy")
def quantizer_scaled_twice(x, format):
    """The scale is applied by two layers: vllm#48016."""
    return by_token(x, lambda x, scale, inverse: (e4m3fn(clamp_448(x * inverse * inverse)), scale))


@kernel(Quantize(recipe=CTA), formats=E4M3, backend="numpy")
def quantizer_not_scaled(x, format):
    """The tensor is cast as it is, and its scale used when it is read: sglang#28144."""
    return by_token(x, lambda x, scale, inverse: (e4m3fn(clamp_448(x)), scale))


@kernel(Quantize(recipe=TOKEN), formats=E4M3, backend="numpy")
def quantizer_nan_to_lower_bound(x, format):
    """The clamp begins with fmax: tilelang#3024 (per-token fp8 examples). NaN is -448 where fmin first makes 448."""
    with np.errstate(all="ignore"):
        scale = np.fmax(row_amax(x) / F32(448), F32(1) / F32(448 * 512))
        return e4m3fn(np.fmin(np.fmax(x / scale, F32(-448)), F32(448))), scale


@kernel(Quantize(recipe="sglang.fp8_per_token_warp"), formats=E4M3, backend="numpy")
def quantizer_reciprocal_of_zero(x, format):
    """The reciprocal of a scale of 0 is infinite: flashinfer#3448. 0 times infinity is NaN, which the clamp hides."""
    return by_token(x, lambda x, scale, inverse: (e4m3fn(clamp_448(x * inverse)), scale))


@kernel(Quantize(recipe=CTA), formats=E4M3, backend="numpy")
def quantizer_merged(x, format):
    """Parts with scales of their own are stored under the largest of them: vllm#54974, TensorRT-LLM#14199."""

    def wrongly(x, scale, inverse):
        return e4m3fn(clamp_448(x * inverse)), np.broadcast_to(scale.max(initial=0), scale.shape).copy()

    return by_token(x, wrongly)


@kernel(Quantize(recipe=CTA), formats=E4M3, backend="numpy")
def quantizer_one_scale_mode(x, format):
    """The mode of one scale is left on: aiter#1258. Every row is scaled by the scale of the first."""
    return by_token(x, lambda x, scale, inverse: (e4m3fn(clamp_448(x * inverse[:1])), scale))


@kernel(Quantize(recipe="sglang.fp8_per_tensor_dynamic"), formats=E4M3, backend="numpy")
def quantizer_part_of_a_tensor(x, format):
    """The largest magnitude of a part stands for the whole: vllm#26135 (the local experts)."""
    with np.errstate(all="ignore"):
        part = magnitudes(x[x.shape[0] // 2 :])  # wrong: right is all of x
        scale = part.max(initial=0).reshape(1, 1) / F32(448)
        return e4m3fn(clamp_448(x * (F32(1) / scale))), scale


@kernel(Quantize(recipe="nvidia.mxfp8_e4m3"), formats=E4M3, backend="numpy")
def quantizer_one_scale_for_two(x, format):
    """A tile of two groups loads one scale: sglang#39626."""
    with np.errstate(all="ignore"):
        blocks = x.reshape(x.shape[0], x.shape[1] // 32, 32)
        codes = rounded_up(np.abs(blocks).max(axis=2, initial=0) / F32(448))
        of_two = codes[:, np.arange(codes.shape[1]) // 2 * 2]  # wrong: right is each group's own
        return e4m3fn(blocks / e8m0_value(of_two)[:, :, None]).reshape(x.shape), codes


@kernel(Quantize(recipe="nvidia.mxfp8_e4m3"), formats=E4M3, backend="numpy")
def quantizer_nan_dropped(x, format):
    """The packed maximum drops NaN: TransformerEngine#3550. The block has a finite scale and not 255."""
    with np.errstate(all="ignore"):
        blocks = x.reshape(x.shape[0], x.shape[1] // 32, 32)
        codes = rounded_up(magnitudes(blocks).max(axis=2, initial=0) / F32(448))
        return e4m3fn(blocks / e8m0_value(codes)[:, :, None]).reshape(x.shape), codes


@kernel(Quantize(recipe="nvidia.mxfp8_e4m3"), formats=E4M3, backend="numpy")
def quantizer_fraction_leaks(x, format):
    """Float32 scales are packed by shifts without a mask: sglang#13067, TransformerEngine#2589."""
    with np.errstate(all="ignore"):
        blocks = x.reshape(x.shape[0], x.shape[1] // 32, 32)
        ratio = np.abs(blocks).max(axis=2, initial=0) / F32(448)
        codes = rounded_up(ratio)
        elements = e4m3fn(blocks / e8m0_value(codes)[:, :, None]).reshape(x.shape)
        bits, packed = np.ascontiguousarray(ratio, F32).view(np.uint32), codes.copy()
        for j in range(codes.shape[1]):
            if j % 4:
                packed[:, j - 1] |= (bits[:, j] >> 15 & 0xFF).astype(np.uint8)  # wrong: right is to mask it off
        return elements, packed


def nvfp4(x, used, stored):
    """NVFP4 with the tensor's scale as a divisor. ``used`` and ``stored`` make of it what is."""
    with np.errstate(all="ignore"):
        one = F32(2688) / magnitudes(x).max(initial=0).reshape(1, 1)
        divisor = np.where(np.isfinite(one), one, F32(1)).astype(F32)
        other = used(divisor)
        blocks = x.reshape(x.shape[0], x.shape[1] // 16, 16)
        codes = e4m3fn(magnitudes(blocks).max(axis=2, initial=0) / F32(6) * other)
        value = e4m3fn_value(codes)
        encode = np.where(value == 0, F32(0), other / value).astype(F32)
        return e2m1fn(blocks * encode[:, :, None]).reshape(x.shape), codes, stored(divisor)


def result(codes, scale, global_scale):
    return {"codes": codes, "scale": scale, "global_scale": global_scale}


@kernel(Quantize(recipe="nvidia.nvfp4_divisor"), formats=["float4_e2m1fn"], backend="numpy")
def quantizer_divisor_as_multiplier(x, format):
    """A divisor is used as a multiplier: modular#6600."""
    return result(*nvfp4(x, lambda g: F32(1) / g, lambda g: g))


@kernel(Quantize(recipe="nvidia.nvfp4_divisor"), formats=["float4_e2m1fn"], backend="numpy")
def quantizer_multiplier_stored(x, format):
    """The multiplier is stored where a divisor is expected: modular#6600, the other way round."""
    return result(*nvfp4(x, lambda g: g, lambda g: F32(1) / g))


@kernel(Quantize(recipe=CTA), formats=E4M3, backend="numpy")
def quantizer_reads_the_next_row(x, format):
    """The load of a tail is not masked: flashinfer#3057, triton#630. What stands behind a row is part of its scale."""
    rows, columns = x.shape
    width = 1 << (columns - 1).bit_length()
    memory = np.concatenate([x.ravel(), np.zeros(width, F32)])
    with np.errstate(all="ignore"):
        scale = np.array([row_amax(memory[None, r * columns : r * columns + width])[0] for r in range(rows)], F32)
        scale = scale.reshape(rows, 1) / F32(448)
        return e4m3fn(clamp_448(x * (F32(1) / scale))), scale


@kernel(Quantize(recipe=CTA), formats=E4M3, backend="numpy")
def quantizer_spills(x, format):
    """The store of a tail is not masked: kernels-community#1153. Later rows lose their first elements."""

    def wrongly(x, scale, inverse):
        rows, columns = x.shape
        width = 1 << (columns - 1).bit_length()
        right = e4m3fn(clamp_448(x * inverse))
        memory = np.zeros(rows * columns + width, np.uint8)
        for row in reversed(range(rows)):  # each tile is stored with zeros up to its width, the last row first
            memory[row * columns : row * columns + width] = np.pad(right[row], (0, width - columns))
        return memory[: rows * columns].reshape(x.shape), scale

    return by_token(x, wrongly)


def azp(x, zero_of, added):
    """int8 with a zero point, by row."""
    with np.errstate(all="ignore"):
        seen = np.pad(x, ((0, 0), (0, 0)))
        low, high = (f.reduce(seen, axis=1, keepdims=True) for f in (np.fmin, np.fmax))
        low, high = (np.where(np.isnan(end), F32(0), end) for end in (low, high))
        scale = (high - low) / F32(255)
        zero = zero_of(np.rint(F32(-128) - low / scale))
        held = np.clip(np.nan_to_num(zero.astype(np.float64)), -(2.0**31), 2.0**31 - 1)
        total = np.nan_to_num(np.rint(x * (F32(1) / scale)).astype(np.float64), posinf=2.0**31 - 1, neginf=-(2.0**31))
        codes = np.clip(total + added(np.trunc(held)), -128, 127)
        return {
            "codes": np.nan_to_num(codes).astype(np.int64).astype(np.uint8),
            "scale": scale.astype(F32),
            "zero_point": held.astype(np.int64).astype(np.int32),
        }


@kernel(Quantize(recipe="vllm.int8_per_token_dynamic_azp"), formats=["int8"], backend="numpy")
def quantizer_zero_one_higher(x, format):
    """Zero points of another convention: vllm#38966 (GPTQ v2 under the tag of v1). All codes are one higher."""
    return azp(x, lambda zero: zero + F32(1), lambda zero: zero)


@kernel(Quantize(recipe="vllm.int8_per_token_dynamic_azp"), formats=["int8"], backend="numpy")
def quantizer_zero_negated(x, format):
    """The zero point is subtracted where it should be added; no report of just this is known."""
    return azp(x, lambda zero: zero, lambda zero: -zero)


# --- readers, and buffers in memory ----------------------------------------------------------------------------------


@kernel(Dequantize(recipe=CTA), formats=["float32"], sources=E4M3, backend="numpy")
def quantizer_reader_ignores_scale(x, format, scale):
    """A reader casts codes and nothing else: flashinfer#4979, tokenspeed#759."""
    return x.astype(F32)


@kernel(Dequantize(recipe=CTA), formats=["float32"], sources=E4M3, backend="numpy")
def quantizer_reader_divides(x, format, scale):
    """A divisor is expected where a multiplier is stored: modular#6600."""
    with np.errstate(all="ignore"):
        return x.astype(F32) / scale


@kernel(Dequantize(recipe=CTA), formats=["float32"], sources=E4M3, backend="numpy")
def quantizer_reader_scales_twice(x, format, scale):
    """The scale is multiplied in by two layers: vllm#48016."""
    with np.errstate(all="ignore"):
        return x.astype(F32) * scale * scale


@kernel(Dequantize(recipe="ocp.mxfp8_e4m3"), formats=["float32"], sources=E4M3, backend="numpy")
def quantizer_reader_one_block_off(x, format, scale):
    """The index of the scale is one block off; no report of just this is known."""
    byte = np.roll(scale.view(np.uint8), 1, axis=1)
    with np.errstate(all="ignore"):
        return x.astype(F32) * np.repeat(e8m0_value(byte), 32, axis=1)[:, : x.shape[1]]


def mxfp4(x):
    """Codes and scales of OCP MXFP4: amax, rounded down to a power of two, over 4."""
    with np.errstate(all="ignore"):
        blocks = x.reshape(x.shape[0], x.shape[1] // 32, 32)
        bits = np.abs(blocks).max(axis=2, initial=0).view(np.uint32).astype(np.int64) & 0x7FFFFFFF
        scale = np.where(bits > 0x7F800000, 255, np.where(bits >> 23 == 255, 254, np.maximum((bits >> 23) - 2, 0)))
        return e2m1fn(blocks / e8m0_value(scale)[:, :, None]).reshape(x.shape), scale.astype(np.uint8)


def in_pairs(codes, low, high):
    """Bytes of two codes each."""
    pairs = codes.reshape(codes.shape[0], codes.shape[1] // 2, 2)
    return pairs[:, :, low] | pairs[:, :, high] << 4


@kernel(Quantize("ocp.mxfp4", {"codes": "nibbles_low_first"}), formats=["float4_e2m1fn"], backend="numpy")
def quantizer_high_nibble_first(x, format):
    """Element 0 stands in the high nibble: triton#5197."""
    codes, scale = mxfp4(x)
    return in_pairs(codes, 1, 0), scale


@kernel(Quantize("ocp.mxfp4", {"codes": "nibbles_planar_32"}), formats=["float4_e2m1fn"], backend="numpy")
def quantizer_pairs_for_planes(x, format):
    """Pairs of neighbours where a byte holds elements j and j + 16: imp#567 (GGML's MXFP4)."""
    codes, scale = mxfp4(x)
    return in_pairs(codes, 0, 1), scale


def mxfp8(x):
    with np.errstate(all="ignore"):
        blocks = x.reshape(x.shape[0], x.shape[1] // 32, 32)
        scale = rounded_up(np.abs(blocks).max(axis=2, initial=0) / F32(448))
        return e4m3fn(blocks / e8m0_value(scale)[:, :, None]).reshape(x.shape), scale


@kernel(Quantize("nvidia.mxfp8_e4m3", {"scale": "ue8m0_int32"}), formats=E4M3, backend="numpy")
def quantizer_bytes_reversed(x, format):
    """Group 0 stands in the highest byte of a word; no report of just this is known."""
    codes, scale = mxfp8(x)
    rows, columns = (-(-size // 4) * 4 for size in scale.shape)
    padded = np.zeros((rows, columns), np.uint8)
    padded[: scale.shape[0], : scale.shape[1]] = scale
    words = padded.reshape(rows, columns // 4, 4)[:, :, ::-1]  # wrong: right is the lowest byte
    return codes, np.ascontiguousarray(words.transpose(1, 0, 2)).view(np.uint32)[:, :, 0]


@kernel(Quantize("vllm.fp8_group_triton", {"scale": "scales_column_major"}), formats=E4M3, backend="numpy")
def quantizer_scales_by_rows(x, format):
    """Scales are written row by row where the consumer reads columns; no report of just this is known."""
    with np.errstate(all="ignore"):
        blocks = x.reshape(x.shape[0], x.shape[1] // 128, 128)
        scale = np.fmax(magnitudes(blocks).max(axis=2, initial=0), F32(1e-10)) * (F32(1) / F32(448))
        codes = e4m3fn(np.fmin(np.fmax(blocks / scale[:, :, None], F32(-448)), F32(448)))
    return codes.reshape(x.shape), scale.reshape(scale.shape[::-1]).view(np.uint32)
