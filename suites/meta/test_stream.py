"""Judging by streams: the verdicts of the file form, whatever a program writes, and when."""

from __future__ import annotations

import os
import random
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.inputs import cases_for
from narrowgauge.suites.judging import Judged
from narrowgauge.suites.meta.command_sets import refused
from narrowgauge.suites.meta.offline_program import (
    CAST,
    Array,
    judged,
    load,
    saturating_cast,
    ties_away_cast,
)
from narrowgauge.suites.offline import write_inputs
from narrowgauge.suites.stream import Answers, Stream, as_lines, judge_answers, judge_program

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]

#: a cast with few inputs, and the child's part of a program that answers it: integers as codes, saturating
FEW = "cast/integer_nearest/float8_e5m2/int4"
TOTAL = sum(x.data.size for x in cases_for(Claim.parse(FEW), "smoke").values())
RIGHT = """
import sys, struct
def code(bits):
    value = struct.unpack("<e", struct.pack("<H", bits << 8))[0]
    return 0 if value != value else max(-8, min(7, round(max(-9.0, min(9.0, value))))) & 15
"""
LINES = "for line in sys.stdin: print('%x' % code(int(line, 16)))\n"


def program(body: str) -> list[str]:
    return [sys.executable, "-S", "-c", RIGHT + body]


def run(body: str, patience: float = 60.0, binary: bool = False) -> list[Judged]:
    """Verdicts on a program of that body, asked for ``FEW``."""
    return judge_program(Stream.of(Claim.parse(FEW), "smoke", binary), program(body), patience, "theirs", "gfx942")


def results(found: list[Judged]) -> set[str]:
    return {one.row.result for one in found}


def answered(claim: str, content: bytes, binary: bool = False) -> list[Judged]:
    """Verdicts on answers that are there already, in blocks of uneven lengths."""
    cuts = random.Random(len(content))
    blocks, place = [], 0
    while place < len(content):
        size = cuts.choice([1, 7, 4096, 70_000])
        blocks.append(content[place : place + size])
        place += size
    stream = Stream.of(Claim.parse(claim), "smoke", binary)
    return judge_answers(stream, blocks, "answers.txt", "theirs", "gfx942")


# --- both ways -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "line"),
    [("float64", 17), ("float32", 9), ("tfloat32", 6), ("bfloat16", 5), ("float8_e4m3fn", 3), ("float6_e2m3fn", 3),
     ("float4_e2m1fn", 2)],
)  # fmt: skip
def test_lines_have_the_digits_of_their_format(source: str, line: int) -> None:
    fmt = FORMATS[source]
    codes = np.array([0, 1, 10, fmt.code_count - 1, fmt.code_count // 3], fmt.storage)
    text = as_lines(codes, fmt)
    assert len(text) == line * codes.size
    assert [int(part, 16) for part in text.split()] == codes.tolist()
    assert text.decode().splitlines()[3] == f"{fmt.code_count - 1:x}"


@pytest.mark.parametrize("binary", [False, True])
def test_questions_are_all_inputs_in_order(binary: bool) -> None:
    claim = Claim.parse(CAST)
    stream = Stream.of(claim, "smoke", binary)
    whole = b"".join(stream.questions())
    live = np.concatenate([x.codes for x in cases_for(claim, "smoke").values()])
    got = np.frombuffer(whole, "<u2") if binary else np.array([int(line, 16) for line in whole.split()])
    np.testing.assert_array_equal(got, live)
    assert stream.total == live.size


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda codes: codes,
        lambda codes: codes ^ 1,
        lambda codes: codes & 0x7F,
        lambda codes: np.where(codes & 0x7F == 0x7F, 0, codes),
    ],
    ids=["right", "lowest bit", "no sign", "nan to zero"],
)
@pytest.mark.parametrize("claim", [CAST, "cast/?/bfloat16/float8_e4m3fn"])
def test_the_same_verdict_as_from_files(claim: str, spoil: Any, binary: bool, tmp_path: Path) -> None:
    """Row and message, in everything but the way that the answers came."""
    inputs = tmp_path / "in.safetensors"
    write_inputs(Claim.parse(claim), "smoke", inputs)
    codes = {case: spoil(saturating_cast(v, "float8_e4m3fn")).astype(np.uint8) for case, v in load(inputs).items()}
    by_file = judged(inputs, {f"{case}.codes": c for case, c in codes.items()})
    whole = np.concatenate(list(codes.values()))
    content = whole.tobytes() if binary else "".join(f"{code:x}\n" for code in whole.tolist()).encode()
    by_stream = answered(claim, content, binary)
    assert [one.message for one in by_stream] == [one.message for one in by_file]
    assert [replace(one.row, device="file") for one in by_stream] == [one.row for one in by_file]
    assert {one.row.device for one in by_stream} == {"stream"}


def test_a_wrong_cast_is_named() -> None:
    claim = "cast/ocp_saturate/float32/float8_e4m3fn"
    values = [x.codes.view(np.float32) for x in cases_for(Claim.parse(claim), "smoke").values()]
    codes = np.concatenate([ties_away_cast(v, "float8_e4m3fn") for v in values])
    found = answered(claim, "".join(f"{code:x}\n" for code in codes.tolist()).encode())
    assert {one.row.faults for one in found} == {("cast.ties_away",)}
    assert found[0].message.startswith("[TIES] theirs (float32 to float8_e4m3fn) on gfx942, case edges: cast.ties_away")


@pytest.mark.parametrize("text", ["{:x}", "{:X}", "0x{:02x}", "0X{:04X}", "{:016x}"])
@pytest.mark.parametrize(("end", "last"), [("\n", "\n"), ("\r\n", "\r\n"), ("\n", "")])
def test_how_a_code_may_be_written(text: str, end: str, last: str) -> None:
    x = cases_for(Claim.parse(FEW), "smoke").values()
    codes = np.concatenate([integers(part.codes) for part in x])
    content = end.join(text.format(code) for code in codes.tolist()) + last
    assert results(answered(FEW, content.encode())) == {"passed"}


def integers(patterns: Array) -> Array:
    """int4 codes of float8_e5m2 patterns, which are the upper half of float16's: what ``RIGHT`` does, by numpy."""
    value = (patterns.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    rounded: Array = np.rint(np.nan_to_num(value, nan=0.0, posinf=9, neginf=-9).clip(-8, 7)).astype(np.int8)
    return np.bitwise_and(rounded.view(np.uint8), 15)


# --- programs --------------------------------------------------------------------------------------------------------

#: each answers rightly, in another rhythm
RHYTHMS = {
    "line by line": LINES,
    "flushed": "for line in sys.stdin: print('%x' % code(int(line, 16)), flush=True)\n",
    "everything is read first": "lines = sys.stdin.readlines()\nfor line in lines: print('%x' % code(int(line, 16)))\n",
    "closes early and says so": LINES + "sys.stdout.flush(); import os; os.close(1)\n",
    "complains": "print('a warning', file=sys.stderr)\n" + LINES,
}


@pytest.mark.parametrize("rhythm", RHYTHMS)
def test_a_right_program_passes_in_any_rhythm(rhythm: str, capfd: pytest.CaptureFixture[str]) -> None:
    found = run(RHYTHMS[rhythm])
    assert results(found) == {"passed"}
    assert [one.row.case for one in found] == ["edges", "every_code"]
    assert ("a warning" in capfd.readouterr().err) == (rhythm == "complains")


def test_a_program_in_words() -> None:
    body = "words = sys.stdin.buffer.read()\nout = bytes(code(w) for w, in struct.iter_unpack('<B', words))\n"
    assert results(run(body + "sys.stdout.buffer.write(out)", binary=True)) == {"passed"}
    (first, *_) = run(body + "sys.stdout.buffer.write(out[:-1])", binary=True)
    assert first.row.malformed[0].startswith(f"{TOTAL - 1:,} answers to {TOTAL:,} inputs")


@pytest.mark.parametrize("command", [["cut", "-c", "7-8"], ["sh", "-c", 'all=$(cat); echo "$all" | cut -c 7-8']])
def test_long_streams_do_not_stall(command: list[str]) -> None:
    """More than a megabyte goes out and half of one comes back, through pipes of 64 KiB, both at once."""
    stream = Stream.of(Claim.parse("cast/ocp_saturate/float32/float8_e4m3fn"), "smoke", binary=False)
    assert 9 * stream.total > 1 << 20
    found = judge_program(stream, command, 60, "cut", "host")
    assert results(found) == {"failed"}
    assert sum(one.row.elements for one in found) == stream.total
    assert {one.row.malformed for one in found} == {()}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "0 answers"),
        ("print(1)", "1 answers"),
        ("for line in list(sys.stdin)[1:]: print(code(int(line, 16)) and 1)", f"{TOTAL - 1:,} answers"),
        (LINES + "print(0)", f"more than {TOTAL:,} answers"),
        ("while True: print(0)", f"more than {TOTAL:,} answers"),
    ],
    ids=["none", "one", "one too few", "one too many", "without end"],
)
def test_too_few_or_too_many_answers_are_a_failure_of_form(body: str, words: str) -> None:
    found = run(body)
    assert results(found) == {"failed"}
    expected = f"{words} to {TOTAL:,} inputs (of this --depth), so nothing was compared"
    assert {one.row.malformed for one in found} == {(expected,)}
    assert found[0].message.startswith("[FORM] theirs (float8_e5m2 to int4) on gfx942, case edges: ")
    assert {one.row.elements for one in found} == {0}


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        ("sys.exit(3)", "crashed", f"exited with code 3, after 0 of {TOTAL:,} answers"),
        (LINES + "sys.exit(1)", "crashed", f"exited with code 1, after {TOTAL:,} of {TOTAL:,} answers"),
        (
            "import os\nprint(1, flush=True); os.kill(os.getpid(), 11)",
            "crashed",
            f"killed by SIGSEGV, after 1 of {TOTAL:,} answers",
        ),
    ],
    ids=["exits", "exits at the end", "killed"],
)
def test_a_program_that_fails(body: str, kind: str, reason: str) -> None:
    ended(run(body), kind, reason)


def ended(found: list[Judged], kind: str, reason: str) -> None:
    """Every case has failed, and says how the program ended."""
    assert results(found) == {"failed"}
    assert {one.row.outcome for one in found} == {kind}
    assert {one.row.reason for one in found} == {f"{kind}: {reason}"}
    assert found[0].message == f"[{kind.upper()}] theirs (float8_e5m2 to int4) on gfx942, case edges: {reason}"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exec sleep 600", "nothing was read or written for 1 s"),
        ("exec >&-; exec sleep 600", "its output is closed, and 1 s later it has not ended"),
    ],
    ids=["sleeps", "does not end"],
)
def test_a_program_that_hangs(script: str, reason: str) -> None:
    stream = Stream.of(Claim.parse(FEW), "smoke", binary=False)
    found = judge_program(stream, ["sh", "-c", script], 1.0, "theirs", "gfx942")
    ended(found, "hung", f"{reason}, after 0 of {TOTAL:,} answers")


def test_what_a_program_started_does_not_outlive_it(tmp_path: Path) -> None:
    """Only its background job holds the pipe; the program is ended for what it says."""
    os.mkfifo(tmp_path / "held")
    closed = threading.Event()

    def wait() -> None:
        with (tmp_path / "held").open("rb") as pipe:
            pipe.read()  # until nobody can write any more
        closed.set()

    threading.Thread(target=wait, daemon=True).start()
    script = f"exec 3>'{tmp_path / 'held'}'; sleep 600 & exec 3>&-; echo ready; exec sleep 600"
    stream = Stream.of(Claim.parse(FEW), "smoke", binary=False)
    with pytest.raises(BadInput, match="line 1 is 'ready'"):
        judge_program(stream, ["sh", "-c", script], 60, "theirs", "gfx942")
    assert closed.wait(60)


@pytest.mark.parametrize("name", ["./no_such_program", "/", "/dev/null"])
def test_a_program_that_cannot_be_started(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"cannot start '{name}': " in refused(["judge", "--stream", FEW, "--", name], capsys)


# --- lines that are no codes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "shown"),
    [
        ("1\n2\nloading weights\n", 3, "loading weights"),
        ("1.5\n", 1, "1.5"),
        ("\n", 1, ""),
        ("1\n\n2\n", 2, ""),
        ("-1\n", 1, "-1"),
        ("1 2\n", 1, "1 2"),
        (" 1\n", 1, " 1"),
        ("0x\n", 1, "0x"),
        ("1_0\n", 1, "1_0"),
        ("1\nnan", 2, "nan"),
        ("1" * 17 + "\n", 1, "1" * 17),
        ("7\n" + "1" * 100_000, 2, "1" * 40),
        ("\xff\n", 1, "ÿ"),
    ],
)
def test_a_line_that_is_no_number_is_named(text: str, line: int, shown: str) -> None:
    with pytest.raises(BadInput) as raised:
        answered(FEW, text.encode())
    said = f"answers.txt: line {line} is {shown!r}; expected a code of int4 in hexadecimal, one to a line, and nothing"
    assert str(raised.value).startswith(said)


def test_a_line_without_end_is_refused_before_it_ends() -> None:
    answers = Answers(FORMATS["int4"], 1000, False, "here")
    assert answers.hear(b"7\n7")
    with pytest.raises(BadInput, match="here: line 2 is '7777"):
        answers.hear(b"7" * 40)


def test_bytes_that_are_no_text_are_named() -> None:
    with pytest.raises(BadInput, match="line 1 is '�"):
        answered(FEW, bytes([0xFF, 0xFE, 10]))


def test_a_program_that_talks_is_stopped_and_named() -> None:
    body = "print('ready', flush=True); import time; time.sleep(600)"
    with pytest.raises(BadInput, match=f"the output of {sys.executable}: line 1 is 'ready'; expected a code of int4"):
        run(body)


@pytest.mark.parametrize("strange", ["10", "ff", "100", "deadbeef", "ffffffffffffffff"])
def test_numbers_that_are_no_codes(strange: str) -> None:
    codes = np.concatenate([integers(x.codes) for x in cases_for(Claim.parse(FEW), "smoke").values()])
    lines = [f"{code:x}" for code in codes.tolist()]
    lines[3] = strange
    (first, second) = answered(FEW, "\n".join(lines).encode())
    assert first.row.differences == {"not_a_code": 1}
    assert first.row.mismatches[0].got == f"{int(strange, 16):#x}, no code"
    assert first.row.mismatches[0].index == (3,)
    assert second.row.result == "passed"


def test_a_word_that_is_cut_is_a_failure_of_form() -> None:
    found = answered("cast/ieee/float32/bfloat16", bytes(7), binary=True)
    assert found[0].row.malformed[0] == "the stream ends within a word of 2 bytes"
    assert found[0].row.malformed[1].startswith("3 answers to ")


@pytest.mark.parametrize("binary", [False, True])
def test_blocks_may_be_cut_anywhere(binary: bool) -> None:
    content = bytes(range(200)) * 2 if binary else b"".join(b"%x\r\n" % n for n in range(0, 60_000, 150))
    rng = random.Random(5)
    for _ in range(20):
        answers = Answers(FORMATS["bfloat16"], 1000, binary, "here")
        place = 0
        while place < len(content):
            size = rng.randint(1, 9)
            assert answers.hear(content[place : place + size])
            place += size
        codes, _ = answers.finished()
        expected = np.frombuffer(content, "<u2") if binary else np.arange(0, 60_000, 150)
        np.testing.assert_array_equal(codes.codes, expected)
