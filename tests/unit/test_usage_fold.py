"""The fold as a whole: total, and the same for any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.core.conflicts import Conflict
from agent.core.guest import Sighting
from agent.core.host_config import HostConfig
from agent.core.topology import HostTopology
from agent.core.usage import CellUsage, HostUsage, Usage, fold
from agent.formats.wire import from_json, to_json
from tests.unit.strategies import CONFIGS, SIGHTINGS, TOPOLOGIES

GUESTS = st.lists(SIGHTINGS, max_size=5)


@given(TOPOLOGIES, CONFIGS, GUESTS, st.data())
def test_any_order_of_guests_gives_the_same_usage(
    topology: HostTopology, config: HostConfig, guests: list[Sighting], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(guests))
    assert fold(topology, config, shuffled) == fold(topology, config, guests)


@given(TOPOLOGIES, CONFIGS, GUESTS)
def test_sets_and_amounts_add_up_on_any_host(
    topology: HostTopology, config: HostConfig, guests: list[Sighting]
) -> None:
    usage = fold(topology, config, guests).usage
    rows: tuple[CellUsage | HostUsage, ...] = (usage.host, *usage.cells)
    for row in rows:
        assert row.dedicated.used | row.dedicated.free == row.dedicated.total
        assert row.dedicated.used.isdisjoint(row.dedicated.free)
        assert row.dedicated.total <= topology.usable
        assert row.memory_kib.free == row.memory_kib.limit - row.memory_kib.used
        assert row.shared.free == row.shared.limit - row.shared.used
    assert len({holder.cpu for holder in usage.holders}) == len(usage.holders)
    for holder in usage.holders:
        assert holder.owners
        assert holder.cpu not in usage.host.dedicated.free
    assert all(not device.owners for device in usage.pci if device.free)


@given(TOPOLOGIES, CONFIGS, GUESTS)
def test_rows_of_conflicts_are_each_there_once_and_say_what_to_do(
    topology: HostTopology, config: HostConfig, guests: list[Sighting]
) -> None:
    rows = fold(topology, config, guests).conflicts
    assert len({row.id for row in rows}) == len(rows)
    for row in rows:
        assert row.owners == tuple(sorted(set(row.owners), key=lambda owner: (owner.label, owner.uuid or "")))
        assert row.cause
        assert "left alone" in row.action or "Nothing need be done" in row.action or "dangerous" in row.action
        assert not row.cause.endswith(".")
        assert not row.action.endswith(".")


@given(TOPOLOGIES, CONFIGS, GUESTS)
def test_what_was_folded_survives_the_wire(
    topology: HostTopology, config: HostConfig, guests: list[Sighting]
) -> None:
    made = fold(topology, config, guests)
    assert from_json(to_json(made.usage), Usage) == made.usage
    assert from_json(to_json(made.conflicts), tuple[Conflict, ...]) == made.conflicts


@given(TOPOLOGIES, CONFIGS, st.lists(SIGHTINGS, max_size=4, unique_by=lambda one: one.uuid))
def test_a_guest_that_goes_frees_only_what_no_other_holds(
    topology: HostTopology, config: HostConfig, guests: list[Sighting]
) -> None:
    full = fold(topology, config, guests).usage
    for gone in guests:
        rest = fold(topology, config, [one for one in guests if one is not gone]).usage
        others = {row.cpu for row in full.holders if any(owner.uuid != gone.uuid for owner in row.owners)}
        assert others <= {row.cpu for row in rest.holders}
