"""Many callers at once on a real daemon, for some seconds; `tox -e race` has the same for longer."""

from __future__ import annotations

import pytest

from tests.race.crowd import check_crowd
from tests.race.duplicates import check_duplicates
from tests.race.hosts import race_host
from tests.race.ways import check_rounds


def test_of_32_callers_at_once_each_is_answered_as_the_books_were_then() -> None:
    with race_host() as host:
        happened = check_crowd(host, calls=15, seed=1)
    expected = {"admitted", "abort", "replace", "ComputeResourcesUnavailable", "GroupAffinityViolation"}
    assert expected - happened.keys() == set()


@pytest.mark.parametrize("limit", [1, 2])
def test_of_three_members_that_come_at_once_as_many_get_in_as_the_rule_allows(limit: int) -> None:
    with race_host() as host:
        check_rounds(host, 50, limit=limit, seed=limit)


def test_a_call_that_is_sent_by_many_at_once_is_made_once_also_where_nobody_waits_for_the_answer() -> None:
    with race_host() as host:
        check_duplicates(host, 5, seed=1)
