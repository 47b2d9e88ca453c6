"""Many callers at once on a real daemon: `tox -e race`, for minutes; tests/functional/test_race.py is short.

RACE_SEED: begins elsewhere; each failure names its own.
"""

from __future__ import annotations

import os

import pytest

from tests.race.crowd import check_crowd
from tests.race.duplicates import check_duplicates
from tests.race.hosts import race_host
from tests.race.ways import check_rounds

SEED = int(os.environ.get("RACE_SEED", "1000"))


@pytest.mark.parametrize("seed", range(SEED, SEED + 10))
def test_of_32_callers_at_once_each_is_answered_as_the_books_were_then(seed: int) -> None:
    with race_host() as host:
        check_crowd(host, calls=60, seed=seed)


@pytest.mark.parametrize("limit", [1, 2])
def test_of_three_members_that_come_at_once_as_many_get_in_as_the_rule_allows(limit: int) -> None:
    with race_host() as host:
        check_rounds(host, 1000, limit=limit, seed=SEED + limit)


def test_a_call_that_is_sent_by_many_at_once_is_made_once_also_where_nobody_waits_for_the_answer() -> None:
    with race_host() as host:
        for seed in range(SEED, SEED + 8):
            check_duplicates(host, 12, seed=seed)
