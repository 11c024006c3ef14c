"""torch's own products of matrices: of plain numbers under each switch, scaled fp8, int8, and grouped.

What torch computes depends on the device: on a CPU a scaled product scales its operands before it multiplies, on a GPU
the sum. So a product is claimed for the one or the other, and not executed elsewhere.
"""

from __future__ import annotations

import torch

from narrowgauge import Matmul, kernel
from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.kernels_under_test.torch_switches import SWITCHES, Switch, switched

WIDE = ("bfloat16", "float16", "float32")
E4M3, FP8 = ("float8_e4m3fn",), ("float8_e4m3fn", "float8_e4m3fnuz")
SUMS, NARROWED = "float32", ("bfloat16",)


def product(name, sources, formats, accumulator=SUMS, expression=""):
    return kernel(
        Matmul(name, accumulator),
        formats,
        sources,
        owner="pytorch",
        backend="torch",
        library="torch",
        expression=expression,
    )


def on(x, device, why):
    """Refuse a device: this product is another there."""
    if x.is_cuda != (device == "cuda"):
        raise NotExecuted(why)


def named(name, function):
    function.__name__ = function.__qualname__ = name
    return function


# --- plain numbers ---------------------------------------------------------------------------------------------------


def plain(name, source):
    def multiply(x, format, b):
        return x @ b.T

    return product("plain.matmul", (source,), (source,), expression="x @ b.T")(named(name, multiply))


def with_bias(name, source):
    def multiply(x, format, b, bias):
        return torch.addmm(bias[0], x, b.T)

    made = product("plain.matmul_bias", (source,), (source,), expression="torch.addmm(bias[0], x, b.T)")
    return made(named(name, multiply))


torch_matmul_bf16 = plain("torch_matmul_bf16", "bfloat16")
torch_matmul_fp16 = plain("torch_matmul_fp16", "float16")
torch_matmul_fp32 = plain("torch_matmul_fp32", "float32")
torch_addmm_bf16 = with_bias("torch_addmm_bf16", "bfloat16")
torch_addmm_fp16 = with_bias("torch_addmm_fp16", "float16")
torch_addmm_fp32 = with_bias("torch_addmm_fp32", "float32")


@product("plain.matmul", ("bfloat16", "float16"), ("float32",), expression="torch.mm(x, b.T, out_dtype=torch.float32)")
def torch_mm_to_float32(x, format, b):
    """torch has it on CUDA alone."""
    try:
        return torch.mm(x, b.T, out_dtype=torch.float32)
    except (NotImplementedError, TypeError) as error:
        raise NotExecuted(_first_line(error)) from error


# --- under each switch -----------------------------------------------------------------------------------------------


def changed(switch: Switch, x) -> str:
    """What a switch may change where x is."""
    if x.is_cuda:
        return switch.cuda
    return switch.cpu if torch.cpu._is_amx_tile_supported() else ""


def under(switch, made, accumulator=SUMS, changes=""):
    """The product of a switch, where it changes just that; elsewhere it is not executed, and another kernel is."""

    def multiply(x, format, b):
        if (found := changed(switch, x)) != changes:
            raise NotExecuted(f"{switch.name} changes {found or 'nothing'} here; another kernel claims that")
        with switched(switch.name):
            return x @ b.T

    ending = f"_{changes.replace(' ', '_')}" if changes else ""
    record = product(made, (switch.source,), (switch.source,), accumulator)
    return record(named(f"torch_matmul_{switch.name}{ending}", multiply))


for _switch in SWITCHES.values():
    for _made in (
        under(_switch, "plain.matmul"),
        *(
            (under(_switch, "plain.matmul_tf32", changes="tfloat32"),)
            if "tfloat32" in (_switch.cuda, _switch.cpu)
            else ()
        ),
        *((under(_switch, "plain.matmul", "float16", "float16 sums"),) if _switch.cuda == "float16 sums" else ()),
    ):
        globals()[_made.__name__] = _made


# --- fp8 -------------------------------------------------------------------------------------------------------------

CPU = "torch's CPU scales the operands and not the sum: torch_scaled_mm_cpu claims that"
GPU = "on a GPU the sum is scaled: torch_scaled_mm claims that"


def padded(codes, rows, columns):
    """Codes with zeros behind, to a multiple of so many rows and columns."""
    behind = (0, -codes.shape[1] % columns, 0, -codes.shape[0] % rows)
    return torch.nn.functional.pad(codes.view(torch.uint8), behind).view(codes.dtype)


def scaled(x, format, b, a_scale, b_scale, bias=None, fast=False):
    """``torch._scaled_mm`` of rows whose number a GPU takes. A scale of a tensor is one number, others are columns and
    rows."""
    columns = b.shape[0]
    x, b = padded(x, 1, 16), padded(b, 16, 16)
    if b_scale.numel() > 1:
        b_scale = torch.nn.functional.pad(b_scale.T, (0, b.shape[0] - columns)).contiguous()
    if bias is not None:
        bias = torch.nn.functional.pad(bias[0], (0, b.shape[0] - columns))
    one = a_scale.numel() == b_scale.numel() == 1
    if one:
        a_scale, b_scale = a_scale[0, 0], b_scale[0, 0]
    dtype = getattr(torch, format)
    try:
        made = torch._scaled_mm(x, b.T, a_scale, b_scale, bias=bias, out_dtype=dtype, use_fast_accum=fast)
    except (NotImplementedError, RuntimeError, ValueError) as error:
        raise NotExecuted(f"torch._scaled_mm refuses: {_first_line(error)}") from error
    return made[:, :columns]


@product("torch.scaled_mm_cpu_tensor", E4M3, WIDE)
def torch_scaled_mm_cpu(x, format, b, a_scale, b_scale):
    on(x, "cpu", GPU)
    return scaled(x, format, b, a_scale, b_scale)


@product("torch.scaled_mm_cpu_tensor", E4M3, NARROWED)
def torch_scaled_mm_cpu_fast(x, format, b, a_scale, b_scale):
    on(x, "cpu", GPU)
    return scaled(x, format, b, a_scale, b_scale, fast=True)


@product("torch.scaled_mm_cpu_row", FP8, NARROWED)
def torch_scaled_mm_cpu_rows(x, format, b, a_scale, b_scale):
    on(x, "cpu", GPU)
    return scaled(x, format, b, a_scale, b_scale)


@product("torch.scaled_mm_cpu_row_bias", E4M3, NARROWED)
def torch_scaled_mm_cpu_rows_bias(x, format, b, a_scale, b_scale, bias):
    on(x, "cpu", GPU)
    return scaled(x, format, b, a_scale, b_scale, bias)


@product("vllm.fp8_tensor", FP8, NARROWED, accumulator="")
def torch_scaled_mm(x, format, b, a_scale, b_scale):
    on(x, "cuda", CPU)
    return scaled(x, format, b, a_scale, b_scale)


@product("vllm.fp8_tensor", E4M3, NARROWED, accumulator="")
def torch_scaled_mm_fast(x, format, b, a_scale, b_scale):
    on(x, "cuda", CPU)
    return scaled(x, format, b, a_scale, b_scale, fast=True)


@product("vllm.fp8_token_channel", E4M3, NARROWED, accumulator="")
def torch_scaled_mm_rows(x, format, b, a_scale, b_scale):
    on(x, "cuda", CPU)
    return scaled(x, format, b, a_scale, b_scale)


@product("vllm.fp8_token_channel_bias", E4M3, NARROWED, accumulator="")
def torch_scaled_mm_rows_bias(x, format, b, a_scale, b_scale, bias):
    on(x, "cuda", CPU)
    return scaled(x, format, b, a_scale, b_scale, bias)


# --- int8, and rows of experts ---------------------------------------------------------------------------------------


@product("plain.matmul_int8", ("int8",), ("int32",), accumulator="int32", expression="torch._int_mm(x, b.T)")
def torch_int_mm(x, format, b):
    """A GPU wants more than 16 rows, and multiples of 8. A CPU leaves the result of one column transposed unwritten
    (docs/upstream/torch-int-mm-unwritten.md), so that is copied."""
    rows, columns = x.shape[0], b.shape[0]
    if x.is_cuda:
        x, b = padded(x, 32, 8), padded(b, 8, 8)
    turned = b.view(torch.int8).T
    if x.shape[1] == 1:
        turned = turned.clone(memory_format=torch.contiguous_format)
    return torch._int_mm(x.view(torch.int8), turned)[:rows, :columns]


@product("torch.int4_cpu", NARROWED, NARROWED)
def torch_int4_mm_cpu(x, format, b, b_scale):
    """Codes [K, N], groups of 128 of K; torch takes whole groups, N in multiples of 16, and adds a zero, here 0."""
    on(x, "cpu", "torch._weight_int4pack_mm_for_cpu is the CPU's alone")
    depth, columns = b.shape
    x = torch.nn.functional.pad(x, (0, -depth % 128))
    codes = b.view(torch.uint8).to(torch.int32)
    wide = torch.nn.functional.pad(codes, (0, -columns % 16, 0, -depth % 128), value=8)
    scales = torch.nn.functional.pad(b_scale, (0, -columns % 16))
    both = torch.stack([scales, torch.zeros_like(scales)], -1)
    packed = torch._convert_weight_to_int4pack_for_cpu(wide.T.contiguous(), 1)
    return torch._weight_int4pack_mm_for_cpu(x, packed, 128, both)[:, :columns]


@product("vllm.moe", NARROWED, NARROWED)
def torch_grouped_mm(x, format, b, experts, expert_count):
    """Rows are sorted by expert, and put back; rows of no expert stay zeros."""
    count, of = int(expert_count), experts[0]
    order = torch.argsort(of, stable=True)
    order = order[of[order] >= 0]
    ends = torch.cumsum(torch.bincount(of[order], minlength=count), 0).to(torch.int32)
    matrices = torch.nn.functional.pad(b.unflatten(0, (count, -1)), (0, -b.shape[1] % 8, 0, -(b.shape[0] // count) % 8))
    rows = torch.nn.functional.pad(x[order], (0, -x.shape[1] % 8))
    made = torch._grouped_mm(rows, matrices.transpose(1, 2), offs=ends)
    found = x.new_zeros(x.shape[0], b.shape[0] // count)
    found[order] = made[:, : found.shape[1]]
    return found


def _first_line(error):
    return str(error).splitlines()[0]
