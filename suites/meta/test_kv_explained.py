"""``explain kv.ENGINE``, and the page on engines' caches."""

from __future__ import annotations

import doctest
import re

import pytest

from narrowgauge.command.caches import CACHES, FACTS
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.judge import check_claim
from narrowgauge.reference.kv.caches import CACHES as KEPT
from narrowgauge.reference.kv.flag import SCALES, WRITERS
from narrowgauge.reference.kv.flags import FLAGS
from narrowgauge.reference.kv.guards import GIVEN, METHODS, RULES, WARNINGS
from narrowgauge.suites.meta import kv_pages
from narrowgauge.suites.meta.command_sets import as_json, refused, said

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]
needs_docs = pytest.mark.skipif(not kv_pages.PAGE.path.exists(), reason="the package is installed without docs/")


@pytest.mark.parametrize("name", CACHES)
def test_an_engines_flags(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    engine = name.removeprefix("kv.")
    text, data = said(["explain", name], capsys), as_json(["explain", name], capsys)
    assert [row["flag"] for row in data["flags"]] == list(FLAGS[engine])
    assert all(flag in text for flag in FLAGS[engine])
    assert [row["bytes"] for row in data["flags"] if row["flag"] == "bfloat16"] == [2 * 2 * 8 * 128]


def test_a_flag_row_by_row(capsys: pytest.CaptureFixture[str]) -> None:
    what = ["explain", "kv.vllm flag=fp8_e5m2"]
    text, data = said(what, capsys), as_json(what, capsys)
    assert len(data["rows"]) == len(FLAGS["vllm"]["fp8_e5m2"].rows)
    assert "sm_89 sm_9? sm_1?? triton float8_e4m3fn vllm.kv_fp8_tensor_triton" in text
    assert "gfx* native refused RuntimeError at the first write" in text
    assert "besides: refused with an fp8 checkpoint" in text


def test_a_flag_on_a_target_with_scales(capsys: pytest.CaptureFixture[str]) -> None:
    """What is stored by each writer, the scales by each way to read a checkpoint, and the bytes."""
    what = "kv.vllm flag=fp8_e4m3 target=gfx942 k=0.5 v=0.5 layers=32"
    text, data = said(["explain", what], capsys), as_json(["explain", what], capsys)
    assert [one["format"] for one in data["stored"]] == ["float8_e4m3fnuz"] * 2
    assert {one["writer"] for one in data["stored"]} == set(WRITERS)
    assert {m: (one["k"], one["v"]) for m, one in data["scales"].items()} == {
        "base": (1, 1), "compressed_tensors": (0.5, 0.5), "none": (1, 1),
    }  # fmt: skip
    assert data["scales"]["base"]["warned"] == ["q from k", "unity"]
    assert data["bytes"] == 64 * 1024
    assert "bytes: 65,536 a token, scales counted (layers=32 heads=8 head_size=128)" in text
    assert f"base 1 1 1 logs: {WARNINGS['q from k']}; logs: {WARNINGS['unity']}" in text
    assert "stored (writer: triton): float8_e4m3fnuz" in text


def test_one_writer_one_method_and_missing_scales(capsys: pytest.CaptureFixture[str]) -> None:
    what = "kv.vllm flag=fp8_e5m2 target=gfx950 writer=triton method=base k=missing"
    data = as_json(["explain", what], capsys)
    assert [one["format"] for one in data["stored"]] == ["float8_e4m3fn"]
    assert data["scales"]["base"]["raised"].startswith("ValueError")
    assert "base ends ends ends ValueError" in said(["explain", what], capsys)
    heads = as_json(["explain", "kv.vllm flag=fp8 target=sm_90 method=compressed_tensors k=1,2 v=nan"], capsys)
    assert (heads["scales"]["compressed_tensors"]["k"], heads["scales"]["compressed_tensors"]["v"]) == ([1, 2], "nan")
    latent = as_json(["explain", "kv.vllm flag=fp8_ds_mla target=sm_90"], capsys)
    assert (latent["bytes"], latent["sizes"]["head_size_v"]) == (656, 64)
    assert "Q base 1 1 none no scale" in said(["explain", "kv.sglang flag=fp8_e4m3 target=sm_90 k=0 v=0"], capsys)
    octave = "kv.vllm flag=octave_k3v4 target=gfx942"
    assert as_json(["explain", octave], capsys)["bytes"] is None
    assert "bytes: not described" in said(["explain", octave], capsys)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("kv.vllm flag=fp8_e4 target=sm_90", "unknown --kv-cache-dtype 'fp8_e4' in vllm; did you mean fp8_e4m3"),
        ("kv.vllm flag=fp8 target=gfx943", "unknown target 'gfx943'; did you mean gfx94"),
        ("kv.vllm flag=fp8 target=sm_90 kk=1", "unknown fact of a cache 'kk' in kv.vllm; did you mean"),
        ("kv.vllm fp8", f"'fp8'; expected NAME=VALUE, where NAME is one of {', '.join(FACTS)}"),
        ("kv.vllm target=sm_90", "target without flag=; known: auto, float16"),
        ("kv.vllm flag=fp8 k=1", "the rest depends on target=, which is not said"),
        ("kv.vllm flag=fp8 target=sm_90 k=half", "k=half; expected a number, several by commas, or missing"),
        ("kv.vllm flag=fp8 target=sm_90 heads=-8", "heads=-8; expected a whole number"),
        ("kv.vllm flag=nvfp4 target=sm_100 head_size=24", "in blocks of 16; expected whole bytes and whole blocks"),
        ("kv.vllm flag=fp8 target=sm_90 method=json", "unknown way to read scales 'json' in vllm"),
        ("kv.vllm flag=fp8 target=sm_90 writer=cuda", "unknown writer 'cuda'"),
        ("kv.vlm", "did you mean kv.vllm"),
    ],
)
def test_bad_input_is_refused(what: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(["explain", what], capsys)


def test_facts_are_what_the_reference_takes() -> None:
    assert set(GIVEN) < set(FACTS)


@needs_docs
def test_the_page_is_what_the_declarations_say() -> None:
    head, below = kv_pages.PAGE.parts()
    joined = " ".join(head.split())
    assert [word for word in (*SCALES, *WRITERS, *WARNINGS) if word not in joined] == []
    assert all(f"### {engine}, {method}: {METHODS[method]}" in below for engine, method in RULES)


@needs_docs
def test_what_the_page_computes() -> None:
    found = doctest.testfile(str(kv_pages.PAGE.path), module_relative=False)
    assert found.attempted > 6
    assert found.failed == 0


@pytest.mark.parametrize("name", KEPT)
def test_a_cache_of_the_catalogue(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Parts, buffers with axes, padding, and claims that can be claimed."""
    text, data = said(["explain", name], capsys), as_json(["explain", name], capsys)
    cache = KEPT[name]
    assert (data.get("cache") or data)["buffers"][0]["name"] == cache.buffers[0].name
    assert all(f"{buffer.name} " in text for buffer in cache.buffers)
    for claim in re.findall(r"(?:kv_write|kv_read|attend)/[^ ,]+", text):
        check_claim(Claim.parse(claim))
    attended = {"v", "latent"} & {part.name for part in cache.parts} and "hadamard" not in {
        p.first for p in cache.parts
    }
    assert (f"attend/{name}/" in text) == bool(attended)
    assert ("slot 0" if cache.slots.startswith("zero") else "any negative slot") in text
