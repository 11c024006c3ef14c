"""The capture of keys and values: small torch models of our own, in a process of theirs, against their raw tensors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.devices.device import ROOT
from narrowgauge.golden.safetensors_file import read
from narrowgauge.reference.kv.histogram import Histogram, histogram_of
from narrowgauge.suites.kv_stats import read_stats
from narrowgauge.suites.meta.command_sets import as_json
from narrowgauge.suites.meta.marks import needs_torch

pytestmark = [pytest.mark.meta, needs_torch, pytest.mark.usefixtures("plain_terminal")]

#: models that mimic the names of known ones, without rotations worth the name: what is told apart is before and after
MODELS = """
    import torch
    from torch import nn

    class Config:
        def __init__(self, **said):
            self.num_attention_heads, self.num_key_value_heads, self.hidden_size = 4, 2, 32
            self.__dict__.update(said)

    class Cache:
        def __init__(self):
            self.held, self.calls = {}, 0
        def update(self, k, v, layer, more=None):
            self.calls += 1
            old = self.held.get(layer)
            self.held[layer] = (k, v) if old is None else tuple(torch.cat(p, 2) for p in zip(old, (k, v)))
            return self.held[layer]

    class Apart(nn.Module):
        def __init__(self, number):
            super().__init__()
            self.number = number
            self.k_proj, self.v_proj = nn.Linear(32, 16), nn.Linear(32, 16)
        def forward(self, x, past_key_values=None):
            b, t, _ = x.shape
            k, v = (p(x).view(b, t, 2, 8).transpose(1, 2) for p in (self.k_proj, self.v_proj))
            RAW.append((k, k * 3, v))
            if past_key_values is not None:
                past_key_values.update(k * 3, v, self.number)
            if past_key_values == "raise":
                raise RuntimeError("enough")
            return x * 1.25

    class Fused(nn.Module):
        def __init__(self, name, out):
            super().__init__()
            self.name = name
            setattr(self, name, nn.Linear(32, out))
        def forward(self, x):
            RAW.append(getattr(self, self.name)(x))
            return x * 1.25

    class Latent(nn.Module):
        def __init__(self):
            super().__init__()
            self.kv_a_proj_with_mqa, self.kv_a_layernorm = nn.Linear(32, 12), nn.RMSNorm(8)
        def forward(self, x, past_key_values=None):
            both = self.kv_a_proj_with_mqa(x)
            RAW.append((self.kv_a_layernorm(both[..., :8]), both[..., 8:]))
            if past_key_values is not None:  # keys and values of all heads, which no engine caches
                past_key_values.update(both[:, None], both[:, None], 0)
            return x

    class Model(nn.Module):
        def __init__(self, layers, **config):
            super().__init__()
            self.config = Config(**config)
            self.layers = nn.ModuleList(layers)
        def forward(self, x, attention_mask=None, **named):
            for layer in self.layers:
                x = layer(x, **named)
            return x

    RAW = []

    def model(*layers, dtype=torch.bfloat16, **config):
        RAW.clear()
        torch.manual_seed(1)
        return Model(layers, **config).to(dtype)

    def x(tokens=5, batch=2, dtype=torch.bfloat16, seed=1):
        return torch.randn(batch, tokens, 32, generator=torch.Generator().manual_seed(seed)).to(dtype)

    def build():
        return model(Apart(0), Apart(1), rope_theta=1e4), [x(), {"x": x(seed=2)}]
"""

PROGRAM = """
    import json, sys
    from pathlib import Path
    import torch
    from safetensors.torch import save_file
    from models import *
    import models
    from narrowgauge.contracts.errors import BadInput
    from narrowgauge.devices.capture_kv import KvCapture

    out, said = Path(sys.argv[1]), {}

    def keep(name, seen, **raw):
        seen.save(out / f"{name}.safetensors")
        save_file({n: torch.cat([p.reshape(-1, p.shape[-1]) for p in parts]).contiguous() for n, parts in raw.items()},
                  out / f"{name}.raw.safetensors")

    def rows(t):
        return t.transpose(1, 2).flatten(2)

    def hooks(m):
        return sum(len(one._forward_hooks) + len(one._forward_pre_hooks) for one in m.modules())

    def refused(make):
        try:
            make()
        except BadInput as error:
            return str(error)
        return "nothing"

    # two calls, a prefill and a step, by the cache; what was cached before is not counted again
    m = model(Apart(0), Apart(1), rope_theta=1e4)
    cache = Cache()
    with KvCapture(m, name="cached") as seen:
        m(x(), past_key_values=cache)
        m(x(1, seed=2), past_key_values=cache)
    said["cached"] = [cache.calls, hooks(m), "update" in vars(cache)]
    keep("cached", seen, k=[rows(r[1]) for r in RAW[::2]], v=[rows(r[2]) for r in RAW[::2]])
    m(x(), past_key_values=cache)
    seen.save(out / "again.safetensors")
    said["again"] = (out / "again.safetensors").read_bytes() == (out / "cached.safetensors").read_bytes()

    # no cache: what the projections give; a cache that takes no attribute counts as none
    class Slots:
        __slots__ = ()
        def update(self, k, v, layer): pass
    m = model(Apart(0), rope_theta=1e4)
    with KvCapture(m) as seen:
        m(x())
        m(x(seed=3), past_key_values=Slots())
    keep("plain", seen, k=[rows(r[0]) for r in RAW], v=[rows(r[2]) for r in RAW])

    # padding, on either side, of one batch; and float32 with what is not finite
    m = model(Apart(0), dtype=torch.float32)
    m.layers[0].v_proj.weight.data[3] *= 1e-42
    m.layers[0].k_proj.bias.data[0] = float("nan")
    m.layers[0].k_proj.bias.data[9] = float("-inf")
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]])
    with KvCapture(m) as seen:
        m(x(dtype=torch.float32), attention_mask=mask, past_key_values=Cache())
        longer = torch.cat([mask, torch.tensor([[1], [0]])], 1)  # of a step: the mask is of all tokens so far
        m(x(1, dtype=torch.float32, seed=4), attention_mask=longer, past_key_values=Cache())
    both = {part: [rows(RAW[0][n])[mask.bool()], rows(RAW[1][n])[0]] for part, n in (("k", 1), ("v", 2))}
    keep("masked", seen, **both)

    # float16, all of Q, K, V in one, 4 heads of Q and 2 of K of 4 columns
    m = model(Fused("qkv_proj", 32), dtype=torch.float16)
    with KvCapture(m) as seen:
        m(x(dtype=torch.float16))
    keep("fused", seen, k=[RAW[0][..., 16:24]], v=[RAW[0][..., 24:]])
    # the same in groups: 2 of Q, K, V
    m = model(Fused("query_key_value", 32), model_type="falcon")
    with KvCapture(m) as seen:
        m(x())
    grouped = RAW[0].reshape(2, 5, 2, 4, 4)
    keep("grouped", seen, k=[grouped[..., 2, :].flatten(2)], v=[grouped[..., 3, :].flatten(2)])
    # latent; the cache is given what no engine holds
    m = model(Latent(), kv_lora_rank=8, rope_theta=1e4)
    with KvCapture(m) as seen:
        m(x(), past_key_values=Cache())
    keep("latent", seen, latent=[RAW[0][0]], rope=[RAW[0][1]])

    # named by hand: two layers in one module, whose cache cannot be told apart
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(32, 16), nn.Linear(32, 24)
        def forward(self, x, past_key_values=None):
            k, v = self.a(x), self.b(x)
            RAW.append((k, v))
            if past_key_values is not None:
                past_key_values.update(k[:, None], v[:, None], 0)
            return x
    m = model(Odd())
    chosen = {"one": {"k": "layers.0.a", "v": "layers.0.a"}, "two": {"qkv": "layers.0.b", "order": "grouped"}}
    with KvCapture(m, modules=chosen, config={"num_attention_heads": 4, "num_key_value_heads": 2}) as seen:
        m(x(), past_key_values=Cache())
    keep("chosen", seen, k=[RAW[0][0]], v=[RAW[0][1].reshape(2, 5, 2, 4, 3)[..., 3, :].flatten(2)])

    # a call that raises leaves nothing behind
    m = model(Apart(0))
    try:
        with KvCapture(m) as seen:
            m(x())
            m(x(), past_key_values="raise")
    except Exception:
        said["raised"] = [hooks(m), seen.tallies["layers.0"]["k"].tokens]

    odd = model(Odd())
    neox = model(Fused("query_key_value", 32))
    said["refused"] = {
        "nothing": refused(lambda: KvCapture(odd)),
        "order": refused(lambda: KvCapture(neox)),
        "heads": refused(lambda: KvCapture(model(Fused("c_attn", 32), num_attention_heads=None))),
        "rank": refused(lambda: KvCapture(model(Latent()))),
        "module": refused(lambda: KvCapture(odd, modules={"one": {"k": "no", "v": "layers.0.b"}})),
        "keys": refused(lambda: KvCapture(odd, modules={"one": {"k": "layers.0.a"}})),
        "word": refused(lambda: KvCapture(odd, modules={"one": {"qkv": "layers.0.a", "order": "mixed"}})),
        "unseen": refused(lambda: KvCapture(model(Apart(0))).save(out / "no.safetensors")),
    }
    m = model(Apart(0), dtype=torch.float32)
    with KvCapture(m) as seen:
        m(x(dtype=torch.float32))
        m.to(torch.bfloat16)
        said["refused"]["mixed"] = refused(lambda: m(x()))
    m = model(Apart(0), num_key_value_heads=3)
    with KvCapture(m) as seen:
        said["refused"]["columns"] = refused(lambda: m(x()))
    print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("kv")
    (made / "models.py").write_text(textwrap.dedent(MODELS))
    return made


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, Any]:
    """What the program said, once it has written its files."""
    (folder / "program.py").write_text(textwrap.dedent(PROGRAM))
    done = subprocess.run(
        [sys.executable, str(folder / "program.py"), str(folder)],
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": ROOT},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def same(got: Histogram, want: Histogram) -> None:
    for name in ("codes", "counts", "amax"):
        assert getattr(got, name).tolist() == getattr(want, name).tolist(), name
    assert (got.nan, got.inf, got.format) == (want.nan, want.inf, want.format)


def raw(folder: Path, name: str, part: str, heads: int) -> Histogram:
    """By our own counting of the tensor that the program kept."""
    held = read(folder / f"{name}.raw.safetensors").tensors[part]
    return histogram_of(Coded(held.format, held.data), heads)


#: file, layer, part, heads, place, rope
SEEN = [
    ("cached", "layers.0", "k", 2, "cache", "after"),
    ("cached", "layers.0", "v", 2, "cache", "none"),
    ("plain", "layers.0", "k", 2, "projection", "before"),
    ("plain", "layers.0", "v", 2, "projection", "none"),
    ("masked", "layers.0", "k", 2, "cache", "none"),
    ("masked", "layers.0", "v", 2, "cache", "none"),
    ("fused", "layers.0", "k", 2, "projection", "none"),
    ("fused", "layers.0", "v", 2, "projection", "none"),
    ("grouped", "layers.0", "k", 2, "projection", "none"),
    ("grouped", "layers.0", "v", 2, "projection", "none"),
    ("latent", "layers.0", "latent", 1, "norm", "none"),
    ("latent", "layers.0", "rope", 1, "projection", "before"),
    ("chosen", "one", "k", 2, "projection", "none"),
    ("chosen", "two", "v", 2, "projection", "none"),
]


@pytest.mark.parametrize(("name", "layer", "part", "heads", "place", "rope"), SEEN)
def test_every_element_is_counted_once(
    name: str, layer: str, part: str, heads: int, place: str, rope: str, folder: Path, told: dict[str, Any]
) -> None:
    found = read_stats(folder / f"{name}.safetensors").layers[layer][part]
    want = raw(folder, name, part, heads)
    same(found, want)
    assert (found.place, found.rope) == (place, rope)
    if name == "masked" and part == "k":
        assert (found.nan, found.inf) == (8, 8)


def test_what_is_said_of_a_file(folder: Path, told: dict[str, Any]) -> None:
    stats = read_stats(folder / "cached.safetensors")
    assert (stats.model, stats.tokens, list(stats.layers)) == ("cached", 12, ["layers.0", "layers.1"])
    assert stats.made_by.keys() >= {"python", "torch"}
    assert read_stats(folder / "masked.safetensors").tokens == 8
    assert read_stats(folder / "plain.safetensors").model == "Model"


def test_nothing_stays_on_model_or_cache(told: dict[str, Any]) -> None:
    assert told["cached"] == [4, 0, False]
    assert told["again"] is True
    assert told["raised"] == [0, 20], "what was seen of a call that raised was seen"


def test_what_is_refused(told: dict[str, Any]) -> None:
    reasons = {
        "nothing": "Model has no projection of keys and values that is known by name (k_proj with v_proj, wk with wv,",
        "order": "query_key_value has K and V of each head side by side in some models and apart in others",
        "heads": "the numbers of heads are not known (0 of Q, 2 of K)",
        "rank": "is MLA, and the width of its latent vector is not known; give config= with kv_lora_rank",
        "module": "modules['one']: the model has no module 'no'",
        "keys": "modules['one'] has k; expected k and v, or qkv and order",
        "word": "order 'mixed'; expected concatenated or grouped",
        "unseen": "nothing was seen",
        "mixed": "2 heads of bfloat16, projection, after 2 heads of float32, projection",
        "columns": "16 columns are no whole number of 3 heads",
    }
    assert told["refused"].keys() == reasons.keys()
    for name, reason in reasons.items():
        assert reason in told["refused"][name], name


def test_the_command_runs_a_module(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two batches of ten tokens; nothing here needs a scale."""
    kept = folder / "kept.safetensors"
    data = as_json(["kv", f"{folder}/models.py:build", "--capture", str(kept)], capsys)
    assert (data["stats"]["tokens"], data["stats"]["layers"]) == (20, 2)
    assert [(p["layer"], p["part"], p["rope"]) for p in data["parts"]] == [
        (f"layers.{n}", part, rope) for n in (0, 1) for part, rope in (("k", "before"), ("v", "none"))
    ]
    assert all(np.isfinite(p["in_use"]["sqnr_db"]).all() for p in data["parts"])
    assert read_stats(kept).tokens == 20
