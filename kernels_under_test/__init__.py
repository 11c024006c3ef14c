"""The suite's own kernels, plugged in as anybody's are. They import contracts, torch and Triton, never the oracle."""

#: modules that every run judges besides what the user plugs in, and what each needs to be installed
MODULES: dict[str, tuple[str, ...]] = {
    "narrowgauge.kernels_under_test.torch_cast": ("torch",),
    "narrowgauge.kernels_under_test.ml_dtypes_cast": ("ml_dtypes",),
    "narrowgauge.kernels_under_test.gfloat_cast": ("gfloat", "ml_dtypes"),
    "narrowgauge.kernels_under_test.triton_cast": ("torch", "triton"),
    "narrowgauge.kernels_under_test.triton_quantize": ("torch", "triton"),
    "narrowgauge.kernels_under_test.triton_quantize_groups": ("torch", "triton"),
    "narrowgauge.kernels_under_test.triton_quantize_mx": ("torch", "triton"),
    "narrowgauge.kernels_under_test.triton_quantize_integers": ("torch", "triton"),
    "narrowgauge.kernels_under_test.triton_quantize_given": ("torch", "triton"),
    "narrowgauge.kernels_under_test.triton_dequantize": ("torch", "triton"),
    "narrowgauge.kernels_under_test.triton_fused": ("torch", "triton"),
    "narrowgauge.kernels_under_test.triton_packed": ("torch", "triton"),
    "narrowgauge.kernels_under_test.torch_kv_write": ("torch",),
    "narrowgauge.kernels_under_test.torch_kv_read": ("torch",),
    "narrowgauge.kernels_under_test.torch_attention": ("torch",),
    "narrowgauge.kernels_under_test.triton_kv_read": ("torch", "triton"),
    "narrowgauge.kernels_under_test.triton_kv_read_rows": ("torch", "triton"),
    "narrowgauge.kernels_under_test.triton_kv_read_pool": ("torch", "triton"),
    "narrowgauge.kernels_under_test.triton_kv_write": ("torch", "triton"),
    "narrowgauge.kernels_under_test.triton_attention_caches": ("torch", "triton"),
    "narrowgauge.kernels_under_test.triton_kv_write_pool": ("torch", "triton"),
    "narrowgauge.kernels_under_test.triton_kv_write_fp4": ("torch", "triton"),
    "narrowgauge.kernels_under_test.triton_kv_write_groups": ("torch", "triton"),
    "narrowgauge.kernels_under_test.triton_canary": ("torch", "triton"),
}
