"""The command: help, exit codes, devices, golden, inputs, judge, test."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from narrowgauge import command
from narrowgauge.command import devices, golden
from narrowgauge.command import test as test_command
from narrowgauge.contracts.errors import Infrastructure
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.contracts.verdict import Exit
from narrowgauge.devices.discovery import default_devices, has_triton
from narrowgauge.devices.targets import EMULATED
from narrowgauge.golden.manifest import NAME, VECTORS, load_manifest
from narrowgauge.suites.meta.command_sets import CLAIM, FILE, SUBCOMMANDS, as_json, ends, refused, said
from narrowgauge.version import __version__

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]

# --- help, usage, exit codes -----------------------------------------------------------------------------------------


def test_help_names_every_subcommand_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["--help"], capsys)
    listed = text.split("subcommands:")[1].split("start here:")[0]
    for name in SUBCOMMANDS:
        assert f" {name} " in listed
    assert len(command.SUBCOMMANDS) == len(SUBCOMMANDS)
    codes = {int(number) for number in re.findall(r"(?<=[:,] )(\d) ", text.split("exit codes:")[0] + text[-400:])}
    assert codes == {int(code) for code in Exit} - {Exit.INTERRUPTED}


@pytest.mark.parametrize(
    "arguments",
    [[name] for name in SUBCOMMANDS] + [["golden", action] for action in ("verify", "diff", "regenerate", "export")],
    ids=" ".join,
)
def test_every_subcommand_has_help_and_promises_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    text = said([*arguments, "--help"], capsys)
    assert text.startswith(f"usage: narrowgauge {' '.join(arguments)}")
    assert ("--json" in text) == (arguments != ["golden"]), "golden leaves it to its actions"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(["--version"], capsys) == f"narrowgauge {__version__}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        (["explain"], "the following arguments are required: NAME"),
        (["golden"], "the following arguments are required: ACTION"),
        (["golden", "export"], "the following arguments are required: -o/--output"),
        (["inputs", CLAIM], "the following arguments are required: -o/--output"),
        (["inputs", CLAIM, "-o", "x", "--depth", "deep"], "invalid choice: 'deep'"),
        (["judge", "in"], "the following arguments are required: OUT"),
        (["devices", "--gpu"], "unrecognized arguments: --gpu"),
        (["golden", "verify", "more"], "unrecognized arguments: more"),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, list) else "",
)
def test_wrong_arguments_are_a_usage_error(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends(arguments) == 4 == int(Exit.BAD_INPUT)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("usage: narrowgauge")
    assert words in captured.err
    assert "Traceback" not in captured.err


def test_a_broken_machine_is_told_from_bad_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise Infrastructure("the child does not start")

    monkeypatch.setattr(devices, "all_devices", fail)
    assert ends(["devices"]) == 3
    assert capsys.readouterr().err == "narrowgauge: the child does not start\n"


# --- devices ---------------------------------------------------------------------------------------------------------


def test_devices_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The host always, every target that is compiled for once; two equal GPUs are two devices of one target."""
    rows = as_json(["devices"], capsys)
    ids = [row["id"] for row in rows]
    assert ids[0] == "host"
    assert len(ids) == len(set(ids))
    without_hardware = [row["target"] for row in rows if not row["id"].startswith(("cuda:", "hip:"))]
    triton = ["interpreter", *(f"emulated-{name}" for name in EMULATED)] if has_triton() else []
    assert without_hardware == ["host", *triton]
    assert {row["id"] for row in rows if row["default"]} == {d.id for d in default_devices()}
    for row in rows:
        assert set(row["hardware_formats"]) | set(row["triton_formats"]) <= FORMATS.keys()
    formats = {row["target"]: row["hardware_formats"] for row in rows}
    if has_triton():
        assert formats["emulated-gfx942"] == ["float8_e4m3fnuz", "float8_e5m2fnuz"]
        assert formats["emulated-gfx950"] == ["float8_e4m3fn", "float8_e5m2"]


def test_devices_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows, text = as_json(["devices"], capsys), said(["devices"], capsys)
    for row in rows:
        assert f"{row['id']} {row['target']} {row['how']}" in text
    assert text.count("* ") == sum(row["default"] for row in rows)


# --- golden ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the vectors that a test may damage."""
    copy = tmp_path / "vectors"
    shutil.copytree(VECTORS, copy)
    return copy


def test_golden_verify(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = len(load_manifest(old)["files"])
    text = said(["golden", "verify", "--golden", str(old)], capsys)
    assert text == f"{count} files of golden vectors are intact, and are what this version generates"
    data = as_json(["golden", "verify", "--golden", str(old)], capsys)
    assert data == {"folder": str(old), "files": count, "problems": []}


def test_golden_verify_is_of_ours(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """That they are generated so is shown in test_golden.py, byte by byte."""
    asked: list[Path] = []

    def none(folder: Path) -> list[str]:
        asked.append(folder)
        return []

    monkeypatch.setattr(golden, "drift", none)
    assert said(["golden", "verify"], capsys).startswith(f"{len(load_manifest(VECTORS)['files'])} files of golden")
    assert asked == [VECTORS]


def test_golden_verify_of_a_damaged_copy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray((folder / FILE).read_bytes())
    content[-1] ^= 1
    (folder / FILE).write_bytes(content)
    problem = f"{FILE} has other bytes than the manifest's sha256 says"
    assert said(["golden", "verify", "--golden", str(folder)], capsys, code=1) == f"[GOLDEN] {problem}"
    assert as_json(["golden", "verify", "--golden", str(folder)], capsys, code=1)["problems"] == [problem]
    assert FILE in refused(["golden", "export", "--golden", str(folder), "-o", str(folder / "out")], capsys)


def test_golden_verify_of_what_this_version_would_not_generate(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = json.loads((old / NAME).read_text())
    manifest["files"][FILE]["flags"]["cast.ties_away"] += 1
    (old / NAME).write_text(json.dumps(manifest))
    text = said(["golden", "verify", "--golden", str(old)], capsys, code=1)
    assert text == f"[GOLDEN-DRIFT] {NAME} would be generated with other bytes"


def test_golden_of_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for action in (["verify"], ["export", "-o", str(tmp_path / "out")]):
        missing = str(tmp_path / "nowhere")
        assert f"cannot read {missing}" in refused(["golden", *action, "--golden", missing], capsys)


def test_golden_regenerate(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["golden", "regenerate", "--golden", str(old)]
    assert said(where, capsys) == "nothing changed"
    (old / FILE).unlink()
    assert as_json(where, capsys) == {"folder": str(old), "changed": [FILE]}
    assert (old / FILE).read_bytes() == (VECTORS / FILE).read_bytes()
    (old / FILE).write_bytes(b"")
    assert said(where, capsys) == f"changed: {FILE}"


def test_golden_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of tensors per family (more on this is in test_export.py)."""
    arguments = ["golden", "export", "-o", str(tmp_path / "out"), "--kind", "safetensors"]
    files = as_json(arguments, capsys)["files"]
    assert files == sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.*"))
    assert len(files) == len(load_manifest(VECTORS)["files"]) + 2
    assert said(arguments, capsys).startswith(f"{tmp_path / 'out'}: {len(files)} files;")


# --- inputs and judge (what they say of files is in test_offline.py) -------------------------------------------------


def test_inputs_says_what_to_return(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, claim = tmp_path / "in.safetensors", "quantize/vllm.fp8_per_token_dynamic/float16/float8_e4m3fnuz"
    text = said(["inputs", claim, "-o", str(path)], capsys)
    data = as_json(["inputs", claim, "-o", str(path)], capsys)
    assert (data["file"], data["claim"]) == (str(path), claim)
    assert data["outputs"] == {"codes": "float8_e4m3fnuz", "scale": "float32"}
    for case, (rows, columns) in data["cases"].items():
        wanted = f"{case}.codes ([{rows}, {columns}] float8_e4m3fnuz), {case}.scale ([{rows}, 1] float32)"
        assert f"{case}.x [{rows}, {columns}] float16 -> {wanted}" in text
    assert text.endswith(f"narrowgauge judge {path} OUTPUTS.safetensors")
    deeper = as_json(["inputs", claim, "-o", str(path), "--depth", "standard"], capsys)
    assert data["cases"].keys() < deeper["cases"].keys()


def test_places_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file" / "x"):
        assert f"cannot write {place}" in refused(["inputs", CLAIM, "-o", str(place)], capsys)
    for action in (["export", "-o"], ["regenerate", "--golden"]):
        assert "cannot write" in refused(["golden", *action, str(tmp_path / "file")], capsys)


def test_judge_as_json_is_a_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    assert ends(["inputs", CLAIM, "-o", str(given)]) == 0
    capsys.readouterr()
    out.write_bytes((2).to_bytes(8, "little") + b"{}")
    data = as_json(["judge", str(given), str(out)], capsys, code=6)
    assert data["schema"] == "narrowgauge.ledger/1"
    assert {row["result"] for row in data["rows"]} == {"not_executed"}


# --- test ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """What is started instead of pytest."""
    commands: list[list[str]] = []

    def run(command: list[str], check: bool, stdout: int | None) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 5)

    monkeypatch.setattr(test_command.subprocess, "run", run)  # type: ignore[attr-defined]
    yield commands
    assert len(commands) == 1


def following(command: list[str], option: str) -> str:
    """The argument after the last such option."""
    return command[len(command) - command[::-1].index(option)]


def test_test_gives_pytest_the_suite_and_its_configuration(started: list[list[str]]) -> None:
    arguments = ["test", "--kernels", "a.py", "--kernels", "b.py", "-m", "fnuz", "-k", "x y", "--depth=standard"]
    assert ends(arguments) == 5, "pytest's own exit code"
    package = test_command.PACKAGE
    (run,) = started
    assert run[0] == sys.executable
    assert {f"--rootdir={package.parent}", str(package / "suites"), "--kernels=a.py", "--kernels=b.py"} <= set(run)
    assert str(package / "pytest.toml") in run
    assert following(run, "-m") == "(fnuz) and not meta"
    assert following(run, "-k") == "x y"
    assert "--depth=standard" in run


def test_test_leaves_the_suite_s_own_tests_out(started: list[list[str]]) -> None:
    ends(["test"])
    assert following(started[0], "-m") == "not meta"


def test_test_runs_the_suite_s_own_tests_when_asked(started: list[list[str]]) -> None:
    ends(["test", "--meta"])
    assert "-m" not in started[0]
    assert not any("--ignore" in argument for argument in started[0])


def test_test_prints_the_ledger_of_this_run_only(
    started: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that lies there from before is not this run's: nothing was selected, so nothing was written."""
    (tmp_path / "ledger.json").write_text('{"from": "before"}')
    assert as_json(["test", f"--out={tmp_path}"], capsys, code=5) == {}


def test_test_prints_the_ledger(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: list[str], check: bool, stdout: int | None) -> subprocess.CompletedProcess[str]:
        (tmp_path / "new.json").write_text('{"from": "this run"}')
        (tmp_path / "new.json").replace(tmp_path / "ledger.json")
        return subprocess.CompletedProcess(command, 1)

    (tmp_path / "ledger.json").write_text('{"from": "before"}')
    monkeypatch.setattr(test_command.subprocess, "run", run)  # type: ignore[attr-defined]
    assert as_json(["test", "--out", str(tmp_path)], capsys, code=1) == {"from": "this run"}


# --- installed -------------------------------------------------------------------------------------------------------


def test_the_installed_command_works_from_anywhere(tmp_path: Path) -> None:
    """From a folder whose own packages have the names of our rooms."""
    script = Path(sysconfig.get_path("scripts")) / "narrowgauge"
    if not script.exists():
        pytest.skip(f"narrowgauge is not installed: there is no {script}")
    for room in ("reference", "golden", "suites", "ci", "devices"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text("raise RuntimeError('a foreign package was imported')")
    done = subprocess.run(
        [str(script), "explain", "--json", "fp8e4b8"], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["values"][0x7F] == "240"


def test_every_module_is_a_subcommand() -> None:
    folder = Path(command.__file__).parent
    assert set(command.SUBCOMMANDS) == {p.stem for p in folder.glob("*.py") if "\ndef register(" in p.read_text()}


def test_a_subcommand_is_loaded_alone() -> None:
    """All of them take longer to import than most take to run."""
    program = "import sys; from narrowgauge.command import main; main(['cast', '1', 'int8']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded = {name.removeprefix("narrowgauge.command.") for name in done.stdout.splitlines()[-1].split()}
    assert loaded & set(command.SUBCOMMANDS) == {"cast"}
