"""Engines' own methods that deliver a cache's scales, run on every combination of what a checkpoint may give.

Run: ``python -m narrowgauge.suites.meta.engines.kv_scales ENGINE``, with the engine's unpacked wheel in the path.
It asks for torch. Each line is a case and what the engine did with it; ``suites.meta.test_kv_delivery`` compares.
"""

from __future__ import annotations

import itertools
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from types import SimpleNamespace
from typing import Any

from narrowgauge.suites.meta.engines.loading import Engine, folder_of

#: what a scale may be; None is missing. As text, so that JSON holds NaN
VALUES = (None, "-1", "0", "-0.0", "0.5", "1", "0.37", "1e38", "1e-45", "nan", "inf", "-inf")
#: of Q and of the probabilities, where K and V are as usual
FEW = (None, "-1", "0", "0.5", "1", "nan")
USUAL = ("0.5", "0.37")
HEADS = ("0.5", "0.25")
_QUANTIZATION = "model_executor.layers.quantization."

Case = dict[str, Any]


def cases(flags: list[str], methods: list[str]) -> Iterator[Case]:
    """Every pair of K's and V's, every pair of Q's and the probabilities', and one of them of two heads."""
    for method, flag, fnuz in itertools.product(methods, flags, (False, True)):
        head = {"method": method, "flag": flag, "fnuz": fnuz}
        for k, v in itertools.product(VALUES, VALUES):
            yield head | _given(k=k, v=v)
        for q, prob, (k, v) in itertools.product(FEW, FEW, (USUAL, (None, None), ("1", "1"))):
            yield head | _given(k=k, v=v, q=q, prob=prob)
        for name in "kvq":
            yield head | _given(**{"k": "0.5", "v": "0.37", name: HEADS})


def _given(**scales: Any) -> Case:
    return {"given": {name: scale for name, scale in scales.items() if scale is not None}}


class Log(logging.Handler):
    """Every warning, first words."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self.said.append(record.msg)

    def warning_once(self, message: str, *rest: Any) -> None:
        self.said.append(message)


def _stand_in(**packages: dict[str, dict[str, Any]]) -> None:
    """Other packages that an engine's files import, where they are not installed, with the answers that are given."""
    for name, answers in packages.items():
        if folder_of(name) is None:
            Engine(name, (), answers)


def _plain(scale: Any) -> Any:
    """As text, or None; several numbers as a list."""
    if scale is None or isinstance(scale, (int, float)):
        return None if scale is None else repr(float(scale))
    values = [repr(float(s)) for s in scale.detach().reshape(-1)]
    return values[0] if len(values) == 1 else values


def _done(layer: Any, names: Mapping[str, str], log: Log) -> Case:
    return {"used": {name: _plain(getattr(layer, at, None)) for name, at in names.items()}, "said": log.said}


def _tensor(scale: Any) -> Any:
    import torch

    values = [float(s) for s in ([scale] if isinstance(scale, str) else scale)]
    return torch.tensor(values[0] if len(values) == 1 else values, dtype=torch.float32)


# --- vLLM ------------------------------------------------------------------------------------------------------------


def vllm(flags: list[str]) -> Iterator[Case]:
    """``_init_kv_cache_quant``, the loaders and ``process_weights_after_loading``."""
    import torch

    log, platform = Log(), SimpleNamespace(is_fp8_fnuz=lambda: False)
    own = (
        "v1.kv_cache_interface",
        "model_executor.layers.attention.attention",
        f"{_QUANTIZATION}kv_cache",
        f"{_QUANTIZATION}compressed_tensors.compressed_tensors",
    )
    answers: dict[str, dict[str, Any]] = {
        "logger": {"init_logger": lambda name: log},
        "platforms": {"current_platform": platform},
        "config.cache": {"get_kv_cache_dtype_handler": lambda name: None},
        "model_executor.utils": {"is_weights_pre_processed": lambda: False},
        f"{_QUANTIZATION[:-1]}": {"resolve_quant_method": lambda config, layer, prefix: config.method},
        "model_executor.layers.linear": {"UnquantizedLinearMethod": type("UnquantizedLinearMethod", (), {})},
        "distributed": {
            "get_tensor_model_parallel_rank": lambda: 0,
            "get_tensor_model_parallel_world_size": lambda: 1,
        },
    }
    QuantizationStrategy = Enum("QuantizationStrategy", {"TENSOR": "tensor", "ATTN_HEAD": "attn_head"}, type=str)
    _stand_in(compressed_tensors={"quantization": {"QuantizationStrategy": QuantizationStrategy}})
    engine = Engine("vllm", own, answers)
    attention = engine.module("model_executor.layers.attention.attention")
    base = engine.module(f"{_QUANTIZATION}kv_cache").BaseKVCacheMethod
    compressed = engine.module(f"{_QUANTIZATION}compressed_tensors.compressed_tensors").CompressedTensorsKVCacheMethod

    def config(case: Case) -> Any:
        given = case["given"].values()
        heads = not all(isinstance(scale, str) for scale in given)
        scheme = {"type": "float", "num_bits": 8, "symmetric": True, "strategy": "attn_head" if heads else "tensor"}
        made = SimpleNamespace(kv_cache_scheme=scheme if given else None, total_num_heads=2, total_num_kv_heads=2)
        made.method = {"none": None, "base": base(made)}.get(case["method"], compressed(made))
        return made

    def load(layer: Any, name: str, scale: Any) -> None:
        if not hasattr(layer, f"{name}_scale"):
            return  # no parameter of that name: the loader drops it
        parameter = getattr(layer, f"{name}_scale")
        loader = getattr(parameter, "weight_loader", None)
        if loader is None:
            parameter.data.fill_(scale)
        else:
            loader(parameter, scale.expand(parameter.shape) if scale.dim() == 0 else scale)

    names = {"k": "_k_scale", "v": "_v_scale", "q": "_q_scale", "prob": "_prob_scale"}
    for case in cases(flags, ["base", "base, the method alone", "compressed_tensors", "none"]):
        log.said = []
        platform.is_fp8_fnuz = lambda case=case: case["fnuz"]
        layer = torch.nn.Module()
        layer.kv_cache_dtype, layer.num_kv_heads = case["flag"], 2
        try:
            if case["method"] == "base, the method alone":
                attention.set_default_quant_scales(layer, register_buffer=True)
                layer.quant_method = base(None)
                layer.quant_method.create_weights(layer)
            else:
                attention._init_kv_cache_quant(layer, config(case), "layer")
            for name, scale in case["given"].items():
                load(layer, name, _tensor(scale))
            if hasattr(layer, "quant_method"):
                layer.quant_method.process_weights_after_loading(layer)
        except (AssertionError, ValueError) as error:
            yield case | {"raised": type(error).__name__, "said": log.said}
        else:
            yield case | _done(layer, names, log)


# --- SGLang ----------------------------------------------------------------------------------------------------------


def sglang(flags: list[str]) -> Iterator[Case]:
    """``BaseKVCacheMethod``, a layer without one, and a file; then ``load_kv_cache_scales``."""
    import torch

    log = Log()
    state: dict[str, Any] = {}
    logging.getLogger().addHandler(log)
    loading = "srt.model_executor.model_runner_components.load_model_utils"
    answers: dict[str, dict[str, Any]] = {
        "kernels.ops.quantization.fp8_kernel": {"is_fp8_fnuz": lambda: state["fnuz"]},
        "srt.runtime_context": {"get_model": lambda: SimpleNamespace(quantization_param_path=state["path"])},
        "srt.model_loader.weight_utils": {"kv_cache_scales_loader": lambda *rest: state["scale"]},
    }
    struct = type("Struct", (), {"__init_subclass__": classmethod(lambda cls, **options: None)})
    _stand_in(msgspec={"": {"Struct": struct}}, transformers={})
    engine = Engine("sglang", ("srt.layers.quantization.kv_cache", loading, "srt.models.llama"), answers)
    base = engine.module("srt.layers.quantization.kv_cache").BaseKVCacheMethod(None)
    load_scales = engine.module(loading).load_kv_cache_scales
    llama = engine.module("srt.models.llama").LlamaModel

    class Model:
        """One layer, and the loader of a file that llama has."""

        def __init__(self, layer: Any) -> None:
            self.layers = [SimpleNamespace(self_attn=SimpleNamespace(attn=layer))]
            self.config = type("Config", (), {"model_type": "llama", "num_hidden_layers": 1})()
            self._kv_cache_parallel_layout = (0, 1)

        def load_kv_cache_scales(self, path: str) -> None:
            llama.load_kv_cache_scales(self, path)

    for case in cases(flags, ["base", "none", "json"]):
        log.said = []
        given = dict(case["given"])
        if case["method"] == "json":  # the file has one number for both
            given = {"kv": given["k"]} if isinstance(given.get("k"), str) else {}
            case = case | {"given": given}
        state |= {"fnuz": case["fnuz"], "path": "file" if case["method"] == "json" else None}
        state["scale"] = [(0, float(given["kv"]))] if "kv" in given else []
        layer = torch.nn.Module()
        layer.k_scale, layer.v_scale = None, None
        try:
            if case["method"] == "base":
                del layer.k_scale, layer.v_scale
                base.create_weights(layer)
                for name in given.keys() & {"k", "v"}:
                    parameter, scale = getattr(layer, f"{name}_scale"), _tensor(given[name])
                    assert parameter.size() == scale.size()  # default_weight_loader, weight_utils.py:1574-1586
                    parameter.data.fill_(scale)
                base.process_weights_after_loading(layer)
            load_scales(model=Model(layer), kv_cache_dtype=case["flag"])
        except (AssertionError, ValueError) as error:
            yield case | {"raised": type(error).__name__, "said": log.said}
        else:
            yield case | _done(layer, {"k": "k_scale", "v": "v_scale", "float": "k_scale_float"}, log)


def main(arguments: list[str]) -> int:
    """``ENGINE FLAG ...``: every case as a line of JSON."""
    for done in {"vllm": vllm, "sglang": sglang}[arguments[0]](arguments[1:]):
        print(json.dumps(done))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
