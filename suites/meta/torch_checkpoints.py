"""Files of torch's, made by torch in a process of its own, with the bytes that torch itself finds in them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

#: run with a folder: writes the files, and tensors.json with name: [dtype, shape, bytes in hexadecimal] of those of
#: zip.pt and old.pth, which lie in a folder "all" with others
_MAKE = """
import json, pathlib, sys
import torch
folder = pathlib.Path(sys.argv[1])
torch.manual_seed(0)
base = torch.randn(6, 4)
narrow = ["bfloat16", "float16", *("float8_" + n for n in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu"))]
plain = ("int8", "int16", "int32", "int64", "uint8", "bool")
model = {name: torch.randint(0, 255, (3, 8), dtype=torch.uint8).view(getattr(torch, name)) for name in narrow}
model |= {name: torch.arange(5).to(getattr(torch, name)) for name in plain}
model |= {"float32": base, "float64": base.double(), "complex64": torch.randn(3, dtype=torch.complex64)}
model |= {"row": base[2], "turned": base.t(), "tied": base, "scalar": torch.tensor(2.5), "none": torch.empty(0, 3)}
model |= {"conj": torch.randn(3, dtype=torch.complex64).conj(), "expanded": torch.tensor([1.0]).expand(7)}
model |= {"parameter": torch.nn.Parameter(torch.ones(3))}
optimizer = {"state": {0: {"step": torch.tensor(7.0), "exp_avg": torch.randn(4)}}, "param_groups": [{"lr": 0.1}]}
training = {"state_dict": model, "optimizer": optimizer, "epoch": 3, "parts": [torch.ones(2), (torch.zeros(1),)]}

def told(found, name=""):
    if isinstance(found, torch.Tensor):
        flat = found.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8)
        yield name, [str(found.dtype)[6:], list(found.shape), bytes(flat.tolist()).hex()]
    inner = enumerate(found) if isinstance(found, (list, tuple)) else found.items() if isinstance(found, dict) else ()
    for key, one in inner:
        yield from told(one, f"{name}.{key}" if name else str(key))

every = folder / "all"
every.mkdir()
torch.save(training, every / "zip.pt")
old = {"old": {n: t for n, t in model.items() if n != "conj" and "float8" not in n}}
torch.save(old, every / "old.pth", _use_new_zipfile_serialization=False)
packed = torch.arange(6, dtype=torch.uint8).reshape(2, 3).view(torch.float4_e2m1fn_x2)
odd = {"packed": packed, "sparse": torch.eye(3).to_sparse(), "meta": torch.empty(2, device="meta")}
odd |= {"repeated": torch.tensor([1.0]).expand(1 << 23)}
odd |= {"quantized": torch.quantize_per_tensor(torch.tensor([0.5, -0.25]), 0.25, 0, torch.qint8)}
torch.save(odd, every / "odd.bin")
(every / "training_args.bin").write_bytes(b"")
(every / "model.bin").write_bytes(b"CTranslate2")
(folder / "sharded").mkdir()
torch.save({"a.weight": base}, folder / "sharded" / "pytorch_model-00001-of-00002.bin")
torch.save({"b.weight": base[0].clone()}, folder / "sharded" / "pytorch_model-00002-of-00002.bin")

class Own:
    pass

Own.__module__ = "somewhere"
sys.modules["somewhere"] = sys.modules["__main__"]
torch.save({"a": Own()}, folder / "own.pt")
torch.save({"epoch": 1}, folder / "empty.pt")
deep = torch.ones(1)
for _ in range(40):
    deep = [deep, deep]
torch.save(deep, folder / "deep.pt")
(folder / "tensors.json").write_text(json.dumps(dict(told(training)) | dict(told(old))))
"""


def make(folder: Path) -> dict[str, Any]:
    """Write the files; what torch says of the tensors of zip.pt and old.pth."""
    subprocess.run([sys.executable, "-c", _MAKE, str(folder)], check=True, timeout=120)
    found: dict[str, Any] = json.loads((folder / "tensors.json").read_text())
    return found
