"""What callers ask for: guests of pinned vCPUs, by any way in."""

from __future__ import annotations

from agent.core.claim.values import BRINGS_A_GUEST, ClaimContext, ClaimKind, ClaimRequest
from agent.core.cpuset import CpuSet
from agent.core.instance import CellRequest, Group, Instance, InstanceRequest
from agent.formats.digest import digest_of
from tests.builders import uuid_of

WAYS_IN: tuple[ClaimKind, ...] = ("build", "unshelve", "evacuate", "resize", "cold_migration", "live_migration")
"""Kinds that bring a guest to a host where it has not been."""

KIB_OF_VCPU = 1 << 20


def binding(vcpus: int, cells: int = 1) -> InstanceRequest:
    """Pinned vCPUs in equal cells, with 1 GiB each."""
    per_cell = vcpus // cells
    parts = tuple(
        CellRequest(
            id=cell,
            vcpus=CpuSet(range(cell * per_cell, (cell + 1) * per_cell)),
            pinned=CpuSet(range(cell * per_cell, (cell + 1) * per_cell)),
            memory_kib=per_cell * KIB_OF_VCPU,
        )
        for cell in range(cells)
    )
    return InstanceRequest(
        vcpus=per_cell * cells, memory_kib=per_cell * cells * KIB_OF_VCPU, cells=parts, cpu_policy="dedicated"
    )


def request(
    claim_id: str,
    name: str,
    kind: ClaimKind = "build",
    *,
    vcpus: int = 1,
    cells: int = 1,
    group: Group | None = None,
    replaces: str | None = None,
    move_id: str | None = None,
) -> ClaimRequest:
    """The guest `name`, with the uuid that `builders.uuid_of` gives it; a move has the claim's id unless told."""
    uuid, asked = uuid_of(name), binding(vcpus, cells)
    if kind not in BRINGS_A_GUEST:
        move_id = move_id or f"move-{claim_id}"
    return ClaimRequest(
        claim_id=claim_id,
        kind=kind,
        instance=Instance(uuid=uuid, name=name),
        binding=asked,
        digest=digest_of(kind, uuid, asked, group),
        group=group,
        context=ClaimContext(replaces=replaces, move_id=move_id, peer="elsewhere" if move_id else None),
    )
