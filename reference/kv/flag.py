"""What a spelling of ``--kv-cache-dtype`` is: a declaration with a row for each place."""

from __future__ import annotations

from dataclasses import dataclass

#: what the scales of a cache are
SCALES = {
    "none": "no scale",
    "tensor": "one for K and one for V of a layer, given (with compressed-tensors one a head)",
    "token and head": "one a token and head, found as it is written",
    "block and tensor": "one a block, found as it is written, over one given for K and one for V",
    "block": "one a block, found as it is written",
    "own": "the engine's own, found as it is written",
}
#: which code writes: vLLM has two writers for the same flag
WRITERS = {
    "native": "reshape_and_cache_flash and its kin, C++: FLASH_ATTN, FLASHINFER, ROCM_AITER_FA; ROCM_ATTN with blocks "
    "of 16 or 32",
    "triton": "triton_reshape_and_cache_flash: TRITON_ATTN; ROCM_ATTN with other blocks",
}


@dataclass(frozen=True)
class Row:
    """What is stored on targets that match, by one writer or ("any") by all."""

    targets: str
    stores: str  #: a format; "model" is the model's own; "" where it is refused, or is none of ours
    recipe: str = ""
    says: str = ""
    refused: bool = False
    writer: str = "any"
    source: str = ""


@dataclass(frozen=True)
class Flag:
    """One spelling of ``--kv-cache-dtype``."""

    name: str
    storage: str  #: the cache tensor's dtype
    scale: str  #: of ``SCALES``
    kind: str  #: of ``footprint.KINDS``; "" where its bytes are not described
    rows: tuple[Row, ...]
    source: str
    says: str = ""


#: patterns of targets of AMD whose fp8 is OCP's, of those whose fp8 is FNUZ, and of NVIDIA's with fp8 in hardware
OCP_GFX, FNUZ_GFX, FROM_SM_89 = "gfx9[!4]? gfx1*", "gfx94?", "sm_89 sm_9? sm_1??"
E4, E4Z, E5, E2 = "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float4_e2m1fn"


def elsewhere(says: str, source: str) -> Row:
    """The last row of a flag that is refused on all other targets."""
    return Row("*", "", says=says, refused=True, source=source)
