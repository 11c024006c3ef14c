"""What CI engines make of the generated files: YAML, expressions, matrices, interpolation, as far as they are used."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from narrowgauge.ci import lanes

CI = Path(lanes.__file__).resolve().parent
GITHUB, BUILDKITE = CI / "github" / "nightly.yml", CI / "buildkite" / "pipeline.yml"
#: contexts and functions that the expressions use; a name that is none of them is a typing error, which GitHub takes
#: for an empty text
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
TERM = re.compile(
    r"(?:vars\.[A-Z0-9_]+|matrix\.(?:arch|shard)|github\.(?:run_id|run_attempt)|always\(\)|hashFiles\('[^']+'\)"
    r"|'[^']*'|&&|!=|\s+)"
)


class _Loader(yaml.SafeLoader):
    """YAML 1.2, as GitHub reads it: "on" is a word, not true; and a key that stands twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key) for key, _ in node.value]
        assert len(set(keys)) == len(keys), f"{node.start_mark} has a key twice: {keys}"
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    letter: [r for r in found if r[0] != "tag:yaml.org,2002:bool"]
    for letter, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|false"), list("tf"))


def parsed(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(path.read_text(), _Loader)
    return found


def evaluated(text: str, given: Mapping[str, str]) -> str:
    """A text with its expressions replaced. ``given`` are values by name ("vars.SM_90_RUNNER"); what is not set is "",
    as on GitHub."""

    def value(term: str) -> str:
        return term[1:-1] if term.startswith("'") else given.get(term, "")

    def of(found: re.Match[str]) -> str:
        words = found[1].split()
        if len(words) == 3 and words[1] == "&&":
            return value(words[2]) if value(words[0]) else ""
        if len(words) == 3 and words[1] == "!=":
            return "true" if value(words[0]) != value(words[2]) else ""
        assert len(words) == 1, f"an expression that this reader does not know: {found[0]}"
        return "true" if words[0] == "always()" else value(words[0])

    return EXPRESSION.sub(of, text)


def wrong_expressions(text: str) -> list[str]:
    """Expressions that use a name which GitHub, or we, do not know."""
    return [found[0] for found in EXPRESSION.finditer(text) if TERM.sub("", found[1])]


def jobs(workflow: Mapping[str, Any], labels: Mapping[str, str]) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Every job of a GitHub matrix that runs under such labels, and what its expressions see."""
    seen = {f"vars.{name}": label for name, label in labels.items()}
    for name, job in workflow["jobs"].items():
        if name == "gate" or not evaluated(str(job.get("if", "true")), seen):
            continue
        matrix = job["strategy"]["matrix"]
        for values in product(*matrix.values()):
            at = {f"matrix.{key}": str(value) for key, value in zip(matrix, values, strict=True)}
            yield job, {**seen, **at}


def steps(pipeline: Mapping[str, Any], labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The steps of a Buildkite pipeline whose condition holds under such variables of the build, but for the gate's."""
    for step in pipeline["steps"]:
        if "command" not in step or step["key"] == "gate":
            continue
        asked = re.fullmatch(r'build\.env\("(\w+)"\) != null && build\.env\("(\w+)"\) != ""', step.get("if", ""))
        assert asked is not None or "if" not in step
        if asked is None or (asked[1] == asked[2] and labels.get(asked[1])):
            yield step


def interpolated(text: str, variables: Mapping[str, str]) -> str:
    """As `buildkite-agent pipeline upload` does it: ${NAME:-default} now, and $$ is a dollar of the command's own."""

    def of(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        assert found["name"], f"{text!r} has a dollar that the upload would take for its own"
        return variables.get(found["name"]) or found["default"]

    return re.sub(r"\$\$|\$(?:\{(?P<name>\w+):-(?P<default>\w*)\})?", of, text)
