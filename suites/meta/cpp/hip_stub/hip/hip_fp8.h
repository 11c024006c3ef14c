/* The conversion, by the golden vectors: see hip_runtime.h beside it. */
#ifndef HIP_STUB_FP8_H
#define HIP_STUB_FP8_H
#include <cstring>

#include "cast-fnuz_saturate-float8_e4m3fnuz.h"

enum __hip_saturation_t { __HIP_NOSAT, __HIP_SATFINITE };
enum __hip_fp8_interpretation_t { __HIP_E4M3_FNUZ };
static uint8_t __hip_cvt_float_to_fp8(float value, __hip_saturation_t, __hip_fp8_interpretation_t) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return ng_expected_fnuz_saturate_float8_e4m3fnuz_from_float32(bits);
}
#endif
