"""What a flag stores: cases typed from the sources, and the engines' own files."""

from __future__ import annotations

import pytest

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.devices.targets import E4Z, E5Z, TARGETS
from narrowgauge.reference.kv.flag import SCALES, WRITERS
from narrowgauge.reference.kv.flags import FLAGS, is_fnuz, possibly_stored, stored
from narrowgauge.reference.kv.footprint import KINDS
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.reference.recipes.dispatch import dispatch
from narrowgauge.suites.meta.engines.kv_flags import PLATFORMS
from narrowgauge.suites.meta.kv_sets import asked
from narrowgauge.suites.meta.marks import needs_torch

pytestmark = pytest.mark.meta

EVERY = [(engine, flag) for engine, flags in FLAGS.items() for flag in flags]
#: typed from vllm/config/cache.py:44-67, and from sglang/srt/arg_groups/fields/model.py:212-221
NAMES = {
    "vllm": "auto float16 bfloat16 fp8 fp8_e4m3 fp8_e5m2 fp8_inc fp8_ds_mla nvfp4_ds_mla turboquant_k8v4 "
    "turboquant_4bit_nc turboquant_k3v4_nc turboquant_3bit_nc octave_k3v4 octave_k3v3 octave_k3v3_compact "
    "ultraquant_4bit int4_per_token_head int8_per_token_head fp8_per_token_head nvfp4 nvfp4_4over6",
    "sglang": "auto fp8_e5m2 fp8_e4m3 mxfp8 bf16 bfloat16 nvfp4 fp4_mx_block16 fp4_e2m1",
}


# --- declarations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", FLAGS)
def test_every_spelling_of_the_engine_is_there(engine: str) -> None:
    assert sorted(FLAGS[engine]) == sorted(NAMES[engine].split())


@pytest.mark.parametrize(("engine", "flag"), EVERY)
def test_a_flag_says_something_everywhere_and_no_row_is_in_vain(engine: str, flag: str) -> None:
    found, met = FLAGS[engine][flag], set()
    assert found.scale in SCALES
    assert found.source
    assert found.kind in KINDS or (not found.kind and (flag.startswith("octave") or flag == "fp4_e2m1"))
    for target in TARGETS:
        for writer in WRITERS:
            one = stored(engine, flag, target, writer)
            met.add((one.format, one.recipe, one.refused, one.source))
            assert one.format in (*FORMATS, "model", "")
            assert one.refused <= (one.format == "")
            assert one.format or one.says, "what is neither stored nor explained"
            if one.recipe:
                assert one.format in [d.format for d in RECIPES[one.recipe].destinations]
        many = possibly_stored(engine, flag, target)
        assert {one.writer for one in many} in ({"any"}, set(WRITERS))
    assert met == {(row.stores, row.recipe, row.refused, row.source) for row in found.rows}


def test_fnuz_is_what_the_hardware_has() -> None:
    """One fact, here and among devices; and no FNUZ code is stored where it is not."""
    assert {t for t in TARGETS if is_fnuz(t)} == {name for name, t in TARGETS.items() if E4Z in t.hardware}
    for engine, flag in EVERY:
        for target in TARGETS:
            formats = {one.format for one in possibly_stored(engine, flag, target)}
            assert E5Z not in formats
            assert not formats & ({"float8_e4m3fn"} if is_fnuz(target) else {E4Z}), (engine, flag, target)


@pytest.mark.parametrize("flag", ["fp8", "fp8_e4m3"])
def test_the_recipe_is_the_calls(flag: str) -> None:
    """``dispatch`` says the same of the native writer."""
    for target in TARGETS:
        one = stored("vllm", flag, target, "native")
        if not one.refused:
            assert one.recipe == dispatch("vllm.reshape_and_cache_flash", arch=target, per="tensor", dtype="bfloat16")


# --- typed from the sources ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "flag", "target", "writer", "want"),
    [
        ("vllm", "fp8", "sm_90", "native", "float8_e4m3fn"),
        ("vllm", "fp8", "sm_90", "triton", "float8_e4m3fn"),
        ("vllm", "fp8", "gfx942", "native", "float8_e4m3fnuz"),
        ("vllm", "fp8", "gfx950", "native", "float8_e4m3fn"),
        ("vllm", "fp8_e4m3", "gfx90a", "triton", "float8_e4m3fn"),
        ("vllm", "fp8_e5m2", "sm_90", "native", "float8_e5m2"),
        # the label says e5m2
        ("vllm", "fp8_e5m2", "sm_90", "triton", "float8_e4m3fn"),
        ("vllm", "fp8_e5m2", "gfx942", "triton", "float8_e4m3fnuz"),
        ("vllm", "fp8_e5m2", "gfx950", "native", "RuntimeError at the first write"),
        # older than sm_89
        ("vllm", "fp8", "sm_80", "triton", "fp8 in the cache needs sm_89"),
        ("vllm", "fp8_e5m2", "sm_86", "triton", "fp8 in the cache needs sm_89"),
        ("vllm", "fp8_e5m2", "sm_80", "native", "float8_e5m2"),
        ("vllm", "fp8", "sm_75", None, "no backend takes it"),
        ("vllm", "fp8_per_token_head", "sm_80", None, "fp8 in the cache needs sm_89"),
        ("vllm", "fp8_per_token_head", "gfx942", None, "float8_e4m3fnuz"),
        ("vllm", "int8_per_token_head", "sm_75", None, "int8"),
        ("vllm", "fp8_inc", "sm_90", None, "Gaudi's"),
        ("vllm", "fp8_ds_mla", "sm_120", None, "float8_e4m3fn"),
        ("vllm", "fp8_ds_mla", "gfx942", None, "no backend of DeepSeek-V3.2"),
        ("vllm", "nvfp4_ds_mla", "sm_90", None, "on sm_10x alone"),
        ("vllm", "nvfp4", "sm_100", None, "float4_e2m1fn"),
        ("vllm", "nvfp4", "gfx950", None, "FLASHINFER alone takes it"),
        ("vllm", "nvfp4_4over6", "sm_120", None, "the other writer has no search"),
        ("vllm", "octave_k3v4", "sm_90", None, "no backend takes it on CUDA"),
        ("vllm", "bfloat16", "sm_75", "triton", "needs sm_80"),
        # both fp8 flags of SGLang on HIP are the platform's e4m3
        ("sglang", "fp8_e5m2", "gfx942", None, "float8_e4m3fnuz"),
        ("sglang", "fp8_e4m3", "gfx942", None, "float8_e4m3fnuz"),
        ("sglang", "fp8_e5m2", "gfx950", None, "float8_e4m3fn"),
        ("sglang", "fp8_e5m2", "sm_80", None, "float8_e5m2"),
        ("sglang", "mxfp8", "sm_90", None, "mxfp8 needs sm_100 or later"),
        ("sglang", "mxfp8", "gfx950", None, "mxfp8 needs sm_100 or later"),
        ("sglang", "mxfp8", "sm_120", None, "float8_e4m3fn"),
        ("sglang", "nvfp4", "sm_90", None, "nvfp4 needs sm_100 or sm_120"),
        ("sglang", "nvfp4", "gfx950", None, "FP4 in the cache is for CUDA"),
        ("sglang", "fp4_mx_block16", "sm_90", None, "float4_e2m1fn"),
        ("sglang", "fp4_e2m1", "sm_100", None, "say nvfp4 or fp4_mx_block16"),
    ],
)
def test_a_row_typed_from_the_source(engine: str, flag: str, target: str, writer: str | None, want: str) -> None:
    one = stored(engine, flag, target, writer)
    assert one.refused == (want not in FORMATS)
    assert want in (one.says if one.refused else one.format)
    assert one.writer == (writer or "any")


def test_what_nobody_would_expect_is_said() -> None:
    assert "nothing is said" in stored("sglang", "fp8_e5m2", "gfx950").says
    assert "nothing is said" not in stored("sglang", "fp8_e4m3", "gfx950").says
    assert all("nobody divided" in stored("sglang", flag, "sm_90").says for flag in ("auto", "bf16", "bfloat16"))
    assert "multiplied by 6" in stored("sglang", "nvfp4", "sm_103").says
    assert "multiplied by 6" not in stored("sglang", "nvfp4", "sm_120").says
    assert "ROCM_ATTN reads it as float8_e5m2" in stored("vllm", "fp8_e5m2", "gfx950", "triton").says


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("vlm", "fp8", "sm_90"), "unknown engine 'vlm'; did you mean vllm"),
        (("sglang", "fp8", "sm_90"), "unknown --kv-cache-dtype 'fp8' in sglang; did you mean mxfp8"),
        (("vllm", "fp8", "h100"), "target 'h100'; expected an architecture as sm_90 or gfx942"),
        (("vllm", "fp8", "sm_90", "cuda"), "unknown writer 'cuda'; known: native, triton"),
        (
            ("vllm", "fp8_e5m2", "sm_90"),
            "depends on the writer .native: float8_e5m2; triton: float8_e4m3fn.; say which",
        ),
        (("vllm", "fp8", "sm_80"), "native: float8_e4m3fn; triton: refused"),
    ],
)
def test_bad_input_is_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        stored(*arguments)


# --- against the engines ---------------------------------------------------------------------------------------------

#: what a flag's scales are, by the quantization mode that vLLM itself finds
MODES = {
    "NONE": "none",
    "FP8_PER_TENSOR": "tensor",
    "INT4_PER_TOKEN_HEAD": "token and head",
    "INT8_PER_TOKEN_HEAD": "token and head",
    "FP8_PER_TOKEN_HEAD": "token and head",
    "NVFP4": "block and tensor",
}


@needs_torch
def test_vllm_has_these_flags_modes_and_storages() -> None:
    said = asked("vllm")
    assert set(said["modes"]) == set(FLAGS["vllm"])
    for name, mode in said["modes"].items():
        if name != "fp8_ds_mla":  # it passes for one scale a tensor; its kernel finds scales in every row
            assert FLAGS["vllm"][name].scale == MODES.get(mode, "own"), name
    assert said["storage"] == {name: f.storage for name, f in FLAGS["vllm"].items() if name != "auto"}


@needs_torch
def test_vllms_triton_writer_stores_this() -> None:
    for flag, by in asked("vllm")["stored"].items():
        assert set(by) == set(PLATFORMS)
        for target, format_name in by.items():
            assert stored("vllm", flag, target, "triton").format == format_name, (flag, target)


@needs_torch
def test_sglang_has_these_flags_and_dtypes() -> None:
    """What is refused here and not there is refused by other files: kv_cache_hook.py."""
    said = asked("sglang")
    assert {*said["choices"], "fp4_e2m1"} == set(FLAGS["sglang"])
    spelled = {"float4_e2m1fn_x2": "float4_e2m1fn", "float16": "model"}
    for flag, by in said["stored"].items():
        for target, dtype in by.items():
            one = stored("sglang", flag, target)
            if not (one.refused and dtype):
                assert one.format == spelled.get(dtype, dtype), (flag, target)
