"""The command ``narrowgauge``: one module per subcommand, no numerics here."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from narrowgauge.contracts.errors import Infrastructure, NarrowgaugeError
from narrowgauge.contracts.verdict import Exit
from narrowgauge.threads import one_thread
from narrowgauge.version import __version__

DESCRIPTION = """\
Conformance and regression tests for low-precision numerics.

A format that cannot hold a number does not raise: it saturates, flushes or turns into NaN, and the service keeps
answering. narrowgauge compares what a kernel returns, code by code, with a bit-exact reference, and names the mistake.
"""
EPILOG = """\
start here:
  narrowgauge test                          judge torch, ml_dtypes, gfloat and our Triton kernels on this machine
  narrowgauge test --kernels my_kernels.py  judge yours (a function marked with @narrowgauge.kernel)
  narrowgauge test -m fnuz --kernels ...    may they go to MI300?
  narrowgauge identify torch_eager          which named policy a kernel follows, whatever it claims
  narrowgauge sweep --kernel torch --format float8_e4m3fn
                                            all 2^32 inputs
  narrowgauge probe --kernel my_gemm.py     what the accumulator of a product of matrices is: bits, order, scales
  narrowgauge cast 500 float8_e4m3fn        one input: what each policy gives, and on whose word
  narrowgauge diff vllm.fp8_per_token_dynamic sglang.fp8_per_token_cta
                                            where two engines' quantizers part, and at which step
  narrowgauge sqnr my_model.py:build --recipe ocp.mxfp8_e4m3
                                            what a recipe costs each linear layer, worst first
  narrowgauge kv my_model.py:build --scales CHECKPOINT
                                            which layers need scales for a narrow key-value cache
  narrowgauge audit MODEL_FOLDER --to float16 --to fnuz
                                            whether a checkpoint survives it, and what to mend
  narrowgauge instructions --kernels my_kernels.py --target sm_90
                                            which matrix units your products become, without that GPU
  narrowgauge lint my_kernels.py            what in a source ties it to one flavour of float8
  narrowgauge inputs cast/ocp_saturate/float32/float8_e4m3fn -o in.safetensors
  narrowgauge judge in.safetensors out.safetensors
                                            judge any program, in any language, on any machine, from files
  narrowgauge judge --stream cast/ocp_saturate/float32/float8_e4m3fn -- ./your_program
                                            or by pipes
  narrowgauge compare results/*             where NVIDIA, AMD, emulated targets and nights part, and why
  narrowgauge explain "!!!!"                from a symptom to its causes; also a format, a policy, a recipe, a fault

exit codes: 0 all well, 1 something is wrong (NOT READY), 3 the machine or installation failed, 4 bad input,
5 nothing was selected, 6 something was not executed (test says so only with --require-verified). Every subcommand
has --json.
"""
#: -1e-3, -0x1.8p3, -nan and -inf, of which argparse by itself knows only the plain decimals
NEGATIVE = re.compile(r"-(\.?\d|nan|inf)", re.IGNORECASE)
#: what shells say of a program whose reader went away (128 + SIGPIPE): neither that all is well nor that it is not
CUT = 141
#: each is a module of this package
SUBCOMMANDS = (
    "devices", "test", "inputs", "judge", "identify", "probe", "instructions", "sweep", "cast", "diff", "sqnr", "kv",
    "audit", "lint", "explain", "golden", "bench",
    "run", "gate", "report", "compare",
)  # fmt: skip


class Parser(argparse.ArgumentParser):
    """argparse with the exit code for wrong arguments that all commands, and pytest, share."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(Exit.BAD_INPUT, f"{self.prog}: error: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; errors that are the user's to mend, and Ctrl-C, are one line, not a traceback."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        print("narrowgauge: interrupted", file=sys.stderr)
        return Exit.INTERRUPTED


def _run(arguments: Sequence[str] | None) -> int:
    parsed, rest = parse(list(sys.argv[1:] if arguments is None else arguments))
    one_thread()  # now that everything is imported
    try:
        return int(parsed.run(parsed, rest))
    except NarrowgaugeError as error:
        print(f"narrowgauge: {error}", file=sys.stderr)
        return Exit.INFRASTRUCTURE if isinstance(error, Infrastructure) else Exit.BAD_INPUT
    except BrokenPipeError:  # "| head" has seen enough
        _drop_output()
        return CUT


def parse(given: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """What a line of words means, and what of it goes to pytest. Exits with 4 where it means nothing."""
    parser = Parser(
        prog="narrowgauge",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"narrowgauge {__version__}")
    subparsers = parser.add_subparsers(title="subcommands", metavar="COMMAND", required=True)
    # One that is named is loaded alone: all of them take longer to import than most take to run.
    for name in given[:1] if given[:1] and given[0] in SUBCOMMANDS else SUBCOMMANDS:
        importlib.import_module(f"{__name__}.{name}").register(subparsers)
    program: list[str] = []
    chosen = subparsers.choices.get(given[0]) if given else None
    if chosen is not None and chosen.get_default("takes_program"):
        given, program = _apart(given)
    if chosen is not None and chosen.get_default("takes_numbers"):
        given = [
            f" {word}" if NEGATIVE.match(word) else word for word in given
        ]  # argparse takes no blank for an option
    parsed, rest = parser.parse_known_args([*given, *program[:1]])
    parsed.program = program
    if rest and not getattr(parsed, "passes_on", False):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return parsed, rest


def _apart(given: list[str]) -> tuple[list[str], list[str]]:
    """What stands before ``--``, and the program with its arguments that stands behind it, in which no option is ours.

    Its first word takes the place of a positional argument.
    """
    place = given.index("--") if "--" in given else len(given)
    return given[:place], given[place + 1 :]


def _drop_output() -> None:
    """Let the interpreter's last flush go nowhere: it would complain of the same pipe again."""
    with contextlib.suppress(OSError):  # where the output is no file, nothing will be flushed into it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
