"""What binds a guest's memory, and what of it lies elsewhere."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent.core.cpuset import CpuSet
from agent.core.guest import GuestCell, MemoryDevice, ObservedDomain
from agent.core.guest_memory import Binding, Part, binding, elsewhere, parts
from tests.builders import guest

MIB = 1024
GIB = 1024 * MIB


def domain(mem: int = 2048, **fields: Any) -> ObservedDomain:
    """A guest of so many MiB."""
    seen = guest("a", mem=mem).domain
    assert seen is not None
    return msgspec.structs.replace(seen, **fields)


def cell(number: int, mem: int, nodes: str = "", page: int | None = None, mode: str | None = "strict") -> GuestCell:
    nodeset = CpuSet.parse(nodes)
    return GuestCell(
        id=number, vcpus=CpuSet([number]), memory_kib=mem * MIB, mode=mode, nodeset=nodeset, page_size_kib=page
    )


def bound(cells: str, mem: int, *, is_one: bool = True) -> Binding:
    return Binding(cells=CpuSet.parse(cells), memory_kib=mem * MIB, is_one=is_one)


def test_parts_are_guest_cells_then_modules_then_the_rest() -> None:
    module = MemoryDevice(model="dimm", size_kib=256 * MIB, guest_cell=1)
    nvdimm = MemoryDevice(model="nvdimm", size_kib=512 * MIB, guest_cell=0)
    numa = (cell(0, 512, "0"), cell(1, 512, "1", page=2048))
    both = domain(1024 + 256 + 512 + 1, cells=numa, memory_devices=(module, nvdimm), mode="strict", nodeset=CpuSet([3]))
    assert list(parts(both)) == [
        Part(512 * MIB, CpuSet([0]), None),
        Part(512 * MIB, CpuSet([1]), 2048),
        Part(256 * MIB, CpuSet([1]), 2048),
        Part(1 * MIB, CpuSet([3]), None),
    ]


@pytest.mark.parametrize("mode", ["strict", "restrictive", None])
def test_a_numatune_that_binds_names_the_cells_of_all_memory(mode: str | None) -> None:
    assert binding(domain(mode=mode, nodeset=CpuSet([0, 2]))) == bound("0,2", 2048)


@pytest.mark.parametrize("mode", ["preferred", "interleave"])
def test_a_numatune_that_only_wishes_binds_nothing(mode: str) -> None:
    assert binding(domain(mode=mode, nodeset=CpuSet([0]))) is None


def test_a_guest_without_a_nodeset_is_bound_to_nothing() -> None:
    assert binding(domain()) is None
    assert binding(domain(mode="strict")) is None


def test_guest_cells_are_bound_each_to_its_own_cells() -> None:
    assert binding(domain(cells=(cell(0, 1024, "0"), cell(1, 1024, "3")))) == bound("0,3", 2048, is_one=False)
    assert binding(domain(cells=(cell(0, 1024, "1"), cell(1, 1024, "1")))) == bound("1", 2048)


def test_memory_that_may_lie_anywhere_makes_nothing_of_the_guest_lie_elsewhere() -> None:
    half = domain(cells=(cell(0, 1024, "0"), cell(1, 1024)))
    assert binding(half) is None
    rest = domain(2049, cells=(cell(0, 2048, "0"),))
    assert binding(rest) is None
    wish = domain(cells=(cell(0, 1024, "0"), cell(1, 1024, "1", mode="preferred")))
    assert binding(wish) is None


def test_huge_pages_are_left_out_since_no_control_group_is_charged_for_them() -> None:
    assert binding(domain(mode="strict", nodeset=CpuSet([0]), page_size_kib=2048)) is None
    assert binding(domain(mode="strict", nodeset=CpuSet([0]), default_huge_pages=True)) is None
    mixed = domain(cells=(cell(0, 1024, "0", page=2048), cell(1, 1024, "1")))
    assert binding(mixed) == bound("1", 1024)
    free_huge = domain(cells=(cell(0, 1024, page=2048), cell(1, 1024, "1")))
    assert binding(free_huge) == bound("1", 1024)


def test_a_module_lies_where_it_says_or_where_its_guest_cell_does() -> None:
    numa = (cell(0, 1024, "0"), cell(1, 1024, "1"))
    plugged = (
        MemoryDevice(model="dimm", size_kib=512 * MIB, guest_cell=1),
        MemoryDevice(model="virtio-mem", size_kib=512 * MIB, guest_cell=1, nodeset=CpuSet([2])),
    )
    assert binding(domain(3072, cells=numa, memory_devices=plugged)) == bound("0-2", 3072, is_one=False)


def test_what_lies_on_the_cells_bound_to_is_in_place() -> None:
    assert elsewhere(bound("0-1", 2048), {0: 1 * GIB, 1: 1 * GIB, 2: 0, 3: 0}, CpuSet()) == CpuSet()


@pytest.mark.parametrize(
    ("mem", "limit"), [(64, 64), (512, 64), (1024, 64), (2048, 128), (65536, 4096)], ids=lambda mib: f"{mib} MiB"
)
def test_more_than_a_sixteenth_and_64_mib_on_another_cell_lies_elsewhere(mem: int, limit: int) -> None:
    at_limit = {0: mem * MIB, 1: limit * MIB, 2: limit * MIB + 1}
    assert elsewhere(bound("0", mem), at_limit, CpuSet()) == CpuSet([2])


def test_a_number_that_moves_about_the_limit_makes_no_news() -> None:
    told, seen = CpuSet(), []
    for kib in (100, 127, 129, 127, 129, 65, 127, 64, 127):
        told = elsewhere(bound("0", 2048), {0: 2 * GIB, 1: kib * MIB}, told)
        seen.append(bool(told))
    assert seen == [False, False, True, True, True, True, True, False, False]
