"""Names that engines load, drop or end at: cases typed from their sources, and their own functions and loaders."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from narrowgauge.checkpoints.engines import fused, remaps
from narrowgauge.checkpoints.engines.caches import LOADERS, WAYS
from narrowgauge.checkpoints.engines.loaders import SCALES, fate
from narrowgauge.suites.meta.engines.loading import folder_of
from narrowgauge.suites.meta.marks import needs_torch

pytestmark = pytest.mark.meta

LAYER = "model.layers.0."
#: what stands behind the attention module: every spelling, of K and V, of queries, and what nobody should write
ENDS = (
    *(f".{s}_proj.{s}_scale" for s in "kv"), *(f".{s}_proj.output_scale" for s in "qkv"),
    *(f".qkv_proj.{s}_scale" for s in "kv"), *(f".qkqkv_proj.{s}_scale" for s in "kv"),
    *(f".{s}_cache.scale" for s in "kv"), *(f".attn.{s}_scale" for s in "kvq"), *(f".{s}_scale" for s in "kvq"),
    ".kv_cache_scaling_factor", ".kv_scale", ".q.scale", ".prob_output_scale", ".q_proj.q_scale", ".k_proj.v_scale",
    ".v_proj.k_scale", ".k_zero_point", ".mixer.k_proj.k_scale",
)  # fmt: skip

#: given to models that have a scale under the shorter name alone
BLOCKS = ".k_proj.weight_scale_inv"

# --- typed from the sources ------------------------------------------------------------------------------------------

K, V, Q, P = (f"attn.{s}_scale" for s in ("k", "v", "q", "prob"))
#: engine, architecture, method, end of the name, what becomes of it, and where it goes behind the attention module
HAND: tuple[tuple[str, str, str, str, str, str], ...] = (
    # vLLM's mapper renames whatever stands before; the letter behind the last dot decides between K and V
    ("vllm", "LlamaForCausalLM", "modelopt", ".k_proj.k_scale", "loaded", K),
    ("vllm", "LlamaForCausalLM", "modelopt", ".k_proj.v_scale", "loaded", V),
    ("vllm", "LlamaForCausalLM", "compressed-tensors", ".v_scale", "loaded", V),
    ("vllm", "LlamaForCausalLM", "fp8", ".kv_scale", "loaded", K),
    ("vllm", "LlamaForCausalLM", "fp8", ".k_cache.scale", "loaded", K),
    ("vllm", "LlamaForCausalLM", "fp8", ".q.scale", "loaded", Q),
    ("vllm", "LlamaForCausalLM", "fp8", ".attn.k_scale", "loaded", K),
    # Quark's names are known to fp8 and quark alone
    ("vllm", "LlamaForCausalLM", "quark", ".q_proj.output_scale", "loaded", Q),
    ("vllm", "LlamaForCausalLM", "quark", ".prob_output_scale", "loaded", P),
    ("vllm", "LlamaForCausalLM", "modelopt", ".k_proj.output_scale", "ends", ""),
    ("vllm", "LlamaForCausalLM", "fp8", ".kv_cache_scaling_factor", "ends", ""),
    ("vllm", "LlamaForCausalLM", "fp8", ".q_proj.q_scale", "ends", ""),
    ("vllm", "LlamaForCausalLM", "fp8", ".k_zero_point", "silent", ""),
    # a model that fuses in the same pass: the end is another before it is looked at
    ("vllm", "Gemma2ForCausalLM", "quark", ".k_proj.output_scale", "ends", ""),
    ("vllm", "Gemma2ForCausalLM", "modelopt", ".k_proj.k_scale", "loaded", K),
    ("vllm", "NemotronHForCausalLM", "modelopt", ".k_proj.k_scale", "loaded", K),
    # latent attention: renamed once by the mapper, and again by the function
    ("vllm", "DeepseekV3ForCausalLM", "modelopt", ".k_proj.k_scale", "said", ""),
    ("vllm", "DeepseekV3ForCausalLM", "modelopt", ".k_scale", "said", ""),
    ("vllm", "DeepseekV3ForCausalLM", "modelopt", ".attn.k_scale", "said", ""),
    # SGLang's function
    ("sglang", "LlamaForCausalLM", "modelopt", ".k_proj.k_scale", "loaded", K),
    ("sglang", "LlamaForCausalLM", "modelopt", ".v_proj.output_scale", "loaded", V),
    ("sglang", "LlamaForCausalLM", "modelopt", ".v_scale", "loaded", V),
    ("sglang", "LlamaForCausalLM", "modelopt", ".kv_scale", "loaded", K),
    ("sglang", "LlamaForCausalLM", "modelopt", ".k_proj.v_scale", "said", ""),
    ("sglang", "LlamaForCausalLM", "modelopt", ".attn.k_scale", "said", ""),
    ("sglang", "LlamaForCausalLM", "modelopt", ".qkv_proj.k_scale", "said", ""),
    ("sglang", "LlamaForCausalLM", "modelopt", ".q_scale", "said", ""),
    ("sglang", "Gemma3ForCausalLM", "modelopt", ".k_cache.scale", "ends", ""),
    # fused before it is renamed
    ("sglang", "Gemma2ForCausalLM", "modelopt", ".k_proj.k_scale", "ends", ""),
    ("sglang", "Gemma2ForCausalLM", "modelopt", ".k_scale", "loaded", K),
    ("sglang", "Gemma2ForCausalLM", "modelopt", ".qkv_proj.k_scale", "ends", ""),  # v_proj is found within it
    # never renamed
    ("sglang", "Qwen3MoeForCausalLM", "modelopt", ".k_proj.k_scale", "silent", ""),
    ("sglang", "Qwen3MoeForCausalLM", "modelopt", ".k_scale", "silent", ""),
    ("sglang", "Qwen2ForCausalLM", "modelopt", ".k_scale", "said", ""),
    ("sglang", "MixtralForCausalLM", "fp8", ".kv_scale", "silent", ""),
    ("sglang", "MixtralForCausalLM", "fp8", ".k_proj.k_scale", "ends", ""),
    ("sglang", "Qwen3VLMoeForConditionalGeneration", "modelopt", ".k_scale", "silent", ""),
    # renamed by the model itself, which takes the module out
    ("sglang", "Qwen3NextForCausalLM", "modelopt", ".k_proj.k_scale", "loaded", K),
    ("sglang", "Qwen3NextForCausalLM", "compressed-tensors", ".k_scale", "ends", ""),
    ("sglang", "Qwen3_5ForConditionalGeneration", "compressed-tensors", ".k_scale", "loaded", K),
    ("sglang", "MiniMaxM2ForCausalLM", "modelopt", ".k_proj.k_scale", "loaded", K),
    ("sglang", "MiniMaxM2ForCausalLM", "quark", ".k_proj.output_scale", "silent", ""),
    ("sglang", "DeepseekV3ForCausalLM", "modelopt", ".v_proj.v_scale", "loaded", "attn_mqa.v_scale"),
    ("sglang", "DeepseekV3ForCausalLM", "compressed-tensors", ".v_scale", "said", ""),
)  # fmt: skip


def ours(engine: str, architecture: str, method: str, end: str, bare: bool = False) -> tuple[str, str]:
    loader = LOADERS[engine][architecture]
    name = f"{LAYER}{loader.module}{end}"
    parameters = loader.parameters(engine, LAYER)
    parameters = parameters[-1:] if bare else parameters
    found = fate(engine, WAYS[engine][loader.way], name, parameters, method, f"{LAYER}{loader.attention}")
    return found.outcome, found.name


@pytest.mark.parametrize("case", HAND, ids=lambda c: f"{c[0]} {c[1]} {c[2]} {c[3]}")
def test_a_name_typed_from_the_source(case: tuple[str, ...]) -> None:
    outcome, name = ours(case[0], case[1], case[2], case[3])
    assert outcome == case[4], name
    if case[5]:
        above = {"Qwen3NextForCausalLM": "", "Qwen3_5ForConditionalGeneration": "", "NemotronHForCausalLM": "mixer."}
        assert name == f"{LAYER}{above.get(case[1], 'self_attn.')}{case[5]}"


#: engine, name, and the new name, of a model with K's and V's scales below "a.self_attn.attn"; None where it is dropped
FUNCTION: tuple[tuple[str, str, str | None], ...] = (
    ("vllm", "a.self_attn.k_proj.k_scale", "a.self_attn.attn.k_scale"),
    ("vllm", "a.self_attn.k_proj.v_scale", "a.self_attn.attn.v_scale"),
    ("vllm", "a.self_attn.q_proj.q_scale", None),
    ("vllm", "a.self_attn.attn.k_scale", "a.self_attn.attn.k_scale"),
    ("vllm", "b.self_attn.attn.k_scale", None),
    ("vllm", "a.self_attn.kv_scale", "a.self_attn.attn.k_scale"),
    ("vllm", "a.self_attn.v_cache.scale", "a.self_attn.attn.v_scale"),
    ("vllm", "a.v_cache.scale", "a.v_cache.scale"),
    ("vllm", "a.self_attn.k_proj.output_scale", "a.self_attn.k_proj.output_scale"),
    ("vllm", "a.self_attn.k_proj.weight_scale", "a.self_attn.k_proj.weight_scale"),
    ("sglang", "a.self_attn.k_proj.k_scale", "a.self_attn.attn.k_scale"),
    ("sglang", "a.self_attn.attn.k_scale", None),
    ("sglang", "a.self_attn.k_proj.v_scale", None),
    ("sglang", "a.self_attn.kv_scale", "a.self_attn.attn.k_scale"),
    ("sglang", "a.self_attn.k_proj.output_scale", "a.self_attn.attn.k_scale"),
    ("sglang", "b.self_attn.k_proj.output_scale", "b.self_attn.attn.k_scale"),
    ("sglang", "a.self_attn.prob_output_scale", "a..attn.prob_scale"),
    ("sglang", "a.self_attn.k_cache.scale", "a.self_attn.k_cache.scale"),
)


@pytest.mark.parametrize("case", FUNCTION, ids=lambda c: f"{c[0]} {c[1]}")
def test_a_function_typed_from_the_source(case: tuple[str, str, str | None]) -> None:
    parameters = [f"a.self_attn.attn.{s}_scale" for s in "kv"]
    assert {"vllm": remaps.vllm, "sglang": remaps.sglang}[case[0]](case[1], parameters).name == case[2]


def test_an_attention_without_parameters_passes_scales_over() -> None:
    """AWQ and GPTQ in vLLM: no method of the cache, and the module is there."""
    assert ours("vllm", "LlamaForCausalLM", "awq", ".k_scale", bare=True)[0] == "silent"
    assert (
        ours("vllm", "Qwen3ForCausalLM", "awq", ".k_scale", bare=True)[0]
        == ours("vllm", "Qwen3ForCausalLM", "awq", ".k_zero_point")[0]
    )


def test_latent_attention_has_patterns_of_its_own() -> None:
    latent = [f"a.self_attn.mla_attn.mla_attn.{s}_scale" for s in "kv"]
    assert remaps.vllm("a.self_attn.k_proj.k_scale", latent).name == latent[0]
    assert remaps.vllm("a.self_attn.k_scale", latent).name is None


def test_declarations_hang_together() -> None:
    for engine, loaders in LOADERS.items():
        assert {loader.way for loader in loaders.values()} <= set(WAYS[engine])
        assert set(WAYS[engine]) == {loader.way for loader in loaders.values()}, "no way without a model"
        for loader in loaders.values():
            assert len(loader.parameters(engine, LAYER)) == len(SCALES[engine]) + 1


# --- against the engines ---------------------------------------------------------------------------------------------


def _run(engine: str, module: str, asked: Any) -> list[dict[str, Any]]:
    if folder_of(engine) is None:
        pytest.skip(f"{engine} is not in the path: its loaders cannot be run")
    command = [sys.executable, "-W", "ignore", "-m", f"narrowgauge.suites.meta.engines.{module}", engine]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        command, input=json.dumps(asked), stdout=subprocess.PIPE, text=True, check=True, env=environment
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@cache
def _answers(engine: str) -> dict[str, dict[str, Any]]:
    models = [(each.architecture, each.attention, each.module) for each in LOADERS[engine].values()]
    asked = {"models": models, "ends": [*ENDS, BLOCKS], "functions": []}
    return {answer["architecture"]: answer for answer in _run(engine, "load_names", asked)}


@needs_torch
@pytest.mark.parametrize("engine", LOADERS)
def test_every_model_against_the_engines_own_loader(engine: str) -> None:
    """Each spelling is given to the model's own ``load_weights``, which says where it stands, too."""
    answers = _answers(engine)
    assert set(answers) == set(LOADERS[engine])
    for architecture, answer in answers.items():
        assert "failed" not in answer, answer
        assert f"{engine}/{answer['where']}" == LOADERS[engine][architecture].source
        for method in ("fp8", "modelopt") if engine == "vllm" else ("any",):
            for bare in (False, True):
                for end in ENDS:
                    outcome, name = answer[f"{method}{', bare' * bare}"][end]
                    got = ours(engine, architecture, method, end, bare)
                    assert got[0] == outcome, (architecture, method, bare, end, got, name)
                    assert outcome != "loaded" or got[1] == name, (architecture, method, bare, end)


@needs_torch
@pytest.mark.parametrize("engine", LOADERS)
def test_who_renames_scales_of_blocks(engine: str) -> None:
    """SGLang's Llama and those that load as it: there a method with weight_scale_inv never gets its scales."""
    short = {
        architecture
        for architecture, answer in _answers(engine).items()
        for outcome in (answer["any" if engine == "sglang" else "fp8"][BLOCKS],)
        if outcome[0] == "loaded" and outcome[1].endswith("qkv_proj.weight_scale")
    }
    assert short == {name for name, each in LOADERS[engine].items() if each.source.startswith(fused.LLAMA)}


@needs_torch
@pytest.mark.parametrize("engine", LOADERS)
def test_the_functions_against_the_engines_own(engine: str) -> None:
    """Some thousand names, put together of all parts of names, against models with and without latent attention."""
    drawn = random.Random(7)
    parts = ("self_attn", "mixer", "attn", "mla_attn", "k_proj", "v_proj", "q_proj", "qkv_proj", "qkqkv_proj", "q",
             "k_cache", "v_cache", "mlp", "layers", "0")  # fmt: skip
    ends = ("k_scale", "v_scale", "q_scale", "kv_scale", "output_scale", "prob_output_scale", "scale", "k_zero_point",
            "q_zero_point", "weight_scale", "weight", "self_attn.prob_output_scale")  # fmt: skip
    names = [".".join([*drawn.choices(parts, k=drawn.randint(1, 4)), drawn.choice(ends)]) for _ in range(6000)]
    models = [
        [name for name in names if drawn.random() < 0.05],
        [
            f"{p}{a}.{s}_scale"
            for p in ("self_attn.", "mixer.", "0.", "")
            for a in ("attn", "k_proj.attn")
            for s in "kvq"
        ],
        [f"{p}self_attn.mla_attn.mla_attn.{s}_scale" for p in ("", "0.", "layers.0.") for s in "kv"],
    ]
    for parameters in models:
        asked = {"models": [], "ends": [], "functions": names, "parameters": parameters}
        (answer,) = _run(engine, "load_names", asked)
        function = {"vllm": remaps.vllm, "sglang": remaps.sglang}[engine]
        got = [function(name, set(parameters)).name if engine == "sglang" else function(name, parameters).name
               for name in names]  # fmt: skip
        assert got == answer["functions"]
        if engine == "vllm":
            for method, stacks in (("fp8", False), ("modelopt", False)):
                assert [remaps.mapped(name, method, stacks) for name in names] == answer["mapped"][method]
