"""The guest's cells, page size and locked memory, out of flavor and image."""

from __future__ import annotations

import pytest

from agent.core.cpuset import CpuSet
from agent.core.flavor import Faults
from agent.core.instance import CellRequest
from tests.unit.flavor_requests import Words, answer, asked, kinds, requested

KIB = 1024
BY_HAND = {
    "numa_cpus.0": "0,2",
    "numa_mem.0": "1024",
    "numa_cpus.1": "1,3",
    "numa_mem.1": "3072",
}


def cell(number: int, vcpus: str, memory_mb: int, pinned: str = "") -> CellRequest:
    return CellRequest(id=number, vcpus=CpuSet.parse(vcpus), memory_kib=memory_mb * KIB, pinned=CpuSet.parse(pinned))


def test_cells_are_even_parts_unless_something_else_is_said() -> None:
    assert asked({"hw:numa_nodes": "2"}).cells == (cell(0, "0-1", 2048), cell(1, "2-3", 2048))


def test_an_image_can_ask_for_cells() -> None:
    assert asked(None, {"hw_numa_nodes": "4"}).cells == tuple(cell(n, str(n), 1024) for n in range(4))


def test_cells_by_hand_have_the_vcpus_and_memory_that_are_given() -> None:
    specs = {"hw:numa_nodes": "2"} | {f"hw:{name}": text for name, text in BY_HAND.items()}
    assert asked(specs).cells == (cell(0, "0,2", 1024), cell(1, "1,3", 3072))


def test_vcpus_of_the_flavor_and_memory_of_the_image_go_together() -> None:
    specs = {f"hw:{name}": text for name, text in BY_HAND.items() if "cpus" in name}
    image = {f"hw_{name}": text for name, text in BY_HAND.items() if "mem" in name}
    assert asked({"hw:numa_nodes": "2", **specs}, image).cells == (cell(0, "0,2", 1024), cell(1, "1,3", 3072))


def test_a_mask_reaches_into_each_cell() -> None:
    specs = {"hw:numa_nodes": "2", "hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "1-2"}
    assert asked(specs).cells == (cell(0, "0-1", 2048, "1"), cell(1, "2-3", 2048, "2"))


@pytest.mark.parametrize(
    "specs",
    [{"hw:mem_page_size": "small"}, {"hw:mem_page_size": "2048"}, {"hw:pmem": "4GB"}, {"hw:cpu_policy": "dedicated"}],
)
def test_a_page_size_persistent_memory_or_pins_give_a_guest_one_cell(specs: Words) -> None:
    assert len(asked(specs).cells) == 1


def test_devices_alone_give_a_guest_no_cells() -> None:
    assert asked({"pci_passthrough:alias": "gpu:1"}).cells == ()


def test_cells_by_hand_of_a_guest_without_cells_are_noted() -> None:
    made = requested({f"hw:{name}": text for name, text in BY_HAND.items()})
    assert made.request.cells == ()
    assert made.notes == (
        (
            "The guest gets no cells without hw:numa_nodes, pins or a page size: no effect of hw:numa_cpus.0, "
            "hw:numa_cpus.1, hw:numa_mem.0, hw:numa_mem.1."
        ),
    )


def test_a_number_that_is_left_out_is_not_read_as_fewer_cells() -> None:
    specs = {"hw:numa_nodes": "1", "hw:numa_cpus.0": "0-3", "hw:numa_mem.0": "4096", "hw:numa_cpus.2": "0"}
    assert kinds(answer(specs)) == ["cells-incomplete"]


@pytest.mark.parametrize("missing", ["numa_cpus.0", "numa_cpus.1", "numa_mem.0", "numa_mem.1"])
def test_each_cell_by_hand_needs_vcpus_and_memory(missing: str) -> None:
    specs = {f"hw:{name}": text for name, text in BY_HAND.items() if name != missing}
    assert kinds(answer({"hw:numa_nodes": "2", **specs})) == ["cells-incomplete"]


@pytest.mark.parametrize("nodes", ["1", "3", "4", "5"])
def test_the_cells_by_hand_are_as_many_as_are_said(nodes: str) -> None:
    specs = {f"hw:{name}": text for name, text in BY_HAND.items()}
    made = answer({"hw:numa_nodes": nodes, **specs})
    assert isinstance(made, Faults)
    assert [fault.found.partition(", but")[0] for fault in made.faults] == [
        f"With hw:numa_nodes={nodes} of the flavor, vCPUs and memory of each of {nodes} cells are needed"
    ]
    assert made.faults[0].change == (
        f"Give hw:numa_cpus.N and hw:numa_mem.N for all N from 0 to {int(nodes) - 1}, or change hw:numa_nodes."
    )


@pytest.mark.parametrize(("vcpus", "memory_mb"), [(3, 4096), (4, 4095)])
def test_even_parts_need_vcpus_and_memory_that_can_be_parted(vcpus: int, memory_mb: int) -> None:
    assert kinds(answer({"hw:numa_nodes": "2"}, vcpus=vcpus, memory_mb=memory_mb)) == ["cells-uneven"]


def test_a_vcpu_that_is_beyond_the_last_or_in_two_cells_is_named() -> None:
    specs = {"hw:numa_nodes": "2"} | {f"hw:{name}": text for name, text in BY_HAND.items()}
    made = answer(specs | {"hw:numa_cpus.1": "1,3-4"}), answer(specs | {"hw:numa_cpus.1": "1-3"})
    assert [fault.found for one in made if isinstance(one, Faults) for fault in one.faults] == [
        "hw:numa_cpus.1=1,3-4 of the flavor names vCPUs beyond the last, 3, with vcpus=4 of the flavor.",
        "hw:numa_cpus.0=0,2 of the flavor and hw:numa_cpus.1=1-3 of the flavor both have vCPU 2.",
    ]


def test_every_fault_of_cells_by_hand_is_told() -> None:
    specs = {"hw:numa_nodes": "2", "hw:numa_cpus.0": "0-x", "hw:numa_cpus.1": "2-9", "hw:numa_mem.0": "1 GB"}
    found = kinds(answer(specs | {"hw:numa_mem.1": "0"}))
    assert found == ["cell-cpus-list", "cell-memory-number", "cell-memory-number", "cell-cpu-range"]


def test_more_cells_than_anything_has_are_a_fault_at_once() -> None:
    assert kinds(answer({"hw:numa_nodes": "2147483647"})) == ["cells-uneven"]
    assert kinds(answer({"hw:numa_nodes": "2147483647", "hw:numa_cpus.0": "0-3"})) == ["cells-incomplete"]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("small", "small"),
        ("large", "large"),
        ("any", "any"),
        ("4", 4),
        ("2048", 2048),
        ("2MB", 2048),
        ("2MiB", 2048),
        ("1GB", 1 << 20),
        ("0.5GiB", 1 << 19),
        ("2.5MB", 2560),
        ("16Mbit", 2048),
        ("2097152B", 2048),
    ],
)
def test_a_page_size_is_a_word_or_kib_or_has_a_unit(text: str, size: int | str) -> None:
    assert asked({"hw:mem_page_size": text}).page_size == size


@pytest.mark.parametrize(
    "text", ["0", "-1", "-2MB", "2 MB", "2MBB", "1.5", "2048kB", "1B", "0.3KB", "9YB", "Large", "1e3", "9" * 30, "²"]
)
def test_another_page_size_is_a_fault(text: str) -> None:
    assert kinds(answer({"hw:mem_page_size": text})) == ["page-size-unknown"]


@pytest.mark.parametrize("flavor", ["any", "large"])
def test_an_image_narrows_the_page_size_that_the_flavor_leaves_open(flavor: str) -> None:
    assert asked({"hw:mem_page_size": flavor}, {"hw_mem_page_size": "1GB"}).page_size == 1 << 20


@pytest.mark.parametrize(
    ("specs", "properties"),
    [
        ({"hw:mem_page_size": "small", "hw:locked_memory": "true"}, {}),
        ({"hw:mem_page_size": "small"}, {"hw_locked_memory": "yes"}),
        ({"hw:mem_encryption": "true"}, {"hw_firmware_type": "uefi"}),
        ({"hw:mem_encryption_model": "amd-sev-es"}, {"hw_mem_encryption": "on", "hw_firmware_type": "uefi"}),
    ],
)
def test_memory_is_locked_when_asked_for_or_encrypted_by_a_kind_that_needs_it(specs: Words, properties: Words) -> None:
    assert asked(specs, properties).memory_locked


def test_newer_kinds_of_encryption_lock_nothing() -> None:
    specs = {"hw:mem_encryption": "true", "hw:mem_encryption_model": "amd-sev-snp"}
    assert not asked(specs, {"hw_firmware_type": "uefi", "hw_firmware_stateless": "true"}).memory_locked


def test_encryption_stands_above_memory_that_is_said_not_to_be_locked() -> None:
    specs = {"hw:mem_encryption": "true", "hw:locked_memory": "false"}
    made = requested(specs, {"hw_firmware_type": "uefi"})
    assert made.request.memory_locked
    assert "hw:locked_memory=false of the flavor gives way to memory encryption, which locks it." in made.notes


@pytest.mark.parametrize(
    ("specs", "properties", "found"),
    [
        ({"hw:locked_memory": "true"}, {"hw_locked_memory": "true"}, "hw:locked_memory=true of the flavor"),
        ({}, {"hw_locked_memory": "true"}, "hw_locked_memory=true of the image"),
    ],
)
def test_locked_memory_without_a_page_size_names_who_asks(specs: Words, properties: Words, found: str) -> None:
    made = answer(specs, properties)
    assert isinstance(made, Faults)
    assert [str(one) for one in made.faults[0].properties] == [found, "no hw:mem_page_size of the flavor"]
