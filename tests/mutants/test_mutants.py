"""That the mutants fit the source and the machinery works; the run is by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from .catalogue import MUTANTS, Mutant
from .simulated import BUGS
from .workshop import ROOT, Workshop, patched

ALL = (*MUTANTS, *BUGS)


@pytest.mark.parametrize("mutant", ALL, ids=[mutant.name for mutant in ALL])
def test_mutant_when_applied_then_every_edit_fits_once_and_changes_the_source(
    mutant: Mutant,
) -> None:
    for edit in mutant.edits:
        source = (ROOT / edit.file).read_text()
        assert patched(source, edit) != source


def test_mutants_when_tried_out_then_each_has_a_test_to_catch_it() -> None:
    for mutant in MUTANTS:
        assert mutant.tests, mutant.name
        for test in mutant.tests:
            assert (ROOT / test.partition("::")[0]).exists(), (mutant.name, test)


def test_edit_when_it_does_not_fit_then_is_refused() -> None:
    edit = MUTANTS[0].edits[0]
    with pytest.raises(ValueError, match="0 times, not once"):
        patched("", edit)


@pytest.mark.slow
def test_mutant_when_tried_out_then_a_test_catches_it_and_the_copy_is_healed(
    tmp_path: Path,
) -> None:
    workshop = Workshop(tmp_path)
    (mutant,) = (each for each in MUTANTS if "host name" in each.name)
    outcome = workshop.try_out(mutant._replace(tests=("tests/setups/test_tls.py",)))
    assert outcome.caught_by
    assert "certificate" in outcome.caught_by
    file = mutant.edits[0].file
    assert (tmp_path / file).read_text() == (ROOT / file).read_text()
