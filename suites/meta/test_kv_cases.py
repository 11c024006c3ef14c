"""The calls that kernels on caches are judged on: what each holds, and a wrong kernel that only it catches."""

from __future__ import annotations

from functools import cache

import pytest

from narrowgauge.contracts.coded import Input
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.compare import compare
from narrowgauge.reference.form import form_of
from narrowgauge.reference.inputs import CASES, Case, case_named
from narrowgauge.suites.meta.wrong_cache_calls import Wrong, right_outputs
from narrowgauge.suites.meta.wrong_caches import WRONG

pytestmark = pytest.mark.meta

MUTANTS = [
    (operation, case, text, wrong)
    for operation, of in WRONG.items()
    for case, found in of.items()
    for text, wrong in found
]
#: the usual call: what it catches, others catch too
USUAL = {"kv_write": "scattered", "kv_read": "permuted", "attend": "permuted"}


@cache
def asked(operation: str, name: str, claim: Claim) -> Input:
    x = case_named(name, operation).inputs(claim)
    assert isinstance(x, Input)
    return x


def caught(case: Case, claim: Claim, wrong: Wrong) -> bool:
    x = asked(case.operation, case.name, claim)
    got, want = wrong(claim, x), right_outputs(claim, x)
    return bool(form_of(got, want)) or compare(got, want).total > 0


@pytest.mark.parametrize(("operation", "name", "text", "wrong"), MUTANTS, ids=[f"{m[0]}-{m[1]}" for m in MUTANTS])
def test_a_case_catches_what_no_other_of_the_smoke_depth_does(
    operation: str, name: str, text: str, wrong: Wrong
) -> None:
    claim = Claim.parse(text)
    case = case_named(name, operation)
    assert case.suits(claim)
    assert caught(case, claim, wrong)
    others = [c for c in CASES if c.operation == operation and c.depth == "smoke" and c.name != name]
    assert [c.name for c in others if c.suits(claim) and caught(c, claim, wrong)] == []


@pytest.mark.parametrize("operation", WRONG)
def test_every_case_has_a_mutant(operation: str) -> None:
    """Those of views are kernels: test_kv_views.py."""
    contiguous = {c.name for c in CASES if c.operation == operation and c.view == "contiguous"}
    assert contiguous == WRONG[operation].keys() | {USUAL[operation]}


def test_a_case_has_one_name_in_an_operation() -> None:
    names = [(c.operation, c.name) for c in CASES]
    assert len(names) == len(set(names))
