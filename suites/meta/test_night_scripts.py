"""What the generated files run: their shell steps, executed in a sandbox, in which only the programs that they call are
stand-ins: docker, tox, buildkite-agent. The gate is the real one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from narrowgauge.ci import lanes
from narrowgauge.suites.meta.engine_files import BUILDKITE, CI, GITHUB, evaluated, interpolated, jobs, parsed, steps
from narrowgauge.suites.meta.night_sets import files_of

pytestmark = pytest.mark.meta

PROJECT = CI.parent
#: writes down its calls, one a line, and builds image "sha256:built"; what runs in it leaves a file, and ends with
#: $CONTAINER_EXIT
DOCKER = """#!/bin/bash
printf '%s\\x1f' "$@" >>"$LOG/docker"; echo >>"$LOG/docker"
case $1 in
build) while [ "$1" != --iidfile ]; do shift; done; printf sha256:built >"$2" ;;
create) echo container-1 ;;
start) touch "$LOG/started"; for _ in $(seq "${CONTAINER_TENTHS:-0}"); do [ -e "$LOG/stopped" ] || sleep 0.1; done
       exit "${CONTAINER_EXIT:-0}" ;;
stop) touch "$LOG/stopped" ;;
cp) echo '{}' >"$3/run.json" ;;
esac
"""
#: in its environment "night" it lays down a shard's results, in "gate" it is narrowgauge; Allure is another test's
TOX = f"""#!/bin/bash
set -e
[ "$1 $2 $4" = "-q -e --" ]
if [ "$3" = night ]; then
  echo "$5 $6 $ARCH $SHARD" >>"$LOG/night"; mkdir -p "$OUT"; cp "$LAID/$ARCH-${{SHARD%%/*}}"/* "$OUT"; exit 0
fi
[ "$3" = gate ]
shift 4
if [ "$1" = report ]; then
  echo "$*" >>"$LOG/report"; mkdir -p site/report site/results; touch site/report/index.html; exit "${{REPORT_EXIT:-0}}"
fi
[ -z "${{GATE_EXIT:-}}" ] || exit "$GATE_EXIT"
exec {sys.executable} -m narrowgauge "$@"
"""
AGENT = """#!/bin/bash
echo "$*" >>"$LOG/agent"
case $1 in
annotate) cat >"$LOG/annotation" ;;
artifact) cp "$LOG"/artifacts/* . ;;
esac
"""


@dataclass
class Sandbox:
    """A copy of the scripts, stand-ins on the path, and nothing of this process's environment."""

    folder: Path

    def __post_init__(self) -> None:
        for name in ("bin", "log", "ci"):
            (self.folder / name).mkdir(parents=True)
        for script in [*CI.glob("*.sh"), CI / "containers"]:
            copy = shutil.copytree if script.is_dir() else shutil.copy
            copy(script, self.folder / "ci" / script.name)
        for name, text in (("docker", DOCKER), ("tox", TOX), ("buildkite-agent", AGENT)):
            self.program(name, text)

    def program(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "LOG": str(self.folder / "log"),
            "LAID": str(self.folder / "laid"),
            "PYTHONPATH": str(PROJECT),
            "PODINFO": str(self.folder / "podinfo"),
            "GIT_CEILING_DIRECTORIES": str(self.folder.parent),
        }

    def start(self, command: str, given: Mapping[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-e", "-c", command], cwd=self.folder, env={**self.environment, **given}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def run(self, command: str, given: Mapping[str, str]) -> tuple[int, str]:
        """Exit code and output, as an engine would run a step."""
        with self.start(command, given) as process:
            said, _ = process.communicate(timeout=60)
        return process.returncode, said

    def log(self, name: str) -> list[str]:
        path = self.folder / "log" / name
        return path.read_text().splitlines() if path.exists() else []

    def docker(self, verb: str) -> list[str]:
        """The arguments of docker's one call with that verb."""
        (found,) = [call.split("\x1f")[1:-1] for call in self.log("docker") if call.startswith(f"{verb}\x1f")]
        return found

    def wait_for(self, path: str) -> None:
        for _ in range(600):
            if (self.folder / path).exists():
                return
            time.sleep(0.05)
        raise AssertionError(f"{path} was never there")


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path / "checkout")


def packed(path: Path) -> list[str]:
    with tarfile.open(path) as file:
        return sorted(member.name for member in file if member.isfile())


# --- a shard ---------------------------------------------------------------------------------------------------------


def test_results_are_packed_and_the_exit_code_is_the_runs(sandbox: Sandbox) -> None:
    command = "bash ci/shard.sh bash -c 'mkdir -p $OUT/allure-results; echo > $OUT/run.json; exit 3'"
    code, _ = sandbox.run(command, {"ARCH": "sm_90", "SHARD": "2/3"})
    assert code == 3
    assert packed(sandbox.folder / "results-sm_90-2.tgz") == ["sm_90-2/run.json"]


def test_a_run_that_leaves_nothing_leaves_an_empty_shard(sandbox: Sandbox) -> None:
    assert sandbox.run("bash ci/shard.sh false", {"ARCH": "cpu", "SHARD": "1/1", "OUT": "there"})[0] == 1
    assert packed(sandbox.folder / "results-cpu-1.tgz") == []


def test_a_shard_of_a_parallel_step_is_counted_from_one(sandbox: Sandbox) -> None:
    given = {"ARCH": "sm_90", "BUILDKITE_PARALLEL_JOB": "1", "BUILDKITE_PARALLEL_JOB_COUNT": "3"}
    code, said = sandbox.run("bash ci/shard.sh bash -c 'echo $ARCH $SHARD $OUT'", given)
    assert (code, said.split()) == (0, ["sm_90", "2/3", "results/sm_90-2"])


def test_no_architecture_is_an_error(sandbox: Sandbox) -> None:
    code, said = sandbox.run("bash ci/shard.sh true", {})
    assert code != 0
    assert "names the architecture" in said


def test_a_job_that_is_ended_from_outside_keeps_what_it_has(sandbox: Sandbox) -> None:
    inside = "trap 'echo > $OUT/ended; exit 5' TERM; mkdir -p $OUT; touch began; while :; do sleep 0.05; done"
    process = sandbox.start(f'exec bash ci/shard.sh bash -c "{inside}"'.replace("$", r"\$"), {"ARCH": "sm_90"})
    sandbox.wait_for("began")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 5
    assert packed(sandbox.folder / "results-sm_90-1.tgz") == ["sm_90-1/ended"]


# --- containers ------------------------------------------------------------------------------------------------------

GPU_LANES = [lane for lane in lanes.load().values() if lane.image]


@pytest.mark.parametrize("lane", GPU_LANES, ids=lambda lane: lane.name)
def test_a_container_sees_the_gpus_and_runs_the_shard(lane: lanes.Lane, sandbox: Sandbox) -> None:
    given = {"ARCH": lane.targets[0], "SHARD": "1/2", "OUT": "out", "CONTAINER_EXIT": "3"}
    code, _ = sandbox.run(f"bash ci/containers/{lane.name}.sh -k some", given)
    assert code == 3
    assert (sandbox.folder / "out" / "run.json").exists()
    assert f"IMAGE={lane.image}" in sandbox.docker("build")
    create = sandbox.docker("create")
    options, inside = create[: create.index("sha256:built")], create[create.index("sha256:built") + 1 :]
    assert inside == ["narrowgauge", "run", "--lane", lane.name, "--out", "/results", "-k", "some"]
    assert set(lane.container) <= set(options)
    # facts of the vendors: without these a container sees no GPU
    needed = {"cuda": {"--gpus=all"}, "hip": {"--device=/dev/kfd", "--device=/dev/dri", "--group-add=video"}}
    assert needed[lane.vendor] <= set(options)
    assert {"--init", "--env=ARCH", "--env=SHARD"} <= set(options)
    assert sandbox.docker("rm") == ["--force", "container-1"]


def test_another_image_and_another_program_can_be_run(sandbox: Sandbox) -> None:
    given = {"ARCH": "gfx942", "OUT": "out", "IMAGE": "mine:1.0", "COMMAND": "python -m mine"}
    sandbox.run("bash ci/containers/rocm.sh", given)
    assert "IMAGE=mine:1.0" in sandbox.docker("build")
    assert sandbox.docker("create")[-5:] == ["python", "-m", "mine", "--out", "/results"]


def test_a_container_is_given_no_secrets_and_no_variable_that_is_not_set(sandbox: Sandbox) -> None:
    secrets = {"BUILDKITE_AGENT_ACCESS_TOKEN": "s3cret", "GITHUB_TOKEN": "s3cret", "AWS_SECRET_ACCESS_KEY": "s3cret"}
    given = {"ARCH": "sm_90", "OUT": "out", "GITHUB_RUN_ID": "7", "ROCR_VISIBLE_DEVICES": "", **secrets}
    sandbox.run("bash ci/containers/cuda.sh", given)
    named = {o.removeprefix("--env=") for o in sandbox.docker("create") if o.startswith("--env=")}
    assert {n for n in named if "=" not in n} == {"ARCH", "SHARD", "GITHUB_RUN_ID"}
    assert "s3cret" not in "".join(sandbox.log("docker"))


def test_a_machine_that_is_shared_out_says_which_gpus_are_ours(sandbox: Sandbox) -> None:
    podinfo = sandbox.folder / "podinfo"
    podinfo.mkdir()
    (podinfo / "gha-render-devices").write_text("--device /dev/dri/renderD129\n--device /dev/dri/renderD130\n")
    (podinfo / "gha-gpu-isolation-settings").write_text("ROCR_VISIBLE_DEVICES=1,2\n")
    assert sandbox.run("bash ci/containers/rocm.sh", {"ARCH": "gfx942", "OUT": "out"})[0] == 0
    options = sandbox.docker("create")
    at = options.index("--device")
    assert options[at : at + 4] == ["--device", "/dev/dri/renderD129", "--device", "/dev/dri/renderD130"]
    assert "--device=/dev/dri" not in options
    assert f"--env-file={podinfo / 'gha-gpu-isolation-settings'}" in options
    assert "--env=ROCR_VISIBLE_DEVICES" not in options, "it would take away what the file sets"


def test_a_container_that_is_ended_from_outside_is_stopped_and_its_results_are_kept(sandbox: Sandbox) -> None:
    given = {"ARCH": "sm_90", "OUT": "out", "CONTAINER_TENTHS": "300"}
    process = sandbox.start("exec bash ci/containers/cuda.sh", given)
    sandbox.wait_for("log/started")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert sandbox.docker("stop") == ["--time=60", "container-1"]
    assert (sandbox.folder / "out" / "run.json").exists()
    assert sandbox.docker("rm") == ["--force", "container-1"]


# --- the vendor's torch is kept --------------------------------------------------------------------------------------


def installed(folder: Path, **versions: str) -> None:
    """Distributions as pip would have left them, each with one file."""
    for name, version in versions.items():
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text(f"{name}/__init__.py,sha256=vendor,10\n")


#: a Python of an image: its pip does $PIP_DOES to the site, and it sees nothing but that site
PYTHON = f"""#!/bin/bash
if [ "$1 $2" = "-m pip" ]; then
  echo "$*" >>"$LOG/pip"; cd "$SITE"; eval "$PIP_DOES"; exit 0
fi
PYTHONPATH="$SITE" exec {sys.executable} -S "$@"
"""


@pytest.mark.parametrize(
    ("pip_does", "kept"),
    [
        ("mkdir gfloat-0.5.dist-info", True),
        ("sed -i s/vendor/index/ triton-3.5.1.dist-info/RECORD", False),  # another build of the same version
        ("sed -i s/2.10.0/2.13.0/ torch-2.10.0.dist-info/METADATA", False),
        ("rm -r triton-3.5.1.dist-info", False),
    ],
    ids=["kept", "another build", "another version", "gone"],
)  # fmt: skip
def test_an_installation_that_replaces_the_vendors_torch_or_triton_fails(
    pip_does: str, kept: bool, sandbox: Sandbox
) -> None:
    site = sandbox.folder / "site"
    installed(site, torch="2.10.0", triton="3.5.1")
    sandbox.program("python3", PYTHON)
    code, said = sandbox.run("bash ci/containers/install.sh", {"SITE": str(site), "PIP_DOES": pip_does})
    assert (code == 0) == kept, said
    assert ("others than before" in said) == (not kept)
    (pip,) = sandbox.log("pip")
    assert not re.search(r"\b(torch|triton)\b", pip), "on ROCm the default index has another vendor's Triton"


def test_an_image_without_torch_is_refused(sandbox: Sandbox) -> None:
    (sandbox.folder / "site").mkdir()
    sandbox.program("python3", PYTHON)
    given = {"SITE": str(sandbox.folder / "site"), "PIP_DOES": "true"}
    code, said = sandbox.run("bash ci/containers/install.sh", given)
    assert code != 0
    assert "this Python has no torch" in said
    assert sandbox.log("pip") == []


def test_the_image_is_the_vendors_and_nothing_is_fetched_besides() -> None:
    lines = [x for x in (CI / "containers" / "Dockerfile").read_text().splitlines() if x and not x.startswith("#")]
    assert lines[:2] == ["ARG IMAGE", "FROM ${IMAGE}"]
    assert [x for x in lines if x.startswith("RUN")] == ["RUN bash ci/containers/install.sh"]


# --- a whole night, as the engines run it ----------------------------------------------------------------------------

LABELS = {"SM_90_RUNNER": "gpu-h100"}
#: machines that the engine lends
LENT = lanes.load()["cpu"].shards
CPU = [("cpu/cpu", k, LENT) for k in range(1, LENT + 1)]
RUN, GATE = "Run", "Gate"


def left(sandbox: Sandbox, *shards: tuple[str, int, int]) -> None:
    """Lay ready what `narrowgauge run` leaves of shards: (place, shard, shards)."""
    for place, shard, shards_ in shards:
        files_of(place, shard, shards_).write(sandbox.folder / "laid" / f"{place.split('/')[1]}-{shard}")


def github_night(sandbox: Sandbox) -> None:
    """Every shard's step of the workflow that runs without a container."""
    for job, seen in jobs(parsed(GITHUB), {}):
        run = next(s["run"] for s in job["steps"] if s.get("name") == RUN)
        given = {name: evaluated(text, seen) for name, text in job["env"].items()}
        assert sandbox.run(run, given)[0] == 0


def github_gate(sandbox: Sandbox, labels: Mapping[str, str], **given: str) -> tuple[int, str]:
    gate = parsed(GITHUB)["jobs"]["gate"]
    step = next(s for s in gate["steps"] if s.get("name") == GATE)
    expect = evaluated(gate["env"]["EXPECT"], {f"vars.{n}": v for n, v in labels.items()})
    return sandbox.run(step["run"], {"EXPECT": expect, "GITHUB_STEP_SUMMARY": "step.md", **given})


def test_the_workflow_makes_a_night_of_the_cpu_lane_and_judges_it(sandbox: Sandbox) -> None:
    left(sandbox, *CPU)
    github_night(sandbox)
    assert sandbox.log("night") == [f"--lane cpu cpu {k}/{LENT}" for _, k, _ in CPU]
    code, said = github_gate(sandbox, {})
    assert code == 0, said
    assert (sandbox.folder / "step.md").read_text() == (sandbox.folder / "summary.md").read_text() != ""
    assert (sandbox.folder / "history" / "nights.json.gz").exists()
    assert packed(sandbox.folder / "report.tgz") == ["report/index.html"]
    assert sandbox.log("report") == [
        f"report {' '.join(f'night/cpu-{k}/' for _, k, _ in CPU)} --install --out site --single-file "
        "--history history/allure.jsonl"
    ]


def test_waivers_of_ones_own_go_to_the_gate_and_to_the_report(sandbox: Sandbox) -> None:
    left(sandbox, *CPU)
    github_night(sandbox)
    code, said = sandbox.run("bash ci/gate.sh --waivers mine.toml", {"EXPECT": "cpu/cpu"})
    assert code == 4, said
    assert "mine.toml" in said
    assert sandbox.log("report")[0].endswith("--history history/allure.jsonl --waivers mine.toml")


def test_no_results_at_all_are_red_and_no_report_is_made(sandbox: Sandbox) -> None:
    assert github_gate(sandbox, LABELS)[0] == 3
    said = (sandbox.folder / "summary.md").read_text().replace("\\", "")
    assert "nothing came of cpu/cpu" in said
    assert "nothing came of cuda/sm_90" in said
    assert not (sandbox.folder / "report.tgz").exists()


def test_a_cut_file_is_red_and_the_others_are_judged(sandbox: Sandbox) -> None:
    left(sandbox, *CPU, ("cuda/sm_90", 1, 1))
    github_night(sandbox)
    sandbox.run("bash ci/shard.sh bash -c 'cp -R laid/sm_90-1 $OUT'", {"ARCH": "sm_90"})
    whole = (sandbox.folder / "results-sm_90-1.tgz").read_bytes()
    (sandbox.folder / "results-sm_90-1.tgz").write_bytes(whole[: len(whole) // 2])
    code, said = github_gate(sandbox, LABELS)
    assert code == 3
    assert "results-sm_90-1.tgz is damaged" in said
    assert "cpu-1" in " ".join(sandbox.log("report"))


def test_the_gates_exit_code_counts_and_then_the_reports(sandbox: Sandbox) -> None:
    left(sandbox, *CPU)
    github_night(sandbox)
    assert github_gate(sandbox, {}, GATE_EXIT="0", REPORT_EXIT="9")[0] == 9
    shutil.rmtree(sandbox.folder / "site")
    assert github_gate(sandbox, {}, GATE_EXIT="1", REPORT_EXIT="9")[0] == 1


def test_of_three_shards_one_is_lost_and_the_gate_says_which(sandbox: Sandbox) -> None:
    """By Buildkite's files: what its agent would set, three machines, of which the second left nothing."""
    left(sandbox, *CPU, *(("cuda/sm_90", k, 3) for k in (1, 2, 3)))
    pipeline = parsed(BUILDKITE)
    for step in steps(pipeline, {}):
        for job in range(step.get("parallelism", 1)):
            given = {"BUILDKITE_PARALLEL_JOB": str(job), "BUILDKITE_PARALLEL_JOB_COUNT": str(LENT)}
            assert sandbox.run(interpolated(step["command"], {}), {**step["env"], **given})[0] == 0
    for k in (1, 3):
        given = {"ARCH": "sm_90", "BUILDKITE_PARALLEL_JOB": str(k - 1), "BUILDKITE_PARALLEL_JOB_COUNT": "3"}
        assert sandbox.run(f"bash ci/shard.sh bash -c 'cp -R laid/sm_90-{k} $OUT'", given)[0] == 0
    kept = sandbox.folder / "log" / "artifacts"
    kept.mkdir()
    for file in sandbox.folder.glob("results-*.tgz"):
        file.rename(kept / file.name)
    # Of an earlier night, in a checkout that nobody cleaned: the shard that is lost now.
    stale = files_of("cuda/sm_90", 2, 3).write(sandbox.folder / "night" / "sm_90-2")
    with tarfile.open(sandbox.folder / "results-sm_90-2.tgz", "w:gz") as tarball:
        tarball.add(stale, "sm_90-2")
    code, said = sandbox.run(interpolated(pipeline["steps"][-1]["command"], {}), {**LABELS, "BUILDKITE": "true"})
    assert code == 3
    assert "cuda/sm_90 2/3" in said
    assert "cuda/sm_90 1/3" not in said.split("slowest")[0]
    assert sandbox.log("agent") == [
        "artifact download results-*.tgz .", "annotate --context gate --style error"
    ]  # fmt: skip
    assert (sandbox.folder / "log" / "annotation").read_text() == (sandbox.folder / "summary.md").read_text()
