"""Claims and steps as a busy host has them, for the tests of whatever keeps them."""

from __future__ import annotations

from types import MappingProxyType
from uuid import UUID

from agent.core.claim.values import Claim, Deadline, Record, Step
from agent.core.cpuset import CpuSet
from agent.core.instance import CellRequest, Group, Instance, InstanceRequest
from agent.core.pci import PciAddress
from agent.core.pci_request import PciRequest, PciSpec
from agent.core.placement import CellPlacement, GivenDevices, Placement

WHEN = "2026-11-30T12:00:00Z"


def uuid_of(number: int) -> str:
    """The same for the same number."""
    return str(UUID(int=number))


def claim_of(number: int, *, cells: int = 2, vcpus: int = 16, state: str = "reserved") -> Claim:
    """A pinned guest of some cells, with a device and in a group of three."""
    binding = _binding(cells, vcpus)
    return Claim(
        claim_id=f"claim-{number}",
        kind="build",
        role="owner",
        state=state,  # type: ignore[arg-type]  # a test may say it as text
        instance=Instance(uuid=uuid_of(number), name=f"instance-{number:08x}"),
        digest=f"sha256:{number:064x}",
        ttl_s=900.0,
        sequence=number,
        made_at=WHEN,
        state_since=WHEN,
        changed_at_s=1000.0 + number,
        binding=binding,
        placement=_placement(binding, PciAddress(0, 59, 0, number % 8)),
        group=Group(
            id=f"group-{number // 3}", policy="anti-affinity", members=tuple(uuid_of(number + n) for n in range(3))
        ),
        deadline=Deadline(boot_id=uuid_of(0), at_s=2000.0),
    )


def _binding(cells: int, vcpus: int) -> InstanceRequest:
    per_cell = vcpus // cells
    asked = tuple(
        CellRequest(
            id=cell,
            vcpus=CpuSet(range(cell * per_cell, (cell + 1) * per_cell)),
            pinned=CpuSet(range(cell * per_cell, (cell + 1) * per_cell)),
            memory_kib=8 << 20,
        )
        for cell in range(cells)
    )
    return InstanceRequest(
        vcpus=vcpus,
        memory_kib=cells * 8 << 20,
        cells=asked,
        cpu_policy="dedicated",
        page_size=2048,
        devices=(PciRequest(id="alias:nic", specs=(PciSpec(vendor_id="8086", product_id="10fb"),)),),
    )


def _placement(binding: InstanceRequest, device: PciAddress) -> Placement:
    """Each guest cell in the host cell of its number."""
    given = tuple(
        CellPlacement(
            guest_cell=cell.id,
            host_cell=cell.id,
            vcpus=cell.vcpus,
            memory_kib=cell.memory_kib,
            page_size_kib=2048,
            pins=MappingProxyType({vcpu: 64 * cell.id + vcpu for vcpu in cell.vcpus}),
        )
        for cell in binding.cells
    )
    return Placement(
        vcpus=binding.vcpus,
        memory_kib=binding.memory_kib,
        cells=given,
        devices=(GivenDevices(request="alias:nic", devices=(device,)),),
    )


def record_of(claim: Claim) -> Record:
    """The row of a claim."""
    return Record(kind="claim", key=claim.claim_id, value=claim)


def gone(claim: Claim) -> Record:
    """That there shall be no row of it."""
    return Record(kind="claim", key=claim.claim_id, value=None)


def step_of(sequence: int, event: str = "admitted", at: str = WHEN) -> Step:
    """A step of the claim of that number."""
    return Step(
        sequence=sequence,
        at=at,
        event=event,
        claim_id=f"claim-{sequence}",
        instance=uuid_of(sequence),
        kind="build",
        after="reserved",
        groups=(f"group-{sequence // 3}",),
        seats=MappingProxyType({f"group-{sequence // 3}": sequence % 3}),
    )
