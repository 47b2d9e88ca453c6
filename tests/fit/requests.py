"""Requests for guests in a line, in the terms of the field cases: MiB, and as flavors and aliases make them."""

from __future__ import annotations

from agent.core.cpuset import CpuSet
from agent.core.instance import CellRequest, CpuPolicy, EmulatorPolicy, InstanceRequest, PageWord, ThreadPolicy
from agent.core.pci import DeviceType
from agent.core.pci_request import PciNumaPolicy, PciRequest, PciSpec

KIB_PER_MIB = 1024


def asks(
    vcpus: int = 1,
    mem: int = 512,
    *,
    nodes: int = 1,
    cpu: CpuPolicy | None = "dedicated",
    threads: ThreadPolicy | None = None,
    emulator: EmulatorPolicy | None = None,
    page: int | PageWord | None = None,
    pinned: str | None = None,
    pci: tuple[PciRequest, ...] = (),
) -> InstanceRequest:
    """A guest whose vCPUs and memory its cells share evenly. nodes 0: it has none. pinned: of a mixed guest."""
    if not nodes:
        return InstanceRequest(vcpus=vcpus, memory_kib=mem * KIB_PER_MIB, devices=pci)
    each = vcpus // nodes
    own = CpuSet(range(vcpus)) if cpu == "dedicated" else CpuSet.parse(pinned or "")
    cells = [(n, CpuSet(range(n * each, (n + 1) * each))) for n in range(nodes)]
    return InstanceRequest(
        vcpus=vcpus,
        memory_kib=mem * KIB_PER_MIB,
        cells=tuple(
            CellRequest(id=n, vcpus=mine, memory_kib=mem * KIB_PER_MIB // nodes, pinned=mine & own) for n, mine in cells
        ),
        cpu_policy=cpu,
        thread_policy=threads,
        emulator_policy=emulator,
        page_size=page,
        devices=pci,
    )


def wants(
    name: str = "a1",
    count: int = 1,
    *,
    policy: PciNumaPolicy = "legacy",
    type: DeviceType | None = None,  # noqa: A002 - the field's own name
) -> PciRequest:
    """A request for devices of any maker under an alias."""
    return PciRequest(
        id=f"alias:{name}", specs=(PciSpec(device_type=type),), count=count, numa_policy=policy, alias=name
    )
