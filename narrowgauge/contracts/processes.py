"""Processes that do not outlive whoever started them."""

from __future__ import annotations

import ctypes
import signal
import sys

PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have the operating system kill this process when its parent dies, however it dies.

    A busy process would not notice, and one that was left alone would keep its GPU. Only Linux can do it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
