"""Weights of packed integers: compressed-tensors, GPTQ, AWQ, Quark, ModelOpt's AWQ, SGLang's w4afp8."""

from __future__ import annotations

from collections.abc import Iterator

from narrowgauge.checkpoints.schemes.scheme import Part, Scheme

_GPTQ = ("gptq", "gptq_marlin", "auto_gptq", "moe_wna16", "auto-round", "inc", "humming")
_AWQ = ("awq", "awq_marlin", "auto_awq", "moe_wna16", "auto-round", "inc", "humming")


# fmt: off
def _of(bits: int) -> Iterator[Scheme]:
    uint, half = f"uint{bits}", 1 << (bits - 1)
    scale = Part("scale", (".scales",))
    for version, formats in (("v1", ("gptq", "")), ("v2", ("gptq_v2",))):
        yield Scheme(
            name=f"gptq_{version}_{bits}bit",
            says=f"GPTQ, {bits} bits, zeros " + ("less 1" if version == "v1" else "as they are"),
            weights=(".qweight",), stored=("I32",), element=uint, packing=f"gptq_{bits}bit",
            packed="rows", transposed=True, zeros=f"gptq_{version}_{bits}bit",
            parts=(scale, Part("zeros", (".qzeros",), ("I32",)), Part("order", (".g_idx",), ("I32",), needed=False)),
            cuts=("group", "row"),
            when=(("quant_method", _GPTQ), ("checkpoint_format", formats), ("bits", (str(bits),))),
            by="GPTQModel, AutoGPTQ, AutoRound",
            source="vLLM csrc q_gemm.cu:138-139; gptqmodel 7.7.0 nn_modules/qlinear/__init__.py:931-957",
        )
    yield Scheme(
        name=f"awq_{bits}bit", says=f"AWQ, {bits} bits",
        weights=(".qweight",), stored=("I32",), element=uint, packing=f"awq_{bits}bit", transposed=True,
        zeros=f"awq_{bits}bit",
        parts=(scale, Part("zeros", (".qzeros",), ("I32",))),
        cuts=("group", "row"),
        when=(("quant_method", _AWQ), ("bits", (str(bits),)), ("w_bit", (str(bits),))),
        by="AutoAWQ, gemm",
        source="vLLM quant_utils.py awq_pack; auto_awq.py:92-160",
    )
    packed = Part("scale", (".weight_scale",))
    zeros = Part("zeros", (".weight_zero_point",), ("I32",))
    beside = (
        Part("shape", (".weight_shape",), ("I64", "I32"), needed=False),
        Part("order", (".weight_g_idx",), ("I32",), needed=False),
    )
    for kind, convention, parts in (
        ("symmetric", f"uint{bits}b{half}", (packed, *beside)),
        ("asymmetric", f"compressed_tensors_{bits}bit", (packed, zeros, *beside)),
    ):
        yield Scheme(
            name=f"packed_{kind}_{bits}bit", says=f"compressed-tensors, {bits} bits, {kind}",
            weights=(".weight_packed",), stored=("I32",), element=uint, packing=f"compressed_tensors_{bits}bit",
            zeros=convention, parts=parts, cuts=("group", "row"),
            when=(("num_bits", (str(bits),)),),
            by="compressed-tensors pack-quantized: W4A16, W8A16",
            source="compressed_tensors pack_to_int32; vLLM compressed_tensors_wNa16.py",
        )


SCHEMES = (
    *(scheme for bits in (4, 8) for scheme in _of(bits)),
    Scheme(
        name="quark_int4", says="Quark int4 in the order of AWQ",
        weights=(".weight",), stored=("I32",), element="uint4", packing="awq_4bit", transposed=True,
        zeros="awq_4bit",
        parts=(Part("scale", (".weight_scale",)), Part("zeros", (".weight_zero_point",), ("I32",), needed=False)),
        cuts=("group", "row"),
        by="AMD Quark, int4 and uint4, pack_method reorder",
        source="vLLM quark_w4a16_int4.py:128-140; Quark utils/pack.py:340",
        unread="whether a code without zero points is signed was not checked against a file",
    ),
    Scheme(
        name="int4_rows", says="int4, two rows in a byte",
        weights=(".weight",), stored=("U8",), element="int4", packing="nibbles_low_first", packed="rows",
        parts=(Part("scale", (".weight_scale",)), Part("before", (".pre_quant_scale",), needed=False)),
        cuts=("group", "row"),
        by="ModelOpt W4A16_AWQ and int4_awq",
        source="modelopt torch/export/quant_utils.py pack_int4_in_uint8: rows 2i low, 2i + 1 high, two's complement",
    ),
    Scheme(
        name="w4afp8", says="int4, two columns in a byte",
        weights=(".weight",), stored=("I8",), element="int4", packing="nibbles_low_first",
        parts=(
            Part("scale", (".weight_scale_inv", ".weight_scale")),
            Part("input", (".input_scale",), needed=False),
        ),
        cuts=("group",), group=128,
        when=(("quant_method", ("w4afp8",)),), only_when=True,
        by="SGLang w4afp8: experts",
        source="SGLang w4afp8.py:147-195",
    ),
    Scheme(
        name="bitsandbytes_4bit", says="4 bits of bitsandbytes",
        weights=(".weight",), stored=("U8",), element="uint4", packing="nibbles_high_first",
        parts=(
            Part("scale", (".weight.absmax",), ("F32", "U8")),
            Part("second", (".weight.nested_absmax",), ("F32",), needed=False),
        ),
        cuts=("group", "block"),
        when=(("quant_method", ("bitsandbytes",)),),
        by="bitsandbytes nf4 and fp4",
        source="bitsandbytes functional.QuantState: absmax, quant_map, nested_absmax, nested_quant_map",
        unread="table, block size and nested scales stand in a JSON inside a tensor (quant_state), not yet read",
    ),
)
# fmt: on
