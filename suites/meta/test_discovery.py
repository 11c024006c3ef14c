"""Which plug-ins load, and which devices there are."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from narrowgauge.contracts.errors import BadInput, Infrastructure
from narrowgauge.devices import discovery
from narrowgauge.devices.device import Device
from narrowgauge.devices.targets import EMULATED, LIMITS, TARGETS
from narrowgauge.suites.meta.device_sets import CLAIM, RIGHT, X, plugin
from narrowgauge.suites.meta.marks import needs_torch, needs_triton
from narrowgauge.suites.planning import one_per_target
from narrowgauge.suites.run import Run

pytestmark = [pytest.mark.meta, needs_torch]

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
        (
            '@kernel(Cast("ocp_saturate"), ["float8_e4m3x"])\ndef f(x, format): ...',
            "did you mean float8_e4m3 or float8_e4m3fn or ",
        ),
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
    ocp = ("float8_e4m3fn", "float8_e5m2")
    assert TARGETS["gfx942"].hardware == ("float8_e4m3fnuz", "float8_e5m2fnuz")
    assert TARGETS["gfx950"].hardware == TARGETS["gfx1201"].hardware == TARGETS["sm_90"].hardware == ocp
    assert TARGETS["sm_80"].hardware == ()
    assert TARGETS["sm_80"].triton == TARGETS["sm_80"].software == ("float8_e5m2",)
    assert TARGETS["gfx1201"].instruction == (), "Triton does not use what the hardware has"


def test_unknown_devices_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match=r"unknown target 'gfx943'.*did you mean gfx94"):
        discovery.device_named("emulated:gfx943")
    with pytest.raises(BadInput, match="did you mean host"):
        discovery.device_named("hosts")
    monkeypatch.setattr(discovery, "has_triton", lambda: False)
    with pytest.raises(BadInput, match="triton is not installed"):
        discovery.device_named("interpreter")
    assert [d.id for d in discovery.default_devices() if d.target == "interpreter"] == []


@needs_triton
def test_a_bare_machine_runs_three_emulated_targets_and_all_of_them_when_it_has_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discovery, "gpus", lambda: ())
    few = ["host", "interpreter", "emulated:sm_90", "emulated:gfx942", "emulated:gfx950"]
    assert [d.id for d in Run().devices] == [d.id for d in Run(depth="standard").devices] == few
    everything = ["host", "interpreter", *(f"emulated:{name}" for name in EMULATED)]
    assert [d.id for d in Run(depth="exhaustive").devices] == everything


def test_every_emulated_target_has_limits() -> None:
    """From the vendors' tables: 227 KiB on H100, 64 KiB on MI300, 160 KiB on MI350."""
    assert set(LIMITS) == set(EMULATED)
    assert [LIMITS[name].shared for name in ("sm_90", "gfx942", "gfx950")] == [232448, 65536, 163840]


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
