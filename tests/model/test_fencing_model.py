"""The model of the numbers: none is repeated as shipped, each rule is needed."""

from __future__ import annotations

import pytest

from tests.model.cases import CASES, Case
from tests.model.fencing import search

KEPT = [case for case in CASES if not (case.is_violated or case.is_long)]
BROKEN = [case for case in CASES if case.is_violated]


def named(case: Case) -> str:
    return case.name.replace(" ", "-")


@pytest.mark.slow
@pytest.mark.parametrize("case", KEPT, ids=named)
def test_numbers_as_shipped_grow_in_the_first_orders_of_events(case: Case) -> None:
    """All of them take a minute: `python -m tests.model`."""
    found = search(case.world, case.rules, most=12_000 if case is KEPT[0] else 3_000)
    assert found.violation == "", "\n".join(found.trace)
    assert found.states >= 3_000


@pytest.mark.parametrize("case", BROKEN, ids=named)
def test_number_that_does_not_grow_is_found_where_a_rule_is_left_out(
    case: Case,
) -> None:
    found = search(case.world, case.rules)
    assert "was before it" in found.violation
    assert len(found.trace) > 3
