"""What one guest holds."""

from __future__ import annotations

import msgspec
import pytest

from agent.core.cpuset import CpuSet
from agent.core.guest import GuestCell, GuestDevice, MemoryDevice, ObservedDomain, Sighting
from agent.core.ledger import Holds, PageHold
from agent.core.pci import NetInterface, PciAddress
from tests.builders import Host, Node, configured, function, guest, h2x4, h8, host, ht8, unread

GIB = 1048576
MIB = 1024
VGPU = "0B5FD3FB-2389-4A22-BA70-52969A26B9D5"
LEGACY = configured(h8(), dedicated=None, shared=None)


def _held(on: Host, seen: Sighting) -> Holds:
    return on.folded(seen).holds[seen.uuid]


def _with(seen: Sighting, **fields: object) -> Sighting:
    assert seen.domain is not None
    return msgspec.structs.replace(seen, domain=msgspec.structs.replace(seen.domain, **fields))


def _cell(number: int, mem: int, node: int | None, **fields: object) -> GuestCell:
    nodeset = CpuSet() if node is None else CpuSet([node])
    made = GuestCell(id=number, vcpus=CpuSet([number]), memory_kib=mem * MIB, mode="strict", nodeset=nodeset)
    return msgspec.structs.replace(made, **fields)


@pytest.mark.parametrize("state", ["running", "paused", "pmsuspended", "crashed", "shutting-down", "unknown"])
def test_an_active_guest_holds_everything_in_every_state(state: str) -> None:
    seen = msgspec.structs.replace(guest("a", {0: 2}, node=0, dev=("0000:5e:00.0",)), state=state)
    held = _held(h8(), seen)
    assert (str(held.cpus), dict(held.cell_memory_kib), len(held.devices)) == ("2", {0: 512 * MIB}, 1)


def test_a_guest_that_is_off_holds_only_the_devices_it_names() -> None:
    seen = guest("a", {0: 2}, state="shut-off", node=0, page=2048, dev=("0000:5e:00.0",), mdev=VGPU)
    assert _held(h8(), seen) == Holds(
        uuid=seen.uuid, devices=(PciAddress.parse("0000:5e:00.0"),), mdevs=(VGPU.lower(),)
    )


def test_a_guest_that_libvirt_lost_holds_everything_whatever_its_state() -> None:
    assert str(_held(h8(), guest("a", {0: 2}, state="shut-off", validity="lost-by-libvirt")).cpus) == "2"


def test_a_pin_to_one_cpu_is_exclusive_also_outside_of_the_dedicated_set() -> None:
    assert str(_held(h8(), guest("a", {0: 0, 1: 7})).cpus) == "0,7"


def test_a_pin_to_several_cpus_is_a_confinement_and_holds_nothing() -> None:
    held = _held(h2x4(), guest("a", {0: "0-1", 1: "4-5", 2: "3-4", 3: 7}))
    assert (str(held.cpus), str(held.confined)) == ("7", "0-1,3-5")
    assert (dict(held.cell_shared), held.host_shared) == ({0: 1, 1: 1}, 1)


def test_a_vcpu_that_is_not_plugged_holds_nothing_though_libvirt_keeps_its_pin() -> None:
    assert str(_held(h8(), guest("a", {0: 2, 1: 3, 2: 4}, online_vcpus="0,2")).cpus) == "2,4"


def test_the_cpuset_of_the_vcpu_element_confines_only_vcpus_without_a_pin_even_when_it_is_one_cpu() -> None:
    held = _held(h8(), guest("a", {0: 5}, vcpus=3, cpuset="1"))
    assert (str(held.cpus), str(held.confined), dict(held.cell_shared)) == ("5", "1", {0: 2})


def test_floating_vcpus_without_any_cpuset_load_the_host_and_are_confined_to_nothing() -> None:
    held = _held(h8(), guest("a", vcpus=3))
    assert (held.host_shared, dict(held.cell_shared), held.confined) == (3, {}, CpuSet())


def test_emulator_and_iothreads_hold_their_part_of_the_dedicated_set() -> None:
    held = _held(h8(), guest("a", {0: 2}, emu="0-2", iothreads={1: "1,6", 2: "7"}))
    assert (str(held.cpus), str(held.emulator_cpus)) == ("2,6-7", "6-7")


def test_an_emulator_pinned_to_every_cpu_is_not_pinned() -> None:
    assert str(_held(h8(), guest("a", {0: 2}, emu="0-7", iothreads={1: "0-63"})).cpus) == "2"


def test_without_configured_sets_an_emulator_pin_counts_only_beside_pinned_vcpus() -> None:
    assert str(_held(LEGACY, guest("a", {0: 2}, emu="6")).cpus) == "2,6"
    assert _held(LEGACY, guest("a", {0: "2-5"}, emu="6")).cpus == CpuSet()


def test_thread_policy_isolate_keeps_the_siblings_idle() -> None:
    held = _held(ht8(), guest("a", {0: 0, 1: 1, 2: 5}, facts={"extra:hw:cpu_thread_policy": "isolate"}))
    assert (str(held.cpus), str(held.sibling_cpus)) == ("0-1,5", "4")
    assert _held(ht8(), guest("a", {0: 0})).sibling_cpus == CpuSet()


@pytest.mark.parametrize(
    ("facts", "siblings"),
    [
        ({"extra:hw:cpu_thread_policy": "prefer", "image:hw_cpu_thread_policy": "isolate"}, "4"),
        ({"image:hw_cpu_thread_policy": "isolate"}, "4"),
        ({"extra:hw:cpu_thread_policy": "require", "image:hw_cpu_thread_policy": "isolate"}, ""),
        ({"extra:trait:HW_CPU_HYPERTHREADING": "forbidden"}, "4"),
        ({"extra:trait:HW_CPU_HYPERTHREADING": "required"}, ""),
    ],
)
def test_the_policy_of_the_flavor_goes_before_that_of_the_image(facts: dict[str, str], siblings: str) -> None:
    assert str(_held(ht8(), guest("a", {0: 0}, facts=facts)).sibling_cpus) == siblings


def test_memory_is_bound_to_a_cell_by_a_strict_nodeset_of_one_only() -> None:
    bound = guest("a", mem=1024, node=1)
    assert dict(_held(h2x4(), bound).cell_memory_kib) == {1: 1024 * MIB}
    for free in (
        _with(bound, mode="preferred"),
        _with(bound, mode="interleave"),
        _with(bound, nodeset=CpuSet([0, 1])),
        _with(bound, nodeset=CpuSet([7])),
        guest("a", mem=1024),
    ):
        held = _held(h2x4(), free)
        assert (dict(held.cell_memory_kib), held.host_memory_kib) == ({}, 1024 * MIB)
    assert dict(_held(h2x4(), _with(bound, mode="restrictive")).cell_memory_kib) == {1: 1024 * MIB}


def test_guest_cells_are_bound_one_by_one_and_what_they_do_not_name_as_the_domain_is() -> None:
    cells = (_cell(0, 1024, 1), _cell(1, 512, None), _cell(2, 256, 0, mode="preferred"))
    seen = _with(guest("a", vcpus=3, mem=2048, node=0), cells=cells)
    held = _held(h2x4(), seen)
    assert dict(held.cell_memory_kib) == {1: 1024 * MIB, 0: (512 + 256) * MIB}
    assert held.host_memory_kib == 256 * MIB


def test_huge_pages_are_counted_up_and_are_no_small_page_memory() -> None:
    cells = (_cell(0, 1025, 0, page_size_kib=GIB), _cell(1, 3, 1), _cell(2, 8, 1, page_size_kib=4))
    seen = _with(guest("a", vcpus=3, mem=1036, page=2048), cells=cells)
    held = _held(h2x4(), seen)
    assert held.pages == (
        PageHold(cell=0, size_kib=GIB, count=2),
        PageHold(cell=1, size_kib=2048, count=2),
    )
    assert (dict(held.cell_memory_kib), held.host_memory_kib) == ({1: 8 * MIB}, 0)


def test_huge_pages_of_no_named_size_are_the_default_ones() -> None:
    pools = host({0: Node("0-7", 16384, {2048: 10, GIB: 1})})
    seen = _with(guest("a", mem=4), default_huge_pages=True)
    assert _held(pools, seen).pages == (PageHold(cell=None, size_kib=2048, count=2),)
    only_big = host({0: Node("0-7", 16384, {GIB: 1})})
    assert _held(only_big, seen).pages == (PageHold(cell=None, size_kib=GIB, count=1),)


def test_memory_modules_lie_where_their_guest_cell_or_their_own_nodeset_says() -> None:
    modules = (
        MemoryDevice(model="dimm", size_kib=256 * MIB, guest_cell=0),
        MemoryDevice(model="dimm", size_kib=128 * MIB, guest_cell=0, nodeset=CpuSet([1]), page_size_kib=2048),
        MemoryDevice(model="nvdimm", size_kib=4096 * MIB, guest_cell=0),
    )
    seen = _with(guest("a", mem=1024 + 256 + 128 + 4096), cells=(_cell(0, 1024, 0),), memory_devices=modules)
    held = _held(h2x4(), seen)
    assert (dict(held.cell_memory_kib), held.host_memory_kib) == ({0: 1280 * MIB}, 0)
    assert held.pages == (PageHold(cell=1, size_kib=2048, count=64),)


def test_devices_are_held_by_address_mediated_ones_by_uuid_and_vdpa_ones_by_their_function() -> None:
    card = msgspec.structs.replace(function("0000:3b:02.0", "vdpa"), vdpa=("vhost-vdpa-0",))
    devices = (
        GuestDevice(kind="pci", source="hostdev", address=PciAddress.parse("0000:5e:00.0")),
        GuestDevice(kind="pci", source="interface network pool"),
        GuestDevice(kind="vdpa", source="interface", vdpa="/dev/vhost-vdpa-0"),
        GuestDevice(kind="vdpa", source="interface", vdpa="/dev/vhost-vdpa-9"),
        GuestDevice(kind="mdev", source="hostdev", mdev=VGPU),
    )
    held = _held(h8(pci=(card,)), _with(guest("a"), devices=devices))
    assert [str(address) for address in held.devices] == ["0000:3b:02.0", "0000:5e:00.0"]
    assert held.mdevs == (VGPU.lower(),)


def test_an_interface_that_macvtap_takes_whole_is_held_as_its_function() -> None:
    card = msgspec.structs.replace(function("0000:3b:02.1", "type-VF"), netdevs=(NetInterface(name="ens3f0v1"),))
    devices = (
        GuestDevice(kind="netdev", source="interface direct passthrough", netdev="ens3f0v1"),
        GuestDevice(kind="netdev", source="interface direct passthrough", netdev="dummy0"),
    )
    held = _held(h8(pci=(card,)), _with(guest("a"), devices=devices))
    assert [str(address) for address in held.devices] == ["0000:3b:02.1"]


def test_an_unread_guest_holds_the_dedicated_cpus_its_threads_may_run_on() -> None:
    held = _held(h8(), unread("a", kernel_cpus="0-3"))
    assert (str(held.cpus), held.guessed, held.uncertain) == ("2-3", True, False)


def _bound(cpus: str, *, alone: str) -> Sighting:
    return msgspec.structs.replace(unread("a", kernel_cpus=cpus), kernel_pins=CpuSet.parse(alone))


def test_an_unread_guest_holds_every_cpu_that_a_vcpu_thread_is_bound_to_alone() -> None:
    held = _held(h8(), _bound("0-7", alone="0-7"))
    assert (str(held.cpus), str(held.kernel_pins), held.uncertain) == ("2-7", "2-7", False)
    held = _held(h8(), _bound("0-7", alone="4"))
    assert (str(held.cpus), str(held.kernel_pins), held.uncertain) == ("4", "4", True)


@pytest.mark.parametrize("cpus", [None, "", "0-7", "0-63"])
def test_an_unread_guest_whose_threads_may_run_anywhere_makes_free_uncertain(cpus: str | None) -> None:
    held = _held(h8(), unread("a", kernel_cpus=cpus))
    assert (held.cpus, held.uncertain) == (CpuSet(), True)


def test_an_unread_guest_that_is_off_holds_nothing_for_certain() -> None:
    seen = unread("a", state="shut-off")
    assert _held(h8(), seen) == Holds(uuid=seen.uuid)


def test_a_guest_of_a_domain_without_memory_or_vcpus_holds_nothing() -> None:
    empty = ObservedDomain(uuid="u", name="a", maker="libvirt", vcpus=0, vcpus_online=CpuSet(), memory_kib=0)
    seen = Sighting(uuid="u", name="a", state="running", begun_at=0.0, domain=empty)
    assert _held(h8(), seen) == Holds(uuid="u")
