# SPDX-License-Identifier: Apache-2.0
"""Bad calls of kernels on caches: how they are made in a process of their own, and what is asked of what came."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from typing import Any

Call = dict[str, Any]
Change = Callable[[Call], Call]
Good = Mapping[str, tuple[Callable[..., Any], Call]]
#: by ``kernel/what is wrong``: what was raised, and which tensors were changed
Outcomes = dict[str, dict[str, Any]]


def outcome(function: Callable[..., Any], call: Call) -> dict[str, Any]:
    """What a call raises, and which of the tensors that it is given have another byte then."""
    import torch

    def raw(value: Any) -> Any:
        return value.contiguous().view(-1).view(torch.uint8)

    tensors = {name: value for name, value in call.items() if isinstance(value, torch.Tensor)}
    before = {name: raw(value).clone() for name, value in tensors.items()}
    raised = ""
    try:
        function(**call)
    except Exception as error:
        raised = f"{type(error).__name__}: {error}"
    return {"raised": raised, "changed": [n for n, t in tensors.items() if not torch.equal(raw(t), before[n])]}


def outcomes(
    good: Good, right: Mapping[str, Change], wrong: Mapping[str, tuple[Collection[str], Change]], every: Collection[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """``kernel/what is wrong`` and what came of it."""
    import torch

    for name, change in right.items():
        for kernel in every:
            if kernel != "native":  # Triton's interpreter converts wrongly; nothing of it is compared here
                function, call = good[kernel]
                fresh = {n: t.clone() if isinstance(t, torch.Tensor) else t for n, t in call.items()}
                yield f"{kernel}/{name}", outcome(function, {**fresh, **change(fresh)})
    for name, (kernels, change) in wrong.items():
        for kernel in kernels:
            function, call = good[kernel]
            yield f"{kernel}/{name}", outcome(function, {**call, **change(call)})


def tell(good: Callable[[], Good], *calls: Any) -> None:
    """What a module of calls does as a program: JSON of all outcomes. Triton kernels run in Triton's interpreter."""
    os.environ["TRITON_INTERPRET"] = "1"
    print(json.dumps(dict(outcomes(good(), *calls))))


@cache
def told(module: str) -> Outcomes:
    """What such a module tells."""
    command = [sys.executable, "-m", f"narrowgauge.suites.meta.{module}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found: Outcomes = json.loads(done.stdout)
    return found


def of(module: str, name: str) -> Outcomes:
    """What came of one thing that is wrong, or right, by kernel."""
    found = {call: came for call, came in told(module).items() if call.split("/")[1] == name}
    assert found, f"nobody was called with {name}"
    return found


def not_refused(module: str, name: str, says: str) -> Outcomes:
    """Those that changed something, or did not say what they should."""
    return {
        call: came
        for call, came in of(module, name).items()
        if came["changed"] or not re.match(f"ValueError: ({says})", came["raised"])
    }
