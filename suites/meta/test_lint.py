"""``narrowgauge lint``: each rule finds what it is for and leaves alone what only looks like it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import narrowgauge
from narrowgauge.contracts.errors import BadInput
from narrowgauge.lint.rules import RULES
from narrowgauge.lint.scan import Finding, files, lint
from narrowgauge.suites.meta.command_sets import as_json, ends, refused, said

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]

ROOT = Path(narrowgauge.__file__).resolve().parent.parent
PAGE = (ROOT / "docs/lint.md").read_text()

IN_A_BRANCH = """\
#ifndef USE_ROCM
constexpr float FP8_MAX = 448.f;
#else
#if HIP_FP8_TYPE_FNUZ
constexpr float FP8_MAX = 224.f;
#endif
#endif"""
ASKED_INSIDE = """\
#ifdef USE_ROCM
#if HIP_FP8_TYPE_FNUZ
using F = c10::Float8_e4m3fnuz;
#endif
#else
using F = c10::Float8_e4m3fn;
#endif"""

#: rule, suffix, and a source whose last line it finds; of a branch, and of an argument, the first
FOUND: list[tuple[str, str, str]] = [
    ("max_448", ".py", "FP8_MAX = 448.0"),
    ("max_448", ".py", "def quantize_fp8(x):\n    amax = x.abs().max()\n    return amax / 448"),
    ("max_448", ".py", "dtype = tl.float8e4nv\ns = amax * (1.0 / 448.0)"),
    ("max_448", ".py", "def f(x, fp8_max: float = 448.0):\n    return x"),
    ("max_448", ".py", "def bound(x):\n    '''FNUZ is told of, not asked for.'''\n    fp8_max = 448.0"),
    ("max_448", ".py", "def overflows(fp8_amax):\n    return fp8_amax > 448.0"),
    ("max_448", ".cu", "constexpr float kFp8Max = 448.f;"),
    ("max_448", ".h", "#pragma once\n#define FP8_MAX 448.0f"),
    ("max_448", ".cu", "__device__ float s(float amax) {\n  fp8_t q;\n  return fminf(amax, 448.0f);"),
    ("max_240", ".py", "FP8_MAX = 240.0"),
    ("max_240", ".cuh", "static float constexpr kFP8Max = 240.0f;"),
    ("max_224", ".py", "fp8_min, fp8_max = -224.0, 224.0"),
    ("max_224", ".hip", "const float FP8_E4M3_MAX = 224;"),
    ("max_57344", ".py", "E5M2_MAX = 57344.0"),
    ("max_57344", ".h", "static constexpr float MAX_E5M2 = 57344.f;"),
    ("nan_code", ".py", "def is_nan_fp8(code):\n    return (code & 0x7F) == 127"),
    ("nan_code", ".cpp", "bool fp8_is_nan(uint8_t c) {\n  return c == 0x7f;"),
    ("nan_code", ".cu", "__device__ uint8_t to_e4m3(float x) {\n  return 0x80u;"),
    ("vendor_test", ".py", "dtype = torch.float8_e4m3fnuz if is_hip() else torch.float8_e4m3fn"),
    ("vendor_test", ".py", "if torch.version.hip:\n    FP8 = torch.float8_e4m3fnuz\nelse:\n    FP8 = 'ocp'"),
    (
        "vendor_test",
        ".h",
        "#ifdef USE_ROCM\nusing F = Float8_e4m3fnuz;\n#else\nusing F = Float8_e4m3fn;\n#endif",
    ),
    ("vendor_test", ".h", "#if defined(USE_ROCM)\nusing F = Float8_e4m3fnuz;\n#endif"),
    ("unclamped_cast", ".py", "def q(x, scale):\n    return (x * scale).to(torch.float8_e4m3fn)"),
    ("unclamped_cast", ".py", "def q(x, scale):\n    return tl.cast(x / scale, tl.float8e4nv)"),
    ("unclamped_cast", ".py", "def q(x, scale):\n    return (x / scale).to(dtype=torch.float8_e5m2)"),
    ("unclamped_cast", ".cu", "void q(float v, float scale) {\n  y[0] = static_cast<c10::Float8_e4m3fn>(v * scale);"),
    ("unclamped_cast", ".cu", "void q(float v, float scale) {\n  y[0] = __nv_fp8_e4m3(v * scale);"),
    ("unclamped_cast", ".cu", "void q(float v, float scale) {\n  y[0] = cvt(v * scale, __NV_NOSAT, __NV_E4M3);"),
    ("no_scale", ".py", "def write(cache, k):\n    cache[0] = k.to(torch.float8_e4m3fn)"),
    ("no_scale", ".py", "def write(cache, k):\n    cache.view(torch.uint8)[0] = k.to(torch.float8_e4m3fn)"),
    ("no_scale", ".py", "def read(page):\n    return page.view(torch.float8_e4m3fn)"),
    ("no_scale", ".py", "def read(raw):\n    return raw.to(tl.float8e4nv, bitcast=True)"),
    ("no_scale", ".cu", "void write(float k) {\n  cache[0] = static_cast<__nv_fp8_e4m3>(k);"),
]

#: rule, suffix, and a source in which it finds nothing
LEFT_ALONE: list[tuple[str, str, str]] = [
    # the number is another's
    ("max_448", ".py", "hidden = 448"),
    ("max_448", ".py", "def quantize_fp8(x, scale, nope_dim=448):\n    return x"),
    ("max_448", ".py", "FP8_CASES = [0.0, 1.0, 447.0, 448.0, 449.0]"),
    ("max_448", ".py", '"""FP8 goes to 448.0."""\n# FP8_MAX = 448.0'),
    ("max_448", ".cu", "// kFp8Max = 448.f\nint threads = 448; /* fp8 448.f */\nconst char* s = \"fp8_max 448.f\";"),
    ("max_448", ".cu", "const char* s = R\"x(fp8_max = 448.f)x\";"),
    ("max_224", ".py", "import fp8\nresize = transforms.Resize(224)"),
    ("max_448", ".py", "import fp8\ndef tile(x):\n    return clamp(x, 448)"),
    ("max_224", ".py", "many = fp8_cache and 224 <= max_pages"),
    ("max_240", ".py", "FP8_BLOCKS = 240"),
    ("max_57344", ".cu", "constexpr int smem = 57344; // fp8 tile"),
    # the flavour is asked for
    ("max_448", ".py", "fp8_max = 224.0 if is_fp8_fnuz else 448.0"),
    ("max_224", ".py", "fp8_max = 224.0 if is_fp8_fnuz else 448.0"),
    ("max_448", ".py", "FP8_MAX = 224.0 if GFX942 else 448.0"),
    ("max_448", ".py", "FP8_MAX = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}"),
    ("max_448", ".py", "def bound(fp8):\n    if fp8 == torch.float8_e4m3fn:\n        fp8_max = 448.0"),
    ("max_448", ".h", IN_A_BRANCH),
    # MX and NVFP4 are OCP by definition
    ("max_448", ".py", "def quantize_mxfp8(x):\n    fp8_max = 448.0"),
    ("max_448", ".py", "NVFP4_GLOBAL_SCALE = 448.0 * 6.0 / fp8_amax"),
    ("nan_code", ".py", "E8M0_ONE_OF_FP8 = 0x7F"),
    ("nan_code", ".py", "ascii_only = letter & 0x7F"),
    ("nan_code", ".py", "def is_nan_fp8(c, fnuz):\n    return c == 0x80 if fnuz else c & 0x7F == 0x7F"),
    ("nan_code", ".py", "FP8_BITS = 128"),
    # the vendor decides something else, or more is asked than the vendor
    ("vendor_test", ".py", "block = 64 if is_hip() else 128\nfp8 = torch.float8_e4m3fnuz"),
    ("vendor_test", ".py", "dtype = torch.float8_e4m3fnuz if is_fp8_fnuz() else torch.float8_e4m3fn"),
    ("vendor_test", ".py", "dtype = torch.float8_e4m3fnuz if is_hip() and 'gfx94' in arch else torch.float8_e4m3fn"),
    ("vendor_test", ".py", "if is_hip():\n    F = torch.float8_e4m3fnuz if is_fp8_fnuz else 0\nelse:\n    F = 0"),
    ("vendor_test", ".h", "#ifdef USE_ROCM\n#include <hip_fp8.h>\n#else\n#include <cuda_fp8.h>\n#endif"),
    ("vendor_test", ".h", ASKED_INSIDE),
    ("vendor_test", ".py", "dtype = a.float8_e4m3fnuz if is_hip() else b.float8_e4m3fnuz"),
    # held below the largest
    ("unclamped_cast", ".py", "def q(x, scale):\n    return (x * scale).clamp(-m, m).to(torch.float8_e4m3fn)"),
    ("unclamped_cast", ".py", "def q(x):\n    scale = x.amax() / m\n    return (x / scale).to(torch.float8_e4m3fn)"),
    ("unclamped_cast", ".py", "def q(scale):\n    return torch.ones(4).to(torch.float8_e4m3fn) * scale"),
    ("unclamped_cast", ".py", "def q(x_fp8, scale):\n    return x_fp8.to(torch.float8_e4m3fn)"),
    ("unclamped_cast", ".py", "def q(x, scale):\n    return (x * scale).to(torch.bfloat16)"),
    ("unclamped_cast", ".cu", "void q(float v, float scale) {\n  y[0] = __nv_fp8_e4m3(fminf(v * scale, m));\n}"),
    ("unclamped_cast", ".cu", "void q(__nv_fp8_e4m3* y, float scale) {\n  auto p = static_cast<__nv_fp8_e4m3*>(v);\n}"),
    ("unclamped_cast", ".h", "struct float_e4m3_t { float_e4m3_t operator-() { return float_e4m3_t(-scale); } };"),
    ("unclamped_cast", ".py", "def read(raw, scale):\n    return raw.to(tl.float8e4nv, bitcast=True) * scale"),
    # a scale, bytes that only travel, helpers that only cast
    ("no_scale", ".py", "def write(cache, k, k_scale):\n    cache[0] = k.to(torch.float8_e4m3fn)"),
    ("no_scale", ".py", "def outer(scale):\n    def inner(x):\n        return x.to(torch.float8_e4m3fn)"),
    ("no_scale", ".py", "def move(page):\n    return page.view(torch.uint8)[1:].view(torch.float8_e4m3fn)"),
    ("no_scale", ".py", "def read(codes):\n    return codes.view(torch.float8_e8m0fnu)"),
    ("no_scale", ".py", "def cast_to_fp8(x):\n    return x.to(torch.float8_e4m3fn)"),
    ("no_scale", ".cu", "void cast(float k) {\n  cache[0] = static_cast<__nv_fp8_e4m3>(k);\n}"),
]  # fmt: skip


def found(folder: Path, suffix: str, text: str) -> list[Finding]:
    path = folder / f"kernel{suffix}"
    path.write_text(f"{text}\n")
    return lint(path)


@pytest.mark.parametrize(("rule", "suffix", "text"), FOUND)
def test_a_rule_finds(rule: str, suffix: str, text: str, tmp_path: Path) -> None:
    """That rule and no other, in the line where it is."""
    got = found(tmp_path, suffix, text)
    assert [f.rule for f in got] == [rule]
    lines = text.splitlines()
    first_or_last = 1 if rule == "vendor_test" else len(lines)
    assert got[0].line == (first_or_last if "def f(" not in text else 1)


@pytest.mark.parametrize(("rule", "suffix", "text"), LEFT_ALONE)
def test_a_rule_leaves_alone(rule: str, suffix: str, text: str, tmp_path: Path) -> None:
    assert [f for f in found(tmp_path, suffix, text) if f.rule == rule] == []


def test_every_rule_is_tried_both_ways() -> None:
    assert {rule for rule, _, _ in FOUND} == set(RULES)
    assert {rule for rule, _, _ in LEFT_ALONE} == set(RULES)


def test_one_line_is_found_once(tmp_path: Path) -> None:
    got = found(tmp_path, ".py", "fp8 = x.clamp(-448.0, 448.0)\nfp8 = y.clamp(-448.0, 448.0)")
    assert [(f.line, f.rule) for f in got] == [(1, "max_448"), (2, "max_448")]


def test_lines_are_counted_through_comments_strings_and_macros(tmp_path: Path) -> None:
    text = '/* a\n b */ const char* s = R"(\n)";\n#define A \\\n  1\nint c = 1\'000;\nconst float FP8_MAX = 448.f;'
    assert [(f.line, f.rule) for f in found(tmp_path, ".cu", text)] == [(7, "max_448")]


def test_a_conversion_in_one_function_says_nothing_of_another(tmp_path: Path) -> None:
    text = "void a(float scale) { clamp(scale); }\nvoid b(float v) { y = __nv_fp8_e4m3(v); }"
    assert [(f.line, f.rule) for f in found(tmp_path, ".cu", text)] == [(2, "no_scale")]
    text = "def a(x, scale):\n    return x.clamp(scale)\ndef b(v):\n    return v.to(torch.float8_e4m3fn)"
    assert [(f.line, f.rule) for f in found(tmp_path, ".py", text)] == [(4, "no_scale")]


# --- what is ignored -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".py", "FP8_MAX = 448.0  # narrowgauge: ignore[max_448] only CUDA is built"),
        (".py", "# narrowgauge: ignore[max_448] only CUDA is built\nFP8_MAX = 448.0"),
        (".cu", "float kFp8Max = 448.f;  // narrowgauge: ignore[max_448] only CUDA is built"),
        (".cu", "/* narrowgauge: ignore[max_448]: only CUDA is built */\nfloat kFp8Max = 448.f;"),
        (".py", "fp8_max = (448.0, 57344.0)  # narrowgauge: ignore[max_448, max_57344] both are OCP here"),
    ],
)
def test_a_comment_with_a_reason_ignores(suffix: str, text: str, tmp_path: Path) -> None:
    assert found(tmp_path, suffix, text) == []


@pytest.mark.parametrize(
    ("text", "rules", "says"),
    [
        ("FP8_MAX = 448.0  # narrowgauge: ignore[max_448]", ["ignore", "max_448"], "ignore[max_448] gives no reason"),
        ("FP8_MAX = 448.0  # narrowgauge: ignore[max] x", ["ignore", "max_448"], "no rule 'max'; there are max_448,"),
        ("FP8_MAX = 448.0  # narrowgauge: ignore[] why", ["ignore", "max_448"], "no rule ''; there are max_448,"),
        ("x = 1  # narrowgauge: ignore[max_448] gone", ["ignore"], "ignore[max_448] hides nothing"),
        ("x = '# narrowgauge: ignore[max_448] text'\nFP8_MAX = 448.0", ["max_448"], "448.0"),
    ],
)
def test_a_comment_that_does_not_hold_is_found(text: str, rules: list[str], says: str, tmp_path: Path) -> None:
    got = found(tmp_path, ".py", text)
    assert [f.rule for f in got] == rules
    assert got[0].text.startswith(says)


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_says_line_rule_why_and_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import torch\n\nFP8_MAX = 448.0\n")
    text = said(["lint", str(path)], capsys, 1)
    assert text.startswith(f"{path}:3 max_448 448.0 ")
    for part in (RULES["max_448"].why, RULES["max_448"].remedy, "docs/coverage.md, FMT05", "1 finding in 1 file"):
        assert part in text


def test_the_command_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/b.cu").write_text("float kFp8Max = 448.f;\n")
    (tmp_path / "a.py").write_text("x = 1  # narrowgauge: ignore[max_448] nothing here\n")
    (tmp_path / "readme.md").write_text("FP8_MAX = 448.0\n")
    data = as_json(["lint", str(tmp_path)], capsys, 1)
    assert data["files"] == 2
    assert [(Path(f["path"]).name, f["line"], f["rule"]) for f in data["findings"]] == [
        ("a.py", 1, "ignore"),
        ("b.cu", 1, "max_448"),
    ]
    assert data["findings"][1]["rows"] == ["FMT05"]
    assert all(f["why"] and f["remedy"] for f in data["findings"])


def test_nothing_found_is_all_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "clean.py"
    path.write_text("x = 1\n")
    assert said(["lint", str(path), str(path)], capsys) == "0 findings in 1 file"
    assert as_json(["lint", str(path)], capsys) == {"files": 1, "findings": []}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("absent.py", None, "no file "),
        ("kernel.txt", b"x", "has the suffix '.txt'"),
        ("broken.py", b"def f(:\n", "cannot be read as Python"),
        ("zero.py", b"x = '\0'\n", "cannot be read as Python"),
        ("latin.cu", b"// \xe9\n", "cannot be read"),
    ],
)
def test_bad_input(
    name: str, content: bytes | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert says in refused(["lint", str(tmp_path / name)], capsys)


def test_a_folder_without_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no source in " in refused(["lint", str(tmp_path)], capsys)
    assert ends(["lint"]) == 4


@pytest.mark.parametrize("text", ["", "}}}", "{{{", "#endif\n#else\n", "'", '"', "/*", 'R"(', "#if X", ")(", "#define"])
def test_what_is_no_program_is_no_error(text: str, tmp_path: Path) -> None:
    assert found(tmp_path, ".cu", text) == []


# --- the page, and ourselves -----------------------------------------------------------------------------------------


def test_reports_are_rows_of_coverage() -> None:
    rows = set(re.findall(r"^\| (\S+) \|", (ROOT / "docs/coverage.md").read_text(), re.MULTILINE))
    assert {row for rule in RULES.values() for row in rule.rows} <= rows
    assert all(rule.rows and re.search(r"\d", rule.why) for rule in RULES.values())


@pytest.mark.parametrize(
    ("value", "format", "policies"),
    [
        ("448", "e4m3fn", {"ocp_saturate": 0x7E, "ocp_nonsaturate": 0x7E}),
        ("247", "e4m3fnuz", {"fnuz_nonsaturate": 0x7F}),
        ("248", "e4m3fnuz", {"fnuz_nonsaturate": 0x80, "fnuz_saturate": 0x7F}),
        ("61439", "e5m2", {"ocp_nonsaturate": 0x7B}),
        ("61440", "e5m2", {"ocp_nonsaturate": 0x7C}),
        ("61440", "e5m2fnuz", {"fnuz_nonsaturate": 0x80}),
        (
            "1000",
            "e4m3fn",
            {"torch_until_2_12": 0x7F, "ml_dtypes": 0x7F, "torch_from_2_13": 0x7E, "ptx_satfinite": 0x7E},
        ),
    ],
)
def test_the_numbers_in_why_are_so(
    value: str, format: str, policies: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    answers = as_json(["cast", value, format], capsys)["answers"]
    assert {p: a["code"] for a in answers for p in a["policies"] if p in policies} == policies


def test_the_page_names_every_rule_and_its_counts_add_up() -> None:
    assert re.findall(r"^\| `(\w+)` \| (.+?) \|", PAGE, re.MULTILINE) == [(r.name, r.looks_for) for r in RULES.values()]
    assert [r.name for r in RULES.values() if r.why not in PAGE or r.remedy not in PAGE] == []
    counts = re.findall(r"^\| (\S+\.(?:py|cuh?|h)) \| (\d+) \| (\d+) \| (\d+) \|", PAGE, re.MULTILINE)
    numbers = [tuple(map(int, row[1:])) for row in counts]
    assert len({row[0] for row in counts}) == len(counts) >= 40
    assert all(all_ == true + false for all_, true, false in numbers)
    totals = tuple(map(sum, zip(*numbers, strict=True)))
    assert f"{len(counts)} files, {totals[0]} findings, {totals[1]} true, {totals[2]} false" in PAGE


def test_our_own_kernels_pass() -> None:
    """What they say of formats they take from the claim, or say why not."""
    paths = files([str(ROOT / "kernels_under_test")])
    assert len(paths) > 3
    assert [finding for path in paths for finding in lint(path)] == []


def test_folders_and_files_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    assert files([str(tmp_path), str(tmp_path / "a.py")]) == [tmp_path / "a.py"]
    with pytest.raises(BadInput, match="no file"):
        files([str(tmp_path / "b.py")])
