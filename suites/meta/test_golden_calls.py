"""Golden calls on caches: right by plain loops over tokens, whole, and judged by."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim
from narrowgauge.golden.calls import CALLS as CHOSEN
from narrowgauge.golden.families import Family, family_of
from narrowgauge.golden.manifest import VECTORS, load, load_manifest, metadata_for, stored_case
from narrowgauge.golden.safetensors_file import write
from narrowgauge.golden.using import as_case
from narrowgauge.reference.around.hadamard import vllm_signs
from narrowgauge.reference.judge import judge
from narrowgauge.reference.kv.caches import CACHES
from narrowgauge.suites.meta import second_kv_calls
from narrowgauge.suites.meta.golden_sets import CALLS, FAMILIES, stored
from narrowgauge.suites.meta.second_catalogue import differ
from narrowgauge.suites.meta.second_kv_places import Cut
from narrowgauge.suites.meta.test_golden_damage import change_manifest

pytestmark = pytest.mark.meta
WRITES = [f for f in CALLS if f.operation == "kv_write"]
READS = [f for f in CALLS if f.operation == "kv_read"]
SIGNS = [int(sign) for sign in vllm_signs(256)]
each_write = pytest.mark.parametrize("family", WRITES, ids=lambda f: f.name)
each_read = pytest.mark.parametrize("family", READS, ids=lambda f: f.name)


def arguments(family: Family) -> tuple[Claim, dict[str, npt.NDArray[Any]], Cut]:
    """The stored tensors by the names of a kernel's parameters, without what is expected; and the call's sizes."""
    (claim,) = family.claims
    prefix = f"{claim.source}."
    given = {name.removeprefix(prefix).removesuffix(".before"): t.codes for name, t in stored(family).items()}
    heads, block, slots, columns, *_ = given["extent"].view(np.int32).tolist()
    if family.operation == "kv_read":
        given[CACHES[family.rule].buffers[0].name] = given.pop("x")
    return claim, given, Cut(block, heads, columns // heads, slots // block)


# --- what they say ---------------------------------------------------------------------------------------------------


@each_write
def test_every_cache_after_a_write_agrees_with_plain_loops(family: Family) -> None:
    """Byte by byte, slots of nobody too."""
    claim, given, cut = arguments(family)
    left = second_kv_calls.write(family.rule, claim.source, claim.format, given, cut, SIGNS)
    changed = 0
    for name, content in left.bytes.items():
        want = np.frombuffer(content, np.uint8)
        got = given[f"{name}.after"].reshape(-1).view(np.uint8)
        before = given[name].reshape(-1).view(np.uint8)
        np.testing.assert_array_equal(got, want, err_msg=name)
        changed += int(np.count_nonzero(before != got))
    assert changed > 100


@each_read
def test_every_value_that_is_read_agrees_with_plain_loops(family: Family) -> None:
    claim, given, cut = arguments(family)
    found = second_kv_calls.read(family.rule, claim.source, claim.format, given, cut, SIGNS)
    for part, rows in found.items():
        assert sorted(rows) == list(range(given["seq_lens"].sum()))
        want = np.array([rows[number] for number in sorted(rows)])
        assert not differ(given[part].astype(np.int64), want, claim.format).any(), part


#: recipes without vectors: as a stored one but for whose scale it is, where x is rounded, or a last bit
VARIANTS = {
    "plain.kv_fp8_head", "sglang.fp4_kv_block16_eager", "sglang.kv_fp8_commit_number", "sglang.kv_fp8_number",
    "vllm.kv_fp8_head_rocm", "vllm.kv_fp8_head_rocm_float16", "vllm.kv_fp8_tensor_rocm_float16",
}  # fmt: skip


def test_every_kind_of_recipe_and_page_is_there() -> None:
    def recipes(names: Iterable[str]) -> set[str]:
        return {part.recipe for name in names for part in CACHES[name].parts}

    def pages(names: Iterable[str]) -> set[object]:
        fields = [f for name in names for buffer in CACHES[name].buffers for f in buffer.fields]
        return {(f.storage, f.rows, f.columns, f.slots) for f in fields}

    stored_ones = {family.rule for family in CALLS}
    assert recipes(CACHES) - recipes(stored_ones) == VARIANTS
    assert pages(CACHES) - pages(stored_ones) == set()
    assert {(f.operation, f.rule, f.format) for f in CALLS} == set(CHOSEN)


@pytest.mark.parametrize("family", CALLS, ids=lambda f: f.name)
def test_a_cell_is_judged_by_them(family: Family) -> None:
    """What is stored passes; the flags name many faults."""
    (claim,) = family.claims
    x, want = stored_case(claim, VECTORS)
    assert family_of(claim) == family
    got = {name: interval.low for name, interval in want.items()}
    assert judge(claim, x, got, (), want).result == "passed"
    assert isinstance(x, Input)
    assert len(load_manifest(VECTORS)["files"][f"{family.name}.safetensors"]["flags"]) > 25


def test_expectations_come_from_the_file() -> None:
    """A number that is changed in a file is what is expected."""
    family = FAMILIES["kv_write-vllm.flash_fp8-float8_e4m3fn"]
    (claim,) = family.claims
    tensors = dict(stored(family))
    changed = tensors["bfloat16.v_cache.after"].data.copy()
    changed[2, 3, 1, 5] ^= 1
    x, want = as_case(claim, {**tensors, "bfloat16.v_cache.after": Coded(claim.format, changed)})
    right, _ = as_case(claim, tensors)
    assert x.digest() == right.digest()
    differing = [
        name for name in want if not np.array_equal(want[name].low.data, as_case(claim, tensors)[1][name].low.data)
    ]
    assert differing == ["v"]


# --- damage ----------------------------------------------------------------------------------------------------------

Change = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


WRITE, READ = "kv_write-vllm.flash_fp8-float8_e4m3fn", "kv_read-vllm.int8_token_head-int8"
DAMAGES: dict[str, tuple[str, str, Change]] = {
    "numbers missing": (WRITE, "bfloat16.extent", lambda a: a[:4]),
    "no size": (WRITE, "bfloat16.extent", lambda a: a * 0),
    "one head": (WRITE, "bfloat16.x", lambda a: a[:, :1]),
    "a token missing": (WRITE, "bfloat16.v", lambda a: a[1:]),
    "a slot missing": (WRITE, "bfloat16.slot_mapping", lambda a: a[1:]),
    "slots outside": (WRITE, "bfloat16.slot_mapping", lambda a: a + np.uint32(999)),
    "a page missing before": (WRITE, "bfloat16.k_cache.before", lambda a: a[1:]),
    "a page missing after": (WRITE, "bfloat16.v_cache.after", lambda a: a[1:]),
    "pages outside": (READ, "int8.block_table", lambda a: a + np.uint32(999)),
    "a length missing": (READ, "int8.seq_lens", lambda a: a[1:]),
    "one head of scales": (READ, "int8.v_scale_cache", lambda a: a[..., :1]),
    "a value missing": (READ, "int8.k", lambda a: a[1:]),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_calls_are_refused(kind: str, folder: Path) -> None:
    name, tensor, change = DAMAGES[kind]
    family, path = FAMILIES[name], folder / f"{name}.safetensors"
    tensors = stored(family)
    damaged = Coded(tensors[tensor].format, np.ascontiguousarray(change(tensors[tensor].data)))
    write(path, {**tensors, tensor: damaged}, metadata_for(family), typed=False)
    entry = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "bytes": path.stat().st_size}
    change_manifest(folder, lambda m: m["files"][path.name].update(entry))
    with pytest.raises(BadInput, match=f"is not what {name} has there") as raised:
        load(family, folder)
    assert str(path) in str(raised.value)
    assert f"tensor '{tensor}' {list(damaged.shape)}" in str(raised.value)
