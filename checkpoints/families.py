"""Who reads the keys of which methods of quantization."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from narrowgauge.checkpoints.schemes.scheme import Cut

Said = Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    """What is said of a quantized module. "" and 0 where it is not said."""

    element: str = ""  #: format of one code, or "int4", "int8"
    cut: Cut | str = ""
    block: tuple[int, int] = (0, 0)  #: rows, columns
    scale: str = ""  #: "float", "float8_e8m0fnu", "float8_e4m3fn"
    inputs: str = ""  #: "none", "static", "dynamic"
    symmetric: bool | None = None


@dataclass(frozen=True)
class Found:
    """What a method's keys say."""

    groups: tuple[tuple[tuple[str, ...], Asked], ...] = ()
    ignore: tuple[str, ...] = ()
    parts: bool = False
    kv: bool | None = None
    understood: bool = True  #: whether what is not in ``groups`` is said to be plain
    keys: Mapping[str, str] = field(default_factory=dict)


def _strings(value: Any) -> tuple[str, ...]:
    """A list of names, as files have it: a list, one string, or nothing."""
    if isinstance(value, str):
        return (value,)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _ignored(said: Said) -> tuple[str, ...]:
    keys = ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules", "exclude", "llm_int8_skip_modules")
    return tuple(dict.fromkeys(name for key in keys for name in _strings(said.get(key))))


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _bool(said: Said, keys: Iterable[str]) -> bool | None:
    """Whether any of the keys holds something; None where none is there."""
    there = [said[key] for key in keys if key in said]
    return any(map(bool, there)) if there else None


def _pair(value: Any) -> tuple[int, int]:
    ok = isinstance(value, (list, tuple)) and len(value) == 2
    return (_whole(value[0]), _whole(value[1])) if ok else (0, 0)


def _compressed_tensors(said: Said) -> Found:
    groups = []
    for group in _objects(said.get("config_groups")):
        weights = group.get("weights")
        if isinstance(weights, dict):
            groups.append((_strings(group.get("targets")), _of_args(weights, group.get("input_activations"))))
    bits = {str(g["weights"].get("num_bits")) for g in _objects(said.get("config_groups")) if _object(g.get("weights"))}
    keys = {"num_bits": bits.pop()} if len(bits) == 1 else {}
    return Found(tuple(groups), _ignored(said), kv=_bool(said, ("kv_cache_scheme",)), keys=keys)


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value.values() if isinstance(each, dict)] if isinstance(value, dict) else []


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_STRATEGIES: Mapping[str, Cut] = {
    "tensor": "tensor", "channel": "row", "group": "group", "tensor_group": "group", "block": "block",
}  # fmt: skip


def _of_args(weights: Said, inputs: Any) -> Asked:
    spelled = f"{weights.get('type', 'int')}{weights.get('num_bits')}"
    element = {"float8": "float8_e4m3fn", "float4": "float4_e2m1fn"}.get(spelled, spelled)
    strategy = weights.get("strategy")
    group = _whole(weights.get("group_size"))
    block = _pair(weights.get("block_structure")) if strategy == "block" else (1 if group else 0, group)
    scales = {"torch.uint8": "float8_e8m0fnu", "torch.float8_e4m3fn": "float8_e4m3fn"}
    scale = scales.get(str(weights.get("scale_dtype")), "float8_e4m3fn" if strategy == "tensor_group" else "float")
    cut = _STRATEGIES.get(str(strategy), "group" if group else "")
    if "strategy" not in weights:
        scale = "float8_e4m3fn" if element == "float4_e2m1fn" and group == 16 else ""
    return Asked(element, cut, block, scale, _inputs(inputs), weights.get("symmetric"))


def _inputs(said: Any) -> str:
    if not isinstance(said, dict):
        return "none"
    dynamic = said.get("dynamic", False)
    return "local" if dynamic == "local" else "dynamic" if dynamic else "static"


#: quant_algo of ModelOpt, in capitals
_ALGORITHMS: Mapping[str, Asked] = {
    "FP8": Asked("float8_e4m3fn", "tensor", scale="float", inputs="static"),
    "FP8_PER_CHANNEL_PER_TOKEN": Asked("float8_e4m3fn", "row", scale="float", inputs="dynamic"),
    "FP8_PB_WO": Asked("float8_e4m3fn", "block", (128, 128), "float", "none"),
    "MXFP8": Asked("float8_e4m3fn", "group", (1, 32), "float8_e8m0fnu", "dynamic"),
    "MXFP4": Asked("float4_e2m1fn", "group", (1, 32), "float8_e8m0fnu"),
    "W4A8_MXFP4_FP8": Asked("float4_e2m1fn", "group", (1, 32), "float8_e8m0fnu"),
    "NVFP4": Asked("float4_e2m1fn", "group", (1, 16), "float8_e4m3fn", "static"),
    "NVFP4_AWQ": Asked("float4_e2m1fn", "group", (1, 16), "float8_e4m3fn", "static"),
    "W4A16_NVFP4": Asked("float4_e2m1fn", "group", (1, 16), "float8_e4m3fn", "none"),
    "W4A16_AWQ": Asked("int4", "group", (1, 128), "float", "none"),
    "INT4_AWQ": Asked("int4", "group", (1, 128), "float", "none"),
    "W8A8_SQ_PER_CHANNEL": Asked("int8", "row", scale="float"),
}


def _modelopt(said: Said) -> Found:
    algorithm = str(said.get("quant_algo") or said.get("quantization", "")).upper()
    kv = _bool(said, ("kv_cache_scheme", "kv_cache_quant_algo"))
    mixed = said.get("quantized_layers")
    if algorithm == "MIXED_PRECISION" and isinstance(mixed, dict):
        each = {name: str(_object(layer).get("quant_algo")).upper() for name, layer in mixed.items()}
        groups = tuple(((name,), _ALGORITHMS[of]) for name, of in each.items() if of in _ALGORITHMS)
        return Found(groups, _ignored(said), kv=kv)
    asked = _ALGORITHMS.get(algorithm)
    if asked is None:
        return Found((), _ignored(said), kv=kv, understood=False)
    if asked.cut == "group" and (group := _whole(said.get("group_size"))):
        asked = replace(asked, block=(1, group))
    return Found(((("Linear",), asked),), _ignored(said), kv=kv)


def _quark(said: Said) -> Found:
    whole = _object(said.get("global_quant_config"))
    layers = [((name,), _of_spec(_object(each))) for name, each in _object(said.get("layer_quant_config")).items()]
    caches = {*_object(said.get("kv_cache_quant_config")), *_strings(_object(said.get("export")).get("kv_cache_group"))}
    own = tuple(group for group in layers if group[0][0] not in caches)
    weight = _object(whole.get("weight"))
    keys = {"weight.dtype": str(weight["dtype"])} if "dtype" in weight else {}
    kv = _bool(said, ("kv_cache_quant_config",)) if "kv_cache_quant_config" in said else bool(caches)
    return Found((*own, (("Linear",), _of_spec(whole))), _ignored(said), kv=kv, keys=keys)


_QUARK_ELEMENTS = {
    "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2", "fp4": "float4_e2m1fn", "mx": "float4_e2m1fn",
}  # fmt: skip
_QUARK_CUTS: Mapping[str, Cut] = {"per_tensor": "tensor", "per_channel": "row", "per_group": "group"}


def _of_spec(layer: Said) -> Asked:
    weight = layer.get("weight")
    if isinstance(weight, list):  # two levels: the element, then its scales
        weight = weight[0] if weight else {}
    weight, inputs = _object(weight), layer.get("input_tensors")
    dtype, group = str(weight.get("dtype", "")), _whole(weight.get("group_size"))
    scale = "float8_e8m0fnu" if weight.get("scale_format") == "e8m0" or dtype == "mx" else "float"
    cut = _QUARK_CUTS.get(str(weight.get("qscheme")), "")
    inputs = inputs[0] if isinstance(inputs, list) and inputs else inputs
    how = ("dynamic" if inputs.get("is_dynamic") else "static") if isinstance(inputs, dict) else "none"
    return Asked(_QUARK_ELEMENTS.get(dtype, dtype), cut, (1 if group else 0, group), scale, how)


def _fp8(said: Said) -> Found:
    block = _pair(said.get("weight_block_size"))
    powers = said.get("scale_fmt") == "ue8m0"
    element = "float8_e5m2" if said.get("fmt") == "e5m2" else "float8_e4m3fn"
    if said.get("quant_method") == "blockwise_int8":
        element = "int8"
    exponents = powers or block == (1, 32)  # MXFP8 by another name: SGLang's MiniMax M3
    cut = "group" if block == (1, 32) else "block" if any(block) else "tensor"
    asked = Asked(element, cut, block, "" if exponents else "float", str(said.get("activation_scheme") or ""))
    experts = Asked("float4_e2m1fn", "group", (1, 32), "float8_e8m0fnu", asked.inputs)
    four = ((("re:.*\\.experts\\..*",), experts),) if said.get("expert_dtype") == "fp4" else ()
    return Found((*four, (("Linear",), asked)), _ignored(said), kv=_bool(said, ("kv_cache_scheme",)))


def _grouped(said: Said) -> Found:
    """GPTQ, AWQ and what is like them."""
    bits = said.get("bits", said.get("w_bit"))
    group = said.get("group_size", said.get("q_group_size"))
    skipped = [name[2:] for name in _object(said.get("dynamic")) if name.startswith("-:")]
    asked = Asked(f"int{bits}", "group" if _whole(group) else "row", (1, _whole(group)), "float", "none",
                  said.get("sym", not said["zero_point"] if "zero_point" in said else None))  # fmt: skip
    keys = {key: str(said[key] or "") for key in ("bits", "w_bit", "checkpoint_format", "desc_act") if key in said}
    ignore = (*_ignored(said), *(f"re:{name}" for name in skipped))
    return Found(((("Linear",), asked),), ignore, parts=True, keys=keys)


def _mxfp4(said: Said) -> Found:
    """gpt-oss: experts alone."""
    asked = Asked("float4_e2m1fn", "group", (1, 32), "float8_e8m0fnu", "none")
    return Found(((("re:.*experts.*", "re:.*mlp[12]_weight.*"), asked),), _ignored(said))


def _mxfp8(said: Said) -> Found:
    """MiniMax's word for MXFP8 in every linear layer."""
    asked = Asked("float8_e4m3fn", "group", (1, 32), "float8_e8m0fnu", "dynamic")
    return Found(((("Linear",), asked),), _ignored(said))


def of_names(said: Said) -> Found:
    """A method of which no key is understood: only what it leaves out."""
    return Found((), _ignored(said), understood=False)


def _rows(element: str) -> Callable[[Said], Found]:
    asked = Asked(element, "row", scale="float", inputs="dynamic")
    return lambda said: Found(((("Linear",), asked),), _ignored(said))


#: who reads the keys of which methods
FAMILIES: tuple[tuple[tuple[str, ...], Callable[[Said], Found]], ...] = (
    (("compressed-tensors", "compressed_tensors"), _compressed_tensors),
    (
        ("modelopt", "modelopt_fp8", "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed", "petit_nvfp4", "nvfp4"),
        _modelopt,
    ),
    (("quark", "quark_mxfp4"), _quark),
    (("fp8", "deepseek_v4_fp8", "blockwise_int8"), _fp8),
    (("mxfp8",), _mxfp8),
    (("gptq", "gptq_marlin", "auto_gptq", "awq", "awq_marlin", "auto_awq", "moe_wna16", "auto-round", "inc"), _grouped),
    (("mxfp4", "gpt_oss_mxfp4"), _mxfp4),
    (("fbgemm_fp8", "w8a8_fp8"), _rows("float8_e4m3fn")),
    (("w8a8_int8", "auto-round-int8"), _rows("int8")),
)
