# SPDX-License-Identifier: Apache-2.0
"""A few changes to the reference's conversions, and whether the second derivation notices each."""

from __future__ import annotations

import ast
import importlib
import warnings
from dataclasses import dataclass

import numpy as np
import pytest

from narrowgauge.suites.meta.converter_sets import calls
from narrowgauge.suites.meta.mutation import ROOT, Mutant, in_its_place
from narrowgauge.suites.meta.second_converters import second
from narrowgauge.suites.meta.test_conversions import CLAIMS, images, one_nan, usable

pytestmark = pytest.mark.meta


@dataclass(frozen=True)
class ByHand(Mutant):
    """A change of text, which is there once."""

    before: str = ""
    after: str = ""

    def tree(self) -> ast.Module:
        text = (ROOT / (self.module.replace(".", "/") + ".py")).read_text()
        assert text.count(self.before) == 1, self.before
        return ast.parse(text.replace(self.before, self.after))


#: file below reference/convert, what stands there, what is put in its place, and a conversion that shows it
CHANGES = (
    ("to_fnuz", '"80:00 7f:80 ff:80"', '"80:00 7f:80"', "ocp_to_fnuz_tensor"),
    ("to_fnuz", '("times", "scale", 0.5)', '("times", "scale", 2.0)', "fnuz_to_ocp"),
    ("to_fnuz", "(1, 0, 254)", "(1, 0, 255)", "vllm.ue8m0_to_fnuz"),
    ("to_fnuz", "Blocks(128, 128, ragged=True)", "Blocks(129, 128, ragged=True)", "ocp_to_fnuz_block"),
    ("fused", '("rounded", "own", "float16")', '("rounded", "own", "bfloat16")', "vllm.requantize_to_largest"),
    ("fused", "sentinel=False)", "sentinel=True)", "requantize_to_largest"),
    ("steps", "last > -448.0", "last >= -448.0", "vllm.requantize_to_largest"),
    ("steps", "np.max(to_float32(work.held[name])", "np.min(to_float32(work.held[name])", "requantize_to_largest"),
    ("steps", "np.float32(1) / to_float32", "np.float32(2) / to_float32", "nvfp4_to_divisor"),
    ("steps", 'common: str = "largest"', 'common: str = "smallest"', "nvfp4_one_global"),
    ("steps", "(old == 0) | np.isnan(old)", "(old < 0) | np.isnan(old)", "nvfp4_one_global"),
    ("steps", "np.floor(rounded)", "np.ceil(rounded)", "compressed_tensors.scale_to_e8m0"),
    ("steps", ".reshape(-1, parts).T.ravel()", ".reshape(-1, parts).ravel()", "gpt_oss_parted"),
    ("steps", "// int(size)", "% int(size)", "awq_to_gptq"),
    ("steps", "(before != 0) & (after == 0)", "after == 0", "counted"),
    ("requantized", 'through="bfloat16"),', 'through="float32"),', "sglang.block_to_ue8m0"),
    ("scales", '("transpose", FIRST)),\n        "OCP MX', '),\n        "OCP MX', "gpt_oss_to_bfloat16"),
)


def noticed(rule: str) -> bool:
    """Whether a conversion, imported anew, gives something else than the second derivation, or nothing."""
    behaviour, catalogue, memory, run = (
        importlib.import_module(f"narrowgauge.reference.{name}")
        for name in ("behaviour", "convert.catalogue", "convert.memory", "convert.run")
    )
    for claim in (claim for claim in CLAIMS if claim.rule == rule):
        for x in (x for x in calls(rule, claim.source) if usable(claim, x)):
            taken = {name: value.data for name, value in images(claim, x).items()}
            found = second(rule, taken, claim.source, claim.format, (x.shape[0], x.shape[1]))
            try:
                made = run.converted(behaviour.converting_of(claim), x)
                right = memory.pack_outputs(catalogue.CONVERSIONS[rule], made)
            except Exception:
                return True
            for name, value in right.items():
                other = np.ascontiguousarray(found[name]).view(value.data.dtype).reshape(value.data.shape)
                if (one_nan(type(value)(value.format, other)) != one_nan(value)).any():
                    return True
    return False


@pytest.mark.parametrize(("module", "before", "after", "rule"), CHANGES)
def test_a_change_is_noticed(module: str, before: str, after: str, rule: str) -> None:
    change = ByHand(f"reference.convert.{module}", 0, f"{before} becomes {after}", 0, 0, before, after)
    with in_its_place(change), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert noticed(rule)


def test_a_change_that_changes_nothing_is_not_noticed() -> None:
    change = ByHand("reference.convert.steps", 0, "", 0, 0, "last > -448.0", "-448.0 < last")
    with in_its_place(change), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not any(noticed(rule) for rule in {rule for *_, rule in CHANGES})
