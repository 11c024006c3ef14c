"""See what goes into the key-value cache of a torch model, and write how often each magnitude stood there.

    with KvCapture(model) as seen:
        model(input_ids, attention_mask=mask, past_key_values=cache)
    seen.save("kv.safetensors")

docs/kv.md says what is in the file. Nothing of the model is changed, and nothing stays on it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from narrowgauge.contracts import kv_file
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.files import write_whole
from narrowgauge.devices.kv_layers import Layer, layers_of, turns
from narrowgauge.devices.kv_tally import Tally

#: programs whose versions are written down where they are installed
PROGRAMS = ("torch", "transformers")


class KvCapture:
    """A context in which a model's keys and values are counted, over as many calls as are made.

    Keys are counted as they go into the cache, which is after rotary embeddings, where a layer hands them to an object
    with a method ``update(keys, values, layer, ..)``, as the caches of transformers are; otherwise as the projection
    gives them, which is before. The file says which. Tokens that a 2-D ``attention_mask`` leaves out are not counted.

    ``modules`` says where keys and values come from, where names do not (``narrowgauge.devices.kv_layers``): layer ->
    {"k": MODULE, "v": MODULE}, or {"qkv": MODULE, "order": "concatenated" or "grouped"}. ``config`` has the numbers of
    heads, by default ``model.config``. ``name`` is the model's in the file. Raises ``BadInput`` for a model in which
    nothing is found, or a layer whose numbers of heads are not known or do not divide it.
    """

    def __init__(
        self,
        model: Any,
        *,
        modules: Mapping[str, Mapping[str, str]] | None = None,
        config: Any = None,
        name: str = "",
    ) -> None:
        self.model = model
        self.config = getattr(model, "config", None) if config is None else config
        self.name = name or str(getattr(self.config, "_name_or_path", "") or type(model).__name__)
        self.layers = layers_of(model, modules, self.config)
        self.turned = turns(model, self.config)
        self.tallies: dict[str, dict[str, Tally]] = {}
        self._undo: list[Callable[[], None]] = []
        self._mask: Any = None
        self._active: list[_Call] = []
        self._watched: set[int] = set()

    # --- hooks -------------------------------------------------------------------------------------------------------

    def __enter__(self) -> KvCapture:
        whole = self.model.register_forward_pre_hook(self._take_mask, with_kwargs=True, prepend=True)
        self._undo.append(whole.remove)
        for layer in self.layers:
            for module, made in layer.hooks:
                self._undo.append(module.register_forward_hook(self._projected(layer, made)).remove)
            around = layer.module
            self._undo.append(around.register_forward_pre_hook(self._starts(layer), with_kwargs=True).remove)
            self._undo.append(around.register_forward_hook(self._ends, always_call=True).remove)
        return self

    def __exit__(self, *error: object) -> None:
        for undo in self._undo[::-1]:
            undo()
        self._undo.clear()
        self._watched.clear()
        self._active.clear()
        self._mask = None

    def _take_mask(self, module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        mask = named.get("attention_mask")
        self._mask = mask if getattr(mask, "ndim", 0) == 2 else None

    def _starts(self, layer: Layer) -> Callable[..., None]:
        def hook(module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            self._active.append(_Call(layer))
            for value in (*given, *named.values()):
                if callable(getattr(value, "update", None)) and not isinstance(value, Mapping | set):
                    self._watch(value)

        return hook

    def _ends(self, module: Any, given: Any, result: Any) -> None:
        """What the projections gave counts where the cache was not seen."""
        if not self._active:
            return
        call = self._active.pop()
        if not call.cached:
            for part, parts in call.pending.items():
                for x, place in parts:
                    self._count(call.layer, part, x, place)

    def _projected(self, layer: Layer, made: Any) -> Callable[..., None]:
        def hook(module: Any, given: Any, result: Any) -> None:
            inside = next((call for call in self._active[::-1] if call.layer is layer), None)
            for part, x, place in made(result):
                if inside is None:
                    self._count(layer, part, x, place)
                else:
                    inside.pending.setdefault(part, []).append((x, place))

        return hook

    def _watch(self, cache: Any) -> None:
        """Have a cache tell what it is given, until the context ends."""
        if id(cache) in self._watched:
            return
        original, own = cache.update, vars(cache).get("update") if hasattr(cache, "__dict__") else None

        def update(keys: Any, values: Any, *rest: Any, **named: Any) -> Any:
            call = self._active[-1] if self._active else None
            if call is not None and call.layer.cached:
                call.cached = True
                for part, x in (("k", keys), ("v", values)):
                    self._count(call.layer, part, x.transpose(1, 2), "cache")
            return original(keys, values, *rest, **named)

        try:
            cache.update = update
        except AttributeError:  # one that takes no attribute: its layers count by their projections
            return
        self._watched.add(id(cache))

        def undo() -> None:
            if own is None:
                del cache.update
            else:
                cache.update = own

        self._undo.append(undo)

    # --- counting ----------------------------------------------------------------------------------------------------

    def _count(self, layer: Layer, part: str, x: Any, place: str) -> None:
        """Take in x [.., tokens, heads, d]."""
        x = x.detach()
        mask = self._mask
        if mask is not None and x.ndim == 4 and mask.shape[0] == x.shape[0] and mask.shape[1] >= x.shape[1]:
            x = x[mask[:, mask.shape[1] - x.shape[1] :].to(x.device).bool()]
        rope = "none" if part in ("v", "latent") or not self.turned else "after" if place == "cache" else "before"
        tally = self.tallies.setdefault(layer.name, {}).get(part)
        if tally is None:
            tally = self.tallies[layer.name][part] = Tally(f"{layer.name}, {part}", x, place, rope)
        tally.add(x, place)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, whole or not at all. Raises ``BadInput`` where nothing was seen."""
        from safetensors.numpy import save

        if not self.tallies:
            raise BadInput("nothing was seen: no layer was called with the capture around it")
        tensors: kv_file.Tensors = {}
        said: dict[str, dict[str, Any]] = {}
        for layer, parts in self.tallies.items():
            for part, tally in parts.items():
                said.setdefault(layer, {})[part] = tally.about()
                tensors |= {kv_file.tensor_name(layer, part, which): v for which, v in tally.arrays().items()}
        tokens = max(tally.tokens for parts in self.tallies.values() for tally in parts.values())
        about = kv_file.metadata(self.name, tokens, _versions(), said)
        write_whole(Path(path), save(tensors, {"narrowgauge": json.dumps(about, sort_keys=True)}))


class _Call:
    """One call of a layer: what its projections gave, and whether its cache has been seen."""

    def __init__(self, layer: Layer) -> None:
        self.layer, self.cached = layer, False
        self.pending: dict[str, list[tuple[Any, str]]] = {}


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for program in PROGRAMS:
        try:
            found[program] = version(program)
        except PackageNotFoundError:
            continue
    return found
