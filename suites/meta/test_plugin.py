"""The plugin as a user meets it: pytest in processes of their own, from directories that are not ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import jsonschema
import pytest

import narrowgauge
from narrowgauge.devices.discovery import has_triton
from narrowgauge.suites.meta.marks import needs_torch

pytestmark = [pytest.mark.meta, needs_torch]

PACKAGE = Path(narrowgauge.__file__).parent
MUTANTS = Path(__file__).absolute().parent / "mutant_kernels"
CASTS = "narrowgauge/suites/casts/test_casts.py"

#: the README's example: ten lines
HALF_AWAY = """
import torch
from narrowgauge import kernel, Cast

@kernel(Cast(policy="ocp_saturate"), formats=["float8_e4m3fn"])
def half_away(x, format):
    magnitude = x.abs().double().clamp(max=448.0)
    exponent = torch.frexp(magnitude).exponent.clamp(min=-5) - 4   # of the last place; subnormals share one
    rounded = torch.ldexp(torch.floor(torch.ldexp(magnitude, -exponent) + 0.5), exponent)
    return torch.copysign(rounded, x).to(torch.float8_e4m3fn)
"""
FNUZ = """
import torch
from narrowgauge import kernel, Cast

@kernel(Cast(policy="fnuz_saturate"), formats=["float8_e4m3fnuz"], backend={backend!r})
def mine(x, format):
    {body}
"""
TORCH_FNUZ = "return x.clamp(-240, 240).to(torch.float8_e4m3fnuz)"
NUMPY_FNUZ = "import numpy, ml_dtypes; return numpy.clip(x, -240, 240).astype(ml_dtypes.float8_e4m3fnuz)"


def run(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """``narrowgauge test`` in a folder of its own."""
    command = [sys.executable, "-m", "narrowgauge", "test", "--device=host", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "COLUMNS": "200", **(environment or {})},
    )  # fmt: skip


def ledger(folder: Path) -> dict[str, object]:
    data: dict[str, object] = json.loads((folder / ".narrowgauge" / "ledger.json").read_text())
    return data


def plug(folder: Path, text: str, name: str = "mine.py") -> str:
    (folder / name).write_text(textwrap.dedent(text))
    return name


# --- a wrong cast is caught and named --------------------------------------------------------------------------------


def test_half_away_is_caught_and_named_from_anywhere(tmp_path: Path) -> None:
    done = run(tmp_path, "--kernels", plug(tmp_path, HALF_AWAY), "-k", "half_away")
    assert done.returncode == 1
    assert "[TIES] half_away (float32 to float8_e4m3fn) on host, case edges: cast.ties_away" in done.stdout
    assert "differing: 126 of 1826 elements (126 value)" in done.stdout
    line = next(text for text in done.stdout.splitlines() if text.startswith("half_away"))
    assert "4 failed" in line
    assert line.rstrip().endswith("cast.ties_away")
    assert f"{CASTS}::test_cell[float32-float8_e4m3fn-edges-half_away-host]" in done.stdout


def test_xdist_gives_the_same_rows(tmp_path: Path) -> None:
    name = plug(tmp_path, HALF_AWAY)
    rows = []
    for workers in ("0", "2"):
        done = run(tmp_path, "--kernels", name, "-k", "(half_away or ml_dtypes) and not property", "-n", workers)
        assert done.returncode == 1, done.stdout
        found = ledger(tmp_path)["rows"]
        assert isinstance(found, list)
        rows.append([{k: v for k, v in row.items() if k != "seconds"} for row in found])
        assert "host" in ledger(tmp_path)["devices"]  # type: ignore[operator]
    assert rows[0] == rows[1]
    # half_away: edges, stratified and vectors. ml_dtypes: 11 formats of at most 8 bits from three sources, three rows
    # each (edges; stratified or every_code; vectors); bfloat16 from float32 three, from float16 every_code and vectors,
    # from itself every_code.
    assert len(rows[0]) == 3 + 11 * 3 * 3 + 3 + 2 + 1


def test_a_crash_or_a_hang_costs_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, "--kernels", str(MUTANTS / "broken.py"), "-k", "crashes or hangs", "--kernel-timeout=1")
    assert done.returncode == 1
    lines = [text for text in done.stdout.splitlines() if text.startswith(("crashes ", "hangs_holding"))]
    assert len(lines) == 2
    assert "crashed: signal SIGSEGV" in lines[0]
    assert "hung: no answer in 1 s" in lines[1]
    assert "1 failed, 3 not run" in lines[1]
    assert (
        "not tried again: it hung in case" in done.stdout or "not executed: 3 on host: not tried again" in done.stdout
    )


def test_a_failure_that_passes_the_second_time_is_a_failure(tmp_path: Path) -> None:
    """Wrong in both calls of one generated input, right ever after."""
    text = """
    import torch
    from narrowgauge import kernel, Cast
    calls = 0

    @kernel(Cast(policy="ocp_saturate"), formats=["float8_e4m3fn"])
    def wrong_once(x, format):
        global calls
        calls += 1
        codes = x.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
        return codes ^ 1 if calls in (21, 22) else codes
    """
    done = run(tmp_path, "--kernels", plug(tmp_path, text), "-k", "wrong_once and property")
    assert done.returncode == 1, done.stdout
    assert "not deterministic: it passed on the same input afterwards" in done.stdout


# --- the ledger ------------------------------------------------------------------------------------------------------


def test_the_ledger_is_what_its_schema_says(tmp_path: Path) -> None:
    """Rows of every result that a host gives: wrong, right and waived; drawn inputs among them."""
    few = "half_away or (torch_eager and (bfloat16-float8_e4m3fn- or bfloat16-float8_e8m0fnu-edges))"
    run(tmp_path, "--kernels", plug(tmp_path, HALF_AWAY), "-k", few)
    schema = json.loads((PACKAGE / "ci" / "ledger.schema.json").read_text())
    data = ledger(tmp_path)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(data, schema)
    broken = json.loads(json.dumps(data))
    assert {(row["result"], row["case"] == "property") for row in broken["rows"]} == {
        ("failed", False), ("failed", True), ("passed", False), ("passed", True), ("waived", False),
    }  # fmt: skip
    broken["rows"][0]["result"] = "fine"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema)


def test_a_worker_that_dies_leaves_its_tests_unrun_not_passed(tmp_path: Path) -> None:
    """What was planned and has no row is in the ledger and on the screen."""
    (tmp_path / "killer.py").write_text(
        "import os, pytest\n"
        "def pytest_runtest_setup(item):\n"
        "    if 'ml_dtypes' in item.nodeid and 'edges' in item.nodeid: os._exit(11)\n"
    )
    done = run(
        tmp_path, "-p", "killer", "-k", "ml_dtypes", "-n", "1", "--max-worker-restart=0",
        environment={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode != 0
    assert ledger(tmp_path)["not_run"]
    assert "planned and never run" in done.stdout


# --- the porting question --------------------------------------------------------------------------------------------


def test_not_ready(tmp_path: Path) -> None:
    wrong = FNUZ.format(backend="numpy", body=NUMPY_FNUZ.replace("240, 240", "224, 224"))
    done = run(tmp_path, "-m", "fnuz", "--kernels", plug(tmp_path, wrong), "-k", "mine and not property")
    assert done.returncode == 1
    assert "porting to FNUZ: NOT READY: mine failed" in done.stdout


def test_ready_for_a_kernel_that_never_leaves_the_host(tmp_path: Path) -> None:
    name = plug(tmp_path, FNUZ.format(backend="numpy", body=NUMPY_FNUZ))
    done = run(tmp_path, "-m", "fnuz", "--kernels", name, "-k", "mine", "--require-verified")
    assert done.returncode == 0, done.stdout
    assert "porting to FNUZ: READY: 1 of 1 paths verified" in done.stdout


@pytest.mark.parametrize(("flag", "code"), [([], 0), (["--require-verified"], 6)])
def test_unknown_where_nothing_ran_for_mi300(tmp_path: Path, flag: list[str], code: int) -> None:
    """A torch kernel that passes on the host has said nothing about MI300."""
    name = plug(tmp_path, FNUZ.format(backend="torch", body=TORCH_FNUZ))
    done = run(tmp_path, "-m", "fnuz", "--kernels", name, "-k", "mine or ml_dtypes", *flag)
    assert done.returncode == code, done.stdout
    assert "porting to FNUZ: UNKNOWN 1 of 1 paths (mine: not executed for gfx942)" in done.stdout
    assert "apart from that, narrowgauge's own kernels: READY: 6 of 6 paths verified" in done.stdout


def test_fnuz_without_a_kernel_of_ones_own(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "fnuz", "-k", "ml_dtypes")
    assert "no plugged-in kernel claims an FNUZ format (narrowgauge's own: READY: 6 of 6 paths verified)" in done.stdout
    # e4m3fnuz and e5m2fnuz, each from three sources; e4m3b11fnuz is no format of MI300 and has no marker
    assert "e4m3fn " not in done.stdout
    assert "b11" not in done.stdout


def test_a_selection_of_cases_verifies_nothing(tmp_path: Path) -> None:
    """A kernel that is wrong on large inputs must not be READY for having been asked about small ones."""
    name = plug(tmp_path, FNUZ.format(backend="numpy", body=NUMPY_FNUZ))
    done = run(tmp_path, "-m", "fnuz", "--kernels", name, "-k", "mine and edges")
    assert "UNKNOWN 1 of 1 paths (mine: only some of its cases were run, not float32-float8_e4m3fnuz" in done.stdout


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-m", "fnzu"], "Unknown marker"),
        (["--kernels", "nowhere.py"], "no such file"),
        (["--kernels", "no.such.module"], "does not load"),
        (["--device", "cuda:9"], "torch sees no GPU"),
        (["--device", "emulated:sm_91"], "unknown target 'sm_91'"),
        (["--waivers", "nowhere.toml"], "cannot read waivers"),
        (["--golden", "nowhere", "-k", "golden"], "no golden manifest"),
    ],
)
def test_bad_options_say_what_to_do(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = run(tmp_path, *arguments, *([] if "-k" in arguments else ["-k", "torch_eager and edges"]))
    assert done.returncode not in (0, 5)
    assert words in done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout + done.stderr


def test_two_kernels_of_one_name_are_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "--kernels", plug(tmp_path, HALF_AWAY), "--kernels", plug(tmp_path, HALF_AWAY, "other.py"))
    assert done.returncode == 4
    assert "two kernels are named 'half_away'" in done.stdout + done.stderr


def test_a_policy_that_does_not_fit_the_format_is_refused(tmp_path: Path) -> None:
    name = plug(tmp_path, HALF_AWAY.replace('"float8_e4m3fn"', '"float8_e4m3fnuz"'))
    done = run(tmp_path, "--kernels", name)
    assert done.returncode == 4
    assert "policy 'ocp_saturate' does not fit float8_e4m3fnuz" in done.stdout + done.stderr


def test_nothing_selected_is_not_a_success(tmp_path: Path) -> None:
    assert run(tmp_path, "-k", "no_such_kernel").returncode == 5


def test_our_suites_under_somebody_elses_configuration_are_refused(tmp_path: Path) -> None:
    """Without our strict markers, '-m fnzu' would select nothing and look well."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-c", "pytest.ini", str(PACKAGE / "suites" / "casts")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 4
    assert "the configuration in force is" in done.stdout + done.stderr


def test_other_peoples_tests_are_left_alone(tmp_path: Path) -> None:
    """Options of theirs may have the names of ours."""
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n"
        "    for name in ('--device', '--out', '--kernels', '--depth', '--golden', '--waivers'):\n"
        "        parser.addoption(name)\n"
    )
    (tmp_path / "test_theirs.py").write_text("def test_theirs(): assert True\n")
    command = [sys.executable, "-m", "pytest", "-q"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0
    assert "narrowgauge" not in done.stdout
    assert not (tmp_path / ".narrowgauge").exists()


# --- waivers, entry points --------------------------------------------------------------------------------------------

WAIVER = """
[[waiver]]
kernel = "half_away"
target = "host"
test = "*"
versions = {{ torch = "{versions}" }}
link = "https://example.org/1"
reason = "known"
expires = 2099-01-01
"""


@pytest.mark.parametrize(
    ("versions", "text", "code"),
    [
        (">=2", HALF_AWAY, 0),  # known: waived
        ("<2", HALF_AWAY, 1),  # of another version: failed
        (">=2", HALF_AWAY.replace("floor", "round").replace(" + 0.5", ""), 1),  # mended: the waiver is stale
    ],
)
def test_waivers(tmp_path: Path, versions: str, text: str, code: int) -> None:
    (tmp_path / "waivers.toml").write_text(WAIVER.format(versions=versions))
    done = run(tmp_path, "--kernels", plug(tmp_path, text), "-k", "half_away and edges", "--waivers", "waivers.toml")
    assert done.returncode == code, done.stdout
    assert ("[STALE-WAIVER]" in done.stdout) == ("round(" in text)
    assert ("1 waived" in done.stdout) == (code == 0)


def test_a_waiver_past_its_date_is_said(tmp_path: Path) -> None:
    (tmp_path / "waivers.toml").write_text(WAIVER.format(versions=">=2").replace("2099", "2020"))
    name = plug(tmp_path, HALF_AWAY)
    done = run(tmp_path, "--kernels", name, "-k", "half_away and edges", "--waivers", "waivers.toml")
    assert done.returncode == 0
    assert "past its date (2020-01-01): the waiver for half_away on host, https://example.org/1" in done.stdout


def test_an_observed_kernel_is_what_all_its_cases_say(tmp_path: Path) -> None:
    text = """
    import torch
    from narrowgauge import kernel, Cast, observe

    @kernel(observe(Cast), ["float8_e4m3fn"])
    def saturating(x, format):
        return x.clamp(-448, 448).to(torch.float8_e4m3fn)

    @kernel(observe(Cast), ["float8_e4m3fn"])
    def zero(x, format):
        return torch.zeros(x.shape, dtype=torch.uint8)
    """
    done = run(tmp_path, "--kernels", plug(tmp_path, text), "-k", "(saturating or zero) and not property")
    assert done.returncode == 0, done.stdout
    judged = done.stdout[: done.stdout.index("what each cast returned")].splitlines()
    lines = {line.split()[0]: line for line in judged if line.startswith(("saturating ", "zero "))}
    follows = "gfloat_saturate, ocp_saturate, onnx_saturate, onnx_saturate_until_23, ptx_satfinite, torch_from_2_13"
    assert f"follows {follows}" in lines["saturating"]
    assert "follows no named rule; nearest is" in lines["zero"]


def test_an_installed_entry_point_is_judged(tmp_path: Path) -> None:
    (tmp_path / "installed_kernels.py").write_text(textwrap.dedent(HALF_AWAY))
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[narrowgauge.kernels]\ntheirs = installed_kernels\n")
    done = run(tmp_path, "-k", "half_away and edges", environment={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert "half_away (float32 to float8_e4m3fn) on host, case edges: cast.ties_away" in done.stdout


def test_a_missing_triton_is_said_and_the_rest_runs(tmp_path: Path) -> None:
    """As on a Mac: no Triton, everything else is judged, and the device list says what is missing."""
    if not has_triton():
        pytest.skip("triton is not installed here: the other tests run this way already")
    hide = (
        "import importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'triton' else find(name, package)\n"
    )
    (tmp_path / "sitecustomize.py").write_text(hide)
    environment = {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "narrowgauge", "test", "-k", "ml_dtypes and edges"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout
    assert "not executed: all of narrowgauge.kernels_under_test.triton_cast: triton not installed" in done.stdout
