"""Snapshots in files: the full form that the agent writes, and the short form that people write."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from agent.core.cpuset import CpuSet
from agent.core.host_config import AddressPattern, DeviceSpec, HostConfig, ReservedPages
from agent.core.snapshot import Findings, Identity, Snapshot, first, take_in
from agent.errors import FaultyInput
from agent.formats import snapshot_file, wire
from tests.builders import guest, h8, listing, processes

CELL: dict[str, Any] = {"id": 0, "cpus": "0-3", "memory_mb": 4096}
DEVICE = {"address": "0000:3b:00.0", "vendor_id": "8086", "product_id": "154c"}
PF, VF = "0000:3b:00.0", "0000:3b:02.0"


def short(**parts: Any) -> Snapshot:
    return snapshot_file.from_plain({"format": "short", "cells": [CELL], **parts})


def faults_of(data: object) -> tuple[str, ...]:
    with pytest.raises(FaultyInput) as caught:
        snapshot_file.from_plain(data)
    return caught.value.faults


def faults_of_short(**parts: Any) -> tuple[str, ...]:
    return faults_of({"format": "short", "cells": [CELL], **parts})


def seen() -> Snapshot:
    """Two guests on CPU 3."""
    identity = Identity(agent_id="agent-1", boot_id="boot-1", epoch=3)
    found = Findings(
        topology=h8().topology,
        listing=listing("a", "b", at=100.0),
        processes=processes(at=100.2),
        sightings=(guest("a", {0: 2, 1: 3}, at=100.1), guest("b", {0: 3}, at=100.1)),
    )
    return take_in(first(identity, h8().config), found)


def full(**changes: Any) -> dict[str, Any]:
    return {**wire.to_builtins(snapshot_file.saved(seen())), **changes}


# --- full ------------------------------------------------------------------------------------------


def test_a_saved_snapshot_read_again_says_the_same_of_the_host() -> None:
    before = seen()
    after = snapshot_file.from_json(wire.to_json(snapshot_file.saved(before)))
    assert (after.identity, after.generation, after.complete) == (before.identity, before.generation, True)
    assert (after.topology, after.config, after.usage) == (before.topology, before.config, before.usage)
    assert (after.holds, after.conflicts) == (before.holds, before.conflicts)
    assert before.conflicts
    assert snapshot_file.saved(after) == snapshot_file.saved(before)


def test_a_null_in_a_devices_tags_is_still_a_null() -> None:
    spec = DeviceSpec(address=VF, tags=MappingProxyType({"physical_network": None}), traits=("A",), managed=False)
    config = HostConfig(device_spec=(spec,), pack_cells=True)
    kept = msgspec.structs.replace(snapshot_file.saved(seen()), configuration=config)
    assert snapshot_file.from_json(wire.to_json(kept)).config == config


def test_an_unknown_field_at_any_depth_is_refused_by_name() -> None:
    document = full()
    document["topology"]["cells"][0]["speed"] = 1
    (fault,) = faults_of(document)
    assert "speed" in fault
    assert "$.topology.cells[0]" in fault


def test_a_file_of_another_release_is_refused() -> None:
    assert faults_of(full(v=2)) == ("v: the file has another version than 1; read it with the release that wrote it",)


def test_what_no_kernel_says_is_refused_before_it_fills_the_memory() -> None:
    document = full()
    document["topology"]["cells"][0]["id"] = 10**12
    document["topology"]["cpus"][1]["id"] = -1
    document["topology"]["page_size_kib"] = 0
    pattern = wire.to_builtins(DeviceSpec(pattern=AddressPattern(bus="(")))
    document["configuration"]["device_spec"] = [pattern]
    assert faults_of(document) == (
        "topology.cells[0].id: 1000000000000 is not between 0 and 16383",
        "topology.cpus[1].id: -1 is not between 0 and 16383",
        "topology.page_size_kib: less than 1",
        "configuration.device_spec[0].pattern: a part is no regular expression",
    )


@pytest.mark.parametrize("data", [None, [], {}, {"format": 1}, {"format": "long"}, "short"])
def test_a_file_of_no_known_form_is_told_both(data: object) -> None:
    (fault,) = faults_of(data)
    assert fault.startswith('format: it must be "full"')


@pytest.mark.parametrize("text", [b"", b"\0" * 100, b"[" * 10**6, b'{"format": "short", "cells": ' + b"[" * 10**5])
def test_hostile_files_are_refused(text: bytes) -> None:
    with pytest.raises(FaultyInput, match="The snapshot is"):
        snapshot_file.from_json(text)


# --- short -----------------------------------------------------------------------------------------


def test_a_cell_is_enough_and_everything_else_is_free_and_default() -> None:
    host = short()
    assert host.topology.online == CpuSet.parse("0-3")
    assert [(cpu.id, cpu.core, cpu.socket, str(cpu.siblings)) for cpu in host.topology.cpus[:2]] == [
        (0, 0, 0, "0"),
        (1, 1, 0, "1"),
    ]
    assert host.usage.host.dedicated.free == CpuSet.parse("0-3")
    assert host.usage.host.memory_kib.free == 4096 * 1024
    assert (host.complete, host.usage.is_legacy, host.usage.pci, host.conflicts) == (True, True, (), ())


def test_what_is_taken_is_held_by_a_guest_named_so() -> None:
    cells = [
        {**CELL, "siblings": ["0,2", [1, 3]], "pages": {"2048": 100}, "used_pages": {"2048": 40}},
        {"id": 4, "cpus": [4, 5], "memory_mb": 1024, "used_memory_mb": 10, "pinned": "5"},
    ]
    host = short(cells=cells, pinned="0", used_memory_mb={"0": 20, "4": 5}, dedicated="0-2,4-5", shared=[3])
    by_cell = {row.id: row for row in host.usage.cells}
    assert {id_: str(row.dedicated.free) for id_, row in by_cell.items()} == {0: "1-2", 4: "4"}
    assert {id_: row.memory_kib.used for id_, row in by_cell.items()} == {0: 20 * 1024, 4: 15 * 1024}
    assert [(page.used, page.free) for page in by_cell[0].pages] == [(40, 60)]
    assert {owner.name for row in host.usage.holders for owner in row.owners} == {"taken"}
    assert host.conflicts == ()


def test_pages_may_be_told_as_agentctl_topology_tells_them() -> None:
    pools = [{"size_kib": 2048, "total": 100, "free": 60}, {"size_kib": 1048576, "total": 2}]
    (cell,) = short(cells=[{**CELL, "memory_mb": 8192, "pages": pools}]).usage.cells
    assert [(page.size_kib, page.total, page.used) for page in cell.pages] == [(2048, 100, 40), (1048576, 2, 0)]
    assert faults_of_short(
        cells=[{**CELL, "memory_mb": 8192, "pages": [{"size_kib": 2048, "total": 1, "free": 2}]}]
    ) == ('cells[0].used_pages["2048"]: more than there are',)


def test_what_is_used_by_guests_without_cells_counts_at_the_host_alone() -> None:
    host = short(used_memory_mb=100, used_vcpus=3)
    assert host.usage.host.memory_kib.used == 100 * 1024
    assert host.usage.host.shared.used == 3
    assert host.usage.cells[0].memory_kib.used == 0


def test_options_of_the_agent_are_taken_over() -> None:
    pages = {"cell": 0, "size_kib": 2048, "count": 3}
    host = short(
        cells=[{**CELL, "pages": {"2048": 3}}],
        cpu_allocation_ratio=2, ram_allocation_ratio=1.5, reserved_memory_mb=7, reserved_pages=[pages],
        pack_cells=True, share_cells=True, page_size_kib=64,
    )  # fmt: skip
    assert host.config == HostConfig(
        cpu_allocation_ratio=2.0, ram_allocation_ratio=1.5, reserved_memory_mb=7, pack_cells=True, share_cells=True,
        reserved_pages=(ReservedPages(cell=0, size_kib=2048, count=3),),
    )  # fmt: skip
    assert host.topology.page_size_kib == 64


def device(address: str, **parts: Any) -> dict[str, Any]:
    return {"address": address, "vendor_id": "8086", "product_id": "154c", **parts}


def test_without_a_filter_every_device_is_offered_and_a_used_one_is_not_free() -> None:
    pci = [device(VF, type="type-VF", parent=PF, cell=0), device(PF, type="type-PF"), device("af:00.0", used=True)]
    host = short(pci=pci)
    assert [(str(row.address), row.offered, row.free) for row in host.usage.pci] == [
        (PF, True, True),
        (VF, True, True),
        ("0000:af:00.0", True, False),
    ]
    functions = [(one.type, one.sriov_numvfs, one.cell) for one in host.topology.pci]
    assert functions == [("type-PF", 1, None), ("type-VF", None, 0), ("type-PCI", None, None)]


def test_a_filter_offers_what_it_names_and_what_has_tags_of_its_own() -> None:
    pci = [device(PF), device("af:00.0", tags={}), device("b0:00.0", tags={"physical_network": "a"})]
    host = short(pci=pci, device_spec=[{"address": PF}])
    assert [str(row.address) for row in host.usage.pci if row.offered] == [PF, "0000:b0:00.0"]
    assert short(pci=pci, device_spec=json.dumps({"address": PF})).config == host.config


def test_contradictions_are_told_all_at_once() -> None:
    cells = [
        {**CELL, "siblings": ["0,1", "1,9"], "used_pages": {"2048": 1}},
        {"id": 1, "cpus": "3-4,x"},
        {"id": 1, "cpus": [99999], "memory_mb": -1},
    ]
    pci = [device(PF, vendor_id="8086 "), device(PF)]
    told = faults_of_short(cells=cells, pinned="77", used_memory_mb={"9": 1}, pci=pci, device_spec={"address": "zz"})
    assert set(told) == {
        'used_memory_mb["9"]: there is no such cell',
        "cells[0].siblings: CPU 1 is in [0] and in [1]",
        "cells[0].siblings: CPU 9 is not among the CPUs of the cell",
        'cells[0].used_pages["2048"]: more than there are',
        "cells[1].cpus: 'x' in '3-4,x' is not a CPU number or range",
        "cells[2].cpus: '99999' in '99999' runs backwards or beyond 16383",
        "cells: two have the same id",
        "cells[2].memory_mb: -1 is not between 0 and 1099511627776",
        'pci[0].vendor_id: "8086 " is not of four hexadecimal digits in lower case',
        f"pci[1].address: {PF} is there twice",
        "pinned: CPU 77 is in no cell",
        "device_spec: slot of address 'zz' is neither * nor a hexadecimal number up to 1f",
    }


@pytest.mark.parametrize(
    ("parts", "fault"),
    [
        ({"cells": []}, "cells: 0 of them, not between 1 and 1024"),
        ({"cells": [{**CELL, "cpu": "0"}]}, "cells[0].cpu: unknown. Is cpus meant?"),
        ({"cells": [{**CELL, "cpus": 4}]}, "cells[0].cpus: a text or a list is expected, not 4"),
        ({"cells": [{**CELL, "cpus": [-1]}]}, "cells[0].cpus: '-1' is not a CPU number or range"),
        ({"cells": [{**CELL, "id": 10**30}]}, "cells[0].id: it is not between 0 and 16383"),
        ({"cells": [{**CELL, "pages": {"M": 1}}]}, 'cells[0].pages["M"]: a number is expected as the name'),
        ({"cells": [{**CELL, "pages": {"0": 1}}]}, "cells[0].pages: 0 is not between 1 and 1099511627776"),
        ({"pci": [{"address": "x"}]}, "pci[0].address: 'x' is not a PCI address"),
        ({"page_size_kib": 0}, "page_size_kib: 0 is not between 1 and 1024"),
        ({"cpu_allocation_ratio": "4"}, 'cpu_allocation_ratio: a number is expected, not "4"'),
        ({"used_memory_mb": 10**30}, "used_memory_mb: it is not between 0 and 1099511627776"),
        ({"dedicated": "0-9"}, "dedicated: CPUs 4-9 are in no cell"),
        ({"cells": [CELL, {"id": 1, "pinned": "3"}]}, "cells[1].pinned: CPU 3 is not among the CPUs of the cell"),
        ({"cells": [{**CELL, "pages": {"2048": 2049}}]}, "cells[0].pages: 4098 MiB, more than memory_mb has (4096)"),
        ({"cells": [{**CELL, "pages": {"2048": 1024, "1048576": 3}}]}, "cells[0].pages: 5120 MiB, more than memory_mb"),
        ({"cells": [CELL, {"id": 1, "cpus": "3-4"}]}, "cells: CPU 3 is in cell 0 and in cell 1"),
        ({"cells": [{**CELL, "distances": {"0": 10, "5": 20}}]}, "cells[0].distances: there is no cell 5"),
        ({"pci": [{**DEVICE, "parent": "0000:3b:00.7"}]}, "pci[0].parent: there is no device 0000:3b:00.7"),
        ({"reserved_memory_mb": 4097}, "reserved_memory_mb: 4097 of 4096 in all cells"),
        (
            {"reserved_pages": [{"cell": 0, "size_kib": 2048, "count": 1}]},
            "reserved_pages[0].count: 1 of 0 pages of 2048 KiB",
        ),
        ({"cpu_allocation_ratio": 0}, "cpu_allocation_ratio: 0 is not above 0 and up to 1000000"),
        ({"ram_allocation_ratio": -1}, "ram_allocation_ratio: -1 is not above 0 and up to 1000000"),
        ({"shared": "0", "pinned": "3"}, "pinned: CPU 3 is not among the dedicated CPUs"),
        ({"dedicated": "2-3", "pinned": "0-2"}, "pinned: CPUs 0-1 are not among the dedicated CPUs"),
        (
            {"device_spec": [{"vendor_id": "8086", "prodct_id": "154c"}]},
            "device_spec: prodct_id is unknown. Is product_id meant?",
        ),
        ({"device_spec": '{"vendor": "8086"}'}, "device_spec: vendor is unknown. Is vendor_id meant?"),
        ({"pci": [{**DEVICE, "tags": {"trustd": "1"}}]}, "pci[0].tags: trustd is unknown. Is trusted meant?"),
        ({"pci": [{**DEVICE, "cell": 7}]}, "pci[0].cell: there is no cell 7"),
        ({"pci": [{**DEVICE, "tags": {"address": "x"}}]}, "pci[0].tags: address says which device is meant, and is no"),
        (
            {"pci": [{**DEVICE, "tags": {"remote_managed": "x"}}]},
            "pci[0].tags: remote_managed 'x' is neither yes nor no",
        ),
        (
            {"pci": [{**DEVICE, "type": "type-VF", "tags": {"one_time_use": "yes"}}]},
            "pci[0].tags: device_spec says one_time_use, which is for type-PCI and type-PF; this is type-VF",
        ),
        (
            {"reserved_pages": [{"cell": 7, "size_kib": 2048, "count": 1}]},
            "reserved_pages[0].cell: there is no cell 7",
        ),
    ],
)
def test_a_fault_is_told_by_its_path(parts: dict[str, Any], fault: str) -> None:
    assert faults_of_short(**parts)[0].startswith(fault)


def test_null_tags_of_a_device_survive() -> None:
    tags = {"physical_network": None}
    host = short(pci=[device(PF, tags=tags)])
    assert [spec.tags for spec in host.config.device_spec] == [MappingProxyType(tags)]


def test_tags_are_laid_over_those_of_the_entry_and_count_for_the_device_that_has_them_alone() -> None:
    pf = device(PF, product_id="1572", type="type-PF", tags={"physical_network": "a"})
    vfs = [device(f"3b:02.{n}", type="type-VF", parent=PF) for n in range(2)]
    vfs.append(device("3b:02.2", type="type-VF", parent=PF, tags={"trusted": True}))
    host = short(pci=[pf, *vfs], device_spec={"product_id": "154c", "physical_network": "z"})
    index = host.config.offering()
    found = {str(one.address): index.spec_of(one) for one in host.topology.pci}
    assert {address: dict(spec.tags) for address, spec in found.items() if spec is not None} == {
        PF: {"physical_network": "a"},
        "0000:3b:02.0": {"physical_network": "z"},
        "0000:3b:02.1": {"physical_network": "z"},
        "0000:3b:02.2": {"physical_network": "z", "trusted": "true"},
    }


def test_a_remote_managed_device_is_offered_without_a_serial_number_and_keeps_one_that_is_told() -> None:
    pci = [
        device(VF, type="type-VF", tags={"remote_managed": True}),
        device("3b:02.1", type="type-VF", serial="MT1", tags={"remote_managed": "yes"}),
        device("3b:02.2", type="type-VF", product_id="101e"),
    ]
    host = short(pci=pci, device_spec={"product_id": "101e", "remote_managed": "true"})
    assert [row.offered for row in host.usage.pci] == [True] * 3
    assert [one.serial for one in host.topology.pci] == ["assumed", "MT1", "assumed"]


def test_the_same_set_may_be_for_pinned_and_for_floating_guests_and_else_none_may_overlap() -> None:
    assert not short(dedicated="0-3", shared="0-3").config.has_split
    assert faults_of_short(dedicated="0-2", shared="2-3") == (
        "dedicated: CPUs 2 are in shared, too; only sets that are the same may overlap",
    )
