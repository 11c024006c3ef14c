"""Which modules of a torch model make the keys and values that are cached, found by their names.

The names are data: ``PAIRS``, ``FUSED`` and ``LATENT``. A layer is the module around them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from narrowgauge.contracts.errors import BadInput

#: how a fused projection has its parts: all of Q, then all of K, then all of V; or for each head of K its heads of Q,
#: then K, then V
Order = Literal["concatenated", "grouped"]
ORDERS: tuple[Order, ...] = ("concatenated", "grouped")
#: names of projections of K and of V apart
PAIRS = (("k_proj", "v_proj"), ("wk", "wv"))
#: names of projections of Q, K and V in one; "" where the name is used for both orders, and the model's type decides
FUSED: dict[str, Order | Literal[""]] = {
    "qkv_proj": "concatenated",
    "Wqkv": "concatenated",
    "c_attn": "concatenated",
    "query_key_value": "",
}
#: types of models whose query_key_value is grouped
GROUPED = ("gpt_neox", "bloom", "falcon")
#: names of the projection to MLA's latent vector and its positional keys, and of the norm of the latent
LATENT = (("kv_a_proj_with_mqa", "kv_a_layernorm"), ("kv_a_proj", "kv_a_layernorm"))
#: what configurations call the number of heads of Q, of K and V, and the width of MLA's latent vector
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_head_kv")
RANK = ("kv_lora_rank",)

#: a part, its values [.., tokens, heads, d], and where they were seen
Seen = tuple[str, Any, str]
#: from what a module returns to the parts that are in it
Made = Callable[[Any], Iterator[Seen]]


@dataclass
class Layer:
    """Where the keys and values of one layer are made."""

    name: str
    module: Any  #: the module around them
    hooks: list[tuple[Any, Made]] = field(default_factory=list)  #: modules to look at, and what their outputs hold
    #: whether what is handed to a cache inside of ``module`` is what engines cache of this layer: not so for MLA, which
    #: engines cache latent, nor where several layers are in one module
    cached: bool = True


def layers_of(model: Any, modules: Mapping[str, Mapping[str, str]] | None, config: Any) -> list[Layer]:
    """The layers of a model, in its order. Raises ``BadInput`` where there are none, or one cannot be understood."""
    every = dict(model.named_modules())
    if modules is not None:
        chosen = [_chosen(name, said, every, config) for name, said in modules.items()]
        for layer in chosen:
            layer.cached = sum(layer.module is other.module for other in chosen) == 1
        return chosen
    found = [one for name, module in every.items() if (one := _found(name, module, config))]
    if not found:
        known = ", ".join([*(f"{k} with {v}" for k, v in PAIRS), *FUSED, *(name for name, _ in LATENT)])
        raise BadInput(
            f"{type(model).__name__} has no projection of keys and values that is known by name ({known}); name them: "
            "modules={'layer 0': {'k': 'path.of.k', 'v': 'path.of.v'}, ..}"
        )
    return found


def _found(name: str, module: Any, config: Any) -> Layer | None:
    """The layer that a module is, by the names of its children."""
    children = dict(module.named_children())
    called = name or "attention"
    for proj, norm in LATENT:
        if proj in children:
            return _latent(Layer(called, module, cached=False), children[proj], children.get(norm), config)
    for k, v in PAIRS:
        if k in children and v in children:
            return _pair(Layer(called, module), children[k], children[v], config)
    for fused, order in FUSED.items():
        if fused in children:
            return _fused(Layer(called, module), children[fused], order, config, fused)
    return None


def _chosen(name: str, said: Mapping[str, str], every: Mapping[str, Any], config: Any) -> Layer:
    """A layer as somebody named its modules."""
    if set(said) not in ({"k", "v"}, {"qkv"}, {"qkv", "order"}):
        raise BadInput(f"modules[{name!r}] has {', '.join(said)}; expected k and v, or qkv and order")
    for key in ("k", "v", "qkv"):
        if key in said and said[key] not in every:
            raise BadInput(f"modules[{name!r}]: the model has no module {said[key]!r}")
    around = every[next(v for k, v in said.items() if k != "order").rpartition(".")[0]]
    if "k" in said:
        return _pair(Layer(name, around), every[said["k"]], every[said["v"]], config)
    order = said.get("order", "concatenated")
    if order not in ORDERS:
        raise BadInput(f"modules[{name!r}]: order {order!r}; expected {' or '.join(ORDERS)}")
    return _fused(
        Layer(name, around), every[said["qkv"]], "grouped" if order == "grouped" else "concatenated", config, name
    )


# --- what outputs hold -----------------------------------------------------------------------------------------------


def _pair(layer: Layer, k: Any, v: Any, config: Any) -> Layer:
    heads = _number(layer.module, config, KV_HEADS) or _number(layer.module, config, HEADS) or 1

    def of(part: str) -> Made:
        return lambda result: iter([(part, _by_heads(result, heads, f"{layer.name}, {part}"), "projection")])

    layer.hooks += [(k, of("k")), (v, of("v"))]
    return layer


def _fused(layer: Layer, module: Any, order: str, config: Any, called: str) -> Layer:
    if not order:
        if _of(config, "model_type") not in GROUPED:
            raise BadInput(
                f"{layer.name}: {called} has K and V of each head side by side in some models and apart in others, and "
                f"the model's type is none of {', '.join(GROUPED)}; say it: "
                f"modules={{{layer.name!r}: {{'qkv': ..., 'order': 'concatenated' or 'grouped'}}}}"
            )
        order = "grouped"
    heads = _number(layer.module, config, HEADS)
    kv_heads = _number(layer.module, config, KV_HEADS) or heads
    if not heads or not kv_heads or heads % kv_heads:
        raise BadInput(
            f"{layer.name}: {called} holds Q, K and V, and the numbers of heads are not known ({heads} of Q, "
            f"{kv_heads} of K); give config= with {HEADS[0]} and {KV_HEADS[0]}"
        )

    def made(result: Any) -> Iterator[Seen]:
        if order == "grouped":
            x = _by_heads(result, kv_heads, layer.name)
            x = _by_heads(x, heads // kv_heads + 2, layer.name)
            k, v = x[..., -2, :], x[..., -1, :]
        else:
            x = _by_heads(result, heads + 2 * kv_heads, layer.name)
            k, v = x[..., heads : heads + kv_heads, :], x[..., heads + kv_heads :, :]
        yield "k", k, "projection"
        yield "v", v, "projection"

    layer.hooks.append((module, made))
    return layer


def _latent(layer: Layer, proj: Any, norm: Any, config: Any) -> Layer:
    """One latent vector and the positional keys, each one head."""
    rank = _number(layer.module, config, RANK)
    if not rank:
        raise BadInput(
            f"{layer.name} is MLA, and the width of its latent vector is not known; give config= with {RANK[0]}"
        )

    def projected(result: Any) -> Iterator[Seen]:
        x = _tensor(result).unsqueeze(-2)
        if norm is None:
            yield "latent", x[..., :rank], "projection"
        yield "rope", x[..., rank:], "projection"

    layer.hooks.append((proj, projected))
    if norm is not None:
        layer.hooks.append((norm, lambda result: iter([("latent", _tensor(result).unsqueeze(-2), "norm")])))
    return layer


def _tensor(result: Any) -> Any:
    """The tensor that a module returned, alone or first of several."""
    return result[0] if isinstance(result, tuple | list) else result


def _by_heads(result: Any, heads: int, where: str) -> Any:
    x = _tensor(result)
    if x.shape[-1] % heads:
        raise BadInput(
            f"{where}: {x.shape[-1]} columns are no whole number of {heads} heads; give config= with the right ones"
        )
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)


# --- numbers ---------------------------------------------------------------------------------------------------------


def _of(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)


def _number(module: Any, config: Any, names: tuple[str, ...]) -> int:
    """The first of the names that the layer itself, the configuration or its part for text has; 0 where none has."""
    for holder in (module, config, _of(config, "text_config")):
        for name in names:
            value = _of(holder, name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return 0


def turns(model: Any, config: Any) -> bool:
    """Whether a model has rotary position embeddings: by a module's kind, or by its configuration."""
    text = _of(config, "text_config")
    asked = ("rope_theta", "rope_parameters", "rope_scaling", "rotary_emb_base", "rotary_dim")
    if any(_of(holder, name) is not None for holder in (config, text) for name in asked):
        return True
    kinds = {type(module).__name__.lower() for module in model.modules()}
    return any("rotary" in kind or "rope" in kind for kind in kinds)
