"""compressed-tensors: the parameters from least and largest, then quantize, as its compressors do."""

from __future__ import annotations

from functools import partial
from typing import Any

PACKAGE = "compressed-tensors"
SOURCES = ("float32", "bfloat16", "float16")


def calls() -> dict[str, Any]:
    """Every quantizer of compressed-tensors that has a recipe."""
    floats = {"num_bits": 8, "type": "float"}
    ints = {"num_bits": 8, "type": "int"}
    int4 = {"num_bits": 4, "type": "int"}
    mx = {"type": "float", "strategy": "group", "group_size": 32}
    schemes: dict[str, dict[str, Any]] = {
        "int8_channel": ints | {"strategy": "channel"},
        "int8_tensor": ints | {"strategy": "tensor"},
        "int4_group": int4 | {"strategy": "group", "group_size": 128},
        "int4_channel": int4 | {"strategy": "channel"},
        "int8_token_asymmetric": ints | {"strategy": "token", "dynamic": True, "symmetric": False},
        "int4_group_asymmetric": int4 | {"strategy": "group", "group_size": 128, "symmetric": False},
        "fp8_tensor": floats | {"strategy": "tensor"},
        "fp8_token": floats | {"strategy": "token", "dynamic": True},
        "fp8_group_128": floats | {"strategy": "group", "group_size": 128},
        "fp8_block": floats | {"strategy": "block", "block_structure": [128, 128]},
        "fp8_static_tensor": floats | {"strategy": "tensor"},
        "fp8_static_channel": floats | {"strategy": "channel"},
        "mxfp8": mx | {"num_bits": 8},
        "mxfp6": mx | {"num_bits": 6},
        "mxfp4": mx | {"num_bits": 4},
        "nvfp4": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
    }
    return {f"compressed_tensors.{name}": partial(_quantize, scheme=scheme) for name, scheme in schemes.items()}


def _quantize(x: Any, format_name: str, given: Any, scheme: dict[str, Any]) -> dict[str, Any]:
    import torch
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import quantize
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    mx, nvfp4 = scheme.get("group_size") == 32, scheme["strategy"] == "tensor_group"
    stored = {"scale_dtype": torch.uint8} if mx else {"scale_dtype": torch.float8_e4m3fn} if nvfp4 else {}
    args = QuantizationArgs(**scheme, **stored)
    of_tensor = generate_gparam(x.min(), x.max()) if nvfp4 else None
    if given:
        scale, zero = given["scale"].reshape(-1), None
    else:
        low, high = _ends(x, scheme)
        scale, zero = calculate_qparams(low, high, args, global_scale=of_tensor)
    if scheme["strategy"] in ("channel", "token") and not given:
        scale, zero = scale.reshape(-1, 1), zero.reshape(-1, 1)
    zero = zero if not scheme.get("symmetric", True) else None
    dtype = {"int8": torch.int8, "int4": torch.int8, "float8_e4m3fn": torch.float8_e4m3fn}.get(format_name)
    found = quantize(x.clone(), scale, zero, args, dtype=dtype, global_scale=of_tensor)
    codes = {"codes": found.view(torch.uint8).numpy()} if dtype else {"elements": found.float().numpy()}
    answer = codes | {"scale": _stored(scale, mx, nvfp4)}
    answer |= {} if of_tensor is None else {"global_scale": of_tensor.reshape(1, 1).numpy()}
    return answer | ({} if zero is None else {"zero_point": zero.reshape(len(x), -1).numpy()})


def _ends(x: Any, scheme: dict[str, Any]) -> tuple[Any, Any]:
    """The least and the largest of what shares a scale, as llm-compressor's observers find them."""
    if scheme["strategy"] == "tensor":
        return x.min().reshape(1), x.max().reshape(1)
    if scheme["strategy"] == "block":
        import torch

        rows, columns = (-(-size // 128) * 128 for size in x.shape)
        padded = torch.zeros(rows, columns, dtype=x.dtype)
        padded[: x.shape[0], : x.shape[1]] = x
        tiles = padded.reshape(rows // 128, 128, columns // 128, 128)
        return tiles.amin(dim=(1, 3)), tiles.amax(dim=(1, 3))
    blocks = x.unflatten(-1, (-1, scheme.get("group_size") or x.shape[-1]))
    low, high = blocks.amin(-1), blocks.amax(-1)
    return (low, high) if "group_size" in scheme else (low.squeeze(-1), high.squeeze(-1))


def _stored(scale: Any, mx: bool, nvfp4: bool) -> Any:
    """In the form in which the compressors write it."""
    import torch

    if mx:
        from compressed_tensors.compressors.mx_utils import compress_mx_scale

        return compress_mx_scale(scale, torch.uint8).numpy()
    return scale.to(torch.float8_e4m3fn).view(torch.uint8).numpy() if nvfp4 else scale.float().numpy()
