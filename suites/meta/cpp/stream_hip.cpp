// A HIP kernel that casts float32 to float8_e4m3fnuz, the fp8 of MI300, as a program that "judge --stream" asks:
//
//   hipcc -O2 --offload-arch=gfx942 stream_hip.cpp -o stream_hip
//   narrowgauge judge --stream --binary cast/fnuz_saturate/float32/float8_e4m3fnuz --target gfx942 -- ./stream_hip
#include <hip/hip_fp8.h>
#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

// The code under test.
__global__ void cast(const float *x, std::uint8_t *codes, std::size_t count) {
    const std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) codes[i] = __hip_cvt_float_to_fp8(x[i], __HIP_SATFINITE, __HIP_E4M3_FNUZ);
}

static void must(hipError_t error) {
    if (error == hipSuccess) return;
    std::fprintf(stderr, "%s\n", hipGetErrorString(error));
    std::exit(1);  // the judge says that this program crashed, and shows what it wrote to stderr
}

int main() {
    std::vector<float> x;  // the bits are read as they are; no value passes through the host's arithmetic
    float part[4096];
    while (const std::size_t got = std::fread(part, sizeof *part, 4096, stdin)) x.insert(x.end(), part, part + got);

    float *on_device = nullptr;
    std::uint8_t *codes_on_device = nullptr;
    must(hipMalloc(&on_device, x.size() * sizeof *on_device));
    must(hipMalloc(&codes_on_device, x.size()));
    must(hipMemcpy(on_device, x.data(), x.size() * sizeof *on_device, hipMemcpyHostToDevice));
    const unsigned threads = 256, blocks = static_cast<unsigned>((x.size() + threads - 1) / threads);
    hipLaunchKernelGGL(cast, dim3(blocks), dim3(threads), 0, 0, on_device, codes_on_device, x.size());
    must(hipGetLastError());

    std::vector<std::uint8_t> codes(x.size());
    must(hipMemcpy(codes.data(), codes_on_device, codes.size(), hipMemcpyDeviceToHost));
    std::fwrite(codes.data(), 1, codes.size(), stdout);
    must(hipFree(on_device));
    must(hipFree(codes_on_device));
    return 0;
}
