"""Plugging in a kernel: the decorator that attaches a record to a function, and the record.

The decorator does nothing else: no registry, no import of torch. Whoever loads the file finds the records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim, Contract

#: What a kernel is made of; it decides on which devices the kernel is run.
#: ``torch`` tensors and operations; ``triton`` as torch, but launches Triton kernels; ``numpy`` arrays on the host.
Backend = Literal["auto", "torch", "triton", "numpy"]
#: ``soft`` computes codes by integer operations; ``native`` leaves the conversion to the hardware's own instruction;
#: ``auto`` looks at the sources of Triton kernels for the name of a narrow type
Conversion = Literal["auto", "soft", "native"]

ATTRIBUTE = "__narrowgauge__"
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Kernel:
    """What is known of one kernel: its claims and where it can run. ``claims`` is one entry per source and format."""

    name: str
    contract: Contract
    formats: tuple[str, ...]
    sources: tuple[str, ...]
    owner: str
    backend: Backend
    conversion: Conversion
    library: str  #: distribution whose code is judged, where that is not the file itself ("torch")
    expression: str  #: the same as one expression of ``x`` and library names, for a standalone script; may be empty
    canary: bool  #: kept to notice when a known wrong thing is mended; runs where its kind otherwise would not

    @property
    def claims(self) -> tuple[Claim, ...]:
        return tuple(Claim(self.contract, source, f) for f in self.formats for source in self.sources)


@dataclass(frozen=True)
class Plugged:
    """A kernel as a device described it: the record and where it came from."""

    kernel: Kernel
    origin: str  #: the file or module that was loaded
    distribution: dict[str, str]  #: name, version, git sha and sha256 of the file, as far as there are any
    own: bool = False  #: one of the suite's own kernels


def kernel(
    contract: Contract,
    formats: Sequence[str],
    sources: Sequence[str] = ("float32",),
    *,
    owner: str = "unowned",
    backend: Backend = "auto",
    conversion: Conversion = "auto",
    library: str = "",
    expression: str = "",
    canary: bool = False,
) -> Callable[[Function], Function]:
    """Mark ``function(x, format)`` as a kernel under test.

    ``x`` is a torch tensor on the device under test (an ml_dtypes-typed array for ``backend="numpy"``), of one of the
    ``sources`` formats; ``format`` is the name of the destination. What a recipe is given beside x (``scale``,
    ``global_scale``, ``zero_point``) comes by parameters of these names. A Cast returns codes of x's shape; a Quantize
    returns ``(codes, scale)``, or what else its recipe computes in the order of its steps, or a dict of those names,
    one value for each block; a Dequantize is given codes and returns values. Codes may be an integer tensor or one of
    the format's own dtype; those that stand in a layout are its memory image.
    Raises ``BadInput`` for a contract or format that does not exist, and for a name that is no word of ASCII.
    """
    if not isinstance(contract, Contract):
        raise BadInput(
            f"@kernel: contract is {contract!r}; expected Cast(...), Quantize(...), Dequantize(...), Then(...) or "
            "observe(...)"
        )
    if backend not in get_args(Backend):
        raise BadInput(f"@kernel: backend={backend!r}; expected one of {', '.join(get_args(Backend))}")
    if isinstance(formats, str) or isinstance(sources, str):
        raise BadInput('@kernel: formats and sources are lists of names, for example formats=["float8_e4m3fn"]')
    if not formats or not sources:
        raise BadInput("@kernel: formats and sources must each name at least one format")

    def attach(function: Function) -> Function:
        name = getattr(function, "__name__", "")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise BadInput(
                f"@kernel: the function's name is {name!r}; expected ASCII letters, digits and underscores: it is part "
                "of test ids, of commands and of scripts"
            )
        record = Kernel(
            name=name,
            contract=contract,
            formats=tuple(format_named(f).name for f in formats),
            sources=tuple(format_named(s).name for s in sources),
            owner=owner,
            backend=backend,
            conversion=conversion,
            library=library,
            expression=expression,
            canary=canary,
        )
        setattr(function, ATTRIBUTE, record)
        return function

    return attach
