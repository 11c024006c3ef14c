"""The libraries' recipes: every row of the facts has one, every one is run against its library, all were recorded."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites.meta.against_libraries import LIBRARIES

pytestmark = pytest.mark.meta

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipes-checked-libraries.md"
_TORCHAO_MX = "torchao.mx_floor torchao.mx_ceil torchao.mx_rceil torchao.mx_even_1 torchao.mx_even_2 torchao.mx_even_3"
_EVEN = "torchao.mx_even_1 torchao.mx_even_2 torchao.mx_even_3"
_QUARK = "quark.mxfp4_even quark.mx_even_2 quark.mx_even_3 quark.mx_floor quark.mx_ceil"
_MXINT8 = "quark.mxint8_even quark.mxint8_floor quark.mxint8_ceil"
_MICROXCALING = "microxcaling.mx_nearest microxcaling.mx_even microxcaling.mxint8_nearest microxcaling.mxint8_even"
#: what the facts say of a library (section, row) -> the recipes that state it
ROWS: Mapping[str, str] = {
    "engines A.2 CT symmetric int8/int4": "compressed_tensors.int8_channel compressed_tensors.int8_tensor "
    "compressed_tensors.int4_group compressed_tensors.int4_channel",
    "engines A.2 CT always includes 0 in [min, max]": "compressed_tensors.int8_token_asymmetric "
    "compressed_tensors.int4_group_asymmetric",
    "engines A.3 MO mxfp8_tensor.py": "modelopt.mxfp8",
    "engines A.3 CT mxfp_utils.py": "compressed_tensors.mxfp8",
    "engines A.3 Quark default EVEN": "quark.mx_even_3",
    "engines A.3 all-zero block: MO 0, AO 0": f"modelopt.mxfp8 {_TORCHAO_MX}",
    "engines A.4 CT generate_gparam": "compressed_tensors.nvfp4",
    "engines A.4 ModelOpt weight_scale_2; block scale to 2^-9..448": "modelopt.nvfp4",
    "engines A.5 RNE: MO NVFP4, CT, AO": "modelopt.nvfp4 compressed_tensors.mxfp4 torchao.nvfp4",
    "engines A.5 toward zero: MO mxfp4_tensor.py": "modelopt.mxfp4",
    "engines A.5 microxcaling nearest is half away, even is RNE": _MICROXCALING,
    "engines A.6 FLOOR: MX, AO default": "torchao.mx_floor microxcaling.mx_nearest microxcaling.mx_even quark.mx_floor",
    "engines A.6 RCEIL: ModelOpt": "torchao.mx_rceil modelopt.mxfp4 modelopt.mxfp8",
    "engines A.6 CEIL: AO, Quark ceil": "torchao.mx_ceil quark.mx_ceil",
    "engines A.6 EVEN: Quark default, CT": f"{_EVEN} quark.mxfp4_even compressed_tensors.mxfp4",
    "engines A.6 EVEN val_to_add by mantissa bits": f"{_EVEN} quark.mx_even_2 quark.mx_even_3",
    "engines A.6 zero and NaN amax: AO, Quark, MX": f"{_TORCHAO_MX} {_QUARK} {_MICROXCALING}",
    "engines A.6 MXFP6: Quark": "quark.mx_even_2 quark.mx_even_3 quark.mx_floor quark.mx_ceil",
    "engines A.6 MXINT8: Quark": _MXINT8,
    "third-party 3.3 CT MXFP8 uses the FP4 width; CT MXFP6": "compressed_tensors.mxfp8 compressed_tensors.mxfp6",
    "third-party 3.4 scale code 0, NaN, inf": f"{_TORCHAO_MX} modelopt.mxfp4 compressed_tensors.mxfp4",
    "third-party 3.5 NVFP4 torchao": "torchao.nvfp4 torchao.nvfp4_two_levels torchao.nvfp4_two_levels_given",
    "third-party 3.6 torchao Float8Tensor": "torchao.float8_row torchao.float8_tensor",
    "third-party 3.6 CT per-token fp8 in x's format": "compressed_tensors.fp8_token compressed_tensors.fp8_tensor "
    "compressed_tensors.fp8_group_128 compressed_tensors.fp8_block",
    "third-party 1 torchao int4/int8 affine": "torchao.int8_row torchao.int8_row_asymmetric torchao.int4_group",
    "checkpoints B1 FP8 static": "compressed_tensors.fp8_static_tensor compressed_tensors.fp8_static_channel",
    "checkpoints B3 ModelOpt FP8, fp8_pb_wo": "modelopt.fp8_tensor modelopt.fp8_channel modelopt.fp8_block",
    "Transformer Engine: current scaling, block scaling, NVFP4": "transformer_engine.fp8_current "
    "transformer_engine.fp8_current_power_of_two transformer_engine.fp8_block_1x128 "
    "transformer_engine.fp8_block_128x128 transformer_engine.nvfp4",
    "Transformer Engine: delayed scaling": "transformer_engine.fp8_delayed",
    "Transformer Engine: MXFP8": "nvidia.mxfp8_e4m3 nvidia.mxfp8_e5m2",
}
#: libraries that nothing here runs
NOT_RUN = {"transformer_engine": "its quantizers are CUDA kernels: only read"}
OWNERS = (*LIBRARIES, *NOT_RUN)


def of_libraries() -> set[str]:
    return {name for name in RECIPES if name.split(".")[0] in OWNERS}


def test_every_row_has_its_recipes_and_every_recipe_its_row() -> None:
    named = {name for names in ROWS.values() for name in names.split()}
    assert named - set(RECIPES) == set()
    assert of_libraries() - named == set()


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_recipe_of_a_library_is_called(library: str) -> None:
    called = importlib.import_module(f"narrowgauge.suites.meta.libraries.{library}").calls()
    assert set(called) == {name for name in RECIPES if name.startswith(f"{library}.")}


def test_every_recipe_was_compared_and_none_differed() -> None:
    """The recorded run has a row for each recipe, destination and format of x, without a difference."""
    row = re.compile(r"\| ([\w.]+) \| (\w+) \| (\w+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| \d+ \|")
    found = {m.groups()[:3]: m.groups()[3:] for m in map(row.fullmatch, PAGE.read_text().splitlines()) if m}
    refused = set(re.findall(r"\| ([\w.]+) \| (\w+) \| (\w+) \| refused: ", PAGE.read_text()))
    wanted = set()
    for library in LIBRARIES:
        module = importlib.import_module(f"narrowgauge.suites.meta.libraries.{library}")
        for name in module.calls():
            wanted |= {(name, d.format, source) for d in RECIPES[name].destinations for source in module.SOURCES}
    assert set(found) | refused == wanted
    assert {source for _, _, source in refused} <= {"float16"}
    for counts in found.values():
        codes, differing, _, others_differing = map(int, counts)
        assert codes > 10_000
        assert (differing, others_differing) == (0, 0)
