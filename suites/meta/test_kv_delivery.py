"""Scale delivery: against a second derivation, cases typed from the sources, and the engines' own methods."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.kv.delivery import Delivered, Scale, delivered, followed, loaded
from narrowgauge.reference.kv.flags import FLAGS, flag_named
from narrowgauge.reference.kv.guards import CONDITIONS, METHODS, RULES, WARNINGS
from narrowgauge.suites.meta import second_kv
from narrowgauge.suites.meta.engines.kv_scales import cases
from narrowgauge.suites.meta.engines.loading import folder_of
from narrowgauge.suites.meta.marks import needs_torch

pytestmark = pytest.mark.meta

#: the method without what a layer refuses before it
ALONE = "base, the method alone"
KEYS = {"vllm": ["base", ALONE, "compressed_tensors", "none"], "sglang": ["base", "none"]}
#: the words by which an engine's line is known
WORDS = {
    "Checkpoint does not provide a q scaling factor": "q from k",
    "Using KV cache scaling factor 1.0": "unity",
    "Using uncalibrated q_scale": "uncalibrated",
    "Using FP8 KV cache but no scaling factors": "no file",
}


def ours(engine: str, case: dict[str, Any]) -> Delivered:
    given = {
        name: float(scale) if isinstance(scale, str) else [float(s) for s in scale]
        for name, scale in case["given"].items()
    }
    if case["method"] == ALONE:
        rules = replace(RULES[engine, "base"], refuses=())
        return followed(rules, loaded(given, engine), flag_named(engine, case["flag"]), case["fnuz"])
    return delivered(engine, given, case["flag"], case["fnuz"], case["method"])


def values(scale: Any) -> list[float] | None:
    """A scale's numbers as float32; equal ones as one, however many heads."""
    if scale is None:
        return None
    numbers = [float(np.float32(s)) for s in np.asarray(scale, np.float64).reshape(-1)]
    return numbers[:1] if len(set(map(repr, numbers))) == 1 else numbers


def same(a: Any, b: Any) -> bool:
    return repr(values(a)) == repr(values(b))


# --- against the second derivation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", FLAGS)
def test_every_combination_against_the_second_derivation(engine: str) -> None:
    """Every value of K with every one of V, Q with the probabilities, of every flag, on both platforms."""
    seen = set()
    for case in cases(list(FLAGS[engine]), KEYS[engine]):
        given = {name: np.array(scale, np.float64).astype(np.float32) for name, scale in case["given"].items()}
        used, said, raised = second_kv.outcome(engine, case["method"], given, case["flag"], case["fnuz"])
        got = ours(engine, case)
        assert got.raised.partition(":")[0] == raised, case
        if not raised:
            assert all(map(same, (got.k, got.v, got.q, got.prob), used)), (case, got, used)
            assert list(got.warned) == said, (case, got)
        else:
            assert (got.k, got.v, got.q, got.prob, got.warned) == (None, None, None, None, ())
        seen.add((raised, *said))
    assert len(seen) == {"vllm": 2**3 + 2, "sglang": 3}[engine]


# --- typed from the sources ------------------------------------------------------------------------------------------

Q_NAN = math.nan
HAND: list[tuple[str, dict[str, Any], str, bool, list[Scale], tuple[str, ...]]] = [
    # both there: taken, doubled on FNUZ. Without a scale for Q the log says K's, and 1.0 is used
    ("vllm base", {"k": 0.5, "v": 0.25}, "fp8_e4m3", False, [0.5, 0.25, 1, 1], ("q from k",)),
    ("vllm base", {"k": 0.5, "v": 0.25}, "fp8_e4m3", True, [1, 0.5, 1, 1], ("q from k",)),
    ("vllm base", {"k": 0.5, "v": 0.25, "q": 0.5, "prob": 2}, "fp8_e4m3", True, [1, 0.5, 1, 4], ()),
    # the false alarm, and the one that is not raised
    ("vllm base", {"k": 0.5, "v": 0.5, "q": 4}, "fp8_e4m3", True, [1, 1, 8, 1], ("unity",)),
    ("vllm base", {"k": 1, "v": 1, "q": 4}, "fp8_e4m3", True, [2, 2, 8, 1], ()),
    ("vllm base", {"k": 1, "v": 1, "q": 4}, "fp8_e4m3", False, [1, 1, 4, 1], ("unity",)),
    # nothing there: 1.0, which nobody doubles
    ("vllm base", {}, "fp8_e4m3", True, [1, 1, 1, 1], ("q from k", "unity")),
    ("vllm base", {}, "fp8", False, [1, 1, 1, 1], ("q from k", "unity", "uncalibrated")),
    ("vllm base", {"k": -1, "v": -3, "q": 0}, "fp8_e4m3", False, [1, 1, 1, 1], ("unity",)),
    # one of the pair: K's for both; V's alone ends it. The old kv_scale is K's
    ("vllm base", {"k": 0.5, "q": 1}, "fp8_e4m3", True, [1, 1, 2, 1], ("unity",)),
    ("vllm base", {"k": 0.5, "v": Q_NAN, "q": 1}, "nvfp4", False, [0.5, 0.5, 1, 1], ()),
    ("vllm base", {"kv": 0.37, "q": 1}, "fp8_e4m3", False, [0.37, 0.37, 1, 1], ()),
    ("vllm base", {"v": 0.5}, "fp8_e4m3", False, [], ("AssertionError",)),
    ("vllm base", {"k": 0, "v": 0}, "fp8_e4m3", False, [], ("AssertionError",)),
    ("vllm base", {"k": Q_NAN, "v": 1}, "fp8_e4m3", False, [], ("AssertionError",)),
    ("vllm base", {"k": -1, "v": 0}, "fp8_e4m3", False, [], ("AssertionError",)),
    ("vllm base", {"k": math.inf, "v": 1, "q": 1}, "fp8_e4m3", False, [math.inf, 1, 1, 1], ()),
    # the line on Q and the probabilities is for the flag "fp8" by that spelling
    ("vllm base", {"k": 2, "v": 2, "q": 1, "prob": 2}, "fp8", False, [2, 2, 1, 2], ("uncalibrated",)),
    ("vllm base", {"k": 2, "v": 2, "q": 1, "prob": 2}, "fp8_e4m3", False, [2, 2, 1, 2], ()),
    # no quantized cache, or one that finds its own scales
    ("vllm base", {"k": 0.5, "v": 0.5, "q": 0.5}, "auto", True, [1, 1, 1, 1], ()),
    ("vllm base", {"k": 0, "v": Q_NAN, "q": 3}, "bfloat16", False, [1, 1, 3, 1], ()),
    ("vllm base", {"k": 0, "v": 2, "q": 3, "prob": 3}, "fp8_per_token_head", True, [1, 1, 1, 1], ()),
    # several numbers, and e5m2 with an fp8 checkpoint
    ("vllm base", {"k": [1, 2], "v": 1}, "fp8", False, [], ("ValueError",)),
    ("vllm base", {"k": 1, "v": 1}, "fp8_e5m2", False, [], ("ValueError",)),
    ("vllm none", {}, "fp8_e5m2", False, [1, 1, 1, 1], ()),
    ("vllm none", {"k": 0.5, "v": 0.5}, "fp8", True, [1, 1, 1, 1], ()),
    # compressed-tensors: over ones, as it is
    ("vllm compressed_tensors", {"k": 0.5}, "fp8", True, [0.5, 1, 1, 1], ()),
    ("vllm compressed_tensors", {"k": 0, "v": -1, "q": 3}, "fp8", True, [0, -1, 3, 1], ()),
    ("vllm compressed_tensors", {"k": [1, 2], "v": [3, 4]}, "fp8", True, [(1, 2), (3, 4), 1, 1], ()),
    ("vllm compressed_tensors", {}, "fp8_e5m2", False, [1, 1, 1, 1], ()),
    ("vllm compressed_tensors", {"k": 1}, "fp8_e5m2", False, [], ("ValueError",)),
    # SGLang: 0 counts as none, and the line is said whatever the checkpoint gave, of e4m3 alone
    ("sglang base", {"k": 0, "v": 0}, "fp8_e4m3", True, [1, 1, None, None], ("no file",)),
    ("sglang base", {"k": 0.5, "v": 0.25, "q": 3}, "fp8_e4m3", True, [1, 0.5, None, None], ("no file",)),
    ("sglang base", {}, "fp8_e5m2", False, [1, 1, None, None], ()),
    ("sglang base", {}, "auto", False, [1, 1, None, None], ()),
    ("sglang base", {"k": 0.5}, "fp8_e4m3", True, [1, 1, None, None], ("no file",)),
    ("sglang base", {"v": 0.5}, "fp8_e4m3", False, [], ("AssertionError",)),
    ("sglang base", {"k": Q_NAN, "v": Q_NAN}, "fp8_e4m3", False, [], ("AssertionError",)),
    ("sglang base", {"k": [1, 2], "v": 1}, "fp8_e4m3", False, [], ("AssertionError",)),
    ("sglang none", {"k": 0.5, "v": 0.5}, "fp8_e4m3", False, [1, 1, None, None], ("no file",)),
    # a file's number is not doubled, and not looked at for other flags
    ("sglang json", {"kv": 0.5}, "fp8_e4m3", True, [0.5, 0.5, None, None], ()),
    ("sglang json", {"kv": 0.5}, "fp8_e5m2", False, [1, 1, None, None], ()),
    ("sglang json", {}, "fp8_e4m3", False, [1, 1, None, None], ("file not read",)),
]


@pytest.mark.parametrize("case", HAND, ids=lambda case: f"{case[0]} {case[1]} {case[2]} {case[3]}")
def test_a_case_typed_from_the_source(
    case: tuple[str, dict[str, Any], str, bool, list[Scale], tuple[str, ...]],
) -> None:
    engine, method = case[0].split()
    got = delivered(engine, case[1], case[2], case[3], method)
    if not case[4]:
        assert got.raised.startswith(f"{case[5][0]}: ")
        return
    assert got.raised == ""
    assert all(map(same, (got.k, got.v, got.q, got.prob), case[4])), got
    assert got.warned == case[5]
    assert isinstance(got.k, tuple) == isinstance(case[4][0], tuple)


def test_every_guard_and_every_line_is_followed_by_some_case() -> None:
    """A guard that no case typed here meets could say anything."""
    reached = set()
    for name, given, flag, fnuz, *_ in HAND:
        engine, method = name.split()
        reached.add((name, delivered(engine, given, flag, fnuz, method).why))
    for (engine, method), rules in RULES.items():
        for chain in rules.chains:
            for guard in chain.guards:
                assert not guard.why or any(at == f"{engine} {method}" and guard.why in why for at, why in reached), (
                    engine,
                    method,
                    guard,
                )
    assert {name for case in HAND if case[4] for name in case[5]} == set(WARNINGS)


def test_declarations_hang_together() -> None:
    assert {method for _, method in RULES} == set(METHODS)
    used = {g.when for rules in RULES.values() for g in (*rules.refuses, *(g for c in rules.chains for g in c.guards))}
    used |= {warns.when for rules in RULES.values() for warns in rules.warns}
    assert used == set(CONDITIONS)
    for rules in RULES.values():
        for chain in rules.chains:
            assert all(bool(g.raises) != (len(g.takes) == len(chain.scales)) for g in chain.guards)
            assert chain.guards[-1].when == "always"


def test_an_overflow_of_the_doubling_is_infinite() -> None:
    assert delivered("vllm", {"k": 3e38, "v": 1}, "fp8", True).k == math.inf


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("vlm", {}, "fp8"), "unknown engine 'vlm'; did you mean vllm"),
        (("vllm", {}, "fp8_e4m4"), r"unknown --kv-cache-dtype 'fp8_e4m4' in vllm; did you mean fp8_e4m3"),
        (("vllm", {"kk": 1}, "fp8"), "unknown scale 'kk' in vllm; did you mean"),
        (("vllm", {"k": "half"}, "fp8"), "scale k of vllm: 'half'; expected a number, or one a head"),
        (("vllm", {"k": None}, "fp8"), "scale k of vllm: None; expected a number"),
        (("vllm", {"k": 1j}, "fp8"), "scale k of vllm: 1j; expected a number"),
        (("vllm", {"k": []}, "fp8"), "scale k of vllm has no number; leave it out"),
        (("vllm", {"k": 1, "kv": 1}, "fp8"), "kv and k are both given"),
        (("vllm", {}, "fp8", False, "json"), "unknown way to read scales 'json' in vllm"),
    ],
)
def test_bad_input_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        delivered(*arguments)


# --- against the engines ---------------------------------------------------------------------------------------------


def run(engine: str) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-W", "ignore", "-m", "narrowgauge.suites.meta.engines.kv_scales", engine]
    done = subprocess.run([*command, *FLAGS[engine]], stdout=subprocess.PIPE, text=True, check=True)
    yield from map(json.loads, done.stdout.splitlines())


@needs_torch
@pytest.mark.parametrize("engine", FLAGS)
def test_every_combination_against_the_engine(engine: str) -> None:
    if folder_of(engine) is None:
        pytest.skip(f"{engine} is not in the path: its methods cannot be run")
    count = 0
    for done in run(engine):
        got, count = ours(engine, done), count + 1
        said = [name for line in done["said"] for words, name in WORDS.items() if line.startswith(words)]
        assert len(said) == len(done["said"]), done
        if "raised" in done:
            assert got.raised.startswith(f"{done['raised']}: "), (done, got)
            continue
        assert not got.raised, (done, got)
        used = {name: done["used"].get(name) for name in ("k", "v", "q", "prob")}
        if engine == "sglang":  # None means that nothing is divided
            used |= {name: used[name] or "1" for name in "kv"}
            assert (done["used"]["float"] is None) == (done["method"] != "base")
        assert all(same(getattr(got, name), scale) for name, scale in used.items()), (done, got)
        # the stand-in of the file's reader logs nothing
        assert [name for name in got.warned if name != "file not read"] == said, (done, got)
    assert count > 10_000
