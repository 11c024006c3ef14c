"""The parent's side of a device: start a child, ask it, and survive whatever it does."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

import narrowgauge
from narrowgauge.contracts.coded import Coded, given_with
from narrowgauge.contracts.errors import BadInput, Infrastructure
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.layout import InMemory
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.outcome import CHOICES, Choice, How, Outcome
from narrowgauge.contracts.serial import plugged_from_json
from narrowgauge.contracts.views import View
from narrowgauge.devices.wire import Arena, receive, send

#: The folder that holds this very narrowgauge. The child looks there last, so that no folder beside it (a checkout has
#: one named "reference") can shadow a module of the kernel's owner; -P keeps the working directory out altogether.
ROOT = str(Path(narrowgauge.__file__).parents[1])
BOOTSTRAP = "import sys; sys.path.append(sys.argv.pop(1)); from narrowgauge.devices.child import main; main()"
#: seconds; the first call of a child imports torch and may compile
START, DESCRIBE, RUN = 120.0, 120.0, 60.0
_SAID = 2000  #: how much of the end of the child's output is kept


#: how the names of our own modules of kernels begin
OWN = "narrowgauge.kernels_under_test."


class Gone(Exception):
    """The child ended or was ended; ``said`` is the end of what it wrote."""

    def __init__(self, kind: Literal["crashed", "hung"], reason: str) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.said = kind, reason, ""


class _Child:
    """One running child process with its pipes and arenas."""

    def __init__(self, environment: Mapping[str, str], arguments: list[str]) -> None:
        to_child, self.to_child = os.pipe()
        self.from_child, from_child = os.pipe()
        self.request, self.answer = Arena.create(), Arena.create()
        self.said = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the child)
        inherited = [to_child, from_child, self.request.descriptor, self.answer.descriptor]
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOTSTRAP, ROOT, *map(str, inherited), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self.said,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            pass_fds=inherited,
            start_new_session=True,  # a group of its own, so that what it started is ended with it
        )
        os.close(to_child)
        os.close(from_child)
        self.writer: BinaryIO = os.fdopen(self.to_child, "wb")
        self.reader: BinaryIO = os.fdopen(self.from_child, "rb", buffering=0)

    def ask(self, message: Mapping[str, Any], buffers: Mapping[str, Coded], timeout: float) -> Any:
        """Send and wait. Raises ``Gone`` if no answer comes in time or ever."""
        try:
            send(self.writer, self.request, message, buffers)
            with selectors.DefaultSelector() as selector:
                selector.register(self.reader, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise Gone("hung", f"no answer in {timeout:g} s")
            return receive(self.reader, self.answer)
        except (EOFError, BrokenPipeError):
            code = self.process.wait()
            raise Gone("crashed", _ending(code)) from None

    def tail(self) -> str:
        """The end of what the child wrote to stdout and stderr."""
        size = self.said.seek(0, os.SEEK_END)
        self.said.seek(max(0, size - _SAID))
        return self.said.read().decode(errors="replace").strip()

    def end(self) -> None:
        """Kill the child's whole process group; a call that holds the GIL cannot refuse this."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.writer.close()
        self.reader.close()
        self.said.close()
        self.request.close()
        self.answer.close()


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


@dataclass
class Device:
    """A place where kernels run. ``target`` is identity; ``id`` (``cuda:3``) is only where.

    Each plug-in has a child of its own, so that what one of them does to torch does not reach another. The suite's own
    kernels share one.
    """

    id: str
    target: str
    how: How
    environment: dict[str, str] = field(
        default_factory=dict
    )  #: set on top of the parent's, before anything is imported
    emulates: str = ""  #: name of the architecture, for an emulated device
    note: str = ""
    _children: dict[str, _Child] = field(default_factory=dict, repr=False)

    def describe(self, origin: str) -> list[Plugged]:
        """The kernels of a plug-in file (a path) or module (a dotted name). Raises ``BadInput`` if it does not load."""
        try:
            message, _ = self._ask(origin, {"verb": "describe", "origin": origin}, {}, DESCRIBE)
        except Gone as gone:
            raise BadInput(f"loading {origin} {gone.kind} its process on {self.id}: {gone.reason}") from None
        if message["kind"] == "raised":
            raise BadInput(f"{origin} does not load on {self.id}: {message['reason']}")
        return [plugged_from_json(p) for p in message["kernels"]]

    def facts(self) -> dict[str, Any]:
        """Versions, driver and switches, as the child sees them. Raises ``Infrastructure`` if it does not start."""
        try:
            message, _ = self._ask(OWN, {"verb": "facts"}, {}, START)
        except Gone as gone:
            raise Infrastructure(f"device {self.id} does not start: {gone.kind}, {gone.reason}") from None
        facts: dict[str, Any] = message["facts"]
        return facts

    def run(
        self,
        plugged: Plugged,
        claim: Claim,
        x: Coded,
        timeout: float = RUN,
        choice: Choice = CHOICES[0],
        form: InMemory | None = None,
        view: View = "contiguous",
        verb: Literal["run", "instructions"] = "run",
    ) -> Outcome:
        """Run a kernel once (twice inside, with two fill patterns of fresh memory) on a copy of ``x``, with what is
        given beside it.

        ``choice``: which answer an emulated device takes where an instruction's words allow several. ``form``: of
        packed buffers, and of those that are changed in place; without it x is a matrix, and so are the outputs.
        ``view``: how the copy of x lies in memory. ``verb``: on an emulated device, "instructions" gives the code of
        what is launched, which is not executed, and no outputs.
        """
        form = form or InMemory(claim.outputs, x.shape)
        message: dict[str, Any] = {"verb": verb, "choice": choice, "view": view, "source": claim.source}
        message |= {"shape": list(form.shape), "loose": list(form.loose), "in_place": list(form.in_place)}
        message |= {"numbers": dict(form.numbers), "viewed": list(form.far if view == "far" else form.viewed)}
        return self._outcome(plugged, claim, message, {"x": x, **given_with(x)}, timeout, form.outputs)

    def run_range(self, plugged: Plugged, claim: Claim, first: int, count: int, timeout: float = RUN) -> Outcome:
        """Run a kernel once on so many consecutive patterns of the claim's source, which the child makes itself."""
        message = {"verb": "run_range", "source": claim.source, "first": first, "count": count}
        return self._outcome(plugged, claim, message, {}, timeout, claim.outputs)

    def _outcome(
        self,
        plugged: Plugged,
        claim: Claim,
        message: Mapping[str, Any],
        buffers: Mapping[str, Coded],
        timeout: float,
        returned: Mapping[str, str],
    ) -> Outcome:
        kernel = plugged.kernel
        message = {
            **message,
            "origin": plugged.origin,
            "kernel": kernel.name,
            "format": claim.format,
            "outputs": dict(returned),
        }
        began = time.monotonic()
        try:
            answer, outputs = self._ask(plugged.origin, message, buffers, timeout)
        except Gone as gone:
            return Outcome(gone.kind, reason=gone.reason, said=gone.said, seconds=time.monotonic() - began)
        said = self._children[_household(plugged.origin)].tail() if answer["kind"] == "raised" else ""
        return Outcome(
            kind=answer["kind"],
            outputs=outputs,
            reason=answer.get("reason", ""),
            said=said,
            malformed=tuple(answer.get("malformed", ())),
            models=answer["models"],
            notes=tuple(answer["notes"]),
            launches=tuple(answer.get("launches", ())),
            seconds=time.monotonic() - began,
        )

    def close(self) -> None:
        """End the children. The next call starts a new one."""
        for child in self._children.values():
            child.end()
        self._children.clear()

    def _ask(self, origin: str, message: Mapping[str, Any], buffers: Mapping[str, Coded], timeout: float) -> Any:
        household = _household(origin)
        try:
            if household not in self._children:
                child = self._children[household] = _Child(self._full_environment(), self._arguments())
                child.ask({"verb": "ready"}, {}, START)  # so that importing torch is not the kernel's time
            return self._children[household].ask(message, buffers, timeout)
        except Gone as gone:
            child = self._children.pop(household)
            gone.said = child.tail()
            child.end()
            raise

    def _full_environment(self) -> dict[str, str]:
        # Triton 3.9 warns when this is unset and will change its default; state the one that is in force today.
        fusion = os.environ.get("TRITON_DEFAULT_FP_FUSION", "1")
        # numpy of a child that interprets Triton makes small products: threads of its own only spin
        return {"OPENBLAS_NUM_THREADS": "1", **os.environ, "TRITON_DEFAULT_FP_FUSION": fusion, **self.environment}

    def _arguments(self) -> list[str]:
        return ["--emulate", self.emulates] if self.emulates else []


def _household(origin: str) -> str:
    """Which child an origin lives in: one for all of ours, else its own."""
    return OWN if origin.startswith(OWN) else origin
