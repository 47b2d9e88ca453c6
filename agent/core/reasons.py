"""Why a guest does not fit: one value for each reason, with the numbers. `core/reason_text` says them in words.

guest_cell, cell: the guest's and the host's; cell None: the host as a whole. asked, free: in the unit of the reason.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

from agent.core.conflicts import Owner
from agent.core.cpuset import CpuSet
from agent.core.instance import PageWord
from agent.core.pci import PciAddress
from agent.core.pci_request import PciNumaPolicy, PciSpec
from agent.core.usage.rows import CpuHolder
from agent.core.values import ReadOnlyMap, Value


class CpusShort(Value, frozen=True, kw_only=True, tag="cpus-short"):
    """Not enough dedicated CPUs are free. asked: pinned vCPUs, and (with_emulator) one for the emulator alone. holders:
    of those taken."""

    guest_cell: int
    cell: int
    asked: int
    free: CpuSet
    dedicated: CpuSet
    holders: tuple[CpuHolder, ...] = ()
    with_emulator: bool = False


class ThreadsShort(Value, frozen=True, kw_only=True, tag="threads-short"):
    """Enough CPUs are free, but not in the cores that the thread policy needs. placeable: vCPUs that would go in.
    holders: of the dedicated CPUs that are taken."""

    guest_cell: int
    cell: int
    policy: Literal["require", "isolate"]
    asked: int
    placeable: int
    free: CpuSet
    holders: tuple[CpuHolder, ...] = ()


class NoSiblings(Value, frozen=True, kw_only=True, tag="no-siblings"):
    """Thread policy require on a cell whose cores have one thread each."""

    guest_cell: int
    cell: int


class EmulatorCpuShort(Value, frozen=True, kw_only=True, tag="emulator-cpu-short"):
    """The vCPUs would fit, but no CPU is left for emulator threads of their own (with thread policy isolate: none in a
    core without a vCPU). holders: of the dedicated CPUs that are taken."""

    guest_cell: int
    cell: int
    asked: int
    free: CpuSet
    holders: tuple[CpuHolder, ...] = ()


class EmulatorHomeless(Value, frozen=True, kw_only=True, tag="emulator-homeless"):
    """All vCPUs are realtime, and there is no shared set that emulator threads could run on instead."""

    vcpus: CpuSet


class SharedCpusShort(Value, frozen=True, kw_only=True, tag="shared-cpus-short"):
    """More floating vCPUs than shared CPUs: those of one guest cell never share a CPU with each other."""

    guest_cell: int | None
    cell: int | None
    asked: int
    shared: CpuSet


class SharedOverRatio(Value, frozen=True, kw_only=True, tag="shared-over-ratio"):
    """The CPU ratio is used up. free: floating vCPUs that may still come; limit: of all."""

    guest_cell: int | None
    cell: int | None
    asked: int
    free: int
    limit: int


class MemoryShort(Value, frozen=True, kw_only=True, tag="memory-short"):
    """Not enough small-page memory."""

    guest_cell: int | None
    cell: int | None
    asked_kib: int
    free_kib: int


class PagesShort(Value, frozen=True, kw_only=True, tag="pages-short"):
    """Not enough huge pages of a size, in pages. reserved: kept back by reserved_huge_pages."""

    guest_cell: int
    cell: int
    size_kib: int
    asked: int
    free: int
    reserved: int = 0


class PagesUneven(Value, frozen=True, kw_only=True, tag="pages-uneven"):
    """The cell's memory is no multiple of the page size."""

    guest_cell: int
    cell: int
    size_kib: int
    memory_kib: int


class NoSuchPages(Value, frozen=True, kw_only=True, tag="no-such-pages"):
    """The host cell has no pages of that size. sizes_kib: those that it has, the small page first."""

    guest_cell: int
    cell: int
    asked: int | PageWord
    sizes_kib: tuple[int, ...]


class CellWithheld(Value, frozen=True, kw_only=True, tag="cell-withheld"):
    """A cpuset of the host keeps this machine's guests from the memory of the cell."""

    guest_cell: int
    cell: int


class TooFewCells(Value, frozen=True, kw_only=True, tag="too-few-cells"):
    """More guest cells than host cells that have CPUs, which are `cells`."""

    asked: int
    cells: CpuSet


class CellsContended(Value, frozen=True, kw_only=True, tag="cells-contended"):
    """Each of these guest cells would fit somewhere, but together they have too few host cells to choose from."""

    guest_cells: CpuSet
    cells: CpuSet


class NoRoomTogether(Value, frozen=True, kw_only=True, tag="no-room-together"):
    """Several guest cells may go to one host cell here, and each of these would fit on one of `cells` alone; but all of
    them, with the devices that must be near, do not fit beside each other. requests: those of such devices."""

    guest_cells: CpuSet
    cells: CpuSet
    requests: tuple[str, ...] = ()


class CpusUncertain(Value, frozen=True, kw_only=True, tag="cpus-uncertain"):
    """Nobody knows which CPUs these guests are pinned to, so none can be promised."""

    guests: tuple[str, ...]


class KeptBack(Value, frozen=True, kw_only=True):
    """Functions that nobody has and that cannot be given away while `by` are held: their physical function (is_by_pf),
    or virtual ones of theirs."""

    devices: tuple[PciAddress, ...]
    by: tuple[PciAddress, ...]
    is_by_pf: bool
    owners: tuple[Owner, ...]


class SaidElse(Value, frozen=True, kw_only=True):
    """What [pci] device_spec or the host says of such devices in place of what is asked for; None: nothing."""

    name: str
    asked: str | None
    found: tuple[str | None, ...]


class NotOffered(Value, frozen=True, kw_only=True):
    """What there is in place of devices of which none is offered. named: such devices that [pci] device_spec names,
    of which it says another thing (differs); unnamed: those that no entry matches, and entries that would.
    same_vendor: where there is none at all, a few others. flaw: why an entry that matches one cannot mean it."""

    named: int = 0
    differs: tuple[SaidElse, ...] = ()
    unnamed: int = 0
    entries: tuple[PciSpec, ...] = ()
    same_vendor: tuple[str, ...] = ()
    flaw: str | None = None


class DevicesShort(Value, frozen=True, kw_only=True, tag="devices-short"):
    """Too few free devices of the kind (specs), wherever they are. offered: all that [pci] device_spec names of the
    kind. holders: who has those that are not free; kept_back: those that only a relative keeps from everybody. instead:
    what there is, where none is offered."""

    request: str
    asked: int
    free: int
    offered: int
    holders: tuple[Owner, ...] = ()
    kept_back: tuple[KeptBack, ...] = ()
    specs: tuple[PciSpec, ...] = ()
    instead: NotOffered | None = None


class DevicesFar(Value, frozen=True, kw_only=True, tag="devices-far"):
    """Enough devices are free, but too few where the policy lets this guest have them from. cells: host cells that the
    guest could have: all of them for a guest of one cell, else those that come nearest; near: the most free devices
    there. by_cell: free devices by host cell; elsewhere: free devices that the kernel names no cell for."""

    request: str
    policy: PciNumaPolicy
    asked: int
    cells: CpuSet
    near: int
    by_cell: ReadOnlyMap[int, int] = MappingProxyType({})
    elsewhere: int = 0
    guest_cells: int = 1


class DevicesContended(Value, frozen=True, kw_only=True, tag="devices-contended"):
    """Each of these requests could be served alone, but not together: there are too few devices. asked: by each; free:
    the most that can be given at once of what would do for any of them, on `cells` and, where the policy lets it, far
    from them; cells None: wherever they are. has_pfs: a physical function would do and so would a virtual one of it."""

    requests: tuple[str, ...]
    asked: tuple[int, ...]
    free: int
    cells: CpuSet | None = None
    has_pfs: bool = False


class ServedFrom(Value, frozen=True, kw_only=True):
    """Host cells that the guest could have and that have devices near for the request; None: it may have them from
    anywhere."""

    request: str
    cells: CpuSet | None


class DevicesApart(Value, frozen=True, kw_only=True, tag="devices-apart"):
    """There are devices for all of these requests, but not near as few host cells as the guest has. guest_cells: how
    many these are."""

    requests: tuple[ServedFrom, ...]
    guest_cells: int


class SocketsUnknown(Value, frozen=True, kw_only=True, tag="sockets-unknown"):
    """Policy socket on a host where these cells are on no socket, or on several."""

    request: str
    cells: CpuSet


class SearchStopped(Value, frozen=True, kw_only=True, tag="search-stopped"):
    """The choice of host cells was not found within the bound of the search: it may exist. steps: looked at."""

    steps: int


class GroupViolated(Value, frozen=True, kw_only=True, tag="group-violated"):
    """The server group's policy forbids this host to the instance. members: those in the way, which are here by their
    domain or by a claim; none for policy affinity, where they are on `hosts` and `host` is this one. limit: members
    that one host may have (anti-affinity)."""

    group: str
    instance: str
    policy: Literal["anti-affinity", "affinity"]
    members: tuple[Owner, ...] = ()
    limit: int = 1
    host: str = ""
    hosts: tuple[str, ...] = ()


class InMaintenance(Value, frozen=True, kw_only=True, tag="in-maintenance"):
    """The host takes no new guests. since: RFC 3339. reason: the operator's."""

    since: str
    reason: str


class ClaimForbidden(Value, frozen=True, kw_only=True, tag="claim-forbidden"):
    """A claim of the guest would be refused whatever room there is. code, message, claim_id: of that refusal."""

    code: str
    message: str
    claim_id: str | None = None


Reason = (
    CpusShort
    | ThreadsShort
    | NoSiblings
    | EmulatorCpuShort
    | EmulatorHomeless
    | SharedCpusShort
    | SharedOverRatio
    | MemoryShort
    | PagesShort
    | PagesUneven
    | NoSuchPages
    | CellWithheld
    | TooFewCells
    | CellsContended
    | NoRoomTogether
    | CpusUncertain
    | DevicesShort
    | DevicesFar
    | DevicesContended
    | DevicesApart
    | SocketsUnknown
    | SearchStopped
    | GroupViolated
    | InMaintenance
    | ClaimForbidden
)
