"""Devices: a child process that survives nothing and costs nothing when it does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.devices import discovery
from narrowgauge.devices.device import Device
from narrowgauge.devices.wire import INLINE
from narrowgauge.reference.behaviour import resolved
from narrowgauge.reference.inputs import CASES
from narrowgauge.reference.judge import judge
from narrowgauge.reference.memory import in_memory, to_memory
from narrowgauge.suites.meta.device_sets import CLAIM, RIGHT, X, plugin
from narrowgauge.suites.meta.marks import needs_torch, needs_triton

pytestmark = [pytest.mark.meta, needs_torch]

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
        ("tail_unwritten", "unwritten: 3 of 1826 elements of codes are what fresh memory held, first at [1823]"),
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
    """A kernel that writes into its input spoils neither the second call nor the parent's tensor, and is told of."""
    body = """
    @kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
    def spoils(x, format):
        codes = x.clamp(-448, 448).to(torch.float8_e4m3fn)
        x[5:7] = 3
        return codes
    """
    (spoils,) = host.describe(plugin(tmp_path, body))
    before = X.data.copy()
    outcome = host.run(spoils, CLAIM, X)
    assert outcome.malformed == (f"input modified: 2 of {X.data.size} elements of x, first at [5]",)
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


#: a case for each operation
CHEAP = ("edges", "every_code", "no_rows", "no_codes", "noise", "no_tokens", "no_sequences")


def test_no_child_has_the_oracle(tmp_path: Path) -> None:
    """After loading every kernel of ours and running one, narrowgauge.reference is not among the modules."""
    from narrowgauge.kernels_under_test import MODULES

    device = discovery.interpreter()
    try:
        for module in MODULES:
            for plugged in device.describe(module):
                if plugged.kernel.conversion == "soft" and plugged.kernel.backend == "triton":
                    claim = plugged.kernel.claims[0]
                    cheap = (c for c in CASES if c.name in CHEAP)
                    x = next(c for c in cheap if c.suits(claim)).inputs(claim)
                    sent, form = to_memory(claim, x), in_memory(claim, x)
                    assert device.run(plugged, resolved(claim), sent, form=form).kind == "returned"
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
        copy = os.fork()
        if copy:
            os.waitpid(copy, 0)  # so the copy's answer, if it gave one, would be the first
        return torch.full(x.shape, 1 if copy else 2, dtype=torch.uint8)

    @kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
    def after(x, format):
        return x.clamp(-448, 448).to(torch.float8_e4m3fn)
    """
    forks, after = host.describe(plugin(tmp_path, body))
    first = host.run(forks, CLAIM, X)
    assert (first.kind, first.reason) == ("returned", "")
    assert (first.outputs["codes"].data == 1).all()
    second = host.run(after, CLAIM, X)
    assert second.kind == "returned"
    assert (second.outputs["codes"].data != 1).any()
    assert (second.outputs["codes"].data != 2).any()


def test_a_busy_child_does_not_outlive_its_parent(tmp_path: Path) -> None:
    """SIGKILL of the parent in the middle of a call that never ends."""
    script = tmp_path / "parent.py"
    script.write_text(
        "from narrowgauge.suites.meta.device_sets import *\n"
        "from narrowgauge.devices import discovery\n"
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


def test_values_of_another_format_are_no_codes(host: Device, tmp_path: Path) -> None:
    """float64 is a format, so the tensor arrives; the judge refuses it."""
    body = """
    @kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
    def returns(x, format):
        return x.double()
    """
    (returns,) = host.describe(plugin(tmp_path, body))
    verdict = judge(CLAIM, X, host.run(returns, CLAIM, X).outputs)
    assert verdict.result == "failed"
    assert verdict.malformed == ("codes is float64, want float8_e4m3fn",)


def test_what_a_compiler_says_is_its_reason_and_not_the_source_it_read(host: Device, tmp_path: Path) -> None:
    """Triton's error has place, source and reason in this order; in a function that is called, as a cause."""
    body = """
    class CompilationError(Exception):
        pass

    @kernel(Cast("ocp_saturate"), ["float8_e4m3fn"])
    def compiled(x, format):
        try:
            raise CompilationError("at 7:31:\\ndef inner(x):\\n    ^\\nNameError('no alpha')")
        except CompilationError as error:
            raise CompilationError("at 35:11:\\ndef outer(x):\\n    ^") from error
    """
    (compiled,) = host.describe(plugin(tmp_path, body))
    outcome = host.run(compiled, CLAIM, X)
    assert outcome.reason == "CompilationError: at 35:11: NameError('no alpha') … (plug.py:12)"


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


@needs_triton
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
