"""The suite's own kernels, plugged in as anybody's are. They import contracts, torch and Triton, never the oracle."""

#: modules that every run judges, besides what the user plugs in
MODULES = tuple(
    f"narrowgauge.kernels_under_test.{name}"
    for name in ("torch_cast", "ml_dtypes_cast", "triton_cast", "triton_quantize", "triton_canary")
)
