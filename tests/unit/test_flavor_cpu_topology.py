"""Sockets, cores and threads that the guest sees."""

from __future__ import annotations

import pytest

from agent.core.flavor import Faults
from agent.core.instance import GuestCpuTopology
from tests.unit.flavor_requests import Words, answer, asked


def shape(specs: Words, properties: Words | None = None, *, vcpus: int = 8) -> tuple[int, int, int] | None:
    found = asked(specs, properties, vcpus=vcpus).cpu_topology
    return None if found is None else (found.sockets, found.cores, found.threads)


def test_nothing_said_leaves_it_open() -> None:
    assert shape({}) is None


@pytest.mark.parametrize(
    ("specs", "found"),
    [
        ({"cpu_sockets": "2"}, (2, 4, 1)),
        ({"cpu_threads": "2"}, (4, 1, 2)),
        ({"cpu_cores": "8"}, (1, 8, 1)),
        ({"cpu_sockets": "2", "cpu_threads": "2"}, (2, 2, 2)),
        ({"cpu_max_sockets": "1"}, (1, 8, 1)),
        ({"cpu_max_sockets": "1", "cpu_max_cores": "4"}, (1, 4, 2)),
        ({"cpu_cores": "3"}, (8, 1, 1)),
        ({"cpu_sockets": "0"}, (8, 1, 1)),
    ],
)
def test_the_closest_to_what_is_preferred_is_taken_with_few_threads_and_many_sockets(
    specs: Words, found: tuple[int, int, int]
) -> None:
    assert shape({f"hw:{name}": text for name, text in specs.items()}) == found
    assert shape({}, {f"hw_{name}": text for name, text in specs.items()}) == found


def test_wishes_that_cannot_all_be_met_never_change_the_number_of_vcpus() -> None:
    assert shape({"hw:cpu_cores": "8", "hw:cpu_threads": "2"}) == (1, 8, 1)


def test_a_maximum_may_be_reached() -> None:
    assert shape({"hw:cpu_max_cores": "4"}, {"hw_cpu_max_cores": "4", "hw_cpu_cores": "4"}) == (2, 4, 1)
    assert shape({"hw:cpu_cores": "4", "hw:cpu_max_cores": "4"}) == (2, 4, 1)
    assert shape({"hw:cpu_max_cores": "4"}, {"hw_cpu_cores": "4"}) == (2, 4, 1)


def test_maxima_that_leave_no_shape_are_named_alone() -> None:
    made = answer({"hw:cpu_max_sockets": "3", "hw:cpu_max_threads": "1"}, {"hw_cpu_max_cores": "1"})
    assert isinstance(made, Faults)
    assert [str(one) for one in made.faults[0].properties] == [
        "hw:cpu_max_sockets=3 of the flavor",
        "hw_cpu_max_cores=1 of the image",
        "hw:cpu_max_threads=1 of the flavor",
        "vcpus=4 of the flavor",
    ]


def test_any_wish_of_the_image_takes_the_place_of_all_wishes_of_the_flavor() -> None:
    assert shape({"hw:cpu_sockets": "2", "hw:cpu_threads": "2"}, {"hw_cpu_cores": "4"}) == (2, 4, 1)


def test_a_wish_of_the_flavor_beyond_a_maximum_of_the_image_is_dropped_whole() -> None:
    assert shape({"hw:cpu_sockets": "4", "hw:cpu_threads": "2"}, {"hw_cpu_max_sockets": "2"}) == (2, 4, 1)


def test_a_large_guest_is_answered_at_once() -> None:
    assert asked({"hw:cpu_threads": "2"}, vcpus=4096).cpu_topology == GuestCpuTopology(
        sockets=2048, cores=1, threads=2
    )
