"""One thread for the small products of float64 that the reference makes.

OpenBLAS would start a thread for each core of every worker, and those spin for the cores that children need: 300
products of 23 × 128 by 128 × 200 took 19 s on a loaded machine of two cores, and 0.04 s on one thread.
"""

from __future__ import annotations

from threadpoolctl import threadpool_limits


def one_thread() -> None:
    """Hold this process's BLAS to one thread."""
    threadpool_limits(limits=1, user_api="blas")
