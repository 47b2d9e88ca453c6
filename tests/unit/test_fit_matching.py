"""Guest cells matched to host cells: as permutations would find it, without trying them."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from agent.core.fit.branch import Branch, Demand
from agent.core.fit.matching import Matching, Shortage, first_match, match

ROWS = st.lists(st.integers(0, 63), min_size=1, max_size=4)
EVERYTHING = 63


def permutations(rows: list[int]) -> list[tuple[int, ...]]:
    """Every way to give each row a column of its own, in order."""
    ways = itertools.permutations(range(6), len(rows))
    return [way for way in ways if all(mask >> column & 1 for mask, column in zip(rows, way, strict=True))]


@given(rows=ROWS)
def test_the_first_match_is_the_first_permutation_that_passes(rows: list[int]) -> None:
    found = first_match(rows, EVERYTHING)
    ways = permutations(rows)
    assert found == ways[0] if ways else isinstance(found, Shortage)


@given(rows=ROWS)
def test_a_shortage_names_rows_that_have_fewer_columns_than_they_are(rows: list[int]) -> None:
    found = match(rows, EVERYTHING)
    if isinstance(found, Shortage):
        union = 0
        for row in found.rows:
            union |= rows[row]
        assert union == found.columns
        assert union.bit_count() < len(found.rows)
    else:
        assert permutations(rows)


def test_a_column_outside_the_region_is_never_taken() -> None:
    assert first_match([0b110, 0b011], 0b011) == (1, 0)
    assert match([0b100], 0b011) == Shortage((0,), 0)


DEMANDS = st.lists(
    st.builds(
        Demand,
        wanted=st.integers(0, 8),
        near=st.tuples(*[st.integers(0, 255)] * 6),
        elsewhere=st.integers(0, 3).map(lambda mask: mask << 8),
    ),
    max_size=3,
)


@given(columns=st.lists(st.integers(0, 7), min_size=6, max_size=6), demands=DEMANDS, are_alike=st.booleans())
def test_branch_and_bound_misses_no_set_that_would_do(
    columns: list[int], demands: list[Demand], *, are_alike: bool
) -> None:
    rows = [sum(1 << n for n, column in enumerate(columns) if column >> row & 1) for row in range(3)]
    sets = {sum(1 << column for column in way) for way in permutations(rows)}
    good = {chosen for chosen in sets if not any(demand.short(chosen) for demand in demands)}
    branch = Branch(
        columns=columns,
        guest_cells=3,
        demands=demands,
        kinds_of_devices=len(demands),
        are_alike=are_alike,
        most_steps=100_000,
    )
    found = list(branch.sets())
    assert not branch.stopped
    assert set(found) <= good
    assert bool(found) == bool(good)
    assert are_alike or set(found) == good


def test_branch_and_bound_says_that_it_stopped_at_its_bound() -> None:
    masks = tuple(0b1111 << 4 * n for n in range(12))
    demands = [Demand(8, masks[:6] + (0,) * 6, 0), Demand(8, (0,) * 6 + masks[6:], 0)]
    branch = Branch(
        columns=[7] * 12, guest_cells=3, demands=demands, kinds_of_devices=len(demands), are_alike=False, most_steps=5
    )
    assert list(branch.sets()) == []
    assert branch.stopped


def test_a_copy_of_a_matching_grows_by_itself() -> None:
    one = Matching([1, 2])
    one.add_row(0, 3)
    other = one.copy()
    other.add_row(1, 3)
    assert (one.column_of, other.column_of) == ({0: 0}, {0: 0, 1: 1})
