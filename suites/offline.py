"""Judging without running: inputs go out as a file, outputs of any program on any machine come back as one.

The inputs file holds a tensor ``CASE.x`` for each case, typed, and what comes beside it (``CASE.scale``), and says in
its metadata what is claimed. The outputs file holds ``CASE.codes`` (and ``CASE.scale``, or what else the recipe
returns), as plain unsigned integers or typed; what stands in a layout is its memory image, in both.
Of a call on a cache the file holds what a kernel is handed, and in its metadata the numbers that go with it; the
outputs file the caches after a write (``CASE.k_cache``), what was read (``CASE.k``, ``CASE.v``), or ``CASE.output``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from narrowgauge.ci.ledger import Row
from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.files import write_whole
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Cast, Claim, Convert, Dequantize, Matmul, OfCache
from narrowgauge.golden.safetensors_file import TensorFile, content_of, has_dtype, metadata_of, read
from narrowgauge.reference.behaviour import resolved
from narrowgauge.reference.inputs import CASES, Depth, cases_for
from narrowgauge.reference.judge import check_claim, judge
from narrowgauge.reference.kv.filed import Extent, call_of, forms_of
from narrowgauge.reference.memory import from_memory, in_memory, read_memory, sent_formats, to_memory
from narrowgauge.reference.message import failure_message
from narrowgauge.reference.portrait import portrait
from narrowgauge.suites.judging import Judged, with_verdict

SCHEMA = "narrowgauge.inputs/1"


def write_inputs(claim: Claim, depth: Depth, path: Path) -> dict[str, tuple[int, ...]]:
    """Write the cases of a claim. Returns their names and the shapes of x, of a cache as a kernel is handed it.

    Raises ``BadInput`` for a claim that cannot be.
    """
    check_claim(claim)
    cases = cases_for(claim, depth)
    write_whole(path, inputs_content(claim, cases, path, depth))
    sent = {name: to_memory(claim, x) for name, x in cases.items()}
    shown = sent if isinstance(claim.contract, OfCache | Convert) else cases
    return {name: x.shape for name, x in shown.items()}


def inputs_content(
    claim: Claim, cases: Mapping[str, Coded], path: Path = Path("inputs.safetensors"), depth: Depth = "smoke"
) -> bytes:
    """The bytes of an inputs file of these cases; ``path`` is for errors alone."""
    metadata = {
        "schema": SCHEMA,
        "claim": str(claim),
        "depth": depth,
        "outputs": outputs_of(claim),
        "cases": list(cases),
        "shapes": {name: _said_of(claim, x) for name, x in cases.items()},
    }
    if isinstance(claim.contract, OfCache):
        metadata["numbers"] = {name: dict(in_memory(claim, x).numbers) for name, x in cases.items()}
    sent = {name: to_memory(claim, x) for name, x in cases.items()}
    tensors = {
        f"{name}.{part}": in_file(value)
        for name, x in sent.items()
        for part, value in {"x": x, **given_with(x)}.items()
    }
    return content_of(path, tensors, metadata, typed=True)


def outputs_content(case: str, outputs: Mapping[str, Coded]) -> bytes:
    """The bytes of an outputs file of one case, with outputs as they lie in memory.

    Raises ``BadInput`` for what is no code of its format.
    """
    if wrong := [name for name, output in outputs.items() if not output.well_formed]:
        raise BadInput(f"{', '.join(wrong)} holds what is no code of its format")
    named = {f"{case}.{name}": output for name, output in outputs.items()}
    return content_of(Path("outputs.safetensors"), named, {}, typed=False)


def outputs_of(claim: Claim) -> dict[str, str]:
    """Names and formats of what an outputs file holds of each case; of a cache or conversion as elements of memory."""
    if isinstance(claim.contract, OfCache | Convert | Matmul):
        first = next(case for case in CASES if case.suits(claim))
        return dict(in_memory(claim, first.inputs(claim)).outputs)
    return resolved(claim).outputs


def _said_of(claim: Claim, x: Coded) -> list[int] | dict[str, Any]:
    """What of a case is not in its tensors: the shape of x as a matrix, the extent of a call on a cache."""
    return Extent.of(claim, x).as_json if isinstance(claim.contract, OfCache) else list(x.shape)


def in_file(value: Coded) -> Coded:
    """Codes of fewer than 8 bits, one to a byte, have no dtype of their own in a file: they go as plain bytes."""
    plain = not has_dtype(value.format) and format_named(value.format).storage.itemsize == 1
    return Coded("uint8", value.data) if plain else value


def judge_files(inputs: Path, outputs: Path, kernel: str, target: str) -> list[Judged]:
    """Verdicts on an outputs file, one per case of its inputs. Raises ``BadInput`` that names file and tensor."""
    claim, cases = read_inputs(inputs)
    answered = read(outputs)
    expected = {f"{case}.{name}" for case in cases for name in outputs_of(claim)}
    if strange := sorted(answered.tensors.keys() - expected):
        raise BadInput(f"{outputs} holds {', '.join(strange)}; expected {', '.join(sorted(expected))}")
    return [_judge_case(claim, case, x, answered, Replay(kernel, target, "file")) for case, x in cases.items()]


def read_inputs(path: Path) -> tuple[Claim, dict[str, Coded]]:
    """The claim of an inputs file and its cases by name. Raises ``BadInput`` for a file that is not one."""
    file = read(path)
    metadata = metadata_of(file, path)
    if metadata.get("schema") != SCHEMA:
        raise BadInput(f"{path} has schema {metadata.get('schema')!r}; this version reads {SCHEMA!r}")
    names = metadata.get("cases")
    if not isinstance(names, list) or not names:
        raise BadInput(f"{path}: its metadata names no cases")
    try:
        claim = Claim.parse(str(metadata.get("claim")))
        check_claim(claim)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error
    shapes = metadata.get("shapes")
    return claim, {str(name): _input(path, file, claim, str(name), shapes) for name in names}


def _input(path: Path, file: TensorFile, claim: Claim, case: str, shapes: Any) -> Coded:
    if isinstance(claim.contract, OfCache):
        return _call(path, file, claim, case, shapes)
    held = sent_formats(claim)
    parts = {part: _tensor(path, file, f"{case}.{part}", format_name) for part, format_name in held.items()}
    x = parts.pop("x")
    if isinstance(claim.contract, Convert | Matmul) or (claim.operation == Dequantize.operation and claim.layouts):
        shape = shapes.get(case) if isinstance(shapes, dict) else None
        if not (isinstance(shape, list) and len(shape) == 2 and all(isinstance(n, int) and n >= 0 for n in shape)):
            raise BadInput(f"{path}: its metadata has no shape [rows, columns] for {case!r}, whose codes are packed")
        try:
            x, parts = read_memory(claim, (shape[0], shape[1]), x, parts)
        except BadInput as error:
            raise BadInput(f"{path}: case {case!r}: {error}") from error
    if claim.operation != Cast.operation and (len(x.shape) != 2 or x.shape[1] == 0):
        raise BadInput(f"{path}: '{case}.x' has shape {list(x.shape)}; expected [rows, columns]")
    return Input(x.format, x.data, parts) if parts else x


def _call(path: Path, file: TensorFile, claim: Claim, case: str, shapes: Any) -> Coded:
    try:
        extent = Extent.read(claim, shapes.get(case) if isinstance(shapes, dict) else None)
        forms = forms_of(claim, extent)
    except BadInput as error:
        raise BadInput(f"{path}: case {case!r}: {error}") from error
    tensors = {name: _tensor(path, file, f"{case}.{name}", form.format) for name, form in forms.items()}
    try:
        return call_of(claim, extent, tensors)
    except BadInput as error:
        raise BadInput(f"{path}: case {case!r}: {error}") from error


def _tensor(path: Path, file: TensorFile, name: str, format_name: str) -> Coded:
    if name not in file.tensors:
        raise BadInput(f"{path} holds no tensor {name!r}, which its metadata promises")
    value = file.tensors[name].as_format(format_name)
    if value.format != format_name or not value.well_formed:
        came = f"{value.data.dtype} of {value.format}"
        raise BadInput(f"{path}: {name!r} came as {came}; expected codes of {format_name}")
    return value


def _judge_case(claim: Claim, case: str, x: Coded, answered: TensorFile, replay: Replay) -> Judged:
    outputs: dict[str, Coded] = {
        name: answered.tensors[f"{case}.{name}"].as_format(format_name)
        for name, format_name in in_memory(claim, x).outputs.items()
        if f"{case}.{name}" in answered.tensors
    }
    if not outputs:
        row = replace(replay.row(claim, case), outcome="not_executed")
        return Judged(replace(row, reason=f"the outputs file holds no tensor of case {case!r}"))
    return replay.judged(claim, case, x, outputs)


@dataclass(frozen=True)
class Replay:
    """Whose answers are judged, and by what way they came."""

    kernel: str
    target: str
    device: str  #: "file" or "stream"

    def judged(
        self, claim: Claim, case: str, x: Coded, outputs: dict[str, Coded], malformed: tuple[str, ...] = ()
    ) -> Judged:
        """The verdict on the outputs of one case; ``malformed`` is what is known to be wrong with their form."""
        outputs, wrong = from_memory(claim, x, outputs)
        verdict = judge(claim, x, outputs, malformed or wrong)
        row = with_verdict(self.row(claim, case), verdict)
        if claim.operation == Cast.operation and not verdict.malformed and "not_a_code" not in verdict.differences:
            row = replace(row, portrait=portrait(x, outputs["codes"]))
        message = "" if verdict.result == "passed" else failure_message(verdict, self.subject(claim, case))
        return Judged(row, message, x=x, outputs=outputs)

    def subject(self, claim: Claim, case: str) -> str:
        return f"{self.kernel} ({claim.source} to {claim.format}) on {self.target}, case {case}"

    def row(self, claim: Claim, case: str) -> Row:
        """The row of a case that has no verdict yet."""
        return _row(claim, case, self)


def _row(claim: Claim, case: str, replay: Replay) -> Row:
    values: dict[str, Any] = {
        "id": f"replayed[{claim.source}-{claim.format}-{case}-{replay.kernel}-{replay.target}]",
        "operation": claim.operation,
        "rule": claim.rule,
        "source": claim.source,
        "format": claim.format,
        "case": case,
        "kernel": replay.kernel,
        "owner": "unowned",
        "own": False,
        "target": replay.target,
        "device": replay.device,
        "how": "replayed",
        "backend": "replayed",
        "result": "not_executed",
        "claim": str(claim),
    }
    return Row(**values)
