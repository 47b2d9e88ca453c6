"""However people write the short form of a snapshot, it is the same host, or it is refused by the name they wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.core.snapshot import Snapshot
from agent.errors import FaultyInput
from agent.formats import snapshot_file
from agent.formats.short_spelling import TOP_NAMES, spelled

PF = {"address": "0000:3b:00.0", "vendor_id": "15b3", "product_id": "a2d6", "type": "type-PF", "cell": 1}
GPU = {"name": "gpu", "vendor_id": "10de", "product_id": "1eb8", "device_type": "type-VF"}
SPEC = {"vendor_id": "15b3", "product_id": "a2d6", "traits": "A,B"}


def document(*, cell: dict[str, Any] | None = None, device: dict[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    """Two cells of four CPUs, and a device at the second. None as a value takes a field away."""
    first = {"id": 0, "cpus": "0-3", "siblings": ["0,2", "1,3"], "memory_mb": 4096, "pages": {"2048": 512}}
    cells = [_changed(first, cell or {}), {"id": 1, "cpus": "4-7", "memory_mb": 4096}]
    return _changed({"format": "short", "cells": cells, "pci": [_changed(PF, device or {})]}, top)


def _changed(plain: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**plain, **change}.items() if value is not None}


def host(data: dict[str, Any]) -> Snapshot:
    return snapshot_file.from_json(json.dumps(data))


def faults_of(data: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(FaultyInput) as caught:
        host(data)
    return caught.value.faults


def assert_same(written: dict[str, Any], meant: dict[str, Any]) -> None:
    one, other = host(written), host(meant)
    assert (one.topology, one.config, one.usage) == (other.topology, other.config, other.usage)


MANY, TAKEN = {"2048": 512}, {"2048": 12}
CELLS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"pages": {"2M": 512}}, {}),
    ({"pages": {"2 MiB": 512}}, {}),
    ({"pages": {"2048k": 512}}, {}),
    ({"pages": [{"size_kib": 2048, "total": 512}]}, {}),
    ({"pages": [{"size": "2MB", "total": 512}]}, {}),
    ({"pages": [{"size_kb": 2048, "count": 512}]}, {}),
    ({"pages": [{"size": "2048", "total": 512, "used": 12}]}, {"used_pages": {"2048": 12}}),
    ({"pages": [{"size": 2048, "used": 12, "free": 500}]}, {"used_pages": {"2048": 12}}),
    ({"pages": {"2048": {"total": 512, "used": 12}}}, {"used_pages": {"2048": 12}}),
    ({"pages": {"2M": {"total": 512, "free": 500}, "1G": 1}}, {"pages": {**MANY, "1048576": 1}, "used_pages": TAKEN}),
    ({"used_pages": {"2MB": 12.0}}, {"used_pages": {"2048": 12}}),
    ({"pages": {"2048": 512, "4": 786432}}, {}),
    ({"pages": {"2048": 512, "4K": {"total": 786432, "used": 257}}}, {"used_memory_mb": 2}),
    ({"pages": {"2048": 512, "4": 786432}, "used_pages": {"4": 256}}, {"used_memory_mb": 1}),
    ({"pages": [{"size": 4, "total": 786432, "free": 786176}, {"size": 2048, "total": 512}]}, {"used_memory_mb": 1}),
    ({"pages": {"2048": 512, "4": 786432}, "memory_mb": None}, {}),
    ({"memory_mb": 4096.0, "id": 0.0}, {}),
    ({"siblings": [["0", 2], [1, 3]]}, {}),
    ({"siblings": {"0": [2], "1": "3"}}, {}),
    ({"siblings": {"0": [0, 2], "2": "0,2", "1": [3], "3": [1]}}, {}),
    ({"cpus": ["0-1", 2, "3"]}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("written", "meant"), CELLS, ids=[json.dumps(written) for written, _ in CELLS])
def test_a_cell_is_the_same_however_it_is_written(written: dict[str, Any], meant: dict[str, Any]) -> None:
    assert_same(document(cell=written), document(cell=meant))


DEVICES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"vendor_id": "0x15B3", "product_id": "A2D6", "class": "0x0200"}, {"class": "0200"}),
    ({"type": "PF"}, {}),
    ({"type": "pf"}, {}),
    ({"type": "TYPE-PF"}, {}),
    ({"type": "VF"}, {"type": "type-VF"}),
    ({"type": "PCI"}, {"type": "type-PCI"}),
    ({"type": "VDPA"}, {"type": "vdpa"}),
    ({"type": "type-vdpa"}, {"type": "vdpa"}),
    ({"cell": None, "numa_node": 1}, {}),
    ({"cell": -1}, {"cell": None}),
    ({"parent": ""}, {}),
    ({"tags": {"trusted": True, "x": 1}}, {"tags": {"trusted": "true", "x": "1"}}),
    ({"tags": {"traits": ["A", "B"]}}, {"tags": {"traits": "A,B"}}),
]


@pytest.mark.parametrize(("written", "meant"), DEVICES, ids=[json.dumps(written) for written, _ in DEVICES])
def test_a_device_is_the_same_however_it_is_written(written: dict[str, Any], meant: dict[str, Any]) -> None:
    assert_same(document(device=written), document(device=meant))


RESERVED = [{"cell": 0, "size_kib": 2048, "count": 64}]
TOPS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"comment": ["what", None]}, {}),
    ({"ratios": {"cpu": 2.0, "ram": 1.5}}, {"cpu_allocation_ratio": 2, "ram_allocation_ratio": 1.5}),
    ({"ratios": {"cpu_allocation_ratio": 2}, "ram_allocation_ratio": 1.5}, {"ratios": {"cpu": 2, "ram": 1.5}}),
    ({"cpu_dedicated_set": "1-3,^2", "cpu_shared_set": [0]}, {"dedicated": "1,3", "shared": "0"}),
    ({"vcpu_pin_set": "1-3"}, {"dedicated": "1-3", "shared": "1-3"}),
    ({"dedicated": {"0": "1-3", "1": ["5", 6]}, "shared": {"1": "4"}}, {"dedicated": "1-3,5-6", "shared": "4"}),
    ({"dedicated": {}}, {"dedicated": ""}),
    ({"pinned": {"0": "1-2"}}, {"pinned": [1, 2]}),
    ({"pinned": {"0": [1, 2]}}, {"pinned": ["1-2"]}),
    ({"passthrough_whitelist": SPEC}, {"device_spec": [SPEC]}),
    ({"pci_passthrough_whitelist": json.dumps(SPEC)}, {"device_spec": [SPEC]}),
    ({"device_spec": [json.dumps(SPEC), json.dumps([SPEC])]}, {"device_spec": [SPEC, SPEC]}),
    ({"device_spec": {**SPEC, "traits": ["A", "B"], "address": None}}, {"device_spec": [SPEC]}),
    ({"device_spec": {**SPEC, "vendor_id": "0x15B3"}}, {"device_spec": [SPEC]}),
    ({"alias": GPU}, {"alias": [GPU]}),
    ({"pci_alias": json.dumps([GPU])}, {"alias": [GPU]}),
    ({"alias": [json.dumps(GPU)]}, {"alias": [GPU]}),
    ({"alias": {**GPU, "vendor_id": "0x10DE", "device_type": "vf", "numa_policy": None}}, {"alias": [GPU]}),
    ({"reserved_host_memory_mb": 512.0}, {"reserved_memory_mb": 512}),
    ({"packing_host_numa_cells_allocation_strategy": True}, {"pack_cells": True}),
    ({"share_host_cells": True}, {"share_cells": True}),
    ({"reserved_huge_pages": "node:0, size:2048, count:64"}, {"reserved_pages": RESERVED}),
    ({"reserved_huge_pages": ["node:0,size:2MB,count:64"]}, {"reserved_pages": RESERVED}),
    ({"reserved_pages": {"node": "0", "size": "2048", "count": "64"}}, {"reserved_pages": RESERVED}),
    ({"reserved_pages": [{"node": 0, "size": "2M", "count": 64}]}, {"reserved_pages": RESERVED}),
    ({"reserved_pages": {"0": {"2048": 64}}}, {"reserved_pages": RESERVED}),
    ({"reserved_pages": {"0": [{"size": "2MB", "count": 64}]}}, {"reserved_pages": RESERVED}),
    ({"reserved_pages": {}}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("written", "meant"), TOPS, ids=[json.dumps(written) for written, _ in TOPS])
def test_a_host_is_the_same_however_it_is_written(written: dict[str, Any], meant: dict[str, Any]) -> None:
    assert_same(document(**written), document(**meant))


@pytest.mark.parametrize("pages", [{"2048": 64}, {"2M": 64}, [{"size": 2048, "count": 64}], "size:2048,count:64"])
def test_pages_may_be_kept_back_in_the_cell_itself(pages: object) -> None:
    assert_same(document(cell={"reserved_pages": pages}), document(reserved_pages=RESERVED))


def test_null_says_nothing_at_any_depth() -> None:
    fields = ("siblings", "pages", "used_pages", "socket", "distances", "l3", "dedicated", "pinned", "reserved_pages")
    cell = {"id": 0, "cpus": "0-3", "memory_mb": 1024, **dict.fromkeys(fields)}
    pool = {"size_kib": 2048, "total": 5, "free": None, "used": None}
    nulls = ("type", "cell", "parent", "parent_ifname", "ifname", "tags", "used", "class", "numa_node")
    device = {"address": "3b:00.0", "vendor_id": "15b3", "product_id": "a2d6", **dict.fromkeys(nulls)}
    tops = ("dedicated", "shared", "pinned", "device_spec", "alias", "ratios", "reserved_pages", "page_size_kib")
    written = {"format": "short", "cells": [cell, {**cell, "id": 1, "cpus": None, "pages": [pool]}], "pci": [device]}
    meant = {
        "format": "short",
        "cells": [{"id": 0, "cpus": "0-3", "memory_mb": 1024}, {"id": 1, "memory_mb": 1024, "pages": {"2048": 5}}],
        "pci": [{"address": "3b:00.0", "vendor_id": "15b3", "product_id": "a2d6"}],
    }
    assert_same({**written, **dict.fromkeys((*tops, *TOP_NAMES)), "used_memory_mb": {"0": None}}, meant)


def test_null_is_kept_where_it_is_a_value() -> None:
    tags = {"physical_network": None}
    (spec,) = host(document(device={"tags": tags})).config.device_spec
    assert dict(spec.tags) == tags
    assert [dict(one.tags) for one in host(document(device_spec=tags)).config.device_spec] == [tags]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (
            document(dedicated="1", cpu_dedicated_set="1"),
            "dedicated: cpu_dedicated_set says the same thing; give one of them",
        ),
        (document(vcpu_pin_set="1", shared="1"), "vcpu_pin_set: shared says the same thing; give one of them"),
        (
            document(device_spec=[], passthrough_whitelist=[]),
            "device_spec: passthrough_whitelist says the same thing; give one of them",
        ),
        (
            document(reserved_pages=[], reserved_huge_pages=[]),
            "reserved_pages: reserved_huge_pages says the same thing; give one of them",
        ),
        (
            document(ratios={"cpu": 1}, cpu_allocation_ratio=1),
            "ratios.cpu: cpu_allocation_ratio says the same thing; give one of them",
        ),
        (document(ratios={"disk": 1}), "ratios.disk: unknown. Known are cpu, ram, cpu_allocation_ratio, ram_allo"),
        (document(ratios=3), "ratios: unknown. "),
        (document(device={"numa_node": 1}), "pci[0].cell: numa_node says the same thing; give one of them"),
        (document(device={"type": "P"}), 'pci[0].type: "P" is none of type-PCI, type-PF, type-VF, vdpa'),
        (document(device={"cell": "1"}), 'pci[0].cell: a whole number is expected, not "1"'),
        (document(device={"vendor_id": "0x15b"}), 'pci[0].vendor_id: "0x15b" is not of four hexadecimal digits'),
        (document(device={"tags": {"x": ["a"]}}), 'pci[0].tags["x"]: a text is expected, not a list'),
        (document(cell={"pages": {"2M": 1, "2048": 1}}), "cells[0].pages.2M: 2048 says the same thing; give one of"),
        (
            document(cell={"pages": [{"size": 2048, "total": 1}, {"size": "2M", "total": 2}]}),
            "cells[0].pages[0]: cells[0].pages[1] says the same thing; give one of them",
        ),
        (
            document(cell={"pages": {"2048": {"total": 5, "free": 1}}, "used_pages": {"2M": 1}}),
            'cells[0].pages[0]: cells[0].used_pages["2048"] says the same thing; give one of them',
        ),
        (
            document(cell={"pages": [{"size": 2048, "total": 5, "free": 1, "used": 1}]}),
            "cells[0].pages[0]: 1 used and 1 free are not 5 in all",
        ),
        (document(cell={"pages": {"2X": 1}}), 'cells[0].pages["2X"]: a number is expected as the name'),
        (document(cell={"pages": {"4": "x"}}), 'cells[0].pages["4"]: a whole number is expected, not "x"'),
        (document(cell={"pages": [{"size": "2M", "totl": 1}]}), "cells[0].pages[0].totl: unknown. Is total meant?"),
        (
            document(cell={"pages": {"4": {"total": 9, "used": 1}}, "used_memory_mb": 1}),
            "cells[0].pages: cells[0].used_memory_mb says the same thing; give one of them",
        ),
        (
            document(cell={"pages": {"4": {"total": 9, "used": 1}}}, used_memory_mb={"0": 1}),
            'cells[0].pages: used_memory_mb["0"] says the same thing; give one of them',
        ),
        (document(cell={"siblings": {"0": "x"}}), "cells[0].siblings[\"0\"]: 'x' is not a CPU number or range"),
        (document(pinned={"7": "1"}), 'pinned["7"]: there is no such cell'),
        (document(pinned={"0": "vm1"}), "cells[0].pinned: 'vm1' is not a CPU number or range"),
        (
            document(cell={"pinned": "1"}, pinned={"0": "2"}),
            'pinned["0"]: pinned of the cell says the same thing; give one of them',
        ),
        (document(reserved_pages={"2048": 64}), "reserved_pages: a list is expected, not an object"),
        (document(reserved_pages=["2048"]), 'reserved_pages[0]: an object is expected, not "2048"'),
        (
            document(reserved_pages="node:0,sise:2048,count:1"),
            "reserved_pages[0].sise: unknown. Known are cell, size_kib, count",
        ),
        (
            document(reserved_pages=[*RESERVED, "node:0,size:2M,count:1"]),
            "reserved_pages: pages of 2048 KiB of cell 0 are given twice",
        ),
        (
            document(reserved_pages=RESERVED, cell={"reserved_pages": {"2048": 1}}),
            "reserved_pages: pages of 2048 KiB of cell 0 are given twice",
        ),
        (document(device_spec="{"), "device_spec: "),
        (document(device_spec=["{"]), "device_spec: "),
        (document(alias={"nic": GPU}), "alias: unknown: nic; known are name, "),
        (document(name="x"), "name: unknown. Known are "),
        (document(cell={"comment": "x"}), "cells[0].comment: unknown. "),
        (document(cell={"memory_mb": 0.5}), "cells[0].memory_mb: a whole number is expected, not 0.5"),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_what_is_said_twice_or_means_nothing_is_refused_by_its_name(data: dict[str, Any], fault: str) -> None:
    assert faults_of(data)[0].startswith(fault)


def test_a_page_size_of_the_host_says_which_pages_are_small() -> None:
    meant = document(page_size_kib=64, cell={"pages": {"2048": 512}})
    assert_same(document(page_size_kib=64, cell={"pages": {"64": 49152, "2048": 512}}), meant)
    assert [
        page.size_kib for page in host(document(page_size_kib=64, cell={"pages": {"4": 1}})).usage.cells[0].pages
    ] == [4]


@pytest.mark.parametrize("data", [None, [], 7, {"cells": 5}, {"cells": [5]}, {"pci": {"a": 1}}, {"page_size_kib": "4"}])
def test_what_is_not_understood_is_left_as_it_is(data: object) -> None:
    assert spelled(data) == data


def test_a_flood_of_faults_is_cut_and_deep_nests_do_no_harm() -> None:
    faults = faults_of(document(pci=[{**PF, "numa_node": 0}] * 500))
    assert (len(faults), faults[-1]) == (21, "and more")
    deep: Any = []
    for _ in range(300):
        deep = [deep, {"x": deep}] if not deep else [deep]
    assert faults_of(document(cell={"pages": deep}, siblings=deep))[0].startswith("siblings: unknown")
