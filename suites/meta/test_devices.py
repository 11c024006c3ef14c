"""Devices: a child process that survives nothing and costs nothing when it does not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput, Infrastructure
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import Claim
from narrowgauge.devices import discovery
from narrowgauge.devices.device import Device
from narrowgauge.devices.targets import TARGETS
from narrowgauge.devices.wire import INLINE
from narrowgauge.reference.inputs import case_named
from narrowgauge.reference.judge import judge
from narrowgauge.suites.meta.marks import needs_torch
from narrowgauge.suites.planning import one_per_target

pytestmark = [pytest.mark.meta, needs_torch]

FOLDER = Path(__file__).absolute().parent / "mutant_kernels"
BROKEN = str(FOLDER / "broken.py")
CLAIM = Claim.parse("cast/ocp_saturate/float32/float8_e4m3fn")
X = case_named("edges").make(CLAIM)


@pytest.fixture(scope="module")
def host() -> Iterator[Device]:
    device = discovery.host()
    yield device
    device.close()


@pytest.fixture(scope="module")
def broken(host: Device) -> dict[str, Plugged]:
    return {p.kernel.name: p for p in host.describe(BROKEN)}


def plugin(folder: Path, body: str, name: str = "plug.py") -> str:
    path = folder / name
    path.write_text("import torch\nfrom narrowgauge import kernel, Cast\n" + textwrap.dedent(body))
    return str(path)


RIGHT = """
    @kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
    def right(x, format):
        return x.clamp(-448, 448).to(torch.float8_e4m3fn)
"""


# --- outcomes --------------------------------------------------------------------------------------------------------


def test_returned(host: Device, tmp_path: Path) -> None:
    (right,) = host.describe(plugin(tmp_path, RIGHT))
    outcome = host.run(right, CLAIM, X)
    assert outcome.kind == "returned"
    assert outcome.outputs["codes"].shape == X.shape
    assert outcome.malformed == ()


def test_crash_names_the_signal_and_the_next_call_works(
    host: Device, broken: dict[str, Plugged], tmp_path: Path
) -> None:
    (right,) = host.describe(plugin(tmp_path, RIGHT))
    outcome = host.run(broken["crashes"], CLAIM, X)
    assert (outcome.kind, outcome.reason) == ("crashed", "signal SIGSEGV")
    assert host.run(right, CLAIM, X).kind == "returned"


def test_a_hang_that_holds_the_gil_is_ended(host: Device, broken: dict[str, Plugged]) -> None:
    began = time.monotonic()
    outcome = host.run(broken["hangs_holding_the_gil"], CLAIM, X, timeout=1)
    assert (outcome.kind, outcome.reason) == ("hung", "no answer in 1 s")
    assert time.monotonic() - began < 30
    assert host.run(broken["returns_nothing"], CLAIM, X).kind == "returned"


def test_exit_is_a_crash_with_its_code(host: Device, tmp_path: Path) -> None:
    body = """
    @kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
    def leaves(x, format):
        print("last words")
        import os, sys
        sys.stdout.flush()
        os._exit(7)
    """
    (leaves,) = host.describe(plugin(tmp_path, body))
    outcome = host.run(leaves, CLAIM, X)
    assert (outcome.kind, outcome.reason) == ("crashed", "exit 7")
    assert "last words" in outcome.said


def test_system_exit_is_raised_not_obeyed(host: Device, tmp_path: Path) -> None:
    body = """
    @kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
    def exits(x, format):
        raise SystemExit(3)
    """
    (exits,) = host.describe(plugin(tmp_path, body))
    outcome = host.run(exits, CLAIM, X)
    assert (outcome.kind, outcome.reason) == ("raised", "SystemExit: 3 (plug.py:6)")


def test_raised_says_where(host: Device, broken: dict[str, Plugged]) -> None:
    outcome = host.run(broken["raises"], CLAIM, X)
    assert outcome.kind == "raised"
    assert outcome.reason.startswith("ValueError: ")
    assert "(broken.py:" in outcome.reason


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("returns_nothing", "returned nothing"),
        ("tail_unwritten", "unwritten: 3 of 1574 elements of codes are what fresh memory held, first at [1571]"),
    ],
)
def test_what_only_the_child_can_see(host: Device, broken: dict[str, Plugged], name: str, words: str) -> None:
    assert host.run(broken[name], CLAIM, X).malformed == (words,)


def test_a_kernel_that_changes_between_calls_is_said_to(host: Device, tmp_path: Path) -> None:
    body = """
    @kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
    def dice(x, format):
        return torch.randint(0, 100, x.shape, dtype=torch.uint8)
    """
    (dice,) = host.describe(plugin(tmp_path, body))
    assert host.run(dice, CLAIM, X).malformed[0].startswith("not deterministic: ")


def test_inputs_are_copies(host: Device, tmp_path: Path) -> None:
    """A kernel that writes into its input spoils neither the second call nor the parent's tensor."""
    body = """
    @kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
    def spoils(x, format):
        codes = x.clamp(-448, 448).to(torch.float8_e4m3fn)
        x.zero_()
        return codes
    """
    (spoils,) = host.describe(plugin(tmp_path, body))
    before = X.data.copy()
    assert host.run(spoils, CLAIM, X).malformed == ()
    np.testing.assert_array_equal(X.data, before)


def test_large_tensors_travel_in_shared_memory_unchanged(host: Device, tmp_path: Path) -> None:
    """Sizes on both sides of the threshold, growing and shrinking: the arena is reused."""
    body = """
    @kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
    def low_byte(x, format):
        return (x.view(torch.int32) & 0xFF).to(torch.uint8)
    """
    (low_byte,) = host.describe(plugin(tmp_path, body))
    for count in (3, INLINE // 4, INLINE // 4 + 1, 1 << 20, 5, 1 << 18, 0):
        data = (np.arange(count, dtype=np.uint32) * np.uint32(2654435761)) & np.uint32(0x3FFFFFFF)
        outcome = host.run(low_byte, CLAIM, Coded("float32", data))
        np.testing.assert_array_equal(outcome.outputs["codes"].data, (data & 0xFF).astype(np.uint8))


# --- isolation -------------------------------------------------------------------------------------------------------


def test_no_child_has_the_oracle(tmp_path: Path) -> None:
    """After loading every kernel of ours and running one, narrowgauge.reference is not among the modules."""
    from narrowgauge.kernels_under_test import MODULES

    device = discovery.interpreter()
    try:
        for module in MODULES:
            for plugged in device.describe(module):
                if plugged.kernel.conversion == "soft" and plugged.kernel.backend == "triton":
                    claim = plugged.kernel.claims[0]
                    x = case_named("edges" if claim.operation == "cast" else "no_rows").make(claim)
                    assert device.run(plugged, claim, x).kind == "returned"
        assert device.facts()["oracle_loaded"] is False
    finally:
        device.close()


def test_a_foreign_folder_named_like_ours_is_harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory and a plug-in's folder with reference/ and devices/ of their own: each side gets its own."""
    for name in ("reference", "devices", "golden", "suites", "ci"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("MINE = True\n")
    body = """
    import reference, devices
    assert reference.MINE and devices.MINE
    @kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
    def right(x, format):
        return x.clamp(-448, 448).to(torch.float8_e4m3fn)
    """
    path = plugin(tmp_path, body)
    monkeypatch.chdir(tmp_path)
    device = discovery.host()
    try:
        (right,) = device.describe(path)
        assert device.run(right, CLAIM, X).kind == "returned"
    finally:
        device.close()


def test_environment_is_set_before_anything_is_imported(tmp_path: Path) -> None:
    body = """
    import os
    SEEN = os.environ["TRITON_INTERPRET"], os.environ["CUDA_VISIBLE_DEVICES"]
    @kernel(Cast("ocp_saturate"), ["float8_e4m3fn"], owner=repr(SEEN))
    def right(x, format):
        return x.clamp(-448, 448).to(torch.float8_e4m3fn)
    """
    device = discovery.interpreter()
    try:
        (right,) = device.describe(plugin(tmp_path, body))
        assert right.kernel.owner == "('1', '')"
    finally:
        device.close()


def test_children_end_with_their_device(host: Device) -> None:
    device = discovery.host()
    device.facts()
    (child,) = device._children.values()
    process = child.process
    device.close()
    assert process.poll() is not None
    device.close()  # a second time is no error


def test_what_one_plugin_does_to_torch_does_not_reach_another(host: Device, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    spoiling = RIGHT + "\n    torch.Tensor.clamp = lambda self, *a: torch.zeros_like(self)\n"
    (spoiled,) = host.describe(plugin(tmp_path / "a", spoiling))
    assert not host.run(spoiled, CLAIM, X).outputs["codes"].data.any()
    (right,) = host.describe(plugin(tmp_path, RIGHT))
    assert host.run(right, CLAIM, X).outputs["codes"].data.any()


def test_a_forked_copy_of_the_child_answers_for_nobody(host: Device, tmp_path: Path) -> None:
    body = """
    import os
    @kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
    def forks(x, format):
        os.fork()
        return torch.zeros(x.shape, dtype=torch.uint8)

    @kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
    def after(x, format):
        return x.clamp(-448, 448).to(torch.float8_e4m3fn)
    """
    forks, after = host.describe(plugin(tmp_path, body))
    first = host.run(forks, CLAIM, X)
    second = host.run(after, CLAIM, X)
    assert "crashed" in (first.kind, second.kind)
    assert "fork()" in first.reason + second.reason
    third = host.run(after, CLAIM, X)
    assert third.kind == "returned"
    assert third.outputs["codes"].data.any()


def test_a_busy_child_does_not_outlive_its_parent(tmp_path: Path) -> None:
    """SIGKILL of the parent in the middle of a call that never ends."""
    script = tmp_path / "parent.py"
    script.write_text(
        "from narrowgauge.suites.meta.test_devices import *\n"
        "device = discovery.host()\n"
        "kernels = {p.kernel.name: p for p in device.describe(BROKEN)}\n"
        "print(device._children[BROKEN].process.pid, flush=True)\n"
        "device.run(kernels['hangs_holding_the_gil'], CLAIM, X, timeout=100)\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        time.sleep(0.5)
        parent.kill()
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or "\nState:\tZ" in Path(f"/proc/{child}/status").read_text():
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child was still there five seconds after its parent")


@pytest.mark.parametrize("allocate", ["x.new_empty(x.shape, dtype=torch.uint8)", "empty_like(x, dtype=torch.uint8)"])
def test_unwritten_memory_is_found_however_it_was_allocated(host: Device, tmp_path: Path, allocate: str) -> None:
    body = f"""
    from torch import empty_like
    @kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
    def unwritten(x, format):
        codes = {allocate}
        codes[:-3] = 0
        return codes
    """
    (unwritten,) = host.describe(plugin(tmp_path, body))
    assert host.run(unwritten, CLAIM, X).malformed[0].startswith("unwritten: 3 of")


WANTED = "want codes of float8_e4m3fn as integers or in its own dtype"


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("x.double()", (f"codes is a tensor of torch.float64, {WANTED}",)),
        ("x.to(torch.complex64)", (f"codes is a tensor of torch.complex64, {WANTED}",)),
        ("[1, 2]", ("returned 2 values; the contract has 1: codes",)),
        ("'codes'", ("codes is a str, want a tensor",)),
        ("x.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.int8)", ()),
        ("x.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).to(torch.int64)", ()),
    ],
)  # fmt: skip
def test_what_a_kernel_may_return(host: Device, tmp_path: Path, returned: str, words: tuple[str, ...]) -> None:
    body = f"""
    @kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
    def returns(x, format):
        return {returned}
    """
    (returns,) = host.describe(plugin(tmp_path, body))
    outcome = host.run(returns, CLAIM, X)
    assert outcome.malformed == words
    if not words:
        assert judge(CLAIM, X, outcome.outputs).result == "passed"


def test_long_errors_are_cut(host: Device, tmp_path: Path) -> None:
    body = """
    @kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
    def long(x, format):
        raise ValueError("many words " * 100000 + "\\nand lines")
    """
    (long,) = host.describe(plugin(tmp_path, body))
    outcome = host.run(long, CLAIM, X)
    assert len(outcome.reason) < 400
    assert outcome.reason.endswith("… (plug.py:6)")


TRITON_FILE = """
import torch, triton, triton.language as tl
@triton.jit
def soft(x, o, B: tl.constexpr):
    tl.store(o + tl.arange(0, B), tl.load(x + tl.arange(0, B)))
@triton.jit
def native(x, o, B: tl.constexpr):
    tl.store(o + tl.arange(0, B), tl.load(x + tl.arange(0, B)).to(tl.float8e4nv))
def wrapper(x): return soft
NOTHING = 0
"""


@pytest.mark.skipif(not discovery.has_triton(), reason="triton is not installed: there are no Triton kernels to find")
@pytest.mark.parametrize(
    ("imported", "backend", "conversion"),
    [("wrapper", "triton", "native"), ("soft", "triton", "soft"), ("NOTHING", "torch", "soft")],
)
def test_triton_kernels_are_found_behind_imports(
    host: Device, tmp_path: Path, imported: str, backend: str, conversion: str
) -> None:
    (tmp_path / "impl_mod.py").write_text(TRITON_FILE)
    (found,) = host.describe(plugin(tmp_path, f"from impl_mod import {imported}\n" + textwrap.dedent(RIGHT)))
    assert (found.kernel.backend, found.kernel.conversion) == (backend, conversion)


# --- plug-ins that do not load ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            '@kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])\ndef f(x, format): ...\ng = f\n'
            '@kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])\ndef f(x, format): ...',
            "holds two kernels named 'f'",
        ),
        ("raise RuntimeError('no GPU here')", r"does not load on host: RuntimeError: no GPU here"),
        ("x = 1", "holds no kernel"),
        ("import os; os._exit(9)", "crashed its process on host: exit 9"),
        ('@kernel(Cast("ocp_saturate"), ["float8_e4m3x"])\ndef f(x, format): ...', "did you mean float8_e4m3fn"),
        ('@kernel(Cast("ocp_saturate"), "float8_e4m3fn")\ndef f(x, format): ...', "formats and sources are lists"),
        ('@kernel("ocp_saturate", ["float8_e4m3fn"])\ndef f(x, format): ...', "expected Cast"),
    ],
)
def test_a_plugin_that_breaks_breaks_a_child(host: Device, tmp_path: Path, body: str, words: str) -> None:
    path = tmp_path / "plug.py"
    path.write_text("from narrowgauge import kernel, Cast\n" + body)
    with pytest.raises(BadInput, match=words):
        host.describe(str(path))


def test_two_plugins_of_one_file_name_are_two(host: Device, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = host.describe(plugin(tmp_path / "a", RIGHT))[0]
    other = host.describe(plugin(tmp_path / "b", RIGHT.replace("right", "other")))[0]
    assert (one.kernel.name, other.kernel.name) == ("right", "other")
    assert host.run(one, CLAIM, X).kind == host.run(other, CLAIM, X).kind == "returned"


def test_distribution_says_where_a_kernel_comes_from(host: Device, tmp_path: Path) -> None:
    (right,) = host.describe(plugin(tmp_path, RIGHT))
    assert right.distribution["file"] == "plug.py"
    assert len(right.distribution["sha256"]) == 64
    torch_kernels = host.describe("narrowgauge.kernels_under_test.torch_cast")
    assert torch_kernels[0].distribution["name"] == "torch"
    assert torch_kernels[0].own


# --- which devices there are -----------------------------------------------------------------------------------------


def test_no_gpu_is_a_normal_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "DRIVERS", ())
    discovery.gpus.cache_clear()
    assert discovery.gpus() == ()
    assert discovery.default_devices()[0].id == "host"
    with pytest.raises(BadInput, match="torch sees no GPU on this machine"):
        discovery.device_named("cuda:0")
    discovery.gpus.cache_clear()


@pytest.mark.parametrize(
    ("vendor", "index", "caller", "want"),
    [
        ("cuda", 1, {}, {"CUDA_VISIBLE_DEVICES": "1"}),
        ("cuda", 1, {"CUDA_VISIBLE_DEVICES": "4,6"}, {"CUDA_VISIBLE_DEVICES": "6"}),
        ("cuda", 0, {"CUDA_VISIBLE_DEVICES": "GPU-abc"}, {"CUDA_VISIBLE_DEVICES": "GPU-abc"}),
        ("hip", 1, {}, {"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "1"}),
        ("hip", 1, {"HIP_VISIBLE_DEVICES": "2,5"}, {"HIP_VISIBLE_DEVICES": "5", "CUDA_VISIBLE_DEVICES": "5"}),
        ("hip", 0, {"CUDA_VISIBLE_DEVICES": "3"}, {"HIP_VISIBLE_DEVICES": "3", "CUDA_VISIBLE_DEVICES": "3"}),
        ("hip", 1, {"ROCR_VISIBLE_DEVICES": "4,7"}, {"ROCR_VISIBLE_DEVICES": "7", "HIP_VISIBLE_DEVICES": "0"}),
    ],
)
def test_a_child_sees_one_gpu_of_the_callers_list(
    vendor: str, index: int, caller: dict[str, str], want: dict[str, str]
) -> None:
    assert discovery.pinned(vendor, index, caller) == want


def test_gpus_that_torch_sees_become_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs of one kind and one of another, as a child would report them."""
    seen = [
        {"vendor": "hip", "index": 0, "arch": "gfx942", "name": "MI300X", "driver": ""},
        {"vendor": "hip", "index": 1, "arch": "gfx942", "name": "MI300X", "driver": ""},
        {"vendor": "hip", "index": 2, "arch": "gfx950", "name": "MI355X", "driver": ""},
    ]
    monkeypatch.setattr(discovery, "DRIVERS", (str(tmp_path),))
    monkeypatch.setattr(Device, "facts", lambda self: {"gpus": seen})
    discovery.gpus.cache_clear()
    found = discovery.gpus()
    discovery.gpus.cache_clear()
    assert [(d.id, d.target, d.how) for d in found] == [
        ("hip:0", "gfx942", "executed"), ("hip:1", "gfx942", "executed"), ("hip:2", "gfx950", "executed"),
    ]  # fmt: skip
    assert [d.id for d in one_per_target(found)] == ["hip:0", "hip:2"]


def test_formats_follow_the_architecture() -> None:
    """From the vendors' documents: MI300 is FNUZ, MI350 and gfx12 are OCP, A100 has no fp8."""
    assert TARGETS["gfx942"].hardware == ("float8_e4m3fnuz",)
    assert TARGETS["gfx950"].hardware == TARGETS["gfx1201"].hardware == ("float8_e4m3fn",)
    assert TARGETS["sm_80"].hardware == TARGETS["sm_80"].triton == ()
    assert TARGETS["sm_90"].hardware == ("float8_e4m3fn",)


def test_unknown_devices_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match=r"unknown target 'gfx943'.*did you mean gfx94"):
        discovery.device_named("emulated:gfx943")
    with pytest.raises(BadInput, match="did you mean host"):
        discovery.device_named("hosts")
    monkeypatch.setattr(discovery, "has_triton", lambda: False)
    with pytest.raises(BadInput, match="triton is not installed"):
        discovery.device_named("interpreter")
    assert [d.id for d in discovery.default_devices() if d.target == "interpreter"] == []


def test_a_device_that_does_not_start_is_infrastructure(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device("broken", "host", "executed", {"PYTHONHOME": "/nonexistent"})
    with pytest.raises(Infrastructure, match="device broken does not start: crashed"):
        device.facts()


def test_without_torch_the_ledger_hears_of_it(tmp_path: Path) -> None:
    """On a machine without torch a torch kernel is not executed, with the reason; nothing breaks."""
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")
    body = tmp_path / "plug.py"
    body.write_text(
        "from narrowgauge import kernel, Cast\n"
        '@kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])\n'
        "def right(x, format): ...\n"
    )
    device = discovery.host()
    device.environment = {**device.environment, "PYTHONPATH": str(tmp_path)}
    try:
        (right,) = device.describe(str(body))
        outcome = device.run(right, CLAIM, X)
        assert (outcome.kind, outcome.reason) == ("not_executed", "torch is not installed (no torch here)")
        assert device.facts()["gpus"] == []
    finally:
        device.close()


def test_facts_are_json(host: Device) -> None:
    facts = host.facts()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["switches"].keys() >= {"float32_matmul_precision", "allow_bf16_reduced_precision_reduction"}
    assert os.environ.get("TRITON_DEFAULT_FP_FUSION", "1") == facts["triton_default_fp_fusion"]
