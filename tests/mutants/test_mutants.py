"""That the mutants fit the source and the machinery works; the run is by hand."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from .catalogue import MUTANTS, Mutant
from .finder import Product
from .together import together
from .workshop import ROOT, Workshop


@cache
def product() -> Product:
    return Product(ROOT)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_mutant_when_applied_then_every_edit_fits_once_and_changes_the_source(
    mutant: Mutant,
) -> None:
    for path, text in product().patched(mutant.edits).items():
        assert text != path.read_text()
        if path.suffix == ".py":
            compile(text, str(path), "exec")


def test_mutants_when_tried_out_then_each_has_a_name_and_a_test_to_catch_it() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        assert mutant.tests, mutant.name
        for test in mutant.tests:
            assert (ROOT / test.partition("::")[0]).exists(), (mutant.name, test)


def test_mutants_of_the_core_when_built_together_then_nearly_all_fit_in() -> None:
    core = [mutant for mutant in MUTANTS if product().is_core(mutant.edits)]
    texts, numbers = together(product(), core)
    assert len(numbers) > 0.9 * len(core) > 80
    text = "".join(texts.values())
    for number in numbers.values():
        assert f"if mutant_number == {number}: " in text
        assert re.search(rf"(def|\*| ) ?mutant{number}_\w+\(", text)


@pytest.mark.slow
def test_mutant_when_tried_out_then_a_test_catches_it_and_the_copy_is_healed(
    tmp_path: Path,
) -> None:
    workshop = Workshop(tmp_path)
    (mutant,) = (each for each in MUTANTS if "host name" in each.name)
    test = "test_certificate_when_it_is_not_to_be_trusted_then_is_refused"
    tests = (f"tests/setups/test_tls.py::{test}",)
    outcome = workshop.try_out(mutant._replace(tests=tests))
    assert outcome.caught_by
    assert "certificate" in outcome.caught_by
    for path in product().patched(mutant.edits):
        assert (tmp_path / path.relative_to(ROOT)).read_text() == path.read_text()
