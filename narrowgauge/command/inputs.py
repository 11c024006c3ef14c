"""``narrowgauge inputs``: write the inputs of a claim to a file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.verdict import Exit
from narrowgauge.reference.inputs import DEPTHS
from narrowgauge.suites.offline import write_inputs


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "inputs",
        help="write the inputs of a claim to a safetensors file",
        description="Run any program on what this writes, then give its outputs to 'narrowgauge judge'. A claim is "
        "operation/rule/source/format, for example cast/ocp_saturate/bfloat16/float8_e4m3fn or "
        "quantize/vllm.fp8_per_token_dynamic/float16/float8_e4m3fnuz; the rule '?' observes instead of judging.",
    )
    parser.add_argument("claim", metavar="CLAIM")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    parser.add_argument("--depth", choices=DEPTHS, default="smoke")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    claim = Claim.parse(arguments.claim)
    shapes = write_inputs(claim, arguments.depth, arguments.output)
    if arguments.json:
        print_json({"file": str(arguments.output), "claim": str(claim), "cases": shapes, "outputs": claim.outputs})
        return Exit.OK
    print(f"{arguments.output}: inputs for {claim}")
    for case, shape in shapes.items():
        wanted = ", ".join(f"{case}.{name} ({_shape(name, shape)} {fmt})" for name, fmt in claim.outputs.items())
        print(f"  {case}.x {list(shape)} {claim.source}  ->  {wanted}")
    print("write the outputs under those names, as unsigned integers of the codes or in the format's own dtype; then:")
    print(f"  narrowgauge judge {arguments.output} OUTPUTS.safetensors")
    return Exit.OK


def _shape(output: str, shape: tuple[int, ...]) -> list[int]:
    return [shape[0], 1] if output == "scale" else list(shape)
