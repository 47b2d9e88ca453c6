"""A budget that is not kept is said, in the table and by the exit code's source."""

from __future__ import annotations

import pytest

from tests.bench.rows import Beside, Budget, Row, at_most, median_row, table, times_cheaper


@pytest.mark.parametrize(
    ("value", "beside", "budget", "is_missed"),
    [
        (149.0, None, at_most(150), False),
        (150.0, None, at_most(150), False),
        (151.0, None, at_most(150), True),
        (1.0, 100.0, times_cheaper(100), False),
        (1.0, 99.0, times_cheaper(100), True),
        (1.0, None, times_cheaper(100), True),
        (1e9, 1.0, None, False),
    ],
)
def test_a_budget_is_missed_beyond_its_limit(
    value: float, beside: float | None, budget: Budget | None, is_missed: bool
) -> None:
    other = None if beside is None else ("another", [beside])
    assert median_row("work", [value], "ms", beside=other, budget=budget).is_missed is is_missed


def test_a_row_is_the_median_of_its_samples_beside_the_median_of_the_others() -> None:
    row = median_row("work", [1.0, 9.0, 2.0], "ms", beside=("another", [10.0, 90.0, 20.0]))
    assert (row.value, row.samples, row.ratio) == (2.0, 3, 10.0)


def test_the_table_names_the_miss() -> None:
    rows = [
        Row(what="memory", value=80.0, unit="MiB", samples=1, budget=at_most(75)),
        median_row("fold", [2.0], "ms", beside=("nova", [1000.0]), budget=times_cheaper(100)),
        Row(what="list", value=1234.5, unit="ms", samples=3),
    ]
    assert [[cell.strip() for cell in line.strip("|").split("|")] for line in table(rows).splitlines()[2:]] == [
        ["memory", "1", "80 MiB", "", "", "at most 75 MiB", "MISS"],
        ["fold", "1", "2 ms", "nova: 1000 ms", "500 x", "at least 100 x", "ok"],
        ["list", "3", "1234 ms", "", "", "", ""],
    ]


def test_the_table_says_of_what_was_stopped_that_it_takes_longer() -> None:
    beside = Beside(what="nova", value=3000.0, is_at_least=True)
    row = Row(what="fit", value=2.0, unit="ms", samples=3, beside=beside, budget=times_cheaper(1))
    assert [cell.strip() for cell in table([row]).splitlines()[2].strip("|").split("|")] == [
        "fit",
        "3",
        "2 ms",
        "nova: > 3000 ms",
        "> 1500 x",
        "at least 1 x",
        "ok",
    ]
