"""Guards over the scales of a key-value cache, in each engine's order: data of ``kv.delivery``.

Sources: vLLM 0.33.0 and SGLang 0.5.23, file and lines at each table of guards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
#: what may be given: "kv" is the one old scale of K and V, which engines load as K's
GIVEN = ("k", "v", "kv", "q", "prob")
#: how an engine reads a checkpoint's scales
METHODS = {
    "base": "the checkpoint is quantized: FP8, ModelOpt, Quark; in SGLang compressed-tensors too",
    "compressed_tensors": "compressed-tensors in vLLM",
    "none": "the checkpoint is not quantized, the flag alone asks for a cache of fp8",
    "json": "as none, and a file by --quantization-param-path",
}


@dataclass(frozen=True)
class Facts:
    """What a condition looks at: loaded scales, float32 [] or [heads]; the cache's flag, and what its scales are."""

    k: F32
    v: F32
    q: F32
    prob: F32
    flag: str
    scale: str
    given: bool  #: whether the checkpoint gives any scale


#: NaN makes every comparison false
CONDITIONS: dict[str, Callable[[Facts], Any]] = {
    "always": lambda f: True,
    "k > 0 and v > 0": lambda f: f.k > 0 and f.v > 0,
    "k < 0 and v < 0": lambda f: f.k < 0 and f.v < 0,
    "k <= 0 and v <= 0": lambda f: f.k <= 0 and f.v <= 0,
    "k > 0": lambda f: f.k > 0,
    "q > 0": lambda f: f.q > 0,
    "prob > 0": lambda f: f.prob > 0,
    "q < 0 and the cache is quantized": lambda f: f.q < 0 and f.scale not in ("none", "token and head"),
    "scales are found for each token and head": lambda f: f.scale == "token and head",
    "the cache is not quantized": lambda f: f.scale == "none",
    "the flag is fp8_e5m2": lambda f: f.flag == "fp8_e5m2",
    "the flag is fp8_e5m2, scales are given": lambda f: f.flag == "fp8_e5m2" and f.given,
    "the flag is fp8_e4m3": lambda f: f.flag == "fp8_e4m3",
    "the flag is fp8_e4m3, nothing is given": lambda f: f.flag == "fp8_e4m3" and not f.given,
    "k = 1 and v = 1, quantized, the flag has no e5m2": lambda f: (
        f.k == 1 and f.v == 1 and f.scale not in ("none", "token and head") and "e5m2" not in f.flag
    ),
    "q = 1 or prob = 1, and the flag is fp8": lambda f: f.flag == "fp8" and (f.q == 1 or f.prob == 1),
}


@dataclass(frozen=True)
class Guard:
    """A condition over what was loaded, and what follows: a source for each scale of the chain, or an exception."""

    when: str
    takes: tuple[str, ...] = ()  #: a scale's name, or "one"
    doubled: bool = False  #: on a platform whose fp8 is FNUZ
    raises: str = ""  #: the exception, and its gist
    why: str = ""


@dataclass(frozen=True)
class Chain:
    """Scales that are found together, and the guards of which the first that holds decides."""

    scales: tuple[str, ...]
    guards: tuple[Guard, ...]


@dataclass(frozen=True)
class Warns:
    """A line of the engine's log. ``over`` says whether the condition is over what was loaded or what is used."""

    name: str
    when: str
    over: str  #: "loaded", "used"
    says: str


@dataclass(frozen=True)
class Rules:
    """How an engine goes from a checkpoint's scales to those in use."""

    missing: float  #: what stands for a scale that the checkpoint does not give
    chains: tuple[Chain, ...]
    source: str
    refuses: tuple[Guard, ...] = ()  #: before anything is loaded
    warns: tuple[Warns, ...] = ()
    heads: str = ""  #: what is raised for more than one number; "" where they are kept
    reads: tuple[str, ...] = GIVEN  #: what of the given counts


_ONE = ("one", "one")
_PER_TOKEN = Guard(
    "scales are found for each token and head", _ONE, why="the kernel finds scales itself; those of a checkpoint go"
)
_DUPLICATED = "one of the pair is there: it is used for both"  # the larger one, and V's is not above 0 here
_NO_E5M2 = "ValueError: an fp8 checkpoint and a cache of fp8_e5m2 do not go together"
_VLLM_KV = "vllm/model_executor/layers/quantization/kv_cache.py"
_SGLANG_LOAD = "sglang/srt/model_executor/model_runner_components/load_model_utils.py:119-141"


def _alone(name: str) -> Chain:
    """Q's or the probabilities' scale in vLLM: what is not above 0 becomes 1."""
    first = Guard(_PER_TOKEN.when, ("one",))
    return Chain((name,), (first, Guard(f"{name} > 0", (name,), doubled=True), Guard("always", ("one",))))


_UNITY = Warns(
    "unity", "k = 1 and v = 1, quantized, the flag has no e5m2", "used", "both scales are 1.0: check the checkpoint"
)
_Q_FROM_K = Warns(
    "q from k", "q < 0 and the cache is quantized", "loaded", "no scale for Q: K's is taken (it is not; Q gets 1.0)"
)
_UNCALIBRATED = Warns(
    "uncalibrated",
    "q = 1 or prob = 1, and the flag is fp8",
    "used",
    "Q or the probabilities have no scale of their own",
)
_NO_FILE = Warns(
    "no file", "the flag is fp8_e4m3", "loaded", "no file of scales was given: they are 1.0 (said whatever they are)"
)
_NOT_READ = Warns(
    "file not read",
    "the flag is fp8_e4m3, nothing is given",
    "loaded",
    "the file of scales could not be read: all of them are 1.0",
)
#: every line that an engine can log of this, by name
WARNINGS = {w.name: w.says for w in (_UNITY, _Q_FROM_K, _UNCALIBRATED, _NO_FILE, _NOT_READ)}

_SGLANG_KV = Chain(
    ("k", "v"),
    (
        Guard("k > 0 and v > 0", ("k", "v"), doubled=True),
        Guard("k <= 0 and v <= 0", _ONE, why="no scale above 0: 1.0, and a stored 0 counts as none"),
        Guard("k > 0", ("k", "k"), doubled=True, why=_DUPLICATED),
        Guard("always", raises="AssertionError: K's scale is not above 0 (no message)"),
    ),
)
_UNSET = Guard("always", _ONE, why="the layer's scales are None: nothing is divided and nothing multiplied")

RULES: dict[tuple[str, str], Rules] = {
    ("vllm", "base"): Rules(
        missing=-1.0,
        refuses=(Guard("the flag is fp8_e5m2", raises=_NO_E5M2),),
        chains=(
            Chain(
                ("k", "v"),
                (
                    _PER_TOKEN,
                    Guard("the cache is not quantized", _ONE, why="no scale is used, whatever the checkpoint gives"),
                    Guard("k > 0 and v > 0", ("k", "v"), doubled=True),
                    Guard("k < 0 and v < 0", _ONE, why="neither was loaded: 1.0, which FNUZ does not double"),
                    Guard("k > 0", ("k", "k"), doubled=True, why=_DUPLICATED),
                    Guard("always", raises="AssertionError: K's scale is not above 0 (no message)"),
                ),
            ),
            _alone("q"),
            _alone("prob"),
        ),
        warns=(_Q_FROM_K, _UNITY, _UNCALIBRATED),
        heads="ValueError: a scale of the cache has to be one number",
        source=f"{_VLLM_KV}:32-42,78-213; vllm/model_executor/layers/attention/attention.py:201-220",
    ),
    ("vllm", "compressed_tensors"): Rules(
        missing=1.0,
        # a scheme is taken to be declared where scales are given
        refuses=(Guard("the flag is fp8_e5m2, scales are given", raises=_NO_E5M2),),
        chains=(
            Chain(
                ("k", "v"), (Guard("always", ("k", "v"), why="as loaded: no guard, no doubling, 1.0 where missing"),)
            ),
            Chain(("q",), (Guard("always", ("q",)),)),
            Chain(("prob",), (Guard("always", ("one",)),)),
        ),
        source="vllm/model_executor/layers/quantization/compressed_tensors/compressed_tensors.py:1144-1281",
    ),
    ("vllm", "none"): Rules(
        missing=1.0,
        chains=(
            Chain(("k", "v"), (Guard("always", _ONE, why="no method loads scales: 1.0, and nothing is said"),)),
            Chain(("q",), (Guard("always", ("one",)),)),
            Chain(("prob",), (Guard("always", ("one",)),)),
        ),
        reads=(),
        source="vllm/model_executor/layers/attention/attention.py:133-154,591-607",
    ),
    ("sglang", "base"): Rules(
        missing=-1.0,
        chains=(_SGLANG_KV,),
        warns=(_NO_FILE,),
        heads="AssertionError: the shapes of the scale and of the parameter differ",
        reads=("k", "v", "kv"),
        source=f"sglang/srt/layers/quantization/kv_cache.py:32-83; {_SGLANG_LOAD}",
    ),
    ("sglang", "none"): Rules(
        missing=1.0,
        chains=(Chain(("k", "v"), (_UNSET,)),),
        warns=(_NO_FILE,),
        reads=(),
        source=f"sglang/srt/layers/radix_attention.py:94-107; {_SGLANG_LOAD}",
    ),
    ("sglang", "json"): Rules(
        missing=1.0,
        chains=(
            Chain(
                ("k", "v"),
                (
                    Guard(
                        "the flag is fp8_e4m3, nothing is given",
                        _ONE,
                        why="nothing came out of the file: the layer's scales stay None",
                    ),
                    Guard(
                        "the flag is fp8_e4m3",
                        ("k", "k"),
                        why="the file's number for both, not doubled on FNUZ; k_scale_float, which readers take, "
                        "stays None",
                    ),
                    Guard("always", _ONE, why="the file is looked at for fp8_e4m3 alone"),
                ),
            ),
        ),
        warns=(_NOT_READ,),
        reads=("kv",),
        source=f"{_SGLANG_LOAD}; sglang/srt/models/llama.py:510-528; sglang/srt/model_loader/weight_utils.py:1935-1978",
    ),
}
#: who has rules
ENGINES = tuple(dict.fromkeys(engine for engine, _ in RULES))
