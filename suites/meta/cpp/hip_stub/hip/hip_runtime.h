/* What stream_hip.cpp needs of HIP, on the host, one thread after another: so that the page's example is compiled and
   judged on a machine without ROCm. It says nothing about a GPU. */
#ifndef HIP_STUB_RUNTIME_H
#define HIP_STUB_RUNTIME_H
#include <cstdlib>
#include <cstring>

#define __global__
struct dim3 {
    unsigned x;
    explicit dim3(unsigned count) : x(count) {}
};
static dim3 blockIdx(0), blockDim(0), threadIdx(0);

enum hipError_t { hipSuccess, hipErrorOutOfMemory };
enum hipMemcpyKind { hipMemcpyHostToDevice, hipMemcpyDeviceToHost };
static const char *hipGetErrorString(hipError_t) { return "out of memory"; }
static hipError_t hipGetLastError() { return hipSuccess; }
template <class T> hipError_t hipMalloc(T **place, std::size_t bytes) {
    *place = static_cast<T *>(std::malloc(bytes));
    return *place ? hipSuccess : hipErrorOutOfMemory;
}
static hipError_t hipFree(void *place) {
    std::free(place);
    return hipSuccess;
}
static hipError_t hipMemcpy(void *to, const void *from, std::size_t bytes, hipMemcpyKind) {
    std::memcpy(to, from, bytes);
    return hipSuccess;
}
#define hipLaunchKernelGGL(kernel, grid, block, shared, stream, ...)                     \
    for (blockDim = (block), blockIdx.x = 0; blockIdx.x < (grid).x; ++blockIdx.x)        \
        for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel(__VA_ARGS__)
#endif
