"""Bytes of a key-value cache per token: elements and every scale beside them, exactly.

Scales of a whole tensor are not counted: they are a few bytes a layer, however many tokens there are.
"""

from __future__ import annotations

from dataclasses import dataclass

from narrowgauge.contracts.errors import BadInput, unknown


@dataclass(frozen=True)
class Part:
    """A head of one token: bits of an element, and bytes beside every ``columns`` elements (0: beside all of them)."""

    bits: int
    beside: int = 0
    columns: int = 0

    def size(self, elements: int, where: str) -> int:
        """Bytes of so many elements. Raises ``BadInput`` where they fill no whole bytes or blocks."""
        columns = self.columns or elements or 1
        if self.bits * elements % 8 or elements % columns:
            raise BadInput(
                f"{where}: a head of {elements} elements of {self.bits} bits"
                + (f" in blocks of {self.columns}" if self.columns else "")
                + "; expected whole bytes and whole blocks"
            )
        return self.bits * elements // 8 + self.beside * (elements // columns)


@dataclass(frozen=True)
class Kind:
    """What a token's K and V take. Of a latent (MLA) cache: the latent vector, and what rotary position goes with it.

    ``head_align``: a head's bytes are rounded up to it; ``page_align``: a page's.
    """

    name: str
    key: Part
    value: Part
    source: str
    latent: bool = False
    head_align: int = 1
    page_align: int = 1


def _alike(name: str, part: Part, source: str) -> Kind:
    return Kind(name, part, part, source)


_SPEC, _TRITON = "vllm/v1/kv_cache_interface.py:585-594", "vllm/v1/attention/backends/triton_attn.py:307-319"
_TURBO = "vllm/model_executor/layers/quantization/turboquant/config.py:124-177"
_NVFP4 = "vllm/utils/torch_utils.py:542-544; sglang/srt/layers/quantization/fp4_kv_cache_quant_method.py:597-640"
_MLA = (
    "vllm/model_executor/layers/attention/mla_attention.py:1384-1388; vllm/v1/attention/backends/mla/flashmla_sparse.py"
)
_V4 = "vllm/models/deepseek_v4/attention.py:870-883"
#: TurboQuant: a norm of float16 beside K's codes, a scale and a zero of float16 beside V's
_NORM, _PAIR = 2, 4

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        _alike("float32", Part(32), _SPEC),
        _alike("16 bits", Part(16), _SPEC),
        _alike("fp8", Part(8), _SPEC),
        _alike("8 bits, scale of a head", Part(8, 4), _TRITON),
        # the zero point hides in the scale
        _alike("int4, scale of a head", Part(4, 4), _TRITON),
        _alike("mxfp8", Part(8, 1, 32), "sglang/srt/mem_cache/memory_pool.py:3899-3955"),
        _alike("fp4 in blocks of 16", Part(4, 1, 16), _NVFP4),
        _alike("ultraquant", Part(4, 1, 32), "vllm/v1/attention/ops/ultraquant/format.py:168-202"),
        Kind("turboquant_k8v4", Part(8), Part(4, _PAIR), _TURBO, head_align=2),
        Kind("turboquant_4bit_nc", Part(4, _NORM), Part(4, _PAIR), _TURBO, head_align=2),
        Kind("turboquant_k3v4_nc", Part(3, _NORM), Part(4, _PAIR), _TURBO, head_align=2),
        Kind("turboquant_3bit_nc", Part(3, _NORM), Part(3, _PAIR), _TURBO, head_align=2),
        Kind("latent, 16 bits", Part(16), Part(16), _SPEC, latent=True),
        Kind("latent, fp8", Part(8), Part(8), _SPEC, latent=True),
        Kind("fp8_ds_mla", Part(8, 4, 128), Part(16), _MLA, latent=True),
        Kind("nvfp4_ds_mla", Part(4, 1, 16), Part(8), _MLA, latent=True),
        # seven scales and a byte of padding; a page's rows are whole strides of its reader
        Kind("fp8_ds_mla of DeepSeek-V4", Part(8, 1, 64), Part(16), _V4, latent=True, head_align=8, page_align=576),
        Kind("fp8_ds_mla of DeepSeek-V4.1", Part(8, 1, 32), Part(8, 1, 32), _MLA, latent=True),
    )
}


def kind_named(name: str) -> Kind:
    """The kind of that name. Raises ``BadInput`` with near names."""
    if name not in KINDS:
        raise unknown("kind of cache", name, KINDS)
    return KINDS[name]


def bytes_per_token(kind: str, layers: int, heads: int, head_size: int, head_size_v: int | None = None) -> int:
    """Bytes of one token in all layers, K and V and their scales.

    ``heads`` are those of K and V, ``head_size`` and ``head_size_v`` (as K's where it is not given) their elements. Of
    a latent kind there is one head, ``head_size`` is the latent vector and ``head_size_v`` what goes with it, 512 and
    64 for DeepSeek-V3.2. Raises ``BadInput`` for an unknown kind, sizes that are not above 0, or no whole bytes.
    """
    return layers * _of_layer(kind_named(kind), layers, heads, head_size, head_size_v)


def bytes_per_page(kind: str, tokens: int, heads: int, head_size: int, head_size_v: int | None = None) -> int:
    """Bytes of one layer's page of so many tokens, padded where the engine pads. Raises ``BadInput`` likewise."""
    found = kind_named(kind)
    size = tokens * _of_layer(found, tokens, heads, head_size, head_size_v)
    return _up(size, found.page_align)


def _of_layer(kind: Kind, count: int, heads: int, head_size: int, head_size_v: int | None) -> int:
    value = head_size if head_size_v is None else head_size_v
    where = f"cache of kind {kind.name}"
    if min(count, heads, head_size) < 1 or value < 0:
        raise BadInput(
            f"{where}: {count} layers or tokens, {heads} heads of {head_size} and {value}; expected 1 or more"
        )
    if kind.latent and (heads != 1 or head_size_v is None):
        raise BadInput(
            f"{where}: {heads} heads, head_size_v {head_size_v}; expected 1 head, and both sizes: 512 and 64"
        )
    return heads * _up(kind.key.size(head_size, where) + kind.value.size(value, where), kind.head_align)


def _up(size: int, to: int) -> int:
    return -(-size // to) * to
