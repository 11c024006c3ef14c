"""What a GPU computes of a quantized weight, by engine: units, a way around, a conversion, or a refusal. As data.

vLLM 0.33.0 (its files below vllm/) and SGLang 0.5.23 (below sglang/srt/). The first rule that fits decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

#: "units": the product is of the stored format; "converted": of FNUZ; "requantized": units, after codes were made anew
Becomes = Literal["units", "weights only", "emulated", "converted", "requantized", "refused", "not known"]


@dataclass(frozen=True)
class Gpu:
    """What an engine asks a target for: "cuda", "hip" or "cpu", and the capability (sm_89: 89, gfx942: 94)."""

    name: str
    backend: str
    capability: int


FAMILIES = {
    "fp8": "fp8, one scale a tensor or row",
    "fp8 block": "fp8, a scale a block",
    "fp8 weights": "fp8, weights alone",
    "mxfp8": "MXFP8",
    "mxfp4": "MXFP4",
    "nvfp4": "NVFP4",
    "fp4 weights": "MXFP4 or NVFP4, weights alone",
    "int8": "int8",
    "int4": "integers of few bits, weights alone",
}
WHERE: dict[str, Callable[[Gpu], bool]] = {
    "anywhere": lambda g: True,
    "CUDA": lambda g: g.backend == "cuda",
    "before sm_89": lambda g: g.backend == "cuda" and g.capability < 89,
    "sm_89 and later": lambda g: g.backend == "cuda" and g.capability >= 89,
    "sm_90 and later": lambda g: g.backend == "cuda" and g.capability >= 90,
    "before sm_100": lambda g: g.backend == "cuda" and g.capability < 100,
    "sm_100 and later": lambda g: g.backend == "cuda" and g.capability >= 100,
    "sm_100, sm_103": lambda g: g.backend == "cuda" and 100 <= g.capability < 110,
    "FNUZ": lambda g: g.name.startswith("gfx94"),
    "MX on AMD": lambda g: g.name.startswith(("gfx95", "gfx1250")),
    "gfx950": lambda g: g.name.startswith("gfx95"),
    "OCP on AMD": lambda g: g.name.startswith(("gfx95", "gfx12")),
    "RDNA 3": lambda g: g.name.startswith("gfx11"),
    "AMD": lambda g: g.backend == "hip",
}


@dataclass(frozen=True)
class Rule:
    """One row: of a family of formats, on some targets, for some methods (all where none is named)."""

    engine: str
    families: tuple[str, ...]
    where: str  #: a name of ``WHERE``
    becomes: Becomes
    said: str
    source: str  #: a name of ``SOURCES``
    methods: tuple[str, ...] = ()


_V8, _S8 = "vllm/model_executor/layers/quantization/", "sglang/srt/layers/quantization/"
_V8K, _S8C = "vllm/model_executor/kernels/linear/", f"{_S8}compressed_tensors/"
_SCHEMES = "compressed_tensors/schemes/compressed_tensors_"
#: where an engine says so
SOURCES = {
    "v marlin fp8": f"{_V8}utils/marlin_utils_fp8.py:30-31,108-112; "
    f"{_V8}compressed_tensors/compressed_tensors.py:896-915",
    "v e8m0": f"{_V8}utils/fp8_utils.py:1096-1154,1195-1214; vllm/utils/deep_gemm.py:121-143; "
    "vllm/platforms/cuda.py:691-697",
    "v fp8 weights": f"{_V8K}__init__.py:522-526",
    "v fp8": "vllm/platforms/cuda.py:586-588",
    "v fnuz": f"{_V8}utils/w8a8_utils.py:109-130; vllm/platforms/rocm.py:1258-1261",
    "v fp8 amd": f"{_V8K}scaled_mm/pytorch.py:31-34; {_V8K}scaled_mm/rocm.py:75-90",
    "v triton": f"{_V8K}scaled_mm/triton.py:199-204",
    "v marlin": f"{_V8}utils/marlin_utils_fp4.py:34-35,340-344; {_V8K}__init__.py:568-642",
    "v mxfp8": f"{_V8K}__init__.py:568-584",
    "v mxfp8 amd": f"{_V8K}mxfp8/rocm_native.py:224-237",
    "v mxfp4": f"{_V8K}__init__.py:625-637",
    "v mxfp4 amd": f"{_V8K}mxfp4/aiter.py:166-176; vllm/platforms/rocm.py:1250-1252",
    "v mx emulated": f"{_V8K}mxfp4/emulation.py:91-105; {_V8K}__init__.py:579-584",
    "v nvfp4": f"{_V8K}__init__.py:592-612",
    "v int8": f"{_V8K}__init__.py:446-453",
    "v int4": f"{_V8K}__init__.py:539-565",
    "s marlin fp8": f"{_S8}fp8_utils.py:2794-2800; {_S8C}compressed_tensors.py:800-824",
    "s e8m0": f"{_S8}fp8_utils.py:2147-2182; sglang/srt/model_loader/utils.py:266-288",
    "s fp8 weights": f"{_S8C}schemes/compressed_tensors_w8a16_fp8.py:34-37",
    "s fp8": f"{_S8}fp8_utils.py:2794-2800",
    "s fnuz": f"{_S8}fp8_utils.py:409-430; {_S8}fp8.py:817-824,1236-1248",
    "s mxfp8": f"{_S8}fp8.py:329-341",
    "s mxfp8 blocks": f"{_S8}fp8.py:141-147,525-533,745-783",
    "s mxfp4": f"{_S8}mxfp4.py:338-339",
    "s mxfp4 amd": f"{_S8}__init__.py:94-104",
    "s nvfp4": f"{_S8C}compressed_tensors.py:754-783",
    "s int8": f"{_S8}w8a8_int8.py:86-88",
    "s int4": f"{_S8}gptq/gptq.py:386-387; {_S8}awq/awq.py:109-116",
}
_FNUZ = (
    "bytes OCP to FNUZ: 0x80 becomes 0, scales double; the NaN bytes 0x7F and 0xFF become 240 and -240 times the "
    "doubled scale"
)
_E8M0 = "scales to powers of two where DeepGEMM runs the layer"
_16 = "codes to 16 bits in the kernel"
_EMULATED = "codes to bfloat16, inputs rounded to the format and back"
_MARLIN, _ASKED, _FP8_UNITS = "by Marlin: weights alone", "as the checkpoint asks", "fp8 units"
_FP8 = ("fp8", "fp8 block")

RULES: tuple[Rule, ...] = (
    Rule("vllm", (*_FP8, "fp8 weights"), "before sm_89", "weights only", _MARLIN, "v marlin fp8"),
    Rule("vllm", ("fp8 block",), "sm_90 and later", "requantized", _E8M0, "v e8m0"),
    Rule("vllm", ("fp8 weights",), "CUDA", "weights only", _MARLIN, "v fp8 weights"),
    Rule("vllm", _FP8, "sm_89 and later", "units", _FP8_UNITS, "v fp8"),
    Rule("vllm", _FP8, "FNUZ", "converted", _FNUZ, "v fnuz"),
    Rule("vllm", _FP8, "OCP on AMD", "units", _FP8_UNITS, "v fp8 amd"),
    Rule("vllm", ("fp8 block",), "AMD", "emulated", "Triton's product, without units", "v triton"),
    Rule("vllm", ("fp8",), "AMD", "refused", "no kernel", "v fp8 amd"),
    Rule("vllm", ("mxfp8", "mxfp4", "nvfp4"), "before sm_100", "weights only", _MARLIN, "v marlin"),
    Rule("vllm", ("mxfp8",), "sm_100 and later", "units", "MX units", "v mxfp8"),
    Rule("vllm", ("mxfp4",), "sm_100 and later", "units", "MX units", "v mxfp4"),
    Rule("vllm", ("nvfp4",), "sm_100 and later", "units", "NVFP4 units", "v nvfp4"),
    Rule("vllm", ("mxfp8",), "MX on AMD", "units", "MX units", "v mxfp8 amd"),
    Rule("vllm", ("mxfp4",), "MX on AMD", "units", "MX units, by AITER", "v mxfp4 amd"),
    Rule("vllm", ("mxfp4",), "RDNA 3", "not known", "a kernel of 4-bit weights and 8-bit activations", "v mxfp4"),
    Rule("vllm", ("mxfp8", "mxfp4"), "AMD", "emulated", _EMULATED, "v mx emulated"),
    Rule("vllm", ("nvfp4",), "AMD", "emulated", _EMULATED, "v nvfp4"),
    Rule("vllm", ("fp4 weights",), "CUDA", "weights only", _ASKED, "v marlin"),
    Rule("vllm", ("int8",), "CUDA", "units", "int8 units", "v int8"),
    Rule("vllm", ("int8",), "AMD", "units", "int8 units", "v int8"),
    Rule("vllm", ("int4",), "anywhere", "weights only", _16, "v int4"),
    Rule("sglang", (*_FP8, "fp8 weights"), "before sm_89", "weights only", _MARLIN, "s marlin fp8"),
    Rule("sglang", ("fp8 block",), "sm_100, sm_103", "requantized", _E8M0, "s e8m0"),
    Rule("sglang", ("fp8 weights",), "CUDA", "weights only", _MARLIN, "s fp8 weights"),
    Rule("sglang", _FP8, "sm_89 and later", "units", _FP8_UNITS, "s fp8"),
    Rule("sglang", _FP8, "FNUZ", "converted", _FNUZ, "s fnuz"),
    Rule("sglang", _FP8, "gfx950", "units", _FP8_UNITS, "s fnuz"),
    Rule("sglang", ("mxfp8",), "sm_100 and later", "units", "MX units", "s mxfp8"),
    Rule("sglang", ("mxfp8",), "before sm_100", "refused", "the method asks for 100", "s mxfp8"),
    Rule("sglang", ("mxfp8",), "gfx950", "units", "MX units", "s mxfp8"),
    Rule("sglang", ("mxfp8",), "FNUZ", "converted", "codes made anew as fp8 with a scale a block", "s mxfp8 blocks"),
    Rule("sglang", ("mxfp8",), "AMD", "refused", "the method asks for 100", "s mxfp8"),
    Rule("sglang", ("mxfp4",), "CUDA", "weights only", "weights alone; units of sm_100 for some experts", "s mxfp4"),
    Rule("sglang", ("mxfp4",), "gfx950", "units", "MX units, by AITER", "s mxfp4 amd"),
    Rule("sglang", ("mxfp4",), "AMD", "refused", "the method is registered on gfx95 alone", "s mxfp4 amd", ("mxfp4",)),
    Rule("sglang", ("nvfp4",), "before sm_100", "weights only", f"{_MARLIN}, scales of activations dropped", "s nvfp4"),
    Rule("sglang", ("nvfp4",), "sm_100 and later", "units", "NVFP4 units", "s nvfp4"),
    Rule("sglang", ("fp4 weights",), "CUDA", "weights only", _ASKED, "s nvfp4"),
    Rule("sglang", ("int8",), "CUDA", "units", "int8 units", "s int8"),
    Rule("sglang", ("int4",), "CUDA", "weights only", _16, "s int4"),
    Rule("sglang", ("int4",), "AMD", "weights only", _16, "s int4"),
)

#: what a method asks of a GPU, (engine, method) -> capability, line of the function that says so. AMD is asked too
#: (vllm/config/vllm.py:924-936; sglang/srt/model_loader/loader.py:253-263)
MINIMUM: dict[tuple[str, str], tuple[int, str]] = {
    ("vllm", "auto_awq"): (75, f"{_V8}auto_awq.py:233"),
    ("vllm", "auto_gptq"): (60, f"{_V8}auto_gptq.py:182"),
    ("vllm", "compressed-tensors"): (70, f"{_V8}compressed_tensors/compressed_tensors.py:123"),
    ("vllm", "experts_int8"): (80, f"{_V8}experts_int8.py:42"),
    ("vllm", "fbgemm_fp8"): (80, f"{_V8}fbgemm_fp8.py:66"),
    ("vllm", "fp8"): (75, f"{_V8}fp8.py:146"),
    ("vllm", "fp_quant"): (100, f"{_V8}fp_quant.py:63"),
    ("vllm", "humming"): (75, f"{_V8}humming.py:167"),
    ("vllm", "inc"): (60, f"{_V8}inc/inc.py:266"),
    ("vllm", "modelopt"): (80, f"{_V8}modelopt.py:449"),
    ("vllm", "modelopt_fp4"): (75, f"{_V8}modelopt.py:772"),
    ("vllm", "modelopt_mxfp8"): (80, f"{_V8}modelopt.py:1231"),
    ("vllm", "moe_wna16"): (70, f"{_V8}moe_wna16.py:110"),
    ("vllm", "mxfp4"): (80, f"{_V8}mxfp4.py:71"),
    ("vllm", "quark"): (70, f"{_V8}quark/quark.py:127"),
    ("vllm", "torchao"): (75, f"{_V8}torchao.py:160"),
    ("sglang", "auto-round"): (60, f"{_S8}auto_round.py:131"),
    ("sglang", "awq"): (75, f"{_S8}awq/awq.py:109"),
    ("sglang", "awq_marlin"): (80, f"{_S8}awq/awq.py:307"),
    ("sglang", "bitsandbytes"): (70, f"{_S8}bitsandbytes.py:100"),
    ("sglang", "blockwise_int8"): (80, f"{_S8}blockwise_int8.py:83"),
    ("sglang", "compressed-tensors"): (70, f"{_S8}compressed_tensors/compressed_tensors.py:160"),
    ("sglang", "fp8"): (80, f"{_S8}fp8.py:329"),
    ("sglang", "gptq_marlin"): (80, f"{_S8}gptq/gptq.py:386"),
    ("sglang", "humming"): (75, f"{_S8}humming.py:488"),
    ("sglang", "modelopt_fp4"): (80, f"{_S8}modelopt_quant.py:1549"),
    ("sglang", "modelopt_fp8"): (89, f"{_S8}modelopt_quant.py:462"),
    ("sglang", "moe_wna16"): (70, f"{_S8}moe_wna16.py:126"),
    ("sglang", "mxfp4"): (80, f"{_S8}mxfp4.py:338"),
    ("sglang", "petit_nvfp4"): (90, f"{_S8}petit.py:62"),
    ("sglang", "quark"): (70, f"{_S8}quark/quark.py:398"),
    ("sglang", "w4afp8"): (90, f"{_S8}w4afp8.py:70"),
    ("sglang", "w8a8_fp8"): (89, f"{_S8}w8a8_fp8.py:66"),
    ("sglang", "w8a8_int8"): (75, f"{_S8}w8a8_int8.py:87"),
}

#: what a method asks for one family beyond that: it chooses a scheme, and the scheme's number is checked
SCHEME_MINIMUM: dict[tuple[str, str, str], tuple[int, str]] = {
    ("vllm", "compressed-tensors", "fp8"): (75, f"{_V8}{_SCHEMES}w8a16_fp8.py:53"),
    ("vllm", "compressed-tensors", "fp8 block"): (75, f"{_V8}{_SCHEMES}w8a16_fp8.py:53"),
    ("vllm", "compressed-tensors", "fp8 weights"): (75, f"{_V8}{_SCHEMES}w8a16_fp8.py:53"),
    ("vllm", "compressed-tensors", "int4"): (75, f"{_V8}{_SCHEMES}wNa16.py:112"),
    ("vllm", "compressed-tensors", "int8"): (75, f"{_V8}{_SCHEMES}w8a8_int8.py:35"),
    ("vllm", "compressed-tensors", "mxfp4"): (80, f"{_V8}{_SCHEMES}w4a4_mxfp4.py:46"),
    ("vllm", "compressed-tensors", "mxfp8"): (75, f"{_V8}{_SCHEMES}w8a8_mxfp8.py:37"),
    ("vllm", "compressed-tensors", "nvfp4"): (75, f"{_V8}{_SCHEMES}w4a4_nvfp4.py:35"),
    ("vllm", "quark", "fp8"): (89, f"{_V8}quark/schemes/quark_w8a8_fp8.py:75"),
    ("vllm", "quark", "int8"): (75, f"{_V8}quark/schemes/quark_w8a8_int8.py:62"),
    ("sglang", "compressed-tensors", "fp8"): (80, f"{_S8}{_SCHEMES}w8a16_fp8.py:35"),
    ("sglang", "compressed-tensors", "fp8 block"): (80, f"{_S8}{_SCHEMES}w8a16_fp8.py:35"),
    ("sglang", "compressed-tensors", "fp8 weights"): (80, f"{_S8}{_SCHEMES}w8a16_fp8.py:35"),
    ("sglang", "compressed-tensors", "int4"): (80, f"{_S8}{_SCHEMES}wNa16.py:94"),
    ("sglang", "compressed-tensors", "int8"): (80, f"{_S8}{_SCHEMES}w8a8_int8.py:97"),
    ("sglang", "compressed-tensors", "nvfp4"): (80, f"{_S8}{_SCHEMES}w4a16_nvfp4.py:135"),
    ("sglang", "quark", "fp8"): (89, f"{_S8}quark/schemes/quark_w8a8_fp8.py:53"),
}

#: methods that an engine takes on AMD's GPUs, and where it says so
ON_AMD: dict[str, tuple[tuple[str, ...], str]] = {
    "vllm": (
        (
            "awq", "auto_awq", "awq_marlin", "gptq", "auto_gptq", "fp8", "deepseek_v4_fp8", "compressed-tensors",
            "fbgemm_fp8", "inc", "quark", "mxfp4", "mxfp8", "torchao", "modelopt", "modelopt_fp4", "modelopt_mxfp8",
            "modelopt_mixed", "fp8_per_tensor", "fp8_per_block", "fp8_per_channel", "online", "gpt_oss_mxfp4",
        ),
        "vllm/platforms/rocm.py:668-692",
    ),
    "sglang": (
        (
            "awq", "fp8", "compressed_tensors", "compressed-tensors", "w8a8_fp8", "petit_nvfp4", "quark", "mxfp4",
            "mxfp8", "auto-round", "auto-round-int8", "quark_int4fp8_moe", "quark_mxfp4",
        ),
        "sglang/srt/configs/model_config.py:2002-2016",
    ),
}  # fmt: skip

#: (engine, method of a configuration) -> the engine's own name for it, by family ("" for all)
OWN_NAMES: dict[tuple[str, str], dict[str, str]] = {
    ("vllm", "awq"): {"": "auto_awq"},
    ("vllm", "gptq"): {"": "auto_gptq"},
    ("vllm", "modelopt"): {"nvfp4": "modelopt_fp4", "mxfp8": "modelopt_mxfp8"},
    ("vllm", "compressed_tensors"): {"": "compressed-tensors"},
    ("sglang", "gptq"): {"": "gptq_marlin"},
    ("sglang", "modelopt"): {"": "modelopt_fp8", "nvfp4": "modelopt_fp4", "mxfp8": "mxfp8"},
    ("sglang", "compressed_tensors"): {"": "compressed-tensors"},
}

#: ``quant_algo`` of ModelOpt that an engine takes, as it compares it, and where it ends otherwise
ALGORITHMS: dict[str, tuple[tuple[str, ...], bool, str]] = {
    "vllm": (
        ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "NVFP4", "W4A16_NVFP4", "MXFP8", "MIXED_PRECISION"),
        True,  # in capitals, however it is written
        f"{_V8}modelopt.py:139-160,396-402",
    ),
    "sglang": (
        ("FP8", "NVFP4", "NVFP4_AWQ", "W4A16_NVFP4", "MXFP8", "MIXED_PRECISION"),
        False,
        f"sglang/srt/configs/model_config.py:1855-1893; {_S8}modelopt_quant.py:510-515,1672-1677",
    ),
}
