# SPDX-License-Identifier: Apache-2.0
"""Small checkpoints of every kind, with real names and real keys: ``write(kind, folder)``. What a clean file stands for
is returned with it, exact; ``flaw`` names a mistake of FLAWS to put in."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from narrowgauge.suites.meta import small_configs as configs
from narrowgauge.suites.meta import small_deepseek4 as deepseek4
from narrowgauge.suites.meta import small_gguf as gguf
from narrowgauge.suites.meta import small_models as models
from narrowgauge.suites.meta import small_rest as rest
from narrowgauge.suites.meta import small_schemes as schemes
from narrowgauge.suites.meta import small_torch as torch_files
from narrowgauge.suites.meta.small_bytes import Array, Raw, bf16, f16, f32, write_safetensors
from narrowgauge.suites.meta.small_drafts import Draft, Llm, draft
from narrowgauge.suites.meta.small_flaw import Flaw
from narrowgauge.suites.meta.small_flaws_codes import CODES
from narrowgauge.suites.meta.small_flaws_config import CONFIG
from narrowgauge.suites.meta.small_flaws_scales import SCALES
from narrowgauge.suites.meta.small_schemes import Scheme


@dataclass(frozen=True)
class Written:
    """A folder, what each of its weights stands for (by the name before quantization), and what it was made from.

    ``weights`` are those of a file without a flaw.
    """

    folder: Path
    weights: Mapping[str, Array]
    originals: Mapping[str, Array]


def wide_f32(x: Any) -> Raw:
    return f32([x])


def wide_bf16(x: Any) -> Raw:
    return bf16([x])


def reciprocal(x: Any) -> Raw:
    return f32([1 / x])


def _ct(scheme: Scheme, format: str, args: tuple[Any, Any], **more: Any) -> Llm:
    return Llm(models.llama(), scheme, configs.compressed_tensors(format, *args), **more)


def _mo(scheme: Scheme, algo: str, bits: int = 0, group: int = 0, kv: bool = False, **more: Any) -> Llm:
    extra = more.pop("extra", {"group_size": group} if group else {})
    return Llm(
        more.pop("model", models.llama()),
        scheme,
        configs.modelopt(algo, bits, group, kv),
        {"hf_quant_config.json": configs.hf_quant(algo, kv, **extra)},
        kv=("k_proj.k_scale", "v_proj.v_scale", f32) if kv else None,
        **more,
    )


def _gptq(version: int, word: str, symmetric: bool, act_order: bool = False) -> Llm:
    config = configs.gptq(word, symmetric, act_order)
    others = {"quantize_config.json": {k: v for k, v in config.items() if k != "quant_method"}}
    return Llm(models.llama(), schemes.gptq(version, symmetric, act_order), config, others, kept=f16)


FLOAT = "float-quantized"
CT_FP8 = schemes.fp8("tensor", bf16, 1)
MO_FP8 = schemes.fp8("tensor", f32, 0)
STATIC_CT, STATIC_MO = ("input_scale", wide_bf16), ("input_scale", f32)
DEEPSEEK = schemes.fp8("block", f32, 2, "weight_scale_inv")
GATES = ("lm_head", "re:.*block_sparse_moe.gate")

LLMS: dict[str, Llm] = {
    "bf16": Llm(models.llama()),
    "bf16_sharded": Llm(models.llama(), shards=3),
    "bf16_fused": Llm(models.phi3()),
    "bf16_moe": Llm(models.mixtral()),
    "fp16": Llm(models.llama(), kept=f16),
    "ct_FP8": _ct(CT_FP8, FLOAT, configs.CT_FP8, input=STATIC_CT),
    "ct_FP8_KV": Llm(
        models.llama(),
        CT_FP8,
        configs.compressed_tensors(FLOAT, *configs.CT_FP8, configs.CT_KV),
        input=STATIC_CT,
        kv=("k_scale", "v_scale", wide_bf16),
    ),
    "ct_FP8_FUSED": Llm(models.phi3(), CT_FP8, configs.compressed_tensors(FLOAT, *configs.CT_FP8), input=STATIC_CT),
    "ct_FP8_MOE": Llm(
        models.mixtral(),
        CT_FP8,
        configs.compressed_tensors(FLOAT, *configs.CT_FP8, ignore=GATES),
        input=STATIC_CT,
    ),
    "ct_FP8_DYNAMIC": _ct(schemes.fp8("channel", bf16, 2), FLOAT, configs.CT_DYNAMIC),
    "ct_FP8_BLOCK": _ct(schemes.fp8("block", bf16, 2), FLOAT, configs.CT_BLOCK),
    "ct_NVFP4": _ct(
        schemes.nvfp4(True), "nvfp4-pack-quantized", configs.CT_NVFP4, input=("input_global_scale", reciprocal)
    ),
    "ct_MXFP4": _ct(schemes.mxfp4("weight_packed"), "mxfp4-pack-quantized", configs.ct_mx(4)),
    "ct_MXFP8": _ct(schemes.mxfp8, "mxfp8-quantized", configs.ct_mx(8)),
    "ct_W4A16": Llm(models.llama(), schemes.ct_int4(), configs.ct_w4a16()),
    "ct_W4A16_ASYM": Llm(models.llama(), schemes.ct_int4(zeros=True), configs.ct_w4a16(symmetric=False)),
    # compressed-tensors before 2026-08-27: act order with an index of groups was then taken out
    "ct_W4A16_ACTORDER": Llm(
        models.llama(), schemes.ct_int4(act_order=True), configs.ct_w4a16(actorder="group") | {"version": "0.10.2"}
    ),
    "ct_W8A8": _ct(schemes.int8, "int-quantized", configs.CT_W8A8),
    "mo_FP8": _mo(MO_FP8, "FP8", 8, kv=True, input=STATIC_MO),
    "mo_NVFP4": _mo(schemes.nvfp4(False), "NVFP4", 4, 16, True, input=STATIC_MO),
    "mo_NVFP4_MOE": _mo(schemes.nvfp4(False), "NVFP4", 4, 16, model=models.qwen3_moe(), input=STATIC_MO),
    "mo_FP8_PB": _mo(schemes.fp8("block", f32, 4), "fp8_pb_wo"),
    "mo_MXFP8": _mo(schemes.mxfp8, "MXFP8", extra={"group_size": 32}),
    "mo_MXFP4": _mo(schemes.mxfp4("weight"), "mxfp4"),
    "mo_W4A16_AWQ": _mo(
        schemes.modelopt_int4,
        "W4A16_AWQ",
        extra={"group_size": 128, "has_zero_point": False, "pre_quant_scale": True},
        smooth="down_proj",
    ),
    # older exports: hf_quant_config.json, and a config.json that says nothing
    "mo_FP8_alone": Llm(
        models.llama(),
        MO_FP8,
        others={"hf_quant_config.json": configs.hf_quant("FP8")},
        input=STATIC_MO,
    ),
    "deepseek": Llm(models.deepseek(), DEEPSEEK, configs.deepseek()),
    "deepseek_ue8m0": Llm(
        models.deepseek(),
        schemes.fp8("block", f32, 2, "weight_scale_inv", power=True),
        configs.deepseek(scale_fmt="ue8m0"),
    ),
    "quark_fp8_kv": Llm(
        models.llama(),
        schemes.fp8("tensor", bf16, 0),
        configs.quark(configs.QUARK_FP8, configs.QUARK_FP8, kv=True),
        input=("input_scale", bf16),
        kv=("k_proj.output_scale", "v_proj.output_scale", bf16),
        kv_equal=True,
    ),
    "quark_fp8_kv_custom": Llm(
        models.llama(),
        schemes.fp8("tensor", bf16, 0),
        configs.QUARK_CUSTOM,
        input=("input_scale", bf16),
        kv=("k_scale", "v_scale", bf16),
        kv_equal=True,
    ),
    "quark_ptpc_fp8": Llm(models.llama(), schemes.fp8("channel", bf16, 1), configs.quark(*configs.QUARK_PTPC)),
    "quark_mxfp4": Llm(models.llama(), schemes.mxfp4("weight"), configs.quark(*configs.QUARK_MXFP4)),
    "quark_mx17": Llm(models.llama(), schemes.mx17, configs.quark(*configs.QUARK_OLD)),
    "int8_rows": Llm(models.llama(), schemes.int8_rows),
    "awq": Llm(models.llama(), schemes.awq, configs.AWQ, kept=f16),
    "gptq_v1": _gptq(1, "gptq", True),
    "gptq_v1_asym": _gptq(1, "gptq", False),
    "gptq_v2": _gptq(2, "gptq_v2", False),
    "gptq_actorder": _gptq(1, "gptq", True, act_order=True),
}


def _torch_bin() -> Draft:
    made = draft(LLMS["bf16"])
    made.file = "pytorch_model.bin"
    return made


def _conv_pth() -> Draft:
    made = rest.convolutions()
    made.file = "full.pth"
    return made


def _training() -> Draft:
    """A trainer's state in safetensors: paths with dots."""
    made = rest.training()
    tables = ({name.replace("/", "."): x for name, x in table.items()} for table in (made.weights, made.originals))
    tensors = {name.replace("/", "."): raw for name, raw in made.tensors.items()}
    weights, originals = tables
    return Draft(tensors, weights=weights, originals=originals)


def _made(row: Llm) -> Callable[[], Draft]:
    return lambda: draft(row)


#: what makes the draft of each kind
KINDS: dict[str, Callable[[], Draft]] = {name: _made(row) for name, row in LLMS.items()} | {
    "gpt_oss": lambda: rest.gpt_oss(openai=False),
    "gpt_oss_openai": lambda: rest.gpt_oss(openai=True),
    "deepseek_v4": deepseek4.draft,
    "conv_fp32": rest.convolutions,
    "training": _training,
    "gguf": gguf.draft,
    "torch_bin": _torch_bin,
    "torch_pth": _conv_pth,
    "torch_training": rest.training,
}


@cache
def _first(kind: str) -> Draft:
    return KINDS[kind]()


def draft_of(kind: str) -> Draft:
    """A draft to edit: made once, and its tables copied. No edit changes what stands in them."""
    made = _first(kind)
    return replace(made, tensors=dict(made.tensors), config=dict(made.config), others=dict(made.others))


#: mistakes by name; each stands with the kind that it is made in
FLAWS: dict[str, Flaw] = CODES | SCALES | CONFIG


def write(kind: str, folder: Path, flaw: str = "") -> Written:
    """A checkpoint of that kind in an empty or new folder, with a mistake of FLAWS where one is named."""
    made = draft_of(kind)
    mistake = FLAWS[flaw] if flaw else None
    if mistake:
        if mistake.kind != kind:
            raise ValueError(f"{flaw!r} is a flaw of {mistake.kind}, and {kind} is asked for")
        mistake.edit(made)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {"config.json": made.config, **made.others}.items():
        if content:
            (folder / name).write_text(json.dumps(content, indent=2) + "\n")
    if made.shards:
        _sharded(folder, made)
    elif made.file.endswith(".safetensors"):
        write_safetensors(folder / made.file, made.tensors, {"format": "pt"})
    elif made.file.endswith(".gguf"):
        gguf.write_gguf(folder / made.file, made.tensors)
    else:
        torch_files.save(folder / made.file, made.tensors)
    if mistake and mistake.after:
        mistake.after(folder)
    return Written(folder, made.weights, made.originals)


def _sharded(folder: Path, made: Draft) -> None:
    """Names in turn to each file, as many bytes as come; and the index with the whole size."""
    names = sorted(made.tensors)
    share = -(-len(names) // made.shards)
    where: dict[str, str] = {}
    for i in range(made.shards):
        file = f"model-{i + 1:05d}-of-{made.shards:05d}.safetensors"
        some = {name: made.tensors[name] for name in names[i * share : (i + 1) * share]}
        write_safetensors(folder / file, some, {"format": "pt"})
        where |= dict.fromkeys(some, file)
    total = sum(len(raw.data) for raw in made.tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def write_original(kind: str, folder: Path) -> Path:
    """The plain weights that a kind is made from, in bfloat16 under their own names: what ``--against`` is given.

    Experts of gpt-oss are [E, K, N] there, as transformers keeps them.
    """
    made = draft_of(kind)
    folder.mkdir(parents=True, exist_ok=True)
    config = {key: value for key, value in made.config.items() if key != "quantization_config"}
    if config:
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    plain = {name: bf16(x.transpose(0, 2, 1) if x.ndim == 3 else x) for name, x in made.originals.items()}
    write_safetensors(folder / "model.safetensors", plain, {"format": "pt"})
    return folder
