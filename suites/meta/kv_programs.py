"""Small torch models, and a program that captures them, as texts: torch is imported in a process of theirs."""

from __future__ import annotations

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
