"""A program that knows nothing of narrowgauge and answers an inputs file: numpy, ml_dtypes and a dozen lines."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from narrowgauge.suites.judging import Judged
from narrowgauge.suites.offline import judge_files

Array = npt.NDArray[Any]
Tensors = dict[str, tuple[str, Array]]
CAST = "cast/ocp_saturate/bfloat16/float8_e4m3fn"
QUANTIZE = "quantize/vllm.fp8_per_token_dynamic/float32/float8_e4m3fn"


# --- a program that knows nothing of us ------------------------------------------------------------------------------


def load(path: Path) -> dict[str, Array]:
    """The float32 values of the tensors of an inputs file, by a reader of a dozen lines."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    values: dict[str, Array] = {}
    for name, entry in json.loads(content[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        dtype = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}[entry["dtype"]]
        array = np.frombuffer(content[8 + length :][start:end], dtype).reshape(entry["shape"])
        with np.errstate(invalid="ignore"):
            values[name.removesuffix(".x")] = array.astype(np.float32)
    return values


def save(path: Path, tensors: Tensors) -> Path:
    """Write a file with any dtype names."""
    header: dict[str, Any] = {}
    body = b""
    for name, (dtype, array) in tensors.items():
        header[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + array.nbytes],
        }
        body += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


def to_fp8(values: Array, format_name: str) -> Array:
    """float32 to codes, by ml_dtypes."""
    with np.errstate(all="ignore"):
        codes: Array = values.astype(getattr(ml_dtypes, format_name)).view(np.uint8)
    return codes


def saturating_cast(values: Array, format_name: str) -> Array:
    largest = float(ml_dtypes.finfo(getattr(ml_dtypes, format_name)).max)
    return to_fp8(np.clip(values, -largest, largest), format_name)


def ties_away_cast(values: Array, format_name: str) -> Array:
    """Half of a step is added to the magnitude before what is below it is cut, in the normal range."""
    bits = np.clip(values, -448.0, 448.0).view(np.uint32)
    away = ((bits + np.uint32(0x00080000)) & np.uint32(0xFFF00000)).view(np.float32)
    normal = (np.abs(values) >= 2.0**-6) & ~np.isnan(values)
    return to_fp8(np.where(normal, np.clip(away, -448.0, 448.0), values.clip(-448.0, 448.0)), format_name)


def vllm(values: Array, format_name: str, minimum: bool = True) -> dict[str, Array]:
    """vLLM's per-token quantizer in numpy."""
    bound = np.float32(448.0 if format_name == "float8_e4m3fn" else 224.0)
    with np.errstate(all="ignore"):
        amax = np.fmax.reduce(np.abs(values), axis=1, keepdims=True, initial=np.float32(0))
        scale = amax / bound
        if minimum:
            scale = np.fmax(scale, np.float32(1) / (bound * np.float32(512)))
        clamped = np.fmax(np.fmin(values / scale, bound), -bound)
    return {"codes": to_fp8(clamped, format_name), "scale": scale.view(np.uint32)}


def answers(claim: str, inputs: Path) -> dict[str, Array]:
    """Right outputs for an inputs file, as unsigned integers."""
    _, rule, _, format_name = claim.split("/")
    outputs: dict[str, Array] = {}
    for case, values in load(inputs).items():
        if rule.startswith("vllm"):
            outputs |= {f"{case}.{name}": array for name, array in vllm(values, format_name).items()}
        elif "nonsaturate" in rule or rule == "?":
            outputs[f"{case}.codes"] = to_fp8(values, format_name)
        else:
            outputs[f"{case}.codes"] = saturating_cast(values, format_name)
    return outputs


def judged(inputs: Path, tensors: Tensors | Mapping[str, Array]) -> list[Judged]:
    """Verdicts on outputs, after a way through a file."""
    path = inputs.parent / "out.safetensors"
    plain = {n: t if isinstance(t, tuple) else ({1: "U8", 4: "U32"}[t.itemsize], t) for n, t in tensors.items()}
    save(path, plain)
    return judge_files(inputs, path, "theirs", "gfx942")
