"""Wrong casts in NumPy, from public reports and a reviewer. They stand in one file, since each file costs a process."""

from __future__ import annotations

import numpy as np

from narrowgauge import Cast, CastPolicy, kernel
from narrowgauge.suites.meta.mutant_kernels.encode_numpy import finish, magnitude_codes, nearest_even, split


@kernel(Cast(policy="ocp_saturate"), formats=["float8_e4m3fn"], sources=["float32"], backend="numpy")
def numpy_carry_lost(x, format):
    """The carry out of the fraction is lost: triton#8322 and triton#11897 (the interpreter's ``_convert_float``).

    The mistake: exponent and rounded fraction are put together by "or", the fraction cut to its width. Where rounding
    fills the fraction up, nothing is added to the exponent: 1.97 gives 0x38 (1.0) and not 0x40 (2.0), 126.24 gives 64.
    """
    negative, magnitude, field, significand = split(x)
    binade = np.maximum(field, 121)
    rounded = nearest_even(significand, np.minimum(20 + binade - field, 25))
    exponent = np.where(field >= 121, field - 120, 0)
    codes = exponent << 3 | rounded & 7  # wrong: right is to add
    largest = magnitude >= 0x43E80001  # all above 464
    codes = np.where(largest, 0x7E, codes)
    return finish(codes, negative, magnitude, 0x7F)


@kernel(Cast(policy="ocp_saturate"), formats=["float8_e4m3fn"], sources=["float16"], backend="numpy")
def numpy_limit_before_rounding(x, format):
    """The limit is compared before rounding: Triton's AMD software conversion of float16 to fp8e4nv.

    The mistake: magnitudes from 480 on are set to 448, 480 being the value that the code after the largest would have.
    But what lies between 464 and 480 rounds to that code, which is NaN: 472 gives 0x7F and not 0x7E.
    """
    negative, magnitude, field, significand = split(x.astype(np.float32))
    codes = magnitude_codes(field, significand, mantissa=3, bias=7)
    codes = np.where(magnitude >= 0x43F00000, 0x7E, codes)  # wrong: right is to look at the code
    return finish(codes, negative, magnitude, 0x7F)


@kernel(Cast(policy="ocp_saturate"), formats=["float8_e4m3fn"], sources=["float32"], backend="numpy")
def numpy_nan_to_lower_bound(x, format):
    """NaN becomes the lower bound of the clamp: tilelang#3024 (``T.clamp`` in the shipped per-token fp8 examples).

    The mistake: C's fmax comes first and returns the operand that is a number, so NaN is -448 (0xFE) and not NaN.
    """
    x = np.where(x > -448, x, np.float32(-448))  # wrong: right is a comparison that lets NaN through
    x = np.where(x < 448, x, np.float32(448))
    negative, magnitude, field, significand = split(x)
    return finish(magnitude_codes(field, significand, mantissa=3, bias=7), negative, magnitude, 0x7F)


@kernel(Cast(policy="ocp_saturate"), formats=["float8_e5m2"], sources=["float32"], backend="numpy")
def numpy_shift_wraps(x, format):
    """A shift count that wraps: rocm-systems#10591 and ocannl#647 (amd_hip_fp8.h, cast_to_f8), composable_kernel#2571.

    The mistake: the significand of a value far below the destination's smallest normal is shifted right by the
    difference of the exponents, in a 64-bit integer. A processor takes the count modulo 64. In e5m2 2^-78 is then
    shifted by 0 and not by 64, and gives 0x04 (2^-14) and not 0x00.
    """
    negative, magnitude, field, significand = split(x)
    below = np.maximum(113 - field, 0)  # 113 is the field of 2^-14
    lost = np.where(below < 64, significand & (1 << np.minimum(below, 40)) - 1, 0)
    significand = significand >> (below & 63)  # wrong: right is no significand at all from 64 on
    cut, kept = significand & 0x1FFFFF, significand >> 21
    up = (cut > 1 << 20) | ((cut == 1 << 20) & ((lost > 0) | (kept & 1 == 1)))
    codes = kept + up + (np.maximum(field - 113, 0) << 2)
    return finish(np.minimum(codes, 0x7B), negative, magnitude, 0x7F)


@kernel(Cast(policy="ocp_saturate"), formats=["float8_e4m3fn"], sources=["float16"], backend="numpy")
def numpy_subnormals_rounded_twice(x, format):
    """Subnormals are rounded twice: openvino#30057 (float16 to e4m3).

    The mistake: the significand is first rounded to the destination's four bits, and where the result is subnormal it
    is shifted and rounded again. 0.00292205810546875 (just below 1.5 x 2^-9) is first 1.5 x 2^-9, a tie, and then 0x02.
    """
    negative, magnitude, field, significand = split(x.astype(np.float32))
    significand = nearest_even(significand, 20) << 20  # wrong: right is one rounding, at the place of the result
    codes = np.minimum(magnitude_codes(field, significand, mantissa=3, bias=7), 0x7E)
    return finish(codes, negative, magnitude, 0x7F)


@kernel(Cast(policy="torch_from_2_13"), formats=["float8_e8m0fnu"], sources=["float32"], backend="numpy")
def numpy_e8m0_lowest_binade(x, format):
    """The lowest binade of E8M0 is rounded up: onnxruntime#28435 (review); torch and ml_dtypes do the same.

    The mistake: the exponent field is raised by the bits below it (guard, round and lowest bit of a normal number). The
    values from 2^-127 to 2^-126 are subnormal in float32: the leading bit of 2^-127 is the guard bit, so 1.25 x 2^-127
    looks like more than a half and gives 0x01 and not 0x00.
    """
    _, magnitude, _, _ = split(x)
    field = magnitude >> 23
    guard, below = magnitude >> 22 & 1, (magnitude & 0x3FFFFF) > 0
    up = (guard == 1) & (below | (field > 0))  # wrong: right is to look one bit further down where the field is 0
    return np.where(field == 255, 255, field + up).astype(np.uint8)


@kernel(Cast(CastPolicy(rounding="up")), formats=["float8_e8m0fnu"], sources=["float32"], backend="numpy")
def numpy_e8m0_mask(x, format):
    """Rounding up looks at a part of the fraction: onnx#7784 (``to_float8e8m0`` with round mode "up").

    The mistake: the fraction is masked with 0x4FFFFF where it should be 0x7FFFFF. 1.125, whose only bit is not in the
    mask, gives 0x7F and not 0x80.
    """
    negative, magnitude, _, _ = split(x)
    field, fraction = magnitude >> 23, magnitude & 0x4FFFFF  # wrong: right is 0x7FFFFF
    # Below 2^-126 float32 has no implicit bit: what is at most 2^-127 is code 0.
    codes = np.where(field == 0, magnitude & 0x7FFFFF > 0x400000, field + (fraction > 0))
    codes = np.where(negative == 1, 0, np.minimum(codes, 254))
    return np.where(magnitude > 0x7F800000, 255, codes).astype(np.uint8)


@kernel(Cast(CastPolicy(rounding="up")), formats=["float8_e8m0fnu"], sources=["float32"], backend="numpy")
def numpy_e8m0_nearest(x, format):
    """The shared exponent is the nearest one: mlx#4353 (Metal and CPU mxfp8; CUDA rounds up).

    The mistake: the scale is rounded to the nearest power of two, so that for half of all blocks it is too small and
    their largest elements are clipped. 1.25 gives 0x7F and not 0x80.
    """
    negative, magnitude, _, _ = split(x)
    with np.errstate(invalid="ignore"):
        significand, exponent = np.frexp(np.abs(x).astype(np.float64))  # x = significand * 2^exponent, from 0.5 on
    codes = exponent - 1 + (significand >= 0.75) + 127  # wrong: right is to go up from 0.5 already
    codes = np.where((negative == 1) | (magnitude == 0), 0, np.clip(codes, 0, 254))
    codes = np.where((magnitude == 0x7F800000) & (negative == 0), 254, codes)
    return np.where(magnitude > 0x7F800000, 255, codes).astype(np.uint8)


@kernel(Cast(policy="integer_nearest"), formats=["int8"], sources=["float32"], backend="numpy")
def numpy_half_added(x, format):
    """Half is added in float32 before cutting: vLLM's int8 KV cache (per token and head), as it was read and measured.

    The mistake: x + 0.5 is rounded to float32 before the fraction is cut. 0.49999997 + 0.5 is 1.0, so 0.49999997 gives
    1 and not 0; and ties go away from zero.
    """
    with np.errstate(invalid="ignore"):
        rounded = np.trunc(x + np.copysign(np.float32(0.5), x))  # wrong: right is to round x itself
    rounded = np.clip(np.nan_to_num(rounded, nan=0.0, posinf=127, neginf=-128), -128, 127)
    return rounded.astype(np.int8).view(np.uint8)


@kernel(Cast(policy="ieee"), formats=["bfloat16"], sources=["float8_e5m2"], backend="numpy")
def numpy_specials_as_numbers(x, format):
    """Infinity and NaN are widened like numbers: triton#11784 and intel-xpu-backend-for-triton#7771 (fp8 to bf16).

    The mistake: the code is shifted to where bfloat16 has its fields and the bias is mended by a product. 0x7C of e5m2
    gives 65536 and not infinity.
    """
    codes = x.view(np.uint8).astype(np.uint32)
    shifted = (codes & 0x7F) << 21  # two bits of fraction below the exponent field of float32
    value = shifted.view(np.float32) * np.float32(2.0**112)  # wrong: right is to mend what had the top exponent
    bits = value.view(np.uint32) >> 16 | (codes & 0x80) << 8
    return bits.astype(np.uint16)


@kernel(Cast(policy="ieee"), formats=["float16"], sources=["float8_e4m3fn"], backend="numpy")
def numpy_subnormals_as_normals(x, format):
    """Subnormals are read by the formula of normal numbers: 1bit-MONSTER#300 and b12x#388 (small NVFP4 scales).

    The mistake: the implicit one is put before every fraction but that of zero. 0x01 of e4m3fn gives 0.0087890625 and
    not 0.001953125.
    """
    codes = x.view(np.uint8).astype(np.int64)
    magnitude = codes & 0x7F
    value = np.ldexp(1 + (magnitude & 7) / 8, (magnitude >> 3) - 7)  # wrong: right is 0.fraction x 2^-6 in the field 0
    value = np.where(magnitude == 0, 0.0, np.where(magnitude == 0x7F, np.nan, value))
    return np.where(codes >= 0x80, -value, value).astype(np.float16).view(np.uint16)


@kernel(Cast(policy="ocp_saturate"), formats=["float8_e4m3fn"], sources=["float32"], backend="numpy")
def numpy_clamped_to_240(x, format):
    """The clamp of a kernel for FNUZ was kept when it was ported to OCP.

    The mistake: e4m3fnuz ends at 240, e4m3fn at 448. 300 gives 0x77 (240) and not 0x79 (288).
    """
    x = np.clip(x, np.float32(-240), np.float32(240))  # wrong: right is 448
    negative, magnitude, field, significand = split(x)
    return finish(magnitude_codes(field, significand, mantissa=3, bias=7), negative, magnitude, 0x7F)


@kernel(Cast(policy="ocp_saturate"), formats=["float8_e4m3fn"], sources=["float32"], backend="numpy")
def numpy_flushed_before_rounding(x, format):
    """Subnormal results are taken for zeros, by a look at the input.

    The mistake: an exponent below that of the smallest normal, 2^-6, gives zero. So does 0.0155, which rounds to 2^-6.
    """
    negative, magnitude, field, significand = split(x)
    codes = np.minimum(magnitude_codes(field, significand, mantissa=3, bias=7), 0x7E)
    return finish(np.where(field < 121, 0, codes), negative, magnitude, 0x7F)  # wrong: right is the code itself


@kernel(Cast(policy="ocp_saturate"), formats=["float8_e4m3fn"], sources=["float32"], backend="numpy")
def numpy_half_up(x, format):
    """Rounding by floor(x + 0.5), which is to nearest with ties toward +infinity.

    The mistake: ties go up, not to even. -1.0625, between 0xB8 (-1) and 0xB9 (-1.125), gives 0xB8, and so it should;
    1.0625 gives 0x39 and not 0x38.
    """
    negative, magnitude, _, _ = split(x)
    value = np.clip(np.nan_to_num(x.astype(np.float64), nan=0.0), -448, 448)
    step = np.ldexp(1.0, np.maximum(np.frexp(value)[1] - 1, -6) - 3)  # between the codes beside the value
    rounded = np.abs(np.floor(value / step + 0.5) * step)  # wrong: right is rint
    exponent = np.frexp(np.maximum(rounded, 2.0**-6))[1] - 1
    codes = np.ldexp(rounded, 3 - exponent).astype(np.int64) + (exponent + 6 << 3)
    return finish(codes, negative, magnitude, 0x7F)


@kernel(Cast(policy="integer_nearest"), formats=["int8"], sources=["float32"], backend="numpy")
def numpy_floor_of_half_added(x, format):
    """Rounding by floor(x + 0.5) in float32.

    The mistake: 2.5 gives 3 and not 2, -2.5 gives -2 as it should, -1.5 gives -1 and not -2; and 0.49999997, whose sum
    with 0.5 is rounded to 1, gives 1.
    """
    rounded = np.floor(x + np.float32(0.5))  # wrong: right is rint(x)
    rounded = np.clip(np.nan_to_num(rounded, nan=0.0, posinf=127, neginf=-128), -128, 127)
    return rounded.astype(np.int8).view(np.uint8)


@kernel(Cast(CastPolicy(rounding="up")), formats=["float8_e8m0fnu"], sources=["float32"], backend="numpy")
def numpy_e8m0_log2(x, format):
    """The exponent of a scale is ceil(log2(x)), computed in float32.

    The mistake: log2 of the float32 value just above 2^20 is rounded to 20. It gives 0x93 and not 0x94.
    """
    negative, magnitude, _, _ = split(x)
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.ceil(np.log2(x))  # wrong: right is to look at the bits
    codes = np.clip(np.nan_to_num(exponent, nan=0.0, posinf=127, neginf=-127), -127, 127) + 127
    codes = np.where((negative == 1) | (magnitude == 0), 0, codes)
    return np.where(magnitude > 0x7F800000, 255, codes).astype(np.uint8)
