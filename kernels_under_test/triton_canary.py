"""The canary: the one native cast that runs in Triton's interpreter, where it is known to be wrong.

While it is wrong, no other native kernel is run there and a waiver carries its failure. When upstream mends the
interpreter the waiver is stale, which is an error, and that is how we hear of it.
"""

from __future__ import annotations

from narrowgauge import Cast, kernel
from narrowgauge.kernels_under_test.triton_cast import launch_native


@kernel(
    Cast("ocp_saturate"), ["float8_e4m3fn"], ["float32"],
    owner="triton", backend="triton", conversion="native", library="triton", canary=True,
)  # fmt: skip
def interpreter_canary(x, format):
    return launch_native(x, format)
