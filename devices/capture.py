"""The child that runs somebody's torch module and writes down what its linear layers are given, or what it caches.

It writes one safetensors file (docs/measures.md and docs/kv.md say what is in it) and reports on a pipe, one JSON
object a line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from narrowgauge.contracts.errors import BadInput
from narrowgauge.devices.capture_kv import KvCapture
from narrowgauge.devices.loading import import_file

#: of the metadata of the file
VERSION = 1
#: what a linear layer is called that is the whole module
WHOLE = "module"


class Layers:
    """Inputs of the linear layers of a module, a bounded number of rows of each."""

    def __init__(self, module: Any, rows: int, batches: int) -> None:
        import torch

        self.rows, self.each = rows, max(1, -(-rows // max(batches, 1)))
        self.kept: dict[str, list[Any]] = {}
        self.seen: dict[str, int] = {}
        self.modules = {name or WHOLE: m for name, m in module.named_modules() if isinstance(m, torch.nn.Linear)}
        if not self.modules:
            raise BadInput(f"{type(module).__name__} has no torch.nn.Linear: there is nothing to measure")
        for name, linear in self.modules.items():
            linear.register_forward_pre_hook(self._hook(name))

    def _hook(self, name: str) -> Callable[[Any, tuple[Any, ...]], None]:
        def take(linear: Any, given: tuple[Any, ...]) -> None:
            import torch

            x = given[0].detach().reshape(-1, given[0].shape[-1])
            self.seen[name] = self.seen.get(name, 0) + len(x)
            room = min(self.each, self.rows - sum(map(len, self.kept.get(name, []))), len(x))
            if room > 0:
                chosen = torch.linspace(0, len(x) - 1, room).round().long()  # evenly, the first and the last among them
                self.kept.setdefault(name, []).append(plain(x[chosen.to(x.device)]))

        return take

    def tensors(self) -> dict[str, Any]:
        """What is written: ``NAME.input`` and ``NAME.weight`` of each layer that was used."""
        import torch

        found = {}
        for name, parts in self.kept.items():
            found[f"{name}.input"] = torch.cat(parts).contiguous()
            found[f"{name}.weight"] = plain(self.modules[name].weight.detach()).contiguous()
        return found


def plain(x: Any) -> Any:
    """A copy on the CPU, in a format that recipes take: float64 and narrow formats become float32."""
    import torch

    kept = x.dtype in (torch.float32, torch.bfloat16, torch.float16)
    return (x if kept else x.float()).to("cpu", copy=True)


def made_by(file: Path, function: str) -> tuple[Any, Any]:
    """What a function of a file returns: a module and its batches; None for batches where it returns none.

    Raises ``BadInput`` where the function is not there or returns something else.
    """
    found = import_file(file)
    make = getattr(found, function, None)
    if not callable(make):
        raise BadInput(
            f"{file} has no function {function!r}; expected one that returns a module, or module and batches"
        )
    made = make()
    module, batches = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not _is_module(module):
        raise BadInput(
            f"{file}: {function}() returned {type(module).__name__}; expected a torch.nn.Module, or that and batches"
        )
    return module, batches


def _is_module(made: Any) -> bool:
    """Whether it is one of torch's. Nothing is where nobody has imported torch yet."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(made, torch.nn.Module)


def batches_of(file: Path) -> list[Any]:
    """The tensors of a safetensors file, each a batch, in the order of their names."""
    from safetensors.torch import load_file

    return [tensor for _, tensor in sorted(load_file(file).items())]


def call(module: Any, batch: Any) -> None:
    """A batch is a tensor, a tuple or list of positional arguments, or a dict of named ones."""
    if isinstance(batch, dict):
        module(**batch)
    elif isinstance(batch, tuple | list):
        module(*batch)
    else:
        module(batch)


def capture(arguments: argparse.Namespace, report: Callable[..., None]) -> None:
    """Run the module on every batch and write the file."""
    module, batches = made_by(arguments.file, arguments.function)
    import torch

    if arguments.batches:
        batches = batches_of(arguments.batches)
    batches = list(batches) if batches is not None else []
    if not batches:
        raise BadInput(
            f"{arguments.function}() gave no batches; have it return (module, batches), or give --batches FILE"
        )

    def run() -> None:
        with torch.no_grad():
            for number, batch in enumerate(batches):
                report(batch=number, of=len(batches))
                call(module, batch)

    WATCHES[arguments.what](module.eval(), len(batches), arguments, run)
    report(done=True)


def _linear(module: Any, batches: int, arguments: argparse.Namespace, run: Callable[[], None]) -> None:
    """Inputs and weights of linear layers."""
    import torch
    from safetensors.torch import save_file

    layers = Layers(module, arguments.rows, batches)
    run()
    tensors = layers.tensors()
    if not tensors:
        raise BadInput(f"no linear layer was called with a row of input, in {batches} batches")
    about = {
        "kind": "capture", "version": VERSION, "torch": torch.__version__, "batches": batches,
        "rows": {name: layers.seen[name] for name in layers.kept},
        "unused": sorted(layers.modules.keys() - layers.kept.keys()),
    }  # fmt: skip
    save_file(tensors, arguments.out, {"narrowgauge": json.dumps(about, sort_keys=True)})


def _kv(module: Any, batches: int, arguments: argparse.Namespace, run: Callable[[], None]) -> None:
    """Magnitudes of keys and values."""
    with KvCapture(module) as seen:
        run()
    seen.save(arguments.out)


#: what can be written down of a module that is run
WATCHES = {"linear": _linear, "kv": _kv}


def main() -> None:
    """Capture once and end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("pipe", type=int)
    parser.add_argument("file", type=Path)
    parser.add_argument("function")
    parser.add_argument("out", type=Path)
    parser.add_argument("rows", type=int)
    parser.add_argument("what", choices=WATCHES)
    parser.add_argument("--batches", type=Path)
    arguments = parser.parse_args()
    with os.fdopen(arguments.pipe, "w", buffering=1) as pipe:

        def report(**said: Any) -> None:
            pipe.write(json.dumps(said) + "\n")

        try:
            capture(arguments, report)
        except BadInput as error:
            report(refused=str(error))
        except BaseException as error:  # somebody's module: whatever it raises, the parent must hear of it
            traceback.print_exception(error)
            first = f"{error}".strip().splitlines()[:1]
            report(refused=f"{arguments.file}: {type(error).__name__}: {first[0] if first else ''}")
