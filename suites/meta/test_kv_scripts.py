"""Standalone scripts of calls on caches: run where narrowgauge cannot be imported, they show the mismatch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from narrowgauge.contracts.coded import Input
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import Claim
from narrowgauge.devices.device import Device
from narrowgauge.reference.expected import expected
from narrowgauge.reference.inputs import case_named
from narrowgauge.reference.kv.cases import Shape
from narrowgauge.reference.kv.cases import call as shaped_call
from narrowgauge.suites import script_lines
from narrowgauge.suites.judging import Judged, run_cell
from narrowgauge.suites.kv_scripts import but_nan, cut
from narrowgauge.suites.meta import second_derivation as second
from narrowgauge.suites.meta.marks import needs_torch
from narrowgauge.suites.planning import Planned

pytestmark = [pytest.mark.meta, needs_torch]

OWNERS_FILE = """
import torch
from narrowgauge import kernel, Attend, KvRead, KvWrite

E4M3, BF16 = ["float8_e4m3fn"], ["bfloat16"]

def fp8(x, scale):
    return (x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)

def gathered(cache, table, lengths, block_size, scale):
    read = [[cache[row[t // block_size], t % block_size].float() * scale for t in range(n)]
            for row, n in zip(table.tolist(), lengths.tolist())]
    return read

@kernel(KvWrite("vllm.flash_fp8"), E4M3, BF16)
def v_under_the_scale_of_k(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale, block_size):
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            k_cache[slot // block_size, slot % block_size] = fp8(x[token], k_scale)
            v_cache[slot // block_size, slot % block_size] = fp8(v[token], k_scale)

@kernel(KvWrite("vllm.flash_copy"), BF16, BF16)
def padding_in_the_last_slot(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    for token, slot in enumerate(slot_mapping.tolist()):
        for cache, rows in ((k_cache, x), (v_cache, v)):
            cache.view(-1, *cache.shape[2:])[slot] = rows[token]

@kernel(KvWrite("sglang.copy"), BF16, BF16)
def heads_in_reverse(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    k_cache[slot_mapping.long()], v_cache[slot_mapping.long()] = x.flip(1), v

@kernel(KvWrite("vllm.flash_copy"), BF16, BF16, backend="numpy")
def one_slot_on(x, format, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    kept = slot_mapping >= 0
    for cache, rows in ((k_cache, x), (v_cache, v)):
        slots = cache.reshape(-1, *cache.shape[2:])
        slots[(slot_mapping[kept] + 1) % len(slots)] = rows[kept]

@kernel(KvRead("vllm.flash_fp8"), BF16, E4M3)
def scale_inverted(x, format, v_cache, block_table, seq_lens, k_scale, v_scale, block_size, heads):
    read = [gathered(cache, block_table, seq_lens, block_size, 1 / scale)
            for cache, scale in ((x, k_scale), (v_cache, v_scale))]
    return tuple(
        torch.stack([one for row in each for one in row]).to(torch.bfloat16).reshape(-1, heads * x.shape[-1])
        if any(each) else torch.zeros(0, heads * x.shape[-1], dtype=torch.bfloat16)
        for each in read
    )

@kernel(Attend("vllm.flash_copy"), BF16, BF16)
def one_token_short(
    x, format, v_cache, block_table, seq_lens, query, k_scale, v_scale, block_size, softmax_scale
):
    out = torch.zeros(query.shape[0], query.shape[1], v_cache.shape[-1])
    for row, (k, v) in enumerate(zip(*(gathered(c, block_table, seq_lens - 1, block_size, 1.0) for c in (x, v_cache)))):
        if k:
            each = query.shape[1] // x.shape[2]
            k, v = (torch.stack(part).repeat_interleave(each, 1) for part in (k, v))
            weights = torch.einsum("hd,thd->ht", query[row].float(), k).mul(softmax_scale).softmax(1)
            out[row] = torch.einsum("ht,thd->hd", weights, v)
    return out.to(torch.bfloat16)
"""


@pytest.fixture(scope="module")
def owners(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("owners") / "owners.py"
    path.write_text(OWNERS_FILE)
    return path


@pytest.fixture(scope="module")
def plugged(owners: Path, host: Device) -> dict[str, Plugged]:
    return {plugged.kernel.name: plugged for plugged in host.describe(str(owners))}


def judged(plugged: Plugged, host: Device, case: str) -> Judged:
    (claim,) = plugged.kernel.claims
    return run_cell(Planned(plugged, claim, case, host), case_named(case, claim.operation).inputs(claim))


#: kernel, case, and what its script prints of each output: how many differ of how many
SHOWN = [
    # one token of two heads of 64; a page of 16 slots, and one before it
    ("v_under_the_scale_of_k", "scattered", {"k_cache": (0, 4096), "v_cache": (range(100, 129), 4096)}),
    ("v_under_the_scale_of_k", "sliced_tokens", {"k_cache": (0, 4096), "v_cache": (range(100, 129), 4096)}),
    # three padding tokens at slots -1, -2, -3, NaN over NaN among them
    ("padding_in_the_last_slot", "all_padding", {"k_cache": (range(1, 385), 4096), "v_cache": (range(1, 385), 4096)}),
    ("heads_in_reverse", "scattered", {"k_cache": (range(100, 129), 4096), "v_cache": (0, 4096)}),
    # one row stayed NaN, the next one was written
    ("one_slot_on", "scattered", {"k_cache": (range(200, 257), 4096), "v_cache": (range(200, 257), 4096)}),
    # the first token of a sequence: one row
    ("scale_inverted", "permuted", {"k": (range(100, 129), 128), "v": (range(100, 129), 128)}),
    # eight query heads of 64 of the shortest sequence that differs, whose last token is left out
    ("one_token_short", "permuted", {"output": (range(300, 513), 512)}),
]


#: runs the scripts that it is given, each as if it were alone, and without narrowgauge
RUN_ALL = """
import sys
paths, sys.argv[1:] = sys.argv[1:], []
for path in paths:
    sys.modules["narrowgauge"] = None
    exec(compile(open(path).read(), path, "exec"), {"__name__": "__main__"})
    print("--")
"""
MENDED = "mended"


@pytest.fixture(scope="module")
def printed(
    plugged: dict[str, Plugged], host: Device, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], list[str]]:
    """What each script prints; and one of a wrong writer, run on a file without its mistake."""
    folder, scripts = tmp_path_factory.mktemp("scripts"), {}
    for name, case, _ in SHOWN:
        found = judged(plugged[name], host, case)
        assert found.row.result == "failed"
        scripts[name, case] = found.script
    name, case, _ = SHOWN[0]
    mended = folder / "mended.py"
    mended.write_text(OWNERS_FILE.replace("fp8(v[token], k_scale)", "fp8(v[token], v_scale)"))
    scripts[MENDED, case] = scripts[name, case].replace(plugged[name].origin, str(mended))
    paths = [folder / f"{number}.py" for number in range(len(scripts))]
    for path, text in zip(paths, scripts.values(), strict=True):
        path.write_text(text)
    command = [sys.executable, "-c", RUN_ALL, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.split("--\n")[:-1]
    return dict(zip(scripts, (each.splitlines() for each in said), strict=True))


@pytest.mark.parametrize(("name", "case", "shown"), SHOWN, ids=[f"{name}-{case}" for name, case, _ in SHOWN])
def test_the_script_of_a_call_shows_the_mismatch(
    name: str, case: str, shown: dict[str, tuple[int | range, int]], printed: dict[tuple[str, str], list[str]]
) -> None:
    lines = printed[name, case]
    assert [line.split(":")[0] for line in lines] == list(shown)
    for line, (count, total) in zip(lines, shown.values(), strict=True):
        said = re.fullmatch(r"\w+: (\d+) of (\d+) differ(?: first at \((.*)\): got (\S+) want (.+))?", line)
        assert said, line
        assert int(said[2]) == total, line
        assert int(said[1]) in ([count] if isinstance(count, int) else count), line
        assert (said[4] is None) == (count == 0), line
        assert said[4] is None or said[4] != said[5]


def test_a_right_kernel_shows_nothing_wrong(printed: dict[tuple[str, str], list[str]]) -> None:
    """What a script expects is right."""
    assert printed[MENDED, SHOWN[0][1]] == ["k_cache: 0 of 4096 differ", "v_cache: 0 of 4096 differ"]


def test_what_is_too_large_to_print_has_no_script(plugged: dict[str, Plugged], host: Device) -> None:
    """A token of 8 heads of 128 is 2 KiB of each part, and as much again is expected of it."""
    found = judged(plugged["padding_in_the_last_slot"], host, "eight_heads")
    assert found.row.result == "failed"
    assert found.script == ""


@pytest.mark.parametrize(
    "data",
    [
        np.zeros(0, np.uint8),
        np.zeros((3, 5), np.uint16),
        np.full((40, 9), 0x7FC1, np.uint16),
        np.arange(1000, dtype=np.uint32),
        np.concatenate([np.arange(9), np.full(700, 7), np.arange(5), np.full(70, 8), [1]]).astype(np.uint8),
        np.resize([1, 2, 3, 4, 1, 2, 3], 500).astype(np.uint8),
        np.concatenate([np.full(100, 7), np.full(100, 8)]).astype(np.uint8),
    ],
    ids=lambda data: f"{data.dtype}-{data.size}",
)
def test_numbers_are_spelled_without_loss(data: np.typing.NDArray[np.integer]) -> None:
    spelled = script_lines.numbers(data)
    read = eval(spelled, {"np": np})
    assert read.dtype == data.dtype
    np.testing.assert_array_equal(read, data)
    assert len(spelled) < 140 + 2.3 * data.nbytes
    if data.dtype == np.uint16 and data.size == 360:
        assert spelled == 'np.frombuffer(bytes.fromhex("c17fc17f") * 180, "<u2").reshape([40, 9])'


@pytest.mark.parametrize(
    "text",
    [
        "kv_write/vllm.flash_fp8_rope/bfloat16/float8_e4m3fn",
        "kv_write/vllm.int4_token_head/float16/uint4",
        "kv_write/vllm.fp8_ds_mla/bfloat16/float8_e4m3fn",
        "kv_write/sglang.mxfp8/bfloat16/float8_e4m3fn",
        "kv_write/sglang.copy/bfloat16/bfloat16",
        "kv_read/vllm.nvfp4/float4_e2m1fn/bfloat16",
        "kv_read/sglang.dsa/float8_e4m3fn/bfloat16",
        "attend/vllm.int8_token_head/int8/bfloat16",
    ],
)
def test_a_call_that_is_cut_gives_the_same(text: str) -> None:
    """A token's rows of a cache, or of what is read, are those that they were in the whole call."""
    claim = Claim.parse(text)
    call = case_named("repeated" if claim.operation == "kv_write" else "permuted", claim.operation).inputs(claim)
    assert isinstance(call, Input)
    whole = expected(claim, call)
    if claim.operation == "kv_write":
        if "positions" in call.given:
            call = shaped_call(Shape(tokens=64, at="repeated"))(claim)  # as many tokens as there are positions
            assert isinstance(call, Input)
            whole = expected(claim, call)
        slots = call.given["slots"].data.view(np.int32).ravel()
        block = call.given["sizes"].data.view(np.int32).ravel()[1]
        for slot in (slots[0], slots[1], slots[4]):  # the last one of the cache; two tokens of one slot, twice
            part = cut(claim, call, [(int(slot), 0)])
            assert part is not None
            assert part.shape[0] == np.count_nonzero(slots == slot)
            found = expected(claim, part)
            for name, interval in whole.items():
                assert found[name].low.shape[0] == 2 * block
                np.testing.assert_array_equal(
                    found[name].low.data[block + slot % block], interval.low.data[slot], strict=True
                )
        return
    lengths = call.given["lengths"].data.view(np.int32).ravel()
    past = np.cumsum(lengths)
    for sequence in np.flatnonzero(lengths > 3 if claim.operation == "kv_read" else lengths >= 0):
        row = int(past[sequence] - 2) if claim.operation == "kv_read" else int(sequence)
        part = cut(claim, call, [(row, 0)])
        assert part is not None
        found = expected(claim, part)
        for name, interval in whole.items():
            np.testing.assert_array_equal(found[name].low.data[-1], interval.low.data[row], strict=True)
            np.testing.assert_array_equal(found[name].high.data[-1], interval.high.data[row], strict=True)


@pytest.mark.parametrize(
    "name",
    ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e8m0fnu", "float4_e2m1fn", "int8", "uint8", "float16"],
)
def test_any_nan_is_as_good_as_another(name: str) -> None:
    """Every pair of codes, or of some of them: what differs in a script is what differs by the second derivation."""
    fmt = FORMATS[name]
    codes = np.arange(0, fmt.code_count, 1 if fmt.bits <= 8 else 61, dtype=fmt.storage)
    got, one = codes[:, None], codes[None]
    differ = eval(f"(got != one){but_nan(fmt)}", {"got": got, "one": one})
    nan = np.array([second.decode(int(code), name).kind == "nan" for code in codes])
    np.testing.assert_array_equal(differ, (got != one) & ~(nan[:, None] & nan[None]))
