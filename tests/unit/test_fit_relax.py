"""What would make a guest fit: each change that is told does, and the smallest is told."""

from __future__ import annotations

import itertools
import random
from types import MappingProxyType

import msgspec
from hypothesis import given, settings

from agent.core.admission import Question, offer_now, question_of, why_not
from agent.core.cpuset import CpuSet
from agent.core.fit import FitRules, HostFacts, Offer, host_facts
from agent.core.guest import Sighting
from agent.core.host_config import HostConfig
from agent.core.instance import CellRequest, Group, Instance, InstanceRequest
from agent.core.ledger import Ledger
from agent.core.pci_request import PciNumaPolicy, PciRequest, PciSpec
from agent.core.relax.changed import changed
from agent.core.relax.find import MOST_GUESTS_TRIED, MOST_TOLD, relaxations
from agent.core.relax.guests import at_best
from agent.core.relax.shortfall import more_free
from agent.core.relax.values import (
    CellShortfall,
    FewerDevices,
    FewerVcpus,
    GuestsLeave,
    Leaving,
    LessMemory,
    MoreFree,
    OtherCells,
    OtherCpuPolicy,
    OtherDevicePolicy,
    OtherEmulatorPolicy,
    OtherPageSize,
    OtherThreadPolicy,
    Relaxation,
    Relaxations,
    ShareCells,
)
from agent.core.snapshot import Identity, Snapshot, configured, first
from agent.core.topology import HostTopology
from agent.core.what_if import without_guests
from tests import builders
from tests.builders import Host, Node, function, guest, host, uuid_of
from tests.fit.guests import Case as Drawn
from tests.fit.guests import any_guest, cases, seeded
from tests.fit.hosts import Theme, any_host

MIB = 1024
NEW = Instance(uuid=uuid_of("new"))


def picture(topology: HostTopology, config: HostConfig, *guests: Sighting) -> Snapshot:
    """The host with these guests on it, as the agent sees it."""
    seen = Ledger(sightings=MappingProxyType({one.uuid: one for one in guests}))
    empty = first(Identity(agent_id="a", boot_id="b", epoch=1), config)
    return configured(msgspec.structs.replace(empty, topology=topology, ledger=seen), config)


def seen(where: Host, *guests: Sighting) -> tuple[Snapshot, HostFacts]:
    snapshot = picture(where.topology, where.config, *guests)
    return snapshot, host_facts(snapshot.topology, snapshot.config)


def found(request: InstanceRequest, where: Host, *guests: Sighting) -> tuple[Relaxation, ...]:
    return told(request, where, *guests).found


def told(request: InstanceRequest, where: Host, *guests: Sighting, group: Group | None = None) -> Relaxations:
    return relaxations(question_of(request, *seen(where, *guests), NEW, group))


def two_cells() -> Host:
    """CPUs 0-7, four in each cell, all but 0 and 4 dedicated; 4 GiB each."""
    return host({0: Node("0-3", 4096), 1: Node("4-7", 4096)}, dedicated="1-3,5-7", shared="0,4", reserve_mem=0)


def with_card(dedicated: str = "0-7") -> Host:
    """Two cells of four CPUs, a device on cell 0."""
    nodes = {0: Node("0-3", 4096), 1: Node("4-7", 4096)}
    card = function("0000:03:00.0", numa=0)
    return host(nodes, dedicated=dedicated, shared="", pci=(card,), pci_filter=("*:03:00.0",), reserve_mem=0)


def with_pages() -> Host:
    """Two cells of 4 GiB; cell 0 has 1 GiB of it in 2 MiB pages."""
    nodes = {0: Node("0-3", 4096, {2048: 512}), 1: Node("4-7", 4096)}
    return host(nodes, dedicated="0-7", shared="", reserve_mem=0)


def pinned(vcpus: int, mem: int = 512, cells: int = 1) -> InstanceRequest:
    every, each = CpuSet(range(vcpus)), vcpus // cells
    parts = [CpuSet(range(n * each, (n + 1) * each)) for n in range(cells)]
    kib = mem * MIB // cells
    made = tuple(CellRequest(id=n, vcpus=part, memory_kib=kib, pinned=part) for n, part in enumerate(parts))
    return InstanceRequest(vcpus=len(every), memory_kib=mem * MIB, cells=made, cpu_policy="dedicated")


def with_nic(request: InstanceRequest, policy: PciNumaPolicy = "required", count: int = 1) -> InstanceRequest:
    one = PciRequest(id="alias:nic", specs=(PciSpec(vendor_id="8086"),), count=count, numa_policy=policy)
    return msgspec.structs.replace(request, devices=(one,))


def leave(*guests: tuple[str, str]) -> GuestsLeave:
    """Names and cells."""
    return GuestsLeave(
        guests=tuple(Leaving(uuid=uuid_of(name), name=name, cells=CpuSet.parse(cells)) for name, cells in guests)
    )


def cpus_of(cell: int, cpus: str) -> CellShortfall:
    return CellShortfall(cell=cell, cpus=CpuSet.parse(cpus))


def more(*cells: CellShortfall) -> MoreFree:
    return MoreFree(cells=cells)


PREFERRED = OtherDevicePolicy(requests=("alias:nic",), policy="preferred", sources=("default",))
WITHOUT_NIC = FewerDevices(request="alias:nic", count=0)


def test_a_guest_that_fits_needs_nothing() -> None:
    assert told(pinned(2), two_cells()) == Relaxations()


def test_cpus_that_are_short_are_named_with_their_cell_the_fewest_first_and_so_are_the_guests_that_have_them() -> None:
    web, db = guest("web", {0: 1, 1: 2}), guest("db", {0: 5})
    assert found(pinned(3), two_cells(), web, db) == (
        more(cpus_of(1, "5")),
        more(cpus_of(0, "1-2")),
        FewerVcpus(vcpus=2),
        leave(("db", "1")),
        leave(("web", "0")),
    )


def test_memory_that_is_short_is_counted_for_each_cell() -> None:
    a, b = guest("a", {0: 1}, mem=2048, node=0), guest("b", {0: 5}, mem=1536, node=1)
    assert found(pinned(2, mem=3072), two_cells(), a, b) == (
        more(CellShortfall(cell=1, memory_kib=512 * MIB)),
        more(CellShortfall(cell=0, memory_kib=1024 * MIB)),
        OtherCells(count=2),
        LessMemory(memory_kib=2560 * MIB),
        leave(("b", "1")),
        leave(("a", "0")),
    )


def test_a_guest_without_cells_is_short_of_what_the_host_has_as_a_whole() -> None:
    a, b = guest("a", {0: 1}, mem=4096, node=0), guest("b", {0: 5}, mem=1536, node=1)
    assert found(InstanceRequest(vcpus=1, memory_kib=3072 * MIB), two_cells(), a, b) == (
        MoreFree(memory_kib=512 * MIB),
        LessMemory(memory_kib=2560 * MIB),
        leave(("b", "1")),
        leave(("a", "0")),
    )


def test_guests_that_may_not_over_commit_are_told_the_same_of_a_host_that_others_have_filled_by_its_ratio() -> None:
    where = host({0: Node("0-3", 4096)}, dedicated="1-3", shared="0", reserve_mem=0, ratio_mem=3.0)
    whole = CellRequest(id=0, vcpus=CpuSet([0]), memory_kib=2048 * MIB)
    small = InstanceRequest(vcpus=1, memory_kib=2048 * MIB, cells=(whole,), page_size="small")
    for request in (pinned(1, mem=2048), small):
        assert found(request, where, guest("a", mem=3000))[0] == MoreFree(memory_kib=952 * MIB)
    assert found(msgspec.structs.replace(small, page_size=None), where, guest("a", mem=3000)) == ()


def test_a_guest_that_floats_is_short_of_room_for_its_vcpus() -> None:
    floating = InstanceRequest(vcpus=2, memory_kib=512 * MIB)
    assert found(floating, two_cells(), guest("a", vcpus=7)) == (
        MoreFree(floating=1),
        FewerVcpus(vcpus=1),
        leave(("a", "")),
    )


def test_pages_that_are_short_are_counted_and_the_kernel_gets_back_those_of_who_leaves() -> None:
    before = with_pages()
    cell, *others = before.topology.cells
    touched = msgspec.structs.replace(
        cell, pages=tuple(msgspec.structs.replace(pool, free=pool.total - 256) for pool in cell.pages)
    )
    where = Host(msgspec.structs.replace(before.topology, cells=(touched, *others)), before.config)
    request = msgspec.structs.replace(pinned(2, mem=1024), page_size=2048)
    assert found(request, where, guest("a", {0: 1}, mem=512, node=0, page=2048)) == (
        more(CellShortfall(cell=0, pages=256, page_size_kib=2048)),
        OtherPageSize(page_size="any"),
        LessMemory(memory_kib=512 * MIB),
        leave(("a", "0")),
    )


def test_isolate_needs_whole_cores_and_names_the_threads_that_keep_them_from_being_so() -> None:
    request = msgspec.structs.replace(pinned(4), thread_policy="isolate")
    assert found(request, builders.ht8(), guest("a", {0: 4})) == (
        more(cpus_of(0, "4")),
        OtherThreadPolicy(policy="prefer"),
        FewerVcpus(vcpus=3),
        leave(("a", "0")),
    )


def test_require_needs_siblings_and_names_the_fewest_threads_that_make_some() -> None:
    request = msgspec.structs.replace(pinned(6), thread_policy="require")
    assert found(request, builders.ht8(), guest("a", {0: 4, 1: 5})) == (
        more(cpus_of(0, "4")),
        OtherThreadPolicy(policy="prefer"),
        FewerVcpus(vcpus=4),
        leave(("a", "0")),
    )


def test_emulator_threads_are_told_to_share_only_where_there_is_a_shared_set() -> None:
    isolate = msgspec.structs.replace(pinned(3), emulator_policy="isolate")
    assert found(isolate, two_cells()) == (OtherEmulatorPolicy(policy="share"), FewerVcpus(vcpus=2))
    whole = msgspec.structs.replace(pinned(4), emulator_policy="isolate")
    assert found(whole, builders.h2x4()) == (OtherEmulatorPolicy(policy=None), OtherCells(count=2), FewerVcpus(vcpus=3))


def test_a_guest_of_realtime_vcpus_alone_needs_a_place_for_its_emulator() -> None:
    request = msgspec.structs.replace(pinned(2), realtime=CpuSet([0, 1]))
    assert found(request, two_cells()) == (OtherEmulatorPolicy(policy="share"),)
    assert found(request, builders.h2x4()) == (OtherEmulatorPolicy(policy="isolate"),)


def test_a_device_of_another_cell_is_had_by_a_softer_policy_or_by_room_beside_it() -> None:
    assert found(with_nic(pinned(2)), with_card("4-7")) == (PREFERRED, WITHOUT_NIC)
    assert found(with_nic(pinned(2), "legacy"), with_card("4-7")) == (PREFERRED, WITHOUT_NIC)
    assert found(with_nic(pinned(2), "preferred"), with_card("4-7")) == ()
    assert found(with_nic(pinned(2)), with_card(), guest("web", {0: 0, 1: 1, 2: 2})) == (
        more(cpus_of(0, "0")),
        PREFERRED,
        OtherCells(count=2),
        WITHOUT_NIC,
        FewerVcpus(vcpus=1),
        leave(("web", "0")),
    )


def test_one_property_of_the_flavor_is_told_once_for_all_requests_that_have_their_policy_from_it() -> None:
    one = msgspec.structs.replace(with_nic(pinned(2)).devices[0], policy_source="flavor")
    both = tuple(msgspec.structs.replace(one, id=name) for name in ("p0", "p1"))
    cards = tuple(function(f"0000:0{bus}:00.0", numa=cell) for cell, bus in enumerate((3, 4)))
    nodes = {0: Node("0-3", 4096), 1: Node("4-7", 4096)}
    where = host(nodes, dedicated="0-7", shared="", pci=cards, pci_filter=("*",), reserve_mem=0)
    request = msgspec.structs.replace(pinned(2), devices=both)
    by_flavor = OtherDevicePolicy(requests=("p0", "p1"), policy="preferred", sources=("flavor", "flavor"))
    assert [change for change in found(request, where) if isinstance(change, OtherDevicePolicy)] == [by_flavor]
    port = msgspec.structs.replace(both[1], policy_source="port")
    apart = msgspec.structs.replace(request, devices=(both[0], port))
    assert [change for change in found(apart, where) if isinstance(change, OtherDevicePolicy)] == [
        OtherDevicePolicy(requests=("p0",), policy="preferred", sources=("flavor",)),
        OtherDevicePolicy(requests=("p1",), policy="preferred", sources=("port",)),
    ]


def test_a_guest_that_floats_is_told_to_be_pinned_where_there_are_no_shared_cpus() -> None:
    where = host({0: Node("0-3", 4096)}, dedicated="0-3", shared="", reserve_mem=0)
    floating = InstanceRequest(vcpus=2, memory_kib=512 * MIB)
    to_dedicated = OtherCpuPolicy(policy="dedicated", was=None)
    assert to_dedicated in found(floating, where)
    whole = pinned(2)
    cell = msgspec.structs.replace(whole.cells[0], pinned=CpuSet((0,)))
    mixed = msgspec.structs.replace(whole, cells=(cell,), cpu_policy="mixed")
    assert found(mixed, where)[0] == OtherCpuPolicy(policy="dedicated", was="mixed")
    six = InstanceRequest(vcpus=6, memory_kib=512 * MIB)
    assert to_dedicated not in found(six, where)
    assert to_dedicated not in found(floating, two_cells(), guest("a", vcpus=7))


def test_policies_are_told_together_where_no_single_one_helps() -> None:
    one = with_nic(pinned(2)).devices[0]
    both = tuple(msgspec.structs.replace(one, id=name) for name in ("a", "b"))
    cards = tuple(function(f"0000:0{bus}:00.0", numa=0) for bus in (3, 4))
    nodes = {0: Node("0-3", 4096), 1: Node("4-7", 4096)}
    where = host(nodes, dedicated="4-7", shared="", pci=cards, pci_filter=("*",), reserve_mem=0)
    request = msgspec.structs.replace(pinned(2), devices=both)
    assert found(request, where) == (
        OtherDevicePolicy(requests=("a", "b"), policy="preferred", sources=("default", "default")),
    )


def test_devices_that_are_too_few_are_asked_for_less_or_had_from_who_has_them() -> None:
    assert found(with_nic(pinned(1), "preferred", 3), with_card()) == (FewerDevices(request="alias:nic", count=1),)
    holder = guest("a", {0: 0}, dev=("0000:03:00.0",))
    assert found(with_nic(pinned(1)), with_card(), holder) == (WITHOUT_NIC, leave(("a", "0")))


def test_a_guest_too_large_for_one_cell_may_fit_in_two_and_one_with_too_many_cells_in_fewer() -> None:
    assert found(pinned(6), builders.h2x4()) == (OtherCells(count=2), FewerVcpus(vcpus=4))
    assert found(pinned(4, cells=2), builders.h8()) == (ShareCells(), OtherCells(count=1))


def test_guest_cells_that_are_short_on_several_host_cells_are_told_what_all_of_them_lack() -> None:
    a, b = guest("a", {0: 4, 1: 5, 2: 6}), guest("b", {0: 0, 1: 1, 2: 2})
    assert found(pinned(4, cells=2), builders.h2x4(), a, b) == (
        more(cpus_of(0, "0"), cpus_of(1, "4")),
        FewerVcpus(vcpus=2),
        leave(("a", "1"), ("b", "0")),
    )


def test_two_guests_are_told_only_where_no_single_one_helps() -> None:
    guests = [guest(name, {0: cpu}) for name, cpu in (("a", 0), ("b", 1), ("c", 4), ("d", 5))]
    assert found(pinned(4), builders.h2x4(), *guests)[-1] == leave(("a", "0"), ("b", "0"))
    assert found(pinned(4), builders.h2x4(), *guests[:3])[-1] == leave(("c", "1"))


def test_a_guest_whose_cpus_nobody_knows_is_in_the_way_of_every_pinned_one() -> None:
    assert found(pinned(1), builders.h2x4(), builders.unread("who")) == (leave(("who", "")),)


def test_the_host_without_a_guest_is_the_host_that_never_had_it() -> None:
    a, b = guest("a", {0: 0, 1: 4}, dev=("0000:03:00.0",), mem=1024, node=1), guest("b", {0: 0}, vcpus=2)
    (both, _), (alone, _) = seen(with_card(), a, b), seen(with_card(), b)
    assert without_guests(both, [uuid_of("a")]) == msgspec.structs.replace(alone, generation=both.generation)


def test_no_more_is_had_by_a_guests_leaving_than_it_is_thought_to_hold_at_best() -> None:
    for seed in range(300):
        question = asked(seeded(seed))
        for uuid, holds in question.snapshot.holds.items():
            really = offer_now(without_guests(question.snapshot, [uuid]), question.facts)
            best = at_best(question.offer, [holds])
            more = really.free_devices & ~best.free_devices
            assert not any(more & pool.devices for pool in question.facts.devices.pools), seed
            assert set(really.uncertain) >= set(best.uncertain), seed
            most = amounts(best)
            assert all(have <= most[what] for what, have in amounts(really).items()), seed
            for room, room_at_best in zip(really.cells, best.cells, strict=True):
                assert room.free_cpus & ~room_at_best.free_cpus == 0, seed


def amounts(offer: Offer) -> dict[tuple[object, ...], int]:
    """Everything in it that is a number."""
    counted: dict[tuple[object, ...], int] = {
        ("floating",): offer.floating,
        ("memory",): offer.free_by_ratio_kib,
        ("memory really",): offer.free_kib,
    }
    for room in offer.cells:
        cell = room.facts.id
        counted["floating", cell] = room.floating
        counted["memory", cell], counted["by ratio", cell] = room.free_kib, room.free_by_ratio_kib
        counted |= {("pages", cell, pool.size_kib): pool.free for pool in room.pages}
    return counted


def test_members_of_a_server_group_that_keeps_them_apart_would_have_to_leave() -> None:
    group = Group(id="g", policy="anti-affinity", members=(uuid_of("a"), uuid_of("b")))
    guests = (guest("a", {0: 0}), guest("b", {0: 1}), guest("c", {0: 2}))
    assert told(pinned(1), builders.h2x4(), *guests, group=group).found == (leave(("a", "0"), ("b", "0")),)
    two = msgspec.structs.replace(group, max_server_per_host=2)
    assert told(pinned(1), builders.h2x4(), *guests, group=two).found == (
        leave(("a", "0")),
        leave(("b", "0")),
    )


def test_only_so_many_guests_are_tried_and_the_rest_is_counted() -> None:
    every = f"0-{MOST_GUESTS_TRIED + 9}"
    where = host({0: Node(every, 1 << 20)}, dedicated=every, shared="")
    guests = [guest(f"vm{n}", {0: n}, mem=64) for n in range(MOST_GUESTS_TRIED + 10)]
    assert told(pinned(2), where, *guests) == Relaxations(found=(more(cpus_of(0, "0-1")),), untried=10)


def test_fewer_changes_are_tried_for_a_guest_with_very_many_requests_and_the_rest_is_counted() -> None:
    card = [function("0000:03:00.0", "type-PF", numa=0)]
    card += [function(f"0000:03:{1 + n // 8:02x}.{n % 8}", "type-VF", numa=0, pf="0000:03:00.0") for n in range(160)]
    nodes = {0: Node("0-31", 1 << 20)}
    where = host(nodes, dedicated="0-31", shared="", pci=card, pci_filter=("*",), reserve_mem=0)
    guests = [guest(f"vm{n}", {0: n}, mem=64) for n in range(31)]
    one = PciRequest(id="", specs=(PciSpec(device_type="type-VF"),), numa_policy="required")
    ports = tuple(msgspec.structs.replace(one, id=f"p{n}") for n in range(160))
    few, many = pinned(3), msgspec.structs.replace(pinned(3), devices=ports)
    assert told(few, where, *guests).untried == 0
    assert told(many, where, *guests).untried > len(guests) // 2


def test_of_many_guests_that_could_leave_a_few_are_told_those_first_that_hold_the_least() -> None:
    where = host({0: Node("0-31", 1 << 20)}, dedicated="0-31", shared="")
    guests = [guest(f"vm{n}", {0: n}, mem=64 * (32 - n)) for n in range(32)]
    would_help = told(pinned(1), where, *guests)
    names = [change.guests[0].name for change in would_help.found if isinstance(change, GuestsLeave)]
    assert (names, would_help.untried) == ([f"vm{n}" for n in range(31, 31 - MOST_TOLD, -1)], 0)


def asked(drawn: Drawn) -> Question:
    """The question that such a case is."""
    config = msgspec.structs.replace(drawn.host.config, pack_cells=drawn.how.pack, share_cells=drawn.how.share_cells)
    return question_of(drawn.request, *seen(Host(drawn.host.topology, config), *drawn.host.guests), NEW, None)


def faults(drawn: Drawn) -> list[str]:
    """What is wrong with what is told for a question."""
    question = asked(drawn)
    told = relaxations(question)
    if not why_not(question):
        return [] if told == Relaxations() else ["it fits"]
    wrong = [f"{change} does not help" for change in told.found if not _is_true(question, change)]
    return wrong + ["one is told twice"] * (len({repr(one) for one in told.found}) < len(told.found))


def _is_true(question: Question, change: Relaxation) -> bool:
    after = changed(question, change)
    return after is not None and not why_not(after) and all(map(why_not, _smaller_changes(question, change)))


def _smaller_changes(question: Question, change: Relaxation) -> list[Question]:
    """The case with one step less than what is told, none of which may be enough."""
    less: list[Relaxation] = []
    if isinstance(change, MoreFree):
        for lack in change.cells:
            others = tuple(one for one in change.cells if one is not lack)
            for cpu in lack.cpus:
                fewer = msgspec.structs.replace(lack, cpus=lack.cpus - CpuSet([cpu]))
                less.append(msgspec.structs.replace(change, cells=(*others, fewer)))
            if lack.memory_kib:
                fewer = msgspec.structs.replace(lack, memory_kib=lack.memory_kib - 1)
                less.append(msgspec.structs.replace(change, cells=(*others, fewer)))
            if lack.pages:
                fewer = msgspec.structs.replace(lack, pages=lack.pages - 1)
                less.append(msgspec.structs.replace(change, cells=(*others, fewer)))
    if isinstance(change, FewerVcpus):
        less.append(FewerVcpus(vcpus=change.vcpus + max(1, len(question.request.cells))))
    if isinstance(change, FewerDevices):
        less.append(FewerDevices(request=change.request, count=change.count + 1))
    if isinstance(change, GuestsLeave) and len(change.guests) > 1:
        less += [GuestsLeave(guests=(guest,)) for guest in change.guests]
    return [after for one in less if (after := changed(question, one)) is not None]


@settings(max_examples=50)
@given(cases())
def test_whatever_is_told_makes_it_fit_and_one_step_less_does_not(drawn: Drawn) -> None:
    assert faults(drawn) == []


def test_so_it_is_in_every_numbered_case() -> None:
    wrong = {seed: found for seed in range(400) if (found := faults(seeded(seed)))}
    assert wrong == {}


def test_no_fewer_cpus_of_a_cell_would_be_enough_than_are_told() -> None:
    compared = 0
    for seed in range(2000):
        pick = random.Random(seed).choice
        theme = Theme(memory=False, devices=False)
        question = asked(Drawn(any_host(pick, theme, 2), any_guest(pick, theme, 1), FitRules()))
        if not question.request.pinned or not why_not(question):
            continue
        told = {change.cells[0].cell: change.cells[0] for change in more_free(question) if change.cells}
        for room in question.offer.cells:
            taken = list(CpuSet.from_mask(room.facts.dedicated & ~room.free_cpus))
            fewest = _fewest_cpus(question, room.facts.id, taken)
            if fewest is not None:
                assert len(told[room.facts.id].cpus) == fewest, seed
                compared += 1
    assert compared > 20


def _fewest_cpus(question: Question, cell: int, taken: list[int]) -> int | None:
    """By trying all."""
    for size in range(1, len(taken) + 1):
        for some in itertools.combinations(taken, size):
            after = changed(question, more(CellShortfall(cell=cell, cpus=CpuSet(some))))
            if after is not None and not why_not(after):
                return size
    return None
