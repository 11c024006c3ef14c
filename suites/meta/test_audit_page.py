"""The page of narrowgauge audit: whole, without anything fetched, and deaf to what names of strangers say."""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
import tomllib
from collections import Counter
from fnmatch import fnmatch
from html.parser import HTMLParser
from math import log2
from pathlib import Path

import numpy as np
import pytest

import narrowgauge
from narrowgauge.checkpoints.asked import Asked, destinations
from narrowgauge.checkpoints.audit import audit
from narrowgauge.checkpoints.findings import Finding, Place
from narrowgauge.checkpoints.kinds import KINDS
from narrowgauge.checkpoints.ranges import SHOWN, Range, held_by, layer_of
from narrowgauge.checkpoints.report import Found, Report
from narrowgauge.command import audit as audit_command
from narrowgauge.command import audit_pictures
from narrowgauge.command.audit_page import PAGE, page
from narrowgauge.command.pages import TEMPLATES
from narrowgauge.suites.meta import audit_pages
from narrowgauge.suites.meta.command_sets import ends, refused
from narrowgauge.suites.meta.small_bytes import E2M1, bf16, write_safetensors
from narrowgauge.suites.meta.small_checkpoints import write
from narrowgauge.suites.meta.test_audit import FIELDS

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]
needs_docs = pytest.mark.skipif(not audit_pages.PAGE.path.exists(), reason="the package is installed without docs/")
#: elements that HTML has without an end, and those of SVG that are written as <line/>
VOID, CLOSED = {"meta", "br"}, {"line", "rect"}
HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">.weight'


class Parsed(HTMLParser):
    """Elements in order, checked to be closed as they were opened; what is text, and in which element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in CLOSED
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)

    @property
    def said(self) -> str:
        return " ".join(" ".join(self.text).split())


def report_of(folder: Path, *to: str) -> Report:
    report = list(audit(Asked(folder, destinations(to))))[-1]
    assert isinstance(report, Report)
    return report


def test_the_page_is_whole(tmp_path: Path) -> None:
    """Every finding is in it, with what it means and what to do; nothing is fetched."""
    folder = write("ct_FP8_DYNAMIC", tmp_path / "m", flaw="scale negative").folder
    report = report_of(folder, "float16", "vllm.fp8_per_tensor_dynamic")
    levels = [("wrong", "scale zero"), ("doubt", "codes saturate"), ("note", "scale in bfloat16")]
    for number, (_, kind) in enumerate(levels):
        place = Place((number, 7), "0x7f")
        report.found.append(Found("to float16", Finding(kind, f"said {number}", f"tensor.{kind}", 3, (place,))))
    assert [KINDS[kind].level for _, kind in levels] == [level for level, _ in levels]
    text = page(report)
    parsed = Parsed(text)
    for found in report.found:
        for part in (found.finding.kind, found.finding.said, found.finding.tensor, found.meaning, found.remedy):
            assert " ".join(part.split()) in parsed.said
    assert "[1, 7] 0x7f" in parsed.said
    assert "Something is wrong: as it is" in parsed.said or "Does not survive" in parsed.said
    assert re.findall(r"\b(?:href|src)=|url\(|@import|xlink|https?:", text) == []
    assert [e for e in parsed.elements if e[0] in ("link", "img", "iframe", "object", "base")] == []
    assert "narrowgauge audit" in parsed.said
    assert "--to=vllm.fp8_per_tensor_dynamic:float8_e4m3fn" in parsed.said
    assert {"passports", "codes", "ranges", "findings"} <= {e[1].get("id") for e in parsed.elements}


def test_names_of_strangers_are_text(tmp_path: Path) -> None:
    weight = np.full((64, 64), 0.5)
    weight[0, 0] = 2.0**100
    folder = tmp_path / "a<b>&"
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", {HOSTILE: bf16(weight), "\x1b[2J\u202e.weight": bf16(weight)})
    (folder / "config.json").write_text('{"model_type": "</pre><script>alert(3)</script>"}')
    text = page(report_of(folder, "float16", "vllm.fp8_per_tensor_dynamic"))
    parsed = Parsed(text)
    assert [e[0] for e in parsed.elements if e[0] in ("script", "img")] == ["script"], "ours, and none else"
    assert [name for _, attributes in parsed.elements for name in attributes if name.startswith("on")] == []
    assert HOSTILE in parsed.said
    assert "a<b>&" in parsed.said
    assert not {"\x1b", "\u202e"} & set(text)
    policy = next(a["content"] for e, a in parsed.elements if e == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    script = text[text.index("<script>") + len("<script>") : text.index("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy, "no other script runs"


def test_a_page_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write("bf16", tmp_path / "m").folder
    assert ends(["audit", str(folder), "--html", str(tmp_path / "page.html")]) == 0
    assert "page written to" in capsys.readouterr().out
    assert "Nothing is wrong" in Parsed((tmp_path / "page.html").read_text()).said
    assert "expected a file that ends in .html" in refused(["audit", str(folder), "--html", "page.txt"], capsys)


def test_the_template_is_in_the_wheel() -> None:
    """Beside the command, under a name that the package's data are chosen by."""
    assert (TEMPLATES / PAGE).is_file()
    project = tomllib.loads((Path(narrowgauge.__file__).resolve().parents[1] / "pyproject.toml").read_text())
    assert any(fnmatch(PAGE, each) for each in project["tool"]["setuptools"]["package-data"]["*"])
    assert any(each.startswith("jinja2") for each in project["project"]["dependencies"])


@needs_docs
def test_the_docs_say_it_all() -> None:
    """Every kind of finding as it is declared, every option, every field of --json."""
    head, below = audit_pages.PAGE.parts()
    assert all(f"| {kind} | {KINDS[kind].level} |" in below for kind in KINDS)
    subparsers = argparse.ArgumentParser().add_subparsers()
    audit_command.register(subparsers)
    options = subparsers.choices["audit"].format_help()
    for option in set(re.findall(r"--[a-z-]+", options)) - {"--help", "--workers"}:
        assert f"`{option}" in head, option
    for field in FIELDS:
        assert f"`{field}`" in head, field
    assert (audit_pages.PAGE.path.parent / "audit.png").is_file()


# --- the picture of magnitudes ---------------------------------------------------------------------------------------


def test_a_mark_lies_where_its_numbers_do(tmp_path: Path) -> None:
    """Of float16's ends and of marks: the same exponent is at the same height, and twice as far is twice as far."""
    one = np.full((4, 4), 2.0**-3)
    large, small = one.copy(), one.copy()
    large[0, 0], small[1, 1] = 2.0**20, 2.0**-30
    folder = tmp_path / "m"
    folder.mkdir()
    names = {"layers.0.a": one, "layers.1.a": large, "layers.1.b": small, "norm": one}
    write_safetensors(folder / "model.safetensors", {name: bf16(weight) for name, weight in names.items()})
    drawn = audit_pictures.ranges(report_of(folder, "float16"))
    assert drawn is not None
    marks = {m["name"]: m for m in drawn["marks"]}
    assert [marks[name]["css"] for name in names] == ["", "beyond", "below", ""]
    heights = {2.0**-3: marks["norm"]["top"], 2.0**20: marks["layers.1.a"]["top"]}
    each = (heights[2.0**-3] - heights[2.0**20]) / 23
    bottom = marks["layers.1.b"]["top"] + marks["layers.1.b"]["height"]
    assert bottom == pytest.approx(heights[2.0**-3] + 27 * each, abs=0.2), "27 binades below, rounded to tenths"
    held = next(w for w in drawn["windows"] if w["name"] == "float16")
    assert held["asked"]
    assert held["top"] == pytest.approx(heights[2.0**20] + (20 - log2(65504)) * each, abs=0.2)
    assert held["bottom"] == pytest.approx(heights[2.0**20] + (20 + 25) * each, abs=0.2)
    assert [layer["text"] for layer in drawn["layers"]] == ["–", "0", "1"]
    assert marks["norm"]["x"] < marks["layers.0.a"]["x"] < marks["layers.1.a"]["x"]
    assert {label["text"] for label in drawn["labels"]} == {"layers.1.a", "layers.1.b"}
    inside = [m for m in drawn["marks"] if not 0 <= m["top"] <= m["top"] + m["height"] <= drawn["bottom"] + 0.1]
    assert inside == []


def test_windows_are_those_of_the_formats() -> None:
    """Largest values and half of the least ones, from the formats' definitions."""
    known = {
        "bfloat16": (float.fromhex("0x1.fep127"), 2.0**-134), "float16": (65504.0, 2.0**-25),
        "float8_e5m2": (57344.0, 2.0**-17), "float8_e4m3fn": (448.0, 2.0**-10), "float8_e4m3fnuz": (240.0, 2.0**-11),
    }  # fmt: skip
    assert {name: (held_by(name).largest, held_by(name).flushed) for name in SHOWN} == known
    assert Range("a", 448.0, 2.0**-10).beyond == ("float8_e4m3fnuz",)
    assert Range("a", 448.0, 2.0**-10).below == ("float8_e4m3fn",)


@pytest.mark.parametrize(
    ("kind", "exact"),
    [
        ("ct_FP8", True), ("ct_W8A8", False), ("ct_NVFP4", False), ("mo_NVFP4", False), ("ct_MXFP4", False),
        ("gptq_v1_asym", False), ("ct_W4A16_ASYM", False), ("deepseek", False), ("gguf", True),
    ],
)  # fmt: skip
def test_no_weight_is_outside_what_is_drawn(kind: str, exact: bool, tmp_path: Path) -> None:
    """Against what the writer says each weight stands for; exactly, where it is read, or has one scale."""
    written = write(kind, tmp_path / "m")
    report = report_of(written.folder)
    drawn = {one.tensor: one for one in report.ranges}
    assert len(report.passports) > 7
    for passport in report.passports:
        one = drawn[passport.weight.name]
        name = passport.module if passport.module in written.weights else f"{passport.module}.weight"
        magnitudes = np.abs(written.weights[name])
        largest, least = magnitudes.max(), magnitudes[magnitudes > 0].min()
        assert one.amax == largest if exact else one.amax >= largest
        assert one.least == least if exact else one.least <= least


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("model.layers.12.mlp.experts.3.w1.weight", 12),
        ("encoder.layer.0.output.dense.weight", 0),
        ("conv2_BN.running_var", 2),
        ("block.7.mlp.mlp1_weight.blocks", 7),
        ("lm_head.weight", None),
        ("model.norm.w2", None),
        ("x." + "9" * 5000 + ".weight", None),
        ("layers.²", None),
    ],
)
def test_the_layer_of_a_name(name: str, layer: int | None) -> None:
    assert layer_of(name) == layer


def test_codes_are_counted_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """NVFP4's bytes hold two codes each, here counted one by one: each is there, at its number."""
    written = write("ct_NVFP4", tmp_path / "m")
    report = report_of(written.folder)
    drawn = audit_pictures.histograms(report)
    assert len(drawn) == 7, "one for each kind of projection"
    for one in drawn:
        assert (one["first"], one["last"]) == ("-6", "6")
        titles = [bar["title"] for bar in one["bars"]]
        numbers = [float(title.split(" ")[0]) for title in titles]
        assert numbers == sorted(numbers)
        shown: Counter[float] = Counter()
        for number, title in zip(numbers, titles, strict=True):  # of 0 there are two codes
            shown[number] += int(title.split(": ")[1].replace(",", ""))
        counted: Counter[float] = Counter()
        for passport in report.passports:
            if passport.module.endswith(one["name"].rpartition(".")[2]):
                stored = passport.weight
                data = stored.path.read_bytes()[stored.start : stored.start + stored.size]
                counted.update(E2M1[half] for byte in data for half in (byte & 15, byte >> 4))
        assert shown == counted
