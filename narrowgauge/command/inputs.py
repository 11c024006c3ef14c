"""``narrowgauge inputs``: write the inputs of a claim to a file or a pipe."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.files import write_whole
from narrowgauge.contracts.operations import Attend, Claim, Convert, KvRead, KvWrite, Matmul, Observe
from narrowgauge.contracts.verdict import Exit
from narrowgauge.reference.form import shaped
from narrowgauge.reference.inputs import DEPTHS
from narrowgauge.suites.offline import outputs_of, write_inputs
from narrowgauge.suites.stream import Stream

#: what is wanted of a call on a cache
OF_CALLS = {
    KvWrite.operation: "caches come back whole, as they are after the write",
    KvRead.operation: "values are those of all sequences, one after the other: [tokens, columns]",
    Convert.operation: "buffers are what a conversion gives, as it packs them (narrowgauge explain)",
    Matmul.operation: "results are [M, N]; of a packed operand the file holds the memory image",
    Attend.operation: "outputs are [sequences, query heads x columns of a head]",
}


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "inputs",
        help="write the inputs of a claim to a safetensors file, or as a stream",
        description="Run any program on what this writes, then give its outputs to 'narrowgauge judge'. A claim is "
        "operation/rule/source/format, for example cast/ocp_saturate/bfloat16/float8_e4m3fn or "
        "quantize/vllm.fp8_per_token_dynamic/float16/float8_e4m3fnuz; the rule '?' observes instead of judging. "
        "With --stream the patterns of a cast's inputs go to standard output, one hexadecimal number to a line.",
    )
    parser.add_argument("claim", metavar="CLAIM")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="needed without --stream")
    parser.add_argument("--stream", action="store_true", help="casts only: a pattern to a line (see 'judge --stream')")
    parser.add_argument("--binary", action="store_true", help="with --stream: little-endian words instead of lines")
    parser.add_argument("--depth", choices=DEPTHS, default="smoke")
    add_json(parser)
    parser.set_defaults(run=run, fail=parser.error)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    if arguments.stream:
        return _stream(arguments)
    if arguments.output is None:
        arguments.fail("the following arguments are required: -o/--output")
    if arguments.binary:
        raise BadInput("--binary goes with --stream; a safetensors file is binary anyhow")
    claim = Claim.parse(arguments.claim)
    shapes = write_inputs(claim, arguments.depth, arguments.output)
    outputs = outputs_of(claim)
    if arguments.json:
        print_json({"file": str(arguments.output), "claim": str(claim), "cases": shapes, "outputs": outputs})
        return Exit.OK
    print(f"{arguments.output}: inputs for {claim}")
    about = OF_CALLS.get(claim.operation, "")
    for case, shape in shapes.items():
        wanted = (f"{case}.{n} ({f})" for n, f in outputs.items()) if about else _wanted(claim, case, shape)
        print(f"  {case}.x {list(shape)}{'' if about else f' {claim.source}'}  ->  {', '.join(wanted)}")
    if about:
        print(f"{about}; numbers that go with a case, as heads and block_size, are in the file's metadata")
    print("write the outputs under those names, as unsigned integers of the codes or in the format's own dtype; then:")
    print(f"  narrowgauge judge {arguments.output} OUTPUTS.safetensors")
    return Exit.OK


def _stream(arguments: argparse.Namespace) -> int:
    stream = Stream.of(Claim.parse(arguments.claim), arguments.depth, arguments.binary)
    if arguments.output:
        write_whole(arguments.output, b"".join(stream.questions()))
        if arguments.json:
            cases = {name: x.shape for name, x in stream.cases.items()}
            print_json({"file": str(arguments.output), "claim": str(stream.claim), "cases": cases})
        return Exit.OK
    if arguments.json:
        raise BadInput("--json and the stream would both go to standard output; give a file for the stream with -o")
    for block in stream.questions():
        sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()
    return Exit.OK


def _wanted(claim: Claim, case: str, shape: tuple[int, ...]) -> Iterator[str]:
    for name, interval in shaped(claim, shape).items():
        size = "of the blocks" if isinstance(claim.contract, Observe) and name != "codes" else list(interval.low.shape)
        yield f"{case}.{name} ({size} {interval.format})"
