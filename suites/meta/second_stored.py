# SPDX-License-Identifier: Apache-2.0
"""The second derivation of what stored weights stand for: one element after the other, from the engines' sources.

``CASES`` are schemes that the small checkpoints do not have, with random bytes; each says which bytes make element
(n, k).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.suites.meta.second_codes import table

Array = npt.NDArray[Any]
Tensors = dict[str, tuple[str, Array]]  #: suffix -> dtype in the file's word, bytes or numbers

_E4M3, _E4M3FNUZ, _E5M2 = table("float8_e4m3fn"), table("float8_e4m3fnuz"), table("float8_e5m2")
_FOUR = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
N, K = 16, 256


def four(code: int) -> float:
    return -_FOUR[code - 8] if code > 7 else _FOUR[code]


@dataclass(frozen=True)
class Case:
    """One weight, and what each of its elements is."""

    scheme: str
    tensors: Tensors
    element: Callable[[Tensors, int, int], float]
    shape: tuple[int, ...] = (N, K)
    config: Mapping[str, Any] = field(default_factory=dict)


def _bytes(seed: int, *shape: int, top: int = 256) -> Array:
    return np.random.Generator(np.random.Philox(seed)).integers(0, top, shape).astype(np.uint8)


def _words(seed: int, *shape: int) -> Array:
    return _bytes(seed, *shape, 4).view("<i4").reshape(shape)


def _scales(seed: int, *shape: int) -> Array:
    """Powers of two and odd numbers of a few bits, so that every product is exact in float64."""
    return ((_bytes(seed, *shape) % 31 + 1) * 2.0**-9).astype(np.float32)


def _of_word(word: int, place: int, bits: int) -> int:
    return (int(word) & 0xFFFFFFFF) >> (place * bits) & ((1 << bits) - 1)


def _fp8(values: Array) -> Callable[[Tensors, int, int], float]:
    return lambda t, n, k: values[t[".weight"][1][n, k]] * float(t[".weight_scale"][1].reshape(-1)[n])


def _block_int8(t: Tensors, n: int, k: int) -> float:
    byte = int(t[".weight"][1][n, k])
    return (byte - 256 if byte > 127 else byte) * float(t[".weight_scale_inv"][1][n // 8, k // 128])


def _gptq(bits: int, added: int) -> Callable[[Tensors, int, int], float]:
    each = 32 // bits

    def element(t: Tensors, n: int, k: int) -> float:
        group = int(t[".g_idx"][1][k])
        code = _of_word(t[".qweight"][1][k // each, n], k % each, bits)
        zero = _of_word(t[".qzeros"][1][group, n // each], n % each, bits) + added
        return (code - zero) * float(t[".scales"][1][group, n])

    return element


_AWQ_8BIT = (0, 2, 1, 3)  #: place p of a word of bytes holds column _AWQ_8BIT[p]


def _awq_8bit(t: Tensors, n: int, k: int) -> float:
    place = _AWQ_8BIT.index(n % 4)
    code, zero = (_of_word(t[name][1][row, n // 4], place, 8) for name, row in ((".qweight", k), (".qzeros", k // 128)))
    return (code - zero) * float(t[".scales"][1][k // 128, n])


def _packed_8bit(t: Tensors, n: int, k: int) -> float:
    code = _of_word(t[".weight_packed"][1][n, k // 4], k % 4, 8)
    zero = _of_word(t[".weight_zero_point"][1][n // 4, k // 128], n % 4, 8)
    return (code - zero) * float(t[".weight_scale"][1][n, k // 128])


def _four_columns(name: str, scale: Callable[[Tensors, int, int], float]) -> Callable[[Tensors, int, int], float]:
    def element(t: Tensors, n: int, k: int) -> float:
        byte = int(t[name][1].reshape(-1, K // 2)[n, k // 2])
        return four(byte >> 4 if k % 2 else byte & 15) * scale(t, n, k)

    return element


def _w4afp8(t: Tensors, n: int, k: int) -> float:
    byte = int(t[".weight"][1][n, k // 2])
    code = byte >> 4 if k % 2 else byte & 15
    return (code - 16 if code > 7 else code) * float(t[".weight_scale_inv"][1][n, k // 128])


def _e8m0(name: str) -> Callable[[Tensors, int, int], float]:
    return lambda t, n, k: 2.0 ** (int(t[name][1].reshape(-1, K // 32)[n, k // 32]) - 127)


def _order(seed: int) -> Array:
    """Columns in a random order, 128 of each of two groups."""
    return np.random.Generator(np.random.Philox(seed)).permutation(np.arange(K) // 128).astype("<i4")


def _sorted_fp8(seed: int) -> Array:
    """Bytes of fp8 without NaN and infinity in any flavour."""
    magnitude, sign = _bytes(seed, N, K) & 0x7B, _bytes(seed + 1, N, K) & 0x80
    return np.asarray(np.where(magnitude == 0, 0, magnitude | sign).astype(np.uint8))


_GPTQ = {"quantization_config": {"quant_method": "gptq", "bits": 8, "group_size": 128, "desc_act": True, "sym": False}}
_V2 = {"quantization_config": {**_GPTQ["quantization_config"], "checkpoint_format": "gptq_v2"}}


def _gptq_tensors(bits: int) -> Tensors:
    each = 32 // bits
    return {
        ".qweight": ("I32", _words(1, K // each, N)),
        ".qzeros": ("I32", _words(2, 2, N // each)),
        ".scales": ("F32", _scales(3, 2, N)),
        ".g_idx": ("I32", _order(4)),
    }


CASES: dict[str, Case] = {
    "fp8 FNUZ by rows": Case(
        "fp8",
        {".weight": ("F8_E4M3FNUZ", _sorted_fp8(1)), ".weight_scale": ("F32", _scales(2, N))},
        _fp8(_E4M3FNUZ),
    ),
    "fp8 e5m2 by rows": Case(
        "fp8",
        {".weight": ("F8_E5M2", _sorted_fp8(1)), ".weight_scale": ("F32", _scales(2, N, 1))},
        _fp8(_E5M2),
    ),
    "fp8 experts of Llama 4": Case(
        "fp8_experts",
        {"": ("F8_E4M3", _sorted_fp8(1).reshape(2, K // 2, N)), "_weight_scale": ("F32", _scales(2))},
        lambda t, n, k: _E4M3[t[""][1][n // N, k, n % N]] * float(t["_weight_scale"][1]),
        shape=(2, N, K // 2),
    ),
    "int8 in blocks": Case(
        "int8",
        {".weight": ("I8", _bytes(1, N, K)), ".weight_scale_inv": ("F32", _scales(2, 2, 2))},
        _block_int8,
        config={"quantization_config": {"quant_method": "fp8", "weight_block_size": [8, 128]}},
    ),
    "int8 by rows of fracast": Case(
        "int8_rows",
        {".weight.qweight": ("I8", _bytes(1, N, K)), ".weight.scale": ("F32", _scales(2, N, 1))},
        lambda t, n, k: float(t[".weight.qweight"][1].view(np.int8)[n, k]) * float(t[".weight.scale"][1][n, 0]),
    ),
    "int8 of bitsandbytes": Case(
        "int8_bitsandbytes",
        {".weight": ("I8", _bytes(1, N, K)), ".SCB": ("F32", _scales(2, N) * 127)},
        lambda t, n, k: float(t[".weight"][1].view(np.int8)[n, k]) * (float(t[".SCB"][1][n]) / 127),
    ),
    "GPTQ of 8 bits, less 1, in another order": Case("gptq_v1_8bit", _gptq_tensors(8), _gptq(8, 1), config=_GPTQ),
    "GPTQ of 8 bits as they are": Case("gptq_v2_8bit", _gptq_tensors(8), _gptq(8, 0), config=_V2),
    "GPTQ of 4 bits from names alone": Case("gptq_v1_4bit", _gptq_tensors(4), _gptq(4, 1)),
    "AWQ of 8 bits": Case(
        "awq_8bit",
        {
            ".qweight": ("I32", _words(1, K, N // 4)),
            ".qzeros": ("I32", _words(2, 2, N // 4)),
            ".scales": ("F32", _scales(3, 2, N)),
        },
        _awq_8bit,
    ),
    "compressed-tensors of 8 bits": Case(
        "packed_asymmetric_8bit",
        {
            ".weight_packed": ("I32", _words(1, N, K // 4)),
            ".weight_zero_point": ("I32", _words(2, N // 4, 2)),
            ".weight_scale": ("F32", _scales(3, N, 2)),
        },
        _packed_8bit,
        config={
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "targets": ["Linear"],
                        "weights": {"num_bits": 8, "type": "int", "strategy": "group", "group_size": 128},
                    }
                },
            }
        },
    ),
    "MXFP4 experts in one tensor": Case(
        "mxfp4",
        {
            ".weight": ("U8", _bytes(1, 2, N // 2, K // 2)),
            ".weight_scale": ("U8", _bytes(2, 2, N // 2, K // 32) % 64 + 96),
        },
        _four_columns(".weight", _e8m0(".weight_scale")),
        shape=(2, N // 2, K),
    ),
    "MXFP4 called int8": Case(
        "mxfp4_experts",
        {".weight": ("I8", _bytes(1, N, K // 2)), ".scale": ("F8_E8M0", _bytes(2, N, K // 32) % 64 + 96)},
        _four_columns(".weight", _e8m0(".scale")),
    ),
    "NVFP4 experts with a second scale each": Case(
        "nvfp4",
        {
            ".weight": ("U8", _bytes(1, 2, N // 2, K // 2)),
            ".weight_scale": ("F8_E4M3", _bytes(2, 2, N // 2, K // 16, top=127)),
            ".weight_scale_2": ("F32", _scales(3, 2)),
        },
        _four_columns(
            ".weight",
            lambda t, n, k: (
                _E4M3[t[".weight_scale"][1].reshape(N, -1)[n, k // 16]] * float(t[".weight_scale_2"][1][n // (N // 2)])
            ),
        ),
        shape=(2, N // 2, K),
    ),
    "int4 of w4afp8": Case(
        "w4afp8",
        {".weight": ("I8", _bytes(1, N, K // 2)), ".weight_scale_inv": ("F32", _scales(2, N, 2))},
        _w4afp8,
        config={"quantization_config": {"quant_method": "w4afp8"}},
    ),
}
