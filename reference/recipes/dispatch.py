"""Which recipe a call of an engine is, where the answer depends on the architecture, the shape, or an argument.

A line of ``CALLS`` is a recipe and what must hold for it: of each fact the values that may be, with * for anything, or
a bound (">=16", "<16"). At most one line of a call holds for any facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from narrowgauge.contracts.errors import BadInput, unknown

#: what a condition can be about
FACTS = {
    "arch": "the target, as in narrowgauge devices: sm_90, gfx942; cpu",
    "dtype": "the format of x",
    "to": "the destination format",
    "per": "what shares a scale: tensor, token, channel, group, head",
    "scale": "given or computed",
    "upper_bound": "yes where scale_ub is given",
    "symmetric": "no where a zero point is asked for",
    "ue8m0": "yes where scales are powers of two",
    "group": "columns of a group",
    "contiguous": "no where x is a view with gaps",
    "rows_per_multiprocessor": "rows of x over the multiprocessors of the GPU",
    "layout": "of the scales: row_major, column_major",
    "aiter": "yes where SGLANG_USE_AITER is set",
    "compiled": "no where torch.compile is switched off",
    "scale_is": "a tensor, or a Python number",
    "rounding": "of triton_kernels' scale: up, down",
    "search": "of an NVFP4 scale: default, 4 (the candidate of 4 over 6)",
}
_GPU, _HALF, _YES, _NO = "sm_* gfx*", "bfloat16 float16", "yes", "no"


@dataclass(frozen=True)
class Line:
    """A recipe, and where a call is that recipe."""

    recipe: str
    where: Mapping[str, str]


def _line(recipe: str, **where: str) -> Line:
    return Line(recipe, where)


def _by_kind(head: str, kinds: str, **where: str) -> tuple[Line, ...]:
    names = {"group": "group_128"}
    return tuple(_line(f"{head}_{names.get(kind, kind)}", per=kind, **where) for kind in kinds.split())


def _where_torch_runs(recipe: str, **where: str) -> tuple[Line, ...]:
    """On a CPU by division; on a GPU by a reciprocal."""
    return _line(recipe, arch="cpu", **where), _line(f"{recipe}_gpu", arch=_GPU, **where)


CALLS: dict[str, tuple[Line, ...]] = {
    "vllm.scaled_fp8_quant": (
        *_by_kind("vllm.fp8_static", "tensor token channel group", scale="given"),
        _line("vllm.fp8_per_tensor_dynamic", scale="computed", per="tensor"),
        _line("vllm.fp8_per_token_dynamic", scale="computed", per="token", upper_bound=_NO),
        _line("vllm.fp8_per_token_dynamic_bounded", scale="computed", per="token", upper_bound=_YES),
    ),
    "vllm.scaled_int8_quant": (
        *_by_kind("vllm.int8_static", "tensor token", scale="given", symmetric=_YES),
        _line("vllm.int8_static_azp", scale="given", symmetric=_NO, per="tensor"),
        _line("vllm.int8_per_token_dynamic", scale="computed", symmetric=_YES),
        _line("vllm.int8_per_token_dynamic_azp", scale="computed", symmetric=_NO),
    ),
    "vllm.QuantFP8.forward_native": (
        *_by_kind("vllm.fp8_native_static", "tensor token channel group", scale="given"),
        *_where_torch_runs("vllm.fp8_native_tensor", scale="computed", per="tensor"),
        *_where_torch_runs("vllm.fp8_native_token", scale="computed", per="token", upper_bound=_NO),
        *_where_torch_runs("vllm.fp8_native_token_bounded", scale="computed", per="token", upper_bound=_YES),
        *_where_torch_runs("vllm.fp8_native_group", scale="computed", per="group", ue8m0=_NO),
        *_where_torch_runs("vllm.fp8_native_group_ue8m0", scale="computed", per="group", ue8m0=_YES),
    ),
    "vllm.per_token_group_quant_fp8": (
        _line("vllm.fp8_group", arch=_GPU, contiguous=_YES, ue8m0=_NO),
        _line("vllm.fp8_group_ue8m0_registers", arch=_GPU, contiguous=_YES, ue8m0=_YES, dtype=_HALF, group="128"),
        _line("vllm.fp8_group_ue8m0", arch=_GPU, contiguous=_YES, ue8m0=_YES, dtype=_HALF, group="<128"),
        _line("vllm.fp8_group_ue8m0", arch=_GPU, contiguous=_YES, ue8m0=_YES, dtype="float32"),
        _line("vllm.fp8_group_triton", arch=_GPU, contiguous=_NO, ue8m0=_NO),
        _line("vllm.fp8_group_triton_ue8m0", arch=_GPU, contiguous=_NO, ue8m0=_YES),
    ),
    "vllm.per_token_group_quant_fp8_packed_for_deepgemm": (
        _line("vllm.fp8_group_ue8m0_packed_bf16", arch="sm_10?", dtype="bfloat16"),
        _line("vllm.fp8_group_ue8m0_packed", arch="sm_10?", dtype="float16 float32"),
        _line("vllm.fp8_group_ue8m0_packed", arch="sm_90 sm_12?"),
    ),
    "vllm.per_block_cast_to_fp8": (
        *_where_torch_runs("vllm.fp8_block", ue8m0=_NO),
        *_where_torch_runs("vllm.fp8_block_ue8m0", ue8m0=_YES),
    ),
    "vllm.ref_nvfp4_quant_dequant": (
        _line("vllm.nvfp4_emulated", arch="cpu"),
        _line("vllm.nvfp4_triton", arch=_GPU),
    ),
    "vllm.mxfp8_e4m3_quantize": (
        _line("vllm.mxfp8_triton", arch="gfx*"),
        # sm_100 with FlashInfer is FlashInfer's own, which nobody has read
        _line("vllm.mxfp8_torch", arch="cpu sm_75 sm_80 sm_86 sm_89 sm_90"),
    ),
    "vllm.per_token_group_quant_int8": (
        _line("vllm.int8_group", arch="sm_*"),
        _line("vllm.int8_group_triton", arch="gfx*"),
    ),
    "vllm.reshape_and_cache_flash": (
        *(_line(f"vllm.kv_fp8_{per}", arch="sm_*", per=per) for per in ("tensor", "head")),
        *(
            _line(f"vllm.kv_fp8_{per}_rocm_float16", arch="gfx*", dtype="float16", per=per)
            for per in ("tensor", "head")
        ),
        *(
            _line(f"vllm.kv_fp8_{per}_rocm", arch="gfx*", dtype="bfloat16 float32", per=per)
            for per in ("tensor", "head")
        ),
    ),
    "vllm.reshape_and_cache_nvfp4": (
        _line("vllm.nvfp4_kv", search="default"),
        _line("vllm.nvfp4_kv_over4", search="4"),
    ),
    "vllm.per_token_head_quant": (
        _line("vllm.kv_int8_token_head", to="int8"),
        _line("vllm.kv_fp8_token_head", to="float8_*"),
    ),
    "sglang.per_token_quant_fp8": (
        _line("sglang.fp8_per_token_warp", rows_per_multiprocessor=">=16"),
        _line("sglang.fp8_per_token_cta", rows_per_multiprocessor="<16"),
    ),
    "sglang.scaled_fp8_quant": (
        _line("sglang.fp8_per_tensor_dynamic", arch="sm_*", per="tensor"),
        _line("sglang.fp8_per_token_warp", arch="sm_*", per="token", rows_per_multiprocessor=">=16"),
        _line("sglang.fp8_per_token_cta", arch="sm_*", per="token", rows_per_multiprocessor="<16"),
        _line("sglang.fp8_native_tensor_gpu", arch="gfx*", per="tensor", aiter=_NO),
        _line("sglang.fp8_native_token_gpu", arch="gfx*", per="token", aiter=_NO),
        _line("aiter.fp8_hip_token", arch="gfx*", per="token", aiter=_YES),
    ),
    "sglang.per_token_group_quant_fp8": (
        _line("sglang.fp8_group", arch="sm_*", ue8m0=_NO),
        *(_line(f"sglang.fp8_group_ue8m0_{t}", arch="sm_*", ue8m0=_YES, dtype=t) for t in ("bfloat16", "float16")),
        _line("sglang.fp8_group_triton_row_major", arch="gfx*", ue8m0=_NO, layout="row_major"),
        _line("sglang.fp8_group_triton_column_major", arch="gfx*", ue8m0=_NO, layout="column_major"),
        _line("sglang.fp8_group_triton_column_major_ue8m0", arch="gfx*", ue8m0=_YES, layout="column_major"),
    ),
    "sglang.per_token_group_quant_int8": (
        _line("sglang.int8_group", arch="sm_*"),
        _line("vllm.int8_group_triton", arch="gfx*"),
    ),
    "sglang.per_block_cast_to_fp8": _where_torch_runs("sglang.fp8_block_ue8m0"),
    "sglang.quantize_block_fp8_weight_to_mxfp4": (
        _line("sglang.mxfp4_util", arch="sm_*"),
        _line("sglang.mxfp4_rne", arch="gfx*"),
    ),
    "sglang.FP4MXBlock16KVQuantizeUtil.batched_quantize": (
        _line("sglang.fp4_kv_block16", compiled=_YES),
        _line("sglang.fp4_kv_block16_eager", compiled=_NO),
    ),
    "sglang.set_kv_buffer": (
        _line("sglang.kv_fp8", scale_is="tensor"),
        _line("sglang.kv_fp8_number", scale_is="number"),
    ),
    "sglang.set_kv_buffer_prefix_valid": (
        _line("sglang.kv_fp8_commit", scale_is="tensor"),
        _line("sglang.kv_fp8_commit_number", scale_is="number"),
    ),
    "aiter.dynamic_per_token_quant_fp8_i8": (
        _line("aiter.fp8_triton", to="float8_*"),
        _line("aiter.int8_triton", to="int8"),
    ),
    "triton_kernels.downcast_to_mxfp": (
        *(_line(f"triton_kernels.mx{to[:3]}", to=to, rounding="up") for to in ("fp8", "fp4")),
        *(_line(f"triton_kernels.mx{to[:3]}_down", to=to, rounding="down") for to in ("fp8", "fp4")),
    ),
}


def possible(call: str, facts: Mapping[str, str]) -> list[Line]:
    """The lines of a call that no fact contradicts. Raises ``BadInput`` for a call or a fact that is not known."""
    if call not in CALLS:
        raise unknown("call of an engine", call, CALLS)
    for name in facts:
        if name not in FACTS:
            raise unknown("fact of a call", name, FACTS, call)
    return [
        line
        for line in CALLS[call]
        if all(_holds(condition, facts[name]) for name, condition in line.where.items() if name in facts)
    ]


def dispatch(call: str, **facts: str | float) -> str:
    """The recipe that a call of an engine is.

    ``dispatch("sglang.per_token_quant_fp8", rows_per_multiprocessor=3)`` is "sglang.fp8_per_token_cta". Raises
    ``BadInput`` where no recipe is known for these facts, or where another fact decides.
    """
    given = {name: str(value) for name, value in facts.items()}
    lines = possible(call, given)
    said = ", ".join(f"{name}={value}" for name, value in given.items()) or "nothing said of it"
    if not lines:
        raise BadInput(
            f"{call} with {said}: no recipe is known for that; narrowgauge explain {call} lists what is known"
        )
    missing = {name: condition for line in lines for name, condition in line.where.items() if name not in given}
    if missing:
        asked = "; ".join(f"{name} ({FACTS[name]})" for name in missing)
        raise BadInput(f"{call} with {said}: what it is depends on {asked}; say it as NAME=VALUE")
    return lines[0].recipe


def _holds(condition: str, value: str) -> bool:
    """Whether a fact is one of the values, or within the bound, that a condition names."""
    for sign, holds in ((">=", float.__ge__), ("<", float.__lt__)):
        if condition.startswith(sign):
            try:
                return bool(holds(float(value), float(condition.removeprefix(sign))))
            except ValueError:
                raise BadInput(f"a fact of a call: {value!r}; expected a number ({condition})") from None
    return any(fnmatchcase(value, pattern) for pattern in condition.split())


def calls_of(recipe: str) -> list[tuple[str, Line]]:
    """Every call that can be a recipe, with where it is."""
    return [(call, line) for call, lines in CALLS.items() for line in lines if line.recipe == recipe]


def in_words(line: Line) -> str:
    """``arch sm_* or gfx*, ue8m0 no``; "always" where nothing else must hold."""
    return ", ".join(f"{name} {' or '.join(what.split())}" for name, what in line.where.items()) or "always"
