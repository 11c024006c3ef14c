"""Files for CI engines, generated from ci/lanes.toml: a job for each lane, architecture and shard, then the gate.

    python -m narrowgauge.ci.templates            write them
    python -m narrowgauge.ci.templates --check    say whether they are as lanes.toml has it; exit code 1 if not

The scripts that they call (shard.sh, gate.sh, containers/) are the same for every engine, and for a person.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from narrowgauge.ci.lanes import OWN, Lane, load
from narrowgauge.contracts.errors import NarrowgaugeError
from narrowgauge.contracts.files import write_whole
from narrowgauge.contracts.verdict import Exit

HERE = Path(__file__).parent
#: minutes that a shard's machine has besides the lane's own, to install or to fetch an image of many gigabytes
SPARE = 60
#: minutes of the gate with its report
GATE = 45
#: variables that a container is given: the contract, which GPUs are ours, how to search, and whose job this is
PASSED = (
    "ARCH", "SHARD", "HYPOTHESIS_PROFILE", "NARROWGAUGE_COMMIT",
    "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
    "GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT",
    "BUILDKITE_BUILD_URL", "BUILDKITE_RETRY_COUNT",
)  # fmt: skip
#: files that hold all lanes, by their template
ENGINES = {"github/nightly.yml": "github.yml.jinja", "buildkite/pipeline.yml": "buildkite.yml.jinja"}
#: the script of one lane that runs in a container
CONTAINER = "container.sh.jinja"


def rendered(lanes: Path = OWN) -> dict[str, str]:
    """Every generated file, by its path below ci/. Raises ``BadInput`` where the lanes are not as they must be."""
    found = list(load(lanes).values())
    # GitHub has {{ }} for itself, and shells have << >>.
    environment = Environment(
        loader=FileSystemLoader(HERE),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        block_start_string="@%",
        block_end_string="%@",
        variable_start_string="@{",
        variable_end_string="}@",
        comment_start_string="@#",
        comment_end_string="#@",
    )  # fmt: skip
    environment.filters["quoted"] = _quoted
    common: dict[str, Any] = {"spare": SPARE, "gate": GATE, "passed": PASSED}
    files = {name: environment.get_template(t).render(lanes=found, **common) for name, t in ENGINES.items()}
    for lane in found:
        if lane.image:
            files[script(lane)] = environment.get_template(CONTAINER).render(lane=lane, **common)
    return files


def _quoted(text: str) -> str:
    """One word of a shell. shlex.quote leaves commas bare, which shellcheck takes for a mistake in a list."""
    return "'" + text.replace("'", "'\\''") + "'"


def script(lane: Lane) -> str:
    """The path of a lane's container script below ci/."""
    return f"containers/{lane.name}.sh"


def differing(folder: Path = HERE, lanes: Path = OWN) -> list[str]:
    """Generated files that are missing in a folder, or other than the lanes say."""
    return [n for n, text in rendered(lanes).items() if not (folder / n).is_file() or (folder / n).read_text() != text]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the files for CI engines from ci/lanes.toml.")
    parser.add_argument("--check", action="store_true", help="write nothing, and say what differs")
    parser.add_argument("--lanes", type=Path, default=OWN, metavar="FILE", help="lanes of your own")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="another folder than ci/")
    given = parser.parse_args(arguments)
    try:
        stale = differing(given.out, given.lanes)
        for name in stale:
            print(f"{given.out / name} {'is not as ' + str(given.lanes) + ' has it' if given.check else 'written'}")
            if not given.check:
                write_whole(given.out / name, rendered(given.lanes)[name].encode())
    except NarrowgaugeError as error:
        print(f"templates: {error}", file=sys.stderr)
        return Exit.BAD_INPUT
    return Exit.FAILED if given.check and stale else Exit.OK


if __name__ == "__main__":
    sys.exit(main())
