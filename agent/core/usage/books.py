"""Who holds which CPU and device, by CPU and by device: what the rows and the contradictions are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.core.cpuset import NO_CPUS, CpuMask
from agent.core.holds import GuestHolds
from agent.core.pci import PciAddress, PciDevice


class CpuBooks(NamedTuple):
    """pinned: by guests whose XML is known; by_vcpus: not only by emulators and iothreads.
    maybe_twice: by two guests, where of one at least it is the kernel alone that tells. taken: all that is not free.
    holders: guests by CPU; waiting_for: guests whose thread policy "isolate" keeps the CPU idle."""

    pinned: CpuMask
    pinned_twice: CpuMask
    maybe_twice: CpuMask
    by_vcpus: CpuMask
    taken: CpuMask
    holders: dict[int, list[GuestHolds]]
    waiting_for: dict[int, list[GuestHolds]]


class DeviceBooks(NamedTuple):
    """Guests by what they name; mdev_parents: functions whose mediated devices are held."""

    devices: Mapping[PciAddress, PciDevice]
    holders: Mapping[PciAddress, list[GuestHolds]]
    mdev_holders: Mapping[str, list[GuestHolds]]
    mdev_parents: Mapping[PciAddress, list[GuestHolds]]
    children: Mapping[PciAddress, list[PciAddress]]


class SeenBooks(NamedTuple):
    """Of all that is seen, the guests by name. row_of: where in `Usage.pci` a function's row is; parent_row,
    child_rows: from there to those of its physical function (-1: no row) and of its virtual ones. proposed: free CPUs
    that a conflict names as the way out."""

    guests: Sequence[GuestHolds]
    cpus: CpuBooks
    devices: DeviceBooks
    row_of: Mapping[PciAddress, int]
    parent_row: Sequence[int]
    child_rows: Mapping[int, Sequence[int]]
    proposed: CpuMask = NO_CPUS
