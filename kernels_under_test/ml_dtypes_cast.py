"""ml_dtypes' astype, the cast of NumPy, JAX and ONNX's reference. Its claim follows the version: 0.5.0 was another."""

from __future__ import annotations

from importlib.metadata import version

from narrowgauge import Cast, kernel
from narrowgauge.kernels_under_test.by_version import ml_dtypes_policy


@kernel(
    Cast(ml_dtypes_policy(version("ml_dtypes"))),
    formats=(
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e4m3",
        "float8_e3m4",
        "float8_e4m3b11fnuz",
        "float6_e2m3fn",
        "float6_e3m2fn",
        "float4_e2m1fn",
        "float8_e8m0fnu",
        "bfloat16",
    ),
    sources=("float32", "bfloat16", "float16"),
    owner="ml_dtypes",
    backend="numpy",
    library="ml_dtypes",
    expression="x.astype(ml_dtypes.{format})",
)
def ml_dtypes_astype(x, format):
    import ml_dtypes

    return x.astype(getattr(ml_dtypes, format))
