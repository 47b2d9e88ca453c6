"""Run by the Python that has nova: its own objects, made of a plain case (the values of `fit_cases` as JSON).

nova's modules are loaded by name, since the environment that checks types has no nova.
"""

from __future__ import annotations

import importlib
import json
from typing import Any

objects: Any = importlib.import_module("nova.objects")
hardware: Any = importlib.import_module("nova.virt.hardware")
stats: Any = importlib.import_module("nova.pci.stats")
whitelist: Any = importlib.import_module("nova.pci.whitelist")
manager: Any = importlib.import_module("nova.pci.manager")
CONF: Any = importlib.import_module("nova.conf").CONF

PAGE_WORDS = {"small": hardware.MEMPAGES_SMALL, "large": hardware.MEMPAGES_LARGE, "any": hardware.MEMPAGES_ANY}
KIB_PER_MIB = 1024
CARD = {"vpd": {"card_serial_number": "MT2113X00000"}}

Plain = dict[str, Any]


def register() -> None:
    """Once per process, before anything else here."""
    objects.register_all()


def host_of(case: Plain) -> Any:
    """The host with what its guests use, folded in by nova's own bookkeeping."""
    host = objects.NUMATopology(cells=[_host_cell(cell, case["host"]) for cell in case["host"]["cells"]])
    for guest in case["used"]:
        host = hardware.numa_usage_from_instance_numa(host, _used(guest))
    return host


def _host_cell(cell: Plain, host: Plain) -> Any:
    cpus = set(cell["cpus"])
    everything = {cpu for one in host["cells"] for cpu in one["cpus"]}
    is_legacy = host["dedicated"] is None and host["shared"] is None
    dedicated = everything if is_legacy else set(host["dedicated"] or ())
    shared = everything if is_legacy else set(host["shared"] or ())
    available = dedicated | shared
    # as the libvirt driver makes them: usable CPUs only, and no empty set
    siblings = [set(group) & available for group in host["siblings"] if set(group) & cpus & available]
    return objects.NUMACell(
        id=cell["id"],
        cpuset=cpus & shared,
        pcpuset=cpus & dedicated,
        memory=cell["memory_mib"],
        socket=cell["socket"],
        cpu_usage=0,
        memory_usage=0,
        pinned_cpus=set(),
        siblings=siblings,
        mempages=_pages(cell),
        network_metadata=objects.NetworkMetadata(physnets=set(), tunneled=False),
    )


def _pages(cell: Plain) -> list[Any]:
    huge_kib = sum(page["size_kib"] * page["total"] for page in cell["pages"])
    small = {"size_kib": 4, "total": (cell["memory_mib"] * KIB_PER_MIB - huge_kib) // 4, "reserved": 0}
    return [
        objects.NUMAPagesTopology(size_kb=page["size_kib"], total=page["total"], used=0, reserved=page["reserved"])
        for page in [small, *cell["pages"]]
    ]


def _used(guest: Plain) -> Any:
    count = len(guest["pins"])
    cell = objects.InstanceNUMACell(
        id=guest["cell"],
        cpuset=set(range(count, count + guest["floating"])),
        pcpuset=set(range(count)),
        cpuset_reserved=None if guest["emulator"] is None else {guest["emulator"]},
        memory=guest["memory_mib"],
        pagesize=guest["page_kib"],
        cpu_policy="mixed" if count and guest["floating"] else "dedicated" if count else "shared",
        cpu_thread_policy=guest["threads"],
        cpu_pinning=dict(enumerate(guest["pins"])),
    )
    return objects.InstanceNUMATopology(cells=[cell])


def guest_of(case: Plain) -> Any:
    """What the guest asks for; None when it has no cells."""
    guest = case["guest"]
    if not guest["cells"]:
        return None
    cells = [guest_cell(cell, guest) for cell in guest["cells"]]
    return objects.InstanceNUMATopology(cells=cells, emulator_threads_policy=guest["emulator"])


def guest_cell(cell: Plain, guest: Plain) -> Any:
    """One cell of it, not fitted yet."""
    pinned = set(cell["pinned"])
    return objects.InstanceNUMACell(
        id=cell["id"],
        cpuset=set(cell["vcpus"]) - pinned,
        pcpuset=pinned,
        cpuset_reserved=None,
        memory=cell["memory_mib"],
        pagesize=PAGE_WORDS.get(guest["page"], guest["page"]),
        cpu_policy=guest["policy"],
        cpu_thread_policy=guest["threads"],
        cpu_pinning={},
    )


def limits_of(case: Plain) -> Any:
    """The ratios, as the scheduler hands them over."""
    host = case["host"]
    return objects.NUMATopologyLimits(cpu_allocation_ratio=host["cpu_ratio"], ram_allocation_ratio=host["ram_ratio"])


def devices_of(case: Plain) -> dict[str, Any]:
    """Every device by address, in the tree that nova's tracker makes of them."""
    devices = [
        objects.PciDevice(
            id=number,
            compute_node_id=1,
            address=device["address"],
            vendor_id=device["vendor_id"],
            product_id=device["product_id"],
            dev_type=device["type"],
            numa_node=device["cell"],
            parent_addr=device["parent"],
            status="available",
            extra_info={"capabilities": json.dumps(CARD)} if device["serial"] else {},
        )
        for number, device in enumerate(case["devices"])
    ]
    manager.PciDevTracker._build_device_tree(devices)
    return {device.address: device for device in devices}


def pools_of(case: Plain, host: Any, *, only: list[str] | None = None) -> Any:
    """The pools that nova makes of the devices that the configuration offers and nobody has. only: of these alone."""
    offered = whitelist.Whitelist([json.dumps(spec) for spec in case["offered"]])
    pools = stats.PciDeviceStats(host, dev_filter=offered)
    devices = devices_of(case)
    for address, device in devices.items():
        if only is None or address in only:
            pools.add_device(device)
    for one in case["devices"]:
        device = devices[one["address"]]
        if one["taken"] and device in pools.get_free_devs():
            pools.remove_device(device)
        if one["taken"]:
            pools._handle_device_dependents(device)
    return pools


def requests_of(case: Plain) -> Any:
    """The requests for devices."""
    return objects.InstancePCIRequests(requests=[request_of(one) for one in case["requests"]])


def request_of(request: Plain) -> Any:
    """One of them."""
    return objects.InstancePCIRequest(
        request_id=request["id"],
        alias_name="alias",
        count=request["count"],
        spec=[dict(spec) for spec in request["specs"]],
        numa_policy=request["policy"],
    )
