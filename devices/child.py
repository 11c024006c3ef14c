"""The child's side: one process per device, started with the environment that the device needs.

It never imports ``narrowgauge.reference``: a kernel that could call the oracle would prove nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.outcome import CHOICES, NotExecuted
from narrowgauge.contracts.processes import end_with_parent
from narrowgauge.contracts.serial import plugged_to_json
from narrowgauge.devices import extensions, fresh_memory, loading, running
from narrowgauge.devices import facts as known
from narrowgauge.devices.wire import Arena, receive, send

#: how many characters of an error's first line go into a ledger
LONGEST = 300


class Session:
    """The kernels that this child has loaded, by origin and name."""

    def __init__(self, facts: Callable[[], dict[str, Any]], emulated: Any = None) -> None:
        self.facts = facts
        self.emulated = emulated  #: the Triton driver of an emulated target
        self.loaded: dict[str, dict[str, loading.Loaded]] = {}
        self.range = running.Range()

    def kernels(self, origin: str) -> dict[str, loading.Loaded]:
        if origin not in self.loaded:
            self.loaded[origin] = loading.load(origin)
        return self.loaded[origin]

    def answer(self, request: dict[str, Any], buffers: dict[str, Coded]) -> tuple[dict[str, Any], dict[str, Coded]]:
        """Carry out one request."""
        match request["verb"]:
            case "ready":
                fresh_memory.watch()
                return {"kind": "returned"}, {}
            case "describe":
                described = [plugged_to_json(k.plugged) for k in self.kernels(request["origin"]).values()]
                return {"kind": "returned", "kernels": described}, {}
            case "facts":
                return {"kind": "returned", "facts": self.facts()}, {}
            case "run":
                loaded = self.kernels(request["origin"])[request["kernel"]]
                return running.run(loaded, buffers, request)
            case "instructions":
                if self.emulated is None:
                    raise NotExecuted("which instructions a kernel becomes is seen on emulated targets alone")
                loaded = self.kernels(request["origin"])[request["kernel"]]
                launches = self.emulated.record(lambda: running.run(loaded, buffers, request))
                return {"kind": "returned", "launches": launches}, {}
            case "run_range":
                loaded = self.kernels(request["origin"])[request["kernel"]]
                return self.range.run(loaded, request)
        raise ValueError(f"unknown verb {request['verb']!r}")


def told(error: BaseException, origin: str) -> str:
    """The error in one line of bounded length, with the line of the plug-in at which it was raised."""
    text = f"{type(error).__name__}: {error}".strip()
    lines = _lines(text, error)
    short = lines[0][:LONGEST] + (" …" if len(lines) > 1 or len(lines[0]) > LONGEST else "")
    folder = os.path.dirname(origin)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if folder and os.path.dirname(f.filename) == folder]
    traceback.print_exception(error)  # whole, into what the process said
    return f"{short} ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else short


def _lines(text: str, error: BaseException) -> list[str]:
    """An error's text, what matters first: Triton's compiler has the source that it read between place and reason, and
    an error in a function that the kernel calls as a cause, with the place in that function."""
    first = error
    while type(first).__name__ == type(error).__name__ == "CompilationError" and first.__cause__ is not None:
        first = first.__cause__
    reason = f"{first}".strip().splitlines()[-1:]
    lines = text.splitlines() or [text]
    if type(error).__name__ == "CompilationError" and len(lines) > 1 and reason:
        lines[0] = f"{lines[0]} {reason[0].strip()}"
    return lines


def main() -> None:
    """Serve requests until the parent closes the pipe."""
    parser = argparse.ArgumentParser()
    parser.add_argument("descriptors", type=int, nargs=4)
    parser.add_argument("--emulate", default="")
    arguments = parser.parse_args()
    reader, writer, request_arena, answer_arena = arguments.descriptors
    end_with_parent()
    facts, emulated = known.facts, None
    if arguments.emulate:
        from narrowgauge.devices import triton_driver

        surroundings = known.facts()  # before torch is made to say otherwise
        facts, emulated = lambda: surroundings, triton_driver.install(arguments.emulate)
    session = Session(facts, emulated)
    itself = os.getpid()
    incoming, outgoing = Arena(request_arena), Arena(answer_arena)
    with os.fdopen(reader, "rb") as requests, os.fdopen(writer, "wb") as answers:
        while True:
            try:
                request, buffers = receive(requests, incoming)
            except EOFError:
                return
            if emulated:
                emulated.begin(request.get("choice", CHOICES[0]))
            try:
                answer, outputs = session.answer(request, buffers)
            except NotExecuted as reason:
                answer, outputs = {"kind": "not_executed", "reason": str(reason)}, {}
            except BaseException as error:  # a plug-in may raise SystemExit; the parent must hear of it
                answer, outputs = {"kind": "raised", "reason": told(error, request.get("origin", ""))}, {}
                if emulated and (lacking := extensions.missing(error, arguments.emulate)):
                    answer = {"kind": "not_executed", "reason": lacking}
            if os.getpid() != itself:  # a plug-in called fork() and let both return: a copy answers for nobody
                os._exit(0)
            sys.stdout.flush()
            told_of = {"models": emulated.models, "notes": emulated.notes} if emulated else {"models": {}, "notes": []}
            send(answers, outgoing, answer | told_of, outputs)
