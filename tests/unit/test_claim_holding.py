"""What claims hold, and how a claim and its domain count once."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from agent.core.claim.holding import beyond, claimed, merged, promise_of
from agent.core.conflicts import Owner
from agent.core.cpuset import CpuSet
from agent.core.holds import HostSets, hold, host_sets
from agent.core.instance import CellRequest, InstanceRequest
from agent.core.ledger import Holds, PageHold
from agent.core.pci import PciAddress
from tests.builders import Host, Node, guest, h2x4, h8, host, ht8, uuid_of
from tests.builders_claims import claim_of, place, promises_of

CPUS = st.frozensets(st.integers(0, 7), max_size=4).map(CpuSet)
AMOUNTS = st.dictionaries(st.integers(0, 1), st.integers(1, 9), max_size=2).map(MappingProxyType)
VFS = tuple(PciAddress(0, 1, 2, number) for number in range(4))


@st.composite
def any_holds(draw: st.DrawFn) -> Holds:
    """What one guest could hold, by its claim or by its domain."""
    cpus, emulator = draw(CPUS), draw(CPUS)
    pages = draw(st.dictionaries(st.tuples(st.integers(0, 1), st.sampled_from((2048, 1048576))), st.integers(1, 9)))
    return Holds(
        uuid="u",
        cpus=cpus | emulator,
        emulator_cpus=emulator - cpus,
        sibling_cpus=draw(CPUS) - cpus,
        cell_memory_kib=draw(AMOUNTS),
        host_memory_kib=draw(st.integers(0, 9)),
        pages=tuple(PageHold(cell=c, size_kib=s, count=pages[c, s]) for c, s in sorted(pages)),
        cell_shared=draw(AMOUNTS),
        host_shared=draw(st.integers(0, 9)),
        devices=tuple(sorted(draw(st.frozensets(st.sampled_from(VFS))))),
        mdevs=tuple(sorted(draw(st.frozensets(st.sampled_from(("m1", "m2")))))),
    )


def taken(holds: Holds) -> CpuSet:
    return holds.cpus | holds.sibling_cpus


def amounts(holds: Holds) -> dict[object, int]:
    """Every number that it holds, by what it is of; none of them 0."""
    found: dict[object, int] = {("memory", None): holds.host_memory_kib, ("shared", None): holds.host_shared}
    found |= {("memory", cell): kib for cell, kib in holds.cell_memory_kib.items()}
    found |= {("shared", cell): vcpus for cell, vcpus in holds.cell_shared.items()}
    found |= {(hold.cell, hold.size_kib): hold.count for hold in holds.pages}
    return {key: number for key, number in found.items() if number}


def sums(*parts: Mapping[object, int]) -> dict[object, int]:
    return {key: sum(part.get(key, 0) for part in parts) for part in parts for key in part}


@given(any_holds(), any_holds(), any_holds())
def test_merging_is_the_same_in_any_order_and_any_number_of_times(a: Holds, b: Holds, c: Holds) -> None:
    assert merged((a, b)) == merged((b, a)) == merged((a, b, a, b))
    assert taken(merged((a, merged((b, c))))) == taken(merged((merged((a, b)), c)))
    assert amounts(merged((a, b, c))) == amounts(merged((merged((a, b)), c)))


@given(any_holds(), any_holds())
def test_ids_are_merged_by_union_and_amounts_by_the_most(a: Holds, b: Holds) -> None:
    both = merged((a, b))
    assert taken(both) == taken(a) | taken(b)
    assert set(both.devices) == {*a.devices, *b.devices}
    assert set(both.mdevs) == {*a.mdevs, *b.mdevs}
    one, other = amounts(a), amounts(b)
    assert amounts(both) == {key: max(one.get(key, 0), other.get(key, 0)) for key in one | other}


@given(any_holds(), any_holds())
def test_what_is_seen_and_what_the_claim_adds_are_together_what_is_merged(promised: Holds, seen: Holds) -> None:
    extra, both = beyond(promised, seen), merged((seen, promised))
    assert taken(seen) | taken(extra) == taken(both)
    assert not extra.cpus & seen.cpus
    assert sums(amounts(seen), amounts(extra)) == amounts(both)
    assert sorted((*seen.devices, *extra.devices)) == list(both.devices)
    assert sorted((*seen.mdevs, *extra.mdevs)) == list(both.mdevs)


@given(any_holds())
def test_a_guest_that_holds_what_it_was_promised_adds_nothing(holds: Holds) -> None:
    assert amounts(beyond(holds, holds)) == {}
    assert (taken(beyond(holds, holds)), beyond(holds, holds).devices) == (CpuSet(), ())


def test_a_claim_holds_what_its_guest_would_be_seen_to_hold() -> None:
    on = h2x4()
    placed = place(4, 5, cell=1, mem=1024, floating=1, shared="4-7")
    same = guest("web", {0: 4, 1: 5, 2: "4-7"}, mem=1024, node=1)
    assert claimed(claim_of("web", placed), sets(on)) == hold(same, sets(on))


def test_a_claim_whose_placement_asks_for_whole_cores_holds_the_idle_siblings() -> None:
    held = claimed(claim_of("web", place(0, idle="4")), sets(ht8()))
    assert (str(held.cpus), str(held.sibling_cpus)) == ("0", "4")
    seen = guest("web", {0: 0}, node=0)
    (promise,) = promises_of(ht8(), [claim_of("web", place(0, idle="4"), state="resident")], [seen]).values()
    assert (str(promise.extra.sibling_cpus), promise.drift) == ("4", ())


def test_what_was_accepted_counts_in_the_placements_stead() -> None:
    observed = Holds(uuid=uuid_of("web"), cpus=CpuSet((3,)))
    assert claimed(claim_of("web", place(2), observed=observed), sets(h8())) is observed


def test_both_halves_of_a_resize_in_place_hold_by_the_most_of_each() -> None:
    old = claim_of("web", place(2, 3, mem=1024), state="parked", claim_id="old")
    new = claim_of("web", place(3, 4, mem=512), state="parked", claim_id="new", role="in_place")
    (promise,) = promises_of(h8(), [old, new]).values()
    assert (str(promise.holds.cpus), dict(promise.holds.cell_memory_kib)) == ("2-4", {0: 1024 * 1024})


def test_the_owner_is_the_domain_once_one_is_seen() -> None:
    claims, seen = (claim_of("web", place(2)),), guest("web", {0: 2}, node=0)
    coming = promise_of(claims, None, None, sets(h8()))
    here = promise_of(claims, seen, hold(seen, sets(h8())), sets(h8()))
    assert coming.owner == Owner(type="claim", uuid=uuid_of("web"), name="web")
    assert here.owner == Owner(type="domain", uuid=uuid_of("web"), name="web", maker="libvirt")
    assert (coming.adds, here.adds) == (True, False)


def test_of_a_guest_that_is_off_its_claim_holds_all_but_the_devices_that_it_names() -> None:
    off = guest("web", {0: 2}, node=0, state="shut-off", dev=(str(VFS[0]),))
    claim = claim_of("web", place(2, dev=map(str, VFS[:2])), state="resident")
    (promise,) = promises_of(h8(), [claim], [off]).values()
    assert (str(promise.extra.cpus), promise.extra.devices) == ("2", (VFS[1],))
    assert promise.drift == ()


def sets(on: Host) -> HostSets:
    return host_sets(on.topology, on.config)


def test_a_claim_that_isolates_keeps_a_sibling_idle_that_is_offline_while_it_is_made() -> None:
    threads = ("0,4", "1,5", "2,6", "3,7")
    on = host({0: Node("0-7", 16384)}, dedicated="0-7", shared="", smt=threads, online="0-3,5-7")
    one, kib = CpuSet((0,)), 512 * 1024
    cell = CellRequest(id=0, vcpus=one, memory_kib=kib, pinned=one)
    asked = InstanceRequest(vcpus=1, memory_kib=kib, cells=(cell,), cpu_policy="dedicated", thread_policy="isolate")
    claim = claim_of("a", place(0), binding=asked)
    assert claimed(claim, host_sets(on.topology, on.config)).sibling_cpus == CpuSet((4,))
