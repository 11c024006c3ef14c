"""Programs in C, C++, HIP and Rust judge a cast from exported vectors, and are judged by stream (docs/cpp.md)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from narrowgauge.golden.export import export
from narrowgauge.golden.manifest import VECTORS
from narrowgauge.suites.meta.command_sets import ends, said
from narrowgauge.suites.meta.marks import COMPILER, RUSTC, needs_compiler, needs_rust

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]

SOURCES = Path(__file__).absolute().parent / "cpp"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "cpp.md"
CLAIM = "cast/ocp_saturate/float32/float8_e4m3fn"
#: a program without a warning, in C++ as the page has it
FLAGS = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror")


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of all headers and raw tables."""
    folder = tmp_path_factory.mktemp("exported") / "vectors"
    export(VECTORS, folder, kinds=["header", "raw"])
    return folder


def build(out: Path, vectors: Path, source: Path, *more: str) -> Path:
    command = [COMPILER, *FLAGS, *more, "-I", str(vectors / "header"), str(source), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return out


def ran(*command: str | Path) -> tuple[int, str]:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def programs(vectors: Path) -> dict[str, Path]:
    """The page's cast, right and with its ties away from zero."""
    source, place = SOURCES / "cast_e4m3fn.cpp", vectors.parent
    return {
        "right": build(place / "right", vectors, source, "-pedantic"),
        "wrong": build(place / "wrong", vectors, source, "-DWRONG_TIES"),
    }


@needs_compiler
def test_a_cpp_program_judges_a_cast_from_the_vectors(vectors: Path, programs: dict[str, Path]) -> None:
    assert ran(programs["right"], "check", vectors / "raw") == (0, "0 of 66048 differ\n")
    code, text = ran(programs["wrong"], "check", vectors / "raw")
    assert code == 1
    # 126 ties whose even neighbour is the smaller one, of both signs: by the header, and again by the raw table.
    assert text.startswith("0x3a800000 gives 0x01; expected 0x00\n")
    assert text.endswith("252 of 66048 differ\n")


@needs_compiler
def test_damaged_tables_are_seen(vectors: Path, programs: dict[str, Path], tmp_path: Path) -> None:
    table = tmp_path / "raw" / "cast-ocp_saturate-float8_e4m3fn" / "bfloat16.codes.u8"
    table.parent.mkdir(parents=True)
    content = bytearray((vectors / table.relative_to(tmp_path)).read_bytes())
    content[0x3F80] ^= 1
    table.write_bytes(content)
    assert ran(programs["right"], "check", tmp_path / "raw") == (
        1, "0x3f800000 gives 0x38; expected 0x39\n1 of 66048 differ\n",
    )  # fmt: skip
    table.write_bytes(content[:-1])
    assert ran(programs["right"], "check", tmp_path / "raw")[0] == 2


@needs_compiler
@pytest.mark.parametrize("form", ["stream", "binary"])
def test_a_cpp_program_is_judged_by_stream(
    form: str, programs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--binary"] if form == "binary" else []
    judge = ["judge", "--stream", CLAIM, *options, "--target", "cpu", "--"]
    assert "right ocp_saturate e4m3fn 2 passed" in said([*judge, str(programs["right"]), form], capsys)
    assert ends([*judge, str(programs["wrong"]), form]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "[TIES] wrong (float32 to float8_e4m3fn) on cpu, case edges: cast.ties_away" in text
    assert "wrong ocp_saturate e4m3fn 2 failed cast.ties_away" in text


@needs_compiler
def test_the_hip_example_but_for_the_gpu(vectors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Against a stand-in for HIP that runs on the host and converts by the vectors: reading, launching, writing."""
    stub = ("-I", str(SOURCES / "hip_stub"), "-Wno-unused-function")
    program = build(tmp_path / "stream_hip", vectors, SOURCES / "stream_hip.cpp", *stub)
    claim = "cast/fnuz_saturate/float32/float8_e4m3fnuz"
    assert "2 passed" in said(["judge", "--stream", "--binary", claim, "--", str(program)], capsys)
    assert ends(["judge", "--stream", "--binary", CLAIM, "--", str(program)]) == 1, "another format's codes"


@needs_rust
def test_the_rust_example(vectors: Path, tmp_path: Path) -> None:
    program = tmp_path / "table"
    built = ran(RUSTC, "-O", "--edition", "2021", SOURCES / "table.rs", "-o", program)
    assert built == (0, "")
    folder = vectors / "raw" / "cast-ocp_saturate-float8_e4m3fn"
    assert ran(program, folder) == (0, "0 of 65536 differ\n")
    assert ran(program, vectors / "raw" / "cast-ocp_nonsaturate-float8_e4m3fn") == (0, "0 of 65536 differ\n")
    for name in ("float32.first.u32", "float32.code.u8"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    content = bytearray((folder / "bfloat16.codes.u8").read_bytes())
    content[7] ^= 1
    (tmp_path / "bfloat16.codes.u8").write_bytes(content)
    assert ran(program, tmp_path) == (1, "1 of 65536 differ\n")


# --- headers ---------------------------------------------------------------------------------------------------------

#: patterns in, expected code out: by the specifications, looked up by hand
CALLS = {
    "ng_expected_ocp_saturate_float8_e4m3fn_from_float32(0x43e80001u)": 0x7E,
    "ng_expected_ocp_saturate_float8_e4m3fn_from_bfloat16(0x3f98u)": 0x3A,
    "ng_expected_ocp_saturate_float8_e4m3fn_from_float16(0xfc00u)": 0xFE,
    "ng_expected_ocp_saturate_float8_e4m3fn_from_float32(0u)": 0x00,
    "ng_expected_ocp_saturate_float8_e4m3fn_from_float32(0xffffffffu) & 0x7fu": 0x7F,
    "ng_expected_fnuz_saturate_float8_e4m3fnuz_from_float32(0x80000000u)": 0x00,
    "ng_expected_ieee_bfloat16_from_float32(0x3f808000u)": 0x3F80,
    "ng_expected_ieee_bfloat16_from_float32(0x3f818000u)": 0x3F82,
    "ng_expected_ieee_bfloat16_from_float32(0x7f7fffffu)": 0x7F80,
    "ng_expected_ieee_float16_from_float32(0x477fefffu)": 0x7BFF,
    "ng_expected_ieee_float16_from_float32(0x477ff000u)": 0x7C00,
    "ng_expected_ieee_float16_from_bfloat16(0x3380u)": 0x0001,
    "ng_expected_ieee_tfloat32_from_float32(0x3f801000u)": 0x1FC00,
    "ng_expected_ptx_tf32_rna_tfloat32_from_float32(0x3f801000u)": 0x1FC01,
    "ng_expected_tf32_truncated_tfloat32_from_float32(0x3f801fffu)": 0x1FC00,
    "ng_expected_ieee_float32_from_float16(0x0001u)": 0x33800000,
    "ng_expected_integer_nearest_int8_from_float32(0xbf800000u)": 0xFF,
    "ng_decode_float8_e4m3fn(0x7eu)": 0x43E00000,
    "ng_decode_float4_e2m1fn(0xfu)": 0xC0C00000,
    "ng_decode_float8_e8m0fnu(0u)": 0x00400000,
}


@needs_compiler
@pytest.mark.parametrize("language", ["c99", "c++17"])
def test_all_headers_together_in_c_and_cpp(language: str, vectors: Path, tmp_path: Path) -> None:
    """In one program, without a warning; and each alone is a program."""
    headers = sorted(path.name for path in (vectors / "header").glob("*.h"))
    assert len(headers) > 50
    checks = "\n".join(
        f"    if (({call}) != {want:#x}u) puts({call!r});".replace("'", '"') for call, want in CALLS.items()
    )
    source = tmp_path / "all.source"
    includes = "".join(f'#include "{name}"\n' for name in headers)
    source.write_text(f"{includes}#include <stdio.h>\nint main(void) {{\n{checks}\n    return 0;\n}}\n")
    kind = "c" if language == "c99" else "c++"
    flags = ["-x", kind, f"-std={language}", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I", str(vectors / "header")]
    assert ran(COMPILER, *flags, source, "-o", tmp_path / "all") == (0, "")
    assert ran(tmp_path / "all") == (0, "")
    for name in (headers[0], headers[-1]):
        source.write_text(f'#include "{name}"\n')
        assert ran(COMPILER, *flags, "-c", source, "-o", tmp_path / "one") == (0, "")


# --- the page --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not PAGE.exists(), reason="the package is installed without docs/")
def test_the_page_s_programs_are_the_tested_ones() -> None:
    shown = re.findall(r"<!-- suites/meta/cpp/(\S+) -->\n```\w+\n(.*?)```", PAGE.read_text(), re.S)
    assert {name for name, _ in shown} == {path.name for path in SOURCES.iterdir() if path.is_file()}
    for name, text in shown:
        assert text == (SOURCES / name).read_text(), f"{name} and docs/cpp.md have parted"
