"""What libraries packed, recorded: digests of the memory that they gave for ``numbered`` codes.

Measured in November 2026 on a CPU: torchao 0.18.0, compressed-tensors 0.20.1, gguf 0.19.0, amd-quark 0.13 (pack.py),
vLLM 0.33.0 (quant_utils.py and its copy of triton_kernels), each function run as it stands in the package.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt


def numbered(bits: int, rows: int, columns: int) -> npt.NDArray[Any]:
    """Codes that look random and can be written down: (n * 2654435761) >> 13, cut to the bits of a code."""
    wide = np.arange(rows * columns, dtype=np.uint64) * np.uint64(2654435761) >> np.uint64(13)
    cut = wide & np.uint64((1 << bits) - 1)
    return cut.astype(np.uint8 if bits <= 8 else np.uint32).reshape(rows, columns)


def digest(memory: bytes) -> str:
    """The first 16 hexadecimal digits of the SHA-256."""
    return hashlib.sha256(memory).hexdigest()[:16]


# fmt: off
#: layout, rows, columns, digest, first 8 bytes, who packed it
RECORDED = (
    ("nibbles_low_first", 6, 32, "3ac8034e71981a98", "b037bf26ae169d15", "torchao pack_uint4"),
    ("scales_128x4", 130, 5, "8233bab925dcbc90", "00bb7733601cd893", "torchao to_blocked"),
    ("scales_128x4", 128, 4, "3215c0cd89e55f4d", "00bb7733e6a25e1a", "torchao to_blocked"),
    ("scales_128x4", 257, 9, "99d83ade084426f8", "00bb77334703be7a", "torchao to_blocked"),
    ("compressed_tensors_4bit", 5, 13, "d08c254a8dd393ef", "b037bf26ae160d00", "compressed-tensors"),
    ("compressed_tensors_4bit", 8, 64, "80cc1b454c548ba4", "b037bf26ae169d15", "compressed-tensors"),
    ("compressed_tensors_8bit", 5, 13, "f39c7e4ddbcc8a4b", "00bb7733efab6622", "compressed-tensors"),
    ("compressed_tensors_zeros_4bit", 5, 13, "6cbba891bb2318b5", "90c205005b8e0100", "compressed-tensors"),
    ("compressed_tensors_zeros_8bit", 5, 13, "c2bd068ff6bfaabd", "0089129cbb45ce58", "compressed-tensors"),
    ("gptq_4bit", 16, 24, "5831e98a1b43cf7c", "b0168de37bd248af", "vLLM gptq_pack"),
    ("gptq_8bit", 16, 24, "aed086cd6c65ea68", "009b36d1bb57f28d", "vLLM gptq_pack"),
    ("gptq_zeros_4bit", 16, 24, "f399eec1d33c7cc9", "b037bf26ae169d15", "vLLM pack_cols"),
    ("gptq_zeros_8bit", 16, 24, "afd34b22ac37b7a2", "00bb7733efab6622", "vLLM pack_cols"),
    ("awq_4bit", 16, 24, "92ace7ac128aeb8b", "706f3b2b6e5d1a19", "vLLM awq_pack"),
    ("awq_4bit", 5, 16, "d0aa47b684da6690", "706f3b2b6e5d1a19", "Quark Pack_4_bits, reorder"),
    ("awq_8bit", 16, 24, "f683bcc54851e7d6", "0077bb33ef66ab22", "vLLM awq_pack"),
    ("hopper_mxfp4_values", 16, 64, "c0b633888022db2a", "1e72f2aa3b8f1f84", "triton_kernels HopperMXValueLayout"),
    ("hopper_mxfp4_values", 17, 70, "bc63e70e4beaf14d", "0e02eaf633db17d0", "triton_kernels HopperMXValueLayout"),
    ("hopper_mxfp4_values", 64, 256, "7218c74c465f80bd", "2656c29e0bbf27a4", "triton_kernels HopperMXValueLayout"),
    ("hopper_mxfp4_values_mma2", 17, 70, "2432ff7383053abf", "3f0edb8648506c8b", "triton_kernels HopperMXValueLayout"),
    ("hopper_mxfp4_values_mma2", 64, 256, "63d9a59e1a685c7d", "3f0edb861ba73fdc", "triton_kernels HopperMXValueLayout"),
    ("blackwell_mxfp4_values", 17, 70, "ba3f0fc2e023c9a3", "b037bf26ae169d15", "triton_kernels BlackwellMXValueLayout"),
    ("hopper_mx_scales_4_warps", 130, 5, "2d52894b84faa488", "0058bb13ab0366be", "triton_kernels HopperMXScaleLayout"),
    ("hopper_mx_scales_4_warps", 300, 3, "67539b5f072d1c00", "009bbb5733ceef8a", "triton_kernels HopperMXScaleLayout"),
    ("hopper_mx_scales_8_warps", 130, 5, "f0ff12c9904b83df", "0058bb13ab0366be", "triton_kernels HopperMXScaleLayout"),
    ("hopper_mx_scales_8_warps", 300, 3, "c92a71192092db90", "009bbb5733ceef8a", "triton_kernels HopperMXScaleLayout"),
    ("scales_128x4_k8", 256, 4, "127109bd16ded03b", "00bb7733e6a25e1a", "triton_kernels BlackwellMXScaleLayout"),
    ("scales_128x4_k8", 300, 3, "53555f263c5ead7c", "00bb77006d28e400", "triton_kernels BlackwellMXScaleLayout"),
    ("cdna4_mx_scales", 32, 8, "96b057b1f902e294", "00e6efd5dec5cdb4", "triton_kernels CDNA4MXScaleLayout"),
    ("cdna4_mx_scales", 96, 24, "19976552f9042a1e", "00b4efa39b4f8a3e", "triton_kernels CDNA4MXScaleLayout"),
    ("fp6_dense", 4, 32, "5b799e5515281543", "c07ecfef6a8a9e66", "Quark Pack_fp6"),
    ("fp6_planes", 4, 32, "bcfe66175c32a4ca", "3f0b73aafb6255ea", "Quark Pack_mxfp6, behind its scale byte"),
)
#: gguf quantizes values: codes ``numbered(4, 8, 64)``, 7 first in each block of 32, and 0 for 8 (-0)
GGUF_MXFP4 = ("9da2dcb6c9d6bfe6", "c70b4703cf7b36f2")
# fmt: on
