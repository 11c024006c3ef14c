"""Every claim of the articles is computed, and is today what the list and its page say (docs/claims.md)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import narrowgauge
from narrowgauge.suites.meta.claims import of_torch
from narrowgauge.suites.meta.claims.catalogue import ARTICLES, CLAIMS, THEMES, page
from narrowgauge.suites.meta.claims.claim import FALSE, TRUE, Found, SeedClaim, disagreement
from narrowgauge.suites.meta.marks import needs_torch

pytestmark = pytest.mark.meta

PAGE = Path(narrowgauge.__file__).parent.parent / "docs" / "claims.md"
COMPUTED = [c for c in CLAIMS if not c.asks]


def name_of(claim: SeedClaim) -> str:
    return f"{claim.where}-{claim.name}"


@pytest.fixture(scope="module")
def torch_says() -> tuple[str, dict[str, Found]]:
    """torch's version, and what each check about torch found, by one child."""
    command = [sys.executable, "-m", of_torch.__name__]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    answer = json.loads(done.stdout)
    return answer["version"], {name: Found(*found) for name, found in answer["found"].items()}


@pytest.mark.parametrize("claim", COMPUTED, ids=name_of)
def test_a_claim_is_what_the_list_says(claim: SeedClaim) -> None:
    assert disagreement(claim, claim.check()) == ""


@needs_torch
@pytest.mark.parametrize("claim", of_torch.CLAIMS, ids=name_of)
def test_a_claim_about_torch_is_what_the_list_says(claim: SeedClaim, torch_says: tuple[str, dict[str, Found]]) -> None:
    version, found = torch_says
    assert disagreement(claim, found[claim.name], version) == ""


@pytest.mark.parametrize("claim", CLAIMS, ids=name_of)
def test_another_verdict_or_number_is_noticed(claim: SeedClaim) -> None:
    right = Found(claim.verdict == TRUE, claim.measured)
    wrong = replace(claim, verdict=FALSE if right.holds else TRUE)
    for version in ("2.13.0+cpu", "3.0"):
        assert disagreement(claim, right, version) == ""
        assert f"{claim.where} {claim.name}" in disagreement(wrong, right, version)
        assert "the list says" in disagreement(replace(claim, measured=f"{claim.measured}1"), right, version)


def test_a_verdict_belongs_to_versions() -> None:
    claim = of_torch.five_hundred
    old, new = Found(True, "1, 0.3125, NaN"), Found(False, "1, 0.3125, 448")
    assert claim.words() == "true before torch 2.13, false since"
    for version in ("2.6.0", "2.12.0+cu128"):
        assert disagreement(claim, old, version) == ""
        assert "the list says True (1, 0.3125, NaN)\n  measured      False" in disagreement(claim, new, version)
    for version in ("2.13.0+cpu", "2.14.1"):
        assert disagreement(claim, new, version) == ""
        assert f"with torch {version}" in disagreement(claim, old, version)


def test_names_and_places() -> None:
    names = [c.name for c in CLAIMS]
    assert len(names) == len(set(names))
    assert len({(c.where, c.text) for c in CLAIMS}) == len(CLAIMS)
    assert all(claims for claims in THEMES.values())
    for claim in CLAIMS:
        assert re.fullmatch(rf"({'|'.join(ARTICLES)}):[1-9]\d{{0,2}}", claim.where)
        assert claim.measured
        assert claim.before is None or claim.asks


@pytest.mark.skipif(not PAGE.parent.is_dir(), reason="docs/ is not installed with the package")
def test_the_page_is_the_list() -> None:
    """Written by ``python -m narrowgauge.suites.meta.claims.catalogue > docs/claims.md``."""
    assert PAGE.read_text(encoding="utf-8") == page()
