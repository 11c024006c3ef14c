"""Engines' own loaders of models, given one tensor at a time: which parameter takes it, or what is said or raised.

Run: ``python -m narrowgauge.suites.meta.engines.load_names ENGINE``, with the engine's unpacked wheel in the path. It
asks for torch. On stdin a JSON object: ``models`` (architecture, attention module, its name in a checkpoint), ``ends``
of names. Each line of the answer is a model with the outcome for each end, as ``checkpoints.engines.loaders.Fate`` has
it. ``functions`` are names for the engine's function that renames, with ``parameters``: they are a line of their own.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from narrowgauge.suites.meta.engines.loading import Engine, StandIn, folder_of

LAYER = "model.layers.0."
#: packages that model files import and whose answers play no part
OTHERS = (
    "transformers", "msgspec", "einops", "huggingface_hub", "flashinfer", "sgl_kernel", "safetensors", "tqdm", "PIL",
    "filelock", "gguf", "triton", "requests", "torchvision", "timm", "cv2", "av", "torchaudio", "orjson", "pydantic",
    "decord", "librosa", "scipy", "mamba_ssm", "aiter", "deep_gemm", "fastapi", "zmq", "psutil", "compressed_tensors",
    "terratorch", "mistral_common", "soundfile", "cachetools", "blake3",
)  # fmt: skip
_SAME = lambda self, other: other  # noqa: E731
#: a stand-in is also an empty sequence, a number that no comparison holds for, a base class of nothing, a class that
#: nothing is of
SOFT: dict[str, Any] = {
    "__mro_entries__": lambda self, bases: (),
    "__iter__": lambda self: iter(()),
    "__len__": lambda self: 0,
    "__contains__": lambda self, item: False,
    "__instancecheck__": lambda self, item: False,
    "__subclasscheck__": lambda self, item: False,
    "__index__": lambda self: 1,
    "__int__": lambda self: 1,
    "__enter__": lambda self: self,
    "__exit__": lambda self, *rest: None,
    "__setitem__": lambda self, key, value: None,
    "__init_subclass__": classmethod(lambda cls, **options: None),
    **{f"__{name}__": lambda self, other: False for name in ("lt", "gt", "le", "ge")},
    **{f"__{name}__": _SAME for name in ("add", "radd", "sub", "rsub", "mul", "floordiv", "rfloordiv", "mod")},
}


class Heard(logging.Handler):
    """What a loader says, below debug nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda text="", *rest, **more: None if name.startswith("debug") else self.said.append(str(text))


def _call(*, func: Any, func_args: Any, func_kwargs: Any = None, **rest: Any) -> None:
    func(*func_args, **(func_kwargs or {}))


def _layer_of(name: str) -> int | None:
    return next((int(part) for part in name.split(".") if part.isdigit()), None)


def _modules(folder: Any, *roots: str) -> Iterator[str]:
    for root in roots:
        for path in (folder / root.replace(".", "/")).rglob("*.py"):
            name = ".".join(path.relative_to(folder).with_suffix("").parts)
            yield name.removesuffix(".__init__")


class Tried:
    """One engine, and how one of its models is given a name."""

    def __init__(self, package: str) -> None:
        for name, method in SOFT.items():
            setattr(StandIn, name, method)
        for name in OTHERS:
            if folder_of(name) is None:
                Engine(name, (), {})
        if folder_of("regex") is None:
            Engine("regex", (), {"": {name: getattr(re, name) for name in re.__all__}})
        self.package, self.heard = package, Heard()
        logging.getLogger().addHandler(self.heard)
        logging.getLogger().setLevel(logging.INFO)
        self.folder = folder_of(package) or Path()
        own, answers = getattr(self, f"_{package}")()
        self.engine = Engine(package, own, answers)
        if package == "vllm":
            quantization = "model_executor.layers.quantization."
            self.base = self.engine.module(f"{quantization}base_config").QuantizationConfig
            self.methods = {
                "fp8": self.engine.module(f"{quantization}fp8").Fp8Config,
                "modelopt": self.base,
            }
        self.registered = dict(getattr(self, f"_{package}_models")())

    def _sglang(self) -> tuple[tuple[str, ...], dict[str, dict[str, Any]]]:
        own = (*_modules(self.folder, "srt.models"), "srt.model_loader.weight_utils", "srt.model_loader.auto_loader")
        return own, {
            "srt.utils": {"print_warning_once": self.heard.said.append, "log_info_on_rank0": lambda *rest: None,
                          "add_prefix": lambda name, prefix: f"{prefix}.{name}" if prefix else name},
            "srt.layers.utils": {"get_layer_id": _layer_of},
            "srt.model_loader.utils": {"maybe_executor_submit": _call, "should_async_load": lambda weight: False},
        }  # fmt: skip

    def _vllm(self) -> tuple[tuple[str, ...], dict[str, dict[str, Any]]]:
        from torch import nn

        quantization = "model_executor.layers.quantization."
        own = (*_modules(self.folder, "model_executor.models", "models"), "model_executor.model_loader.weight_utils",
               f"{quantization}base_config", f"{quantization}fp8")  # fmt: skip
        rank = SimpleNamespace(is_first_rank=True, is_last_rank=True, rank_in_group=0, world_size=1)
        embedding = {name: type(name, (nn.Module,), {}) for name in ("VocabParallelEmbedding", "ParallelLMHead")}
        return own, {
            "logger": {"init_logger": lambda name: self.heard},
            "model_executor.model_loader.reload": {"support_quantized_model_reload_from_hp_weights": lambda f: f},
            "distributed": {"get_tensor_model_parallel_rank": lambda: 0, "get_pp_group": lambda: rank,
                            "get_tensor_model_parallel_world_size": lambda: 1},
            "model_executor.layers.vocab_parallel_embedding": embedding,
            "utils.math_utils": {"cdiv": lambda a, b: -(-a // b)},
        }  # fmt: skip

    def _sglang_models(self) -> Iterator[tuple[str, tuple[str, str]]]:
        """Architecture -> module and class: ``EntryClass`` of each file."""
        for path in (self.folder / "srt/models").glob("*.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "EntryClass":
                    for name in (n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)):
                        yield name, (f"srt.models.{path.stem}", name)

    def _vllm_models(self) -> Iterator[tuple[str, tuple[str, str]]]:
        """Architecture -> module and class of vLLM's registry."""
        tree = ast.parse((self.folder / "model_executor/models/registry.py").read_text())
        for node in (node for node in ast.walk(tree) if isinstance(node, ast.Dict)):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Tuple) and len(value.elts) == 2:
                    file, name = (str(e.value) for e in value.elts if isinstance(e, ast.Constant))
                    inside = file.startswith("vllm.")
                    module = file.removeprefix("vllm.") if inside else f"model_executor.models.{file}"
                    yield str(key.value), (module, name)

    def class_of(self, architecture: str) -> Any:
        """The class that loads an architecture."""
        module, name = self.registered[architecture]
        return getattr(self.engine.module(module), name)

    def functions(self, names: list[str], parameters: list[str]) -> dict[str, Any]:
        """Names after the engine's function, and in vLLM after each method's mapper."""
        loader = {"vllm": "model_executor.model_loader.weight_utils", "sglang": "srt.model_loader.weight_utils"}
        function = self.engine.module(loader[self.package]).maybe_remap_kv_scale_name
        found: dict[str, Any] = {"functions": [function(name, dict.fromkeys(parameters)) for name in names]}
        if self.package == "vllm":
            found["mapped"] = {
                method: [cls.get_cache_scale_mapper().map_name(name) for name in names]
                for method, cls in self.methods.items()
            }
        return found

    def where(self, cls: Any) -> str:
        """File and lines of the method that loads."""
        method = next(base.__dict__["load_weights"] for base in cls.__mro__ if "load_weights" in base.__dict__)
        lines, first = inspect.getsourcelines(method)
        return f"{Path(inspect.getsourcefile(method) or '').relative_to(self.folder)}:{first}-{first + len(lines) - 1}"

    def names(self, attention: str, bare: bool) -> list[str]:
        """Parameters of a model of one layer, with an attention module of that name; ``bare``: it has no scales."""
        scales = () if bare else tuple("kv") if self.package == "sglang" else ("k", "v", "q", "prob")
        above = attention.partition(".")[0] + "." if "." in attention else ""
        return [
            *(f"{LAYER}{attention}.{s}_scale" for s in scales),
            *(f"{LAYER}{above}qkv_proj.{end}" for end in ("weight", "weight_scale", "input_scale")),
            f"{LAYER}mlp.gate_up_proj.weight",
            "model.embed_tokens.weight",
        ]

    def outcome(self, cls: Any, attention: str, name: str, method: str, bare: bool) -> list[str]:
        """["loaded", parameter], or ["said" | "silent" | "ends", the exception]."""
        import torch

        taken: list[str] = []
        names = self.names(attention, bare)
        model = self._plain(cls, names, taken) if self.package == "sglang" else self._tree(cls, names, taken, method)
        if bare and self.package == "vllm":
            _module(model, f"{LAYER}{attention}")
        self.heard.said.clear()
        try:
            list(model.load_weights(iter([(name, torch.zeros(()))])) or ())
        except Exception as error:
            return ["ends", f"{type(error).__name__}: {error}"]
        if taken:
            return ["loaded", taken[0]]
        # that a spelling is old says nothing of what becomes of it
        return ["said" if any(not text.startswith("DEPRECATED") for text in self.heard.said) else "silent", ""]

    def _plain(self, cls: Any, names: list[str], taken: list[str]) -> Any:
        """A model that knows its parameters' names, and answers all else with a stand-in."""
        parameters = {
            name: SimpleNamespace(
                shape=(), dtype=None, data=StandIn(), weight_loader=functools.partial(_take, taken, name)
            )
            for name in names
        }
        return _made(
            cls,
            __getattr__=_or_stand_in,
            named_parameters=lambda self, *rest, **more: iter(parameters.items()),
            named_buffers=lambda self, *rest, **more: iter(()),
        )

    def _tree(self, cls: Any, names: list[str], taken: list[str], method: str) -> Any:
        """A module with its inner model, both of the engine's classes, and plain modules below."""
        import torch
        from torch import nn

        outer, inner = _made(cls, __getattr__=_or_stand_in), _made(_inner(cls), __getattr__=_or_stand_in)
        config = self._config(method)
        for model in (outer, inner):
            nn.Module.__init__(model)
            if _keeps_config(type(model).__mro__[1]):
                model.__dict__["quant_config"] = config
        outer._modules["model"] = inner
        for name in names:
            above, _, last = name.rpartition(".")
            module = _module(outer, above)
            parameter = nn.Parameter(torch.zeros(()), requires_grad=False)
            parameter.weight_loader = functools.partial(_take, taken, name)
            module.register_parameter(last, parameter)
        return outer

    def _config(self, method: str) -> Any:
        """What a loader asks of a quantization method, by the method's own class."""
        cls, base = self.methods[method], self.base
        return SimpleNamespace(
            get_cache_scale_mapper=cls.get_cache_scale_mapper,
            get_checkpoint_weight_mapper=base.get_checkpoint_weight_mapper,
            _ignore_unexpected_suffixes=base._ignore_unexpected_suffixes,
            packed_modules_mapping={},
            get_name=lambda: method,
        )


def _module(module: Any, path: str) -> Any:
    """The module of that path below another, made where it is not there."""
    from torch import nn

    for part in path.split("."):
        if part not in module._modules:
            module._modules[part] = nn.Module()  # add_module asks for an attribute, and a stand-in answers
        module = module._modules[part]
    return module


def _take(taken: list[str], name: str, *rest: Any, **more: Any) -> None:
    taken.append(name)


def _or_stand_in(self: Any, name: str) -> Any:
    for kind in ("_parameters", "_buffers", "_modules"):
        if name in self.__dict__.get(kind, ()):
            return self.__dict__[kind][name]
    if name.startswith("__") or (name == "quant_config" and "_modules" in self.__dict__):
        raise AttributeError(name)
    return StandIn()


def _made(cls: Any, **methods: Any) -> Any:
    """An instance of a class whose constructor is not run."""
    return object.__new__(type("Model", (cls,), {"__init__": lambda self: None, **methods}))


def _source(cls: Any, name: str) -> str:
    try:
        return inspect.getsource(cls.__dict__[name])
    except (TypeError, OSError, KeyError):
        return ""


def _inner(cls: Any) -> Any:
    """The class of ``self.model``: from the constructor, or the only model of the file with a loader."""
    for base in cls.__mro__:
        found = re.search(r"self\.model\s*(?::[^=]+)?=\s*(\w+)\(", _source(base, "__init__"))
        if found and isinstance(made := getattr(sys.modules[base.__module__], found[1], None), type):
            return made
    module: ModuleType = sys.modules[cls.__module__]
    models = [
        v
        for k, v in vars(module).items()
        if isinstance(v, type) and k.endswith("Model") and "load_weights" in v.__dict__
    ]
    if len(models) != 1:
        raise ValueError(f"{cls.__name__}: the inner model is not known")
    return models[0]


def _keeps_config(cls: Any) -> bool:
    """Whether a model has the attribute ``quant_config``: set by its constructor, or by a base of vLLM's."""
    if any(base.__name__ == "SupportsQuant" for base in cls.__mro__):
        return True
    return "self.quant_config =" in next((s for base in cls.__mro__ if (s := _source(base, "__init__"))), "")


def main(arguments: list[str]) -> int:
    """A line of JSON for each model: architecture, lines of its loader, and outcomes by method and end of the name."""
    out = os.fdopen(os.dup(1), "w")  # files of models close what they do not own
    asked, tried = json.load(sys.stdin), Tried(arguments[0])
    if asked["functions"]:
        print(json.dumps(tried.functions(asked["functions"], asked["parameters"])), file=out)
    for architecture, attention, module in asked["models"]:
        answer: dict[str, Any] = {"architecture": architecture}
        try:
            cls = tried.class_of(architecture)
            answer["where"] = tried.where(cls)
            for method in ("fp8", "modelopt") if tried.package == "vllm" else ("any",):
                for bare in (False, True):
                    answer[f"{method}{', bare' * bare}"] = {
                        end: tried.outcome(cls, attention, f"{LAYER}{module}{end}", method, bare)
                        for end in asked["ends"]
                    }
        except Exception as error:
            answer["failed"] = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), file=out)
    out.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
