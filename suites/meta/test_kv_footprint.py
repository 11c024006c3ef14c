"""What a token takes in a cache: counted by hand, and by the engines' own files."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.kv.flags import FLAGS
from narrowgauge.reference.kv.footprint import bytes_per_page, bytes_per_token
from narrowgauge.suites.meta.engines.kv_flags import SHAPES
from narrowgauge.suites.meta.kv_sets import asked
from narrowgauge.suites.meta.marks import needs_torch

pytestmark = pytest.mark.meta

#: KiB of a token, 32 layers of 8 heads of 128: elements, and beside each head of K and of V
KIB = {
    "float32": (32, 0, 0),
    "16 bits": (16, 0, 0),
    "fp8": (8, 0, 0),
    "8 bits, scale of a head": (8, 4, 4),
    "int4, scale of a head": (4, 4, 4),
    "mxfp8": (8, 128 // 32, 128 // 32),
    "fp4 in blocks of 16": (4, 128 // 16, 128 // 16),
    "ultraquant": (4, 128 // 32, 128 // 32),
}


@pytest.mark.parametrize("kind", KIB)
def test_bytes_of_a_token(kind: str) -> None:
    bits, k, v = KIB[kind]
    each = Fraction(bits, 8) * 128
    assert bytes_per_token(kind, 32, 8, 128) == 32 * 8 * (each + k + each + v)


def test_the_numbers_that_are_quoted() -> None:
    """128, 64 and 36 KiB for 32 layers of 8 heads of 128; rows of 656, 352, 584 and 528 bytes."""
    named = [
        FLAGS[e][f].kind
        for e, f in (("vllm", "bfloat16"), ("vllm", "fp8_e5m2"), ("vllm", "nvfp4"), ("sglang", "mxfp8"))
    ]
    assert [bytes_per_token(kind, 32, 8, 128) / 1024 for kind in named] == [128, 64, 36, 66]
    assert bytes_per_token(FLAGS["sglang"]["fp4_mx_block16"].kind, 32, 8, 128) == 36 * 1024
    assert bytes_per_token("int4, scale of a head", 32, 8, 128) == 34 * 1024
    assert bytes_per_token("fp8_ds_mla", 1, 1, 512, 64) == 656
    assert bytes_per_token("nvfp4_ds_mla", 1, 1, 512, 64) == 352
    assert bytes_per_token("fp8_ds_mla of DeepSeek-V4", 1, 1, 448, 64) == 584
    assert bytes_per_token("fp8_ds_mla of DeepSeek-V4.1", 1, 1, 512, 0) == 528
    assert bytes_per_token("latent, 16 bits", 61, 1, 512, 64) == 61 * 1152
    assert bytes_per_token("latent, fp8", 61, 1, 512, 64) == 61 * 576
    assert bytes_per_token("fp8", 1, 2, 192, 128) == 640
    # K's codes and a norm, V's codes, scale and zero; a head's bytes are even
    turbo = [bytes_per_token(f"turboquant_{name}", 1, 1, 128) for name in ("k8v4", "4bit_nc", "k3v4_nc", "3bit_nc")]
    assert turbo == [128 + 64 + 4, 64 + 2 + 64 + 4, 48 + 2 + 64 + 4, 48 + 2 + 48 + 4]
    assert bytes_per_token("turboquant_k3v4_nc", 1, 1, 8) == 3 + 2 + 4 + 4 + 1


def test_pages_are_padded_where_the_engine_pads() -> None:
    assert bytes_per_page("fp8", 16, 8, 128) == 16 * 2048
    assert bytes_per_page("fp8_ds_mla", 64, 1, 512, 64) == 64 * 656
    # 584 bytes a row; the reader's stride is 576
    assert [bytes_per_page("fp8_ds_mla of DeepSeek-V4", n, 1, 448, 64) for n in (1, 16, 64, 72)] == [
        1152, 9792, 37440, 42048,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fp9", 1, 1, 128), "unknown kind of cache 'fp9'; did you mean fp8"),
        (("fp8", 1, 0, 128), "1 layers or tokens, 0 heads of 128 and 128; expected 1 or more"),
        (("fp8", 0, 1, 128), "0 layers or tokens"),
        (("fp8", 1, 1, 128, -1), "heads of 128 and -1"),
        (("fp4 in blocks of 16", 1, 1, 24), "a head of 24 elements of 4 bits in blocks of 16; expected whole bytes"),
        (("int4, scale of a head", 1, 1, 65), "a head of 65 elements of 4 bits; expected whole bytes"),
        (("fp8_ds_mla", 1, 8, 512, 64), "8 heads, head_size_v 64; expected 1 head, and both sizes: 512 and 64"),
        (("fp8_ds_mla", 1, 1, 512), "1 heads, head_size_v None; expected 1 head, and both sizes"),
    ],
)
def test_bad_sizes_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        bytes_per_token(*arguments)


@needs_torch
def test_vllms_pages_are_of_these_bytes() -> None:
    said = asked("vllm")["bytes"]
    kinds = {flag: FLAGS["vllm"][flag].kind for flag in FLAGS["vllm"]} | {"float32": "float32"}
    count = 0
    for name, size in said.items():
        if name.startswith("V4"):
            assert bytes_per_page("fp8_ds_mla of DeepSeek-V4", int(name[3:]), 1, 448, 64) == size
            continue
        flag, *shape = name.split()
        assert bytes_per_page(kinds[flag], 16, *map(int, shape)) == size, name
        count += 1
    assert count == 3 * len(SHAPES) + 5 * sum(k == v for _, k, v in SHAPES)
