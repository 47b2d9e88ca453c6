"""What is known of each domain, and when a reading may change it (LEDGER R1, R2)."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from types import MappingProxyType

import msgspec

from agent.core.cpuset import CpuSet
from agent.core.guest import OtherProcess, RunIdentity, Sighting
from agent.core.pci import PciAddress
from agent.core.values import ReadOnlyMap, Value

FROM_KERNEL = 0
"""Connection number of what the kernel showed, not libvirt."""

START_SLACK_S = 1.0
"""By so much a process must have begun before libvirt denied its guest to prove by its age alone that this was wrong:
libvirt shows a guest as active only a moment after it has forked what becomes QEMU.

The start counts from boot with every suspend of the host, a reading's begun_at without. A suspend makes a process look
younger than it is beside a later reading, so its age proves less: then only what two looks have seen decides."""


STARTING_UP = "starting-up"
"""libvirt's reason for "paused" from before it starts QEMU until that runs."""


class ListedDomain(Value, frozen=True, kw_only=True):
    """One row of libvirt's list. libvirt_id: None when the domain is not active."""

    uuid: str
    name: str
    libvirt_id: int | None = None


class Listing(Value, frozen=True, kw_only=True):
    """libvirt's list of all domains, defined or active, by uuid. complete: the call succeeded on a connection that has
    settled."""

    connection: int
    begun_at: float
    complete: bool
    entries: ReadOnlyMap[str, ListedDomain] = MappingProxyType({})

    @property
    def uuids(self) -> AbstractSet[str]:
        """The domains that are listed."""
        return self.entries.keys()


class LivingProcess(Value, frozen=True, kw_only=True):
    """A QEMU process of a domain. cpus, pins: as of `VcpuThreads`; None: not read. has_pid_file: a pid file of the
    libvirt that is asked names it, so it is this libvirt's, whatever that says now. others: more that live of it."""

    uuid: str
    name: str
    run: RunIdentity
    cpus: CpuSet | None = None
    pins: CpuSet | None = None
    has_pid_file: bool = False
    others: tuple[OtherProcess, ...] = ()


class Processes(Value, frozen=True, kw_only=True):
    """QEMU processes by domain uuid. can_see: processes of other users are visible, so a missing one is really gone.
    sees_host: looked at from the kernel's first PID namespace, which has the processes of every container too."""

    begun_at: float
    can_see: bool
    sees_host: bool = False
    living: ReadOnlyMap[str, LivingProcess] = MappingProxyType({})


class Ledger(Value, frozen=True, kw_only=True):
    """connection: number of the current libvirt connection; sightings by uuid. listing, processes: the last complete
    list and the last look at processes that were taken account of; they keep late readings of absent domains out."""

    connection: int = 0
    sightings: ReadOnlyMap[str, Sighting] = MappingProxyType({})
    listing: Listing | None = None
    processes: Processes | None = None


class PageHold(Value, frozen=True, kw_only=True):
    """Huge pages of one size. cell: host cell, None when no cell can be named."""

    cell: int | None
    size_kib: int
    count: int


class Holds(Value, frozen=True, kw_only=True):
    """What one guest holds (LEDGER 4). cpus: exclusive, emulator's included; emulator_cpus: the part that only the
    emulator and iothreads have. sibling_cpus: siblings of its CPUs that its thread policy "isolate" keeps idle, not in
    cpus. confined: CPUs that floating vCPUs are confined to (they hold none of them). cell_* by host cell; host_*: what
    no single cell can be named for. memory is small-page memory. guessed: the XML was never readable and cpus are those
    that the QEMU threads may run on. kernel_pins: the part of cpus that no XML tells of, but the kernel: a vCPU thread
    is bound to each of them alone. uncertain: not even where the threads may run is known.
    """

    uuid: str
    cpus: CpuSet = CpuSet()
    emulator_cpus: CpuSet = CpuSet()
    kernel_pins: CpuSet = CpuSet()
    sibling_cpus: CpuSet = CpuSet()
    confined: CpuSet = CpuSet()
    cell_memory_kib: ReadOnlyMap[int, int] = MappingProxyType({})
    host_memory_kib: int = 0
    pages: tuple[PageHold, ...] = ()
    cell_shared: ReadOnlyMap[int, int] = MappingProxyType({})
    host_shared: int = 0
    devices: tuple[PciAddress, ...] = ()
    mdevs: tuple[str, ...] = ()
    guessed: bool = False
    uncertain: bool = False


def connect(ledger: Ledger, number: int) -> Ledger:
    """A new libvirt connection is current; readings over older ones no longer apply. What is known stays as it is."""
    return ledger if number <= ledger.connection else msgspec.structs.replace(ledger, connection=number)


def see(ledger: Ledger, sighting: Sighting) -> Ledger:
    """Take in one reading (R1); the same ledger when the reading is of another connection or tells nothing newer.

    Readings may come late, twice and in any order: the newest statement and the newest XML win, each for itself. A
    "shut-off" frees the guest's CPUs at once, so `account` with processes that were read later belongs in the same
    swap: it alone notices that QEMU still lives. Once it has, no word of libvirt but "active" takes that back.

    Of a domain that could not be read the reading is "last-known" and without XML: the last that was readable stays.
    With the state "unknown" it counts as active, since what is not certainly off holds; `account` settles it when no
    QEMU process of it lives.
    """
    return see_all(ledger, (sighting,))


def see_all(ledger: Ledger, sightings: Iterable[Sighting]) -> Ledger:
    """`see` for many readings at the cost of one."""
    known = dict(ledger.sightings)
    changed = False
    for sighting in sightings:
        if sighting.connection not in (FROM_KERNEL, ledger.connection):
            continue
        if _was_absent(ledger, sighting.uuid, sighting.begun_at):
            continue
        before = known.get(sighting.uuid)
        after = sighting if before is None else _taken_in(before, sighting)
        if after is not before:
            known[sighting.uuid] = after
            changed = True
    return _with_sightings(ledger, known) if changed else ledger


def account(ledger: Ledger, listing: Listing | None, processes: Processes) -> Ledger:
    """Drop what is proven absent (R2), and hold what lives though libvirt does not say so.

    listing: None when libvirt could not be asked; that, an incomplete list and one of another connection remove
    nothing. processes should have been read after the list; an older look than the last is not taken. A QEMU process
    that lived before and after libvirt called its domain shut off, or left it out, makes the sighting
    "lost-by-libvirt", also for a uuid never seen; where only one of the two is known it may just have started or be
    stopping: then the guest is held as "last-known" until the next account decides.
    """
    if ledger.processes is not None and processes.begun_at < ledger.processes.begun_at:
        return ledger
    usable = listing if listing and listing.complete and listing.connection == ledger.connection else None
    if usable is not None and ledger.listing is not None and usable.begun_at < ledger.listing.begun_at:
        usable = None
    known = {uuid: _with_others(seen, processes) for uuid, seen in ledger.sightings.items()}
    for uuid, process in processes.living.items():
        alive = _alive(ledger, known.get(uuid), process, usable, processes.begun_at)
        if alive is not None:
            known[uuid] = _with_others(alive, processes)
    after = msgspec.structs.replace(ledger, listing=usable or ledger.listing, processes=processes)
    if usable is not None:
        known = _without_dead(known, usable, processes)
    return _with_sightings(after, known)


def join(one: Sighting, other: Sighting) -> Sighting:
    """The newest statement and the newest XML of two readings of one uuid; associative, commutative, idempotent."""
    newer, older = (one, other) if _is_newer_statement(one, other) else (other, one)
    source = newer if older.domain is None or (newer.domain is not None and _is_newer_xml(newer, older)) else older
    if source is newer:
        return newer
    xml_at = _xml_time(source)
    return msgspec.structs.replace(
        newer,
        domain=source.domain,
        memory_elsewhere=source.memory_elsewhere,
        xml_at=None if xml_at == newer.begun_at else xml_at,
    )


def _is_newer_statement(one: Sighting, other: Sighting) -> bool:
    if one.begun_at != other.begun_at:
        return one.begun_at > other.begun_at
    return _statement_order(one) >= _statement_order(other)


def _statement_order(sighting: Sighting) -> tuple[bool, str]:
    # Two readings can bear one time: then any fixed order will do, as long as it is the same on every path.
    return (
        sighting.validity == "valid",
        repr(msgspec.structs.replace(sighting, domain=None, memory_elsewhere=CpuSet(), xml_at=None)),
    )


def _is_newer_xml(one: Sighting, other: Sighting) -> bool:
    if _xml_time(one) != _xml_time(other):
        return _xml_time(one) > _xml_time(other)
    if one.domain is not other.domain and (text := repr(one.domain)) != (other_text := repr(other.domain)):
        return text > other_text
    return one.memory_elsewhere.mask >= other.memory_elsewhere.mask


def _xml_time(sighting: Sighting) -> float:
    return sighting.begun_at if sighting.xml_at is None else sighting.xml_at


def _with_sightings(ledger: Ledger, known: dict[str, Sighting]) -> Ledger:
    # the very same mapping tells at a glance, with a thousand guests too, that nothing changed
    return ledger if known == ledger.sightings else msgspec.structs.replace(ledger, sightings=MappingProxyType(known))


def _was_absent(ledger: Ledger, uuid: str, at: float) -> bool:
    """Proof, from the last account, that nothing of the uuid was here at that time."""
    listing, processes = ledger.listing, ledger.processes
    if listing is None or processes is None or not processes.can_see:
        return False
    if uuid in listing.uuids or uuid in processes.living:
        return False
    return at < min(listing.begun_at, processes.begun_at)


def _taken_in(before: Sighting, reading: Sighting) -> Sighting:
    if reading.others != before.others:
        # only `account` knows of further processes: libvirt's word on one of them neither makes nor ends another
        reading = msgspec.structs.replace(reading, others=before.others)
    joined = join(before, reading)
    if joined == before:
        return before
    if before.connection != FROM_KERNEL or reading.begun_at < before.begun_at:
        return joined
    is_starting = before.validity == "lost-by-libvirt" and reading.reason == STARTING_UP
    if reading.state not in {"shut-off", "unknown"} and not is_starting:
        return joined
    if reading.state == "unknown":
        return before if before.validity == "lost-by-libvirt" else joined
    # The kernel showed a QEMU process that libvirt denied: its next denial is no news, and what runs is the old XML.
    # Nor is it that libvirt is about to start another one.
    return msgspec.structs.replace(before, begun_at=joined.begun_at, xml_at=_xml_time(before))


def _alive(
    ledger: Ledger, known: Sighting | None, process: LivingProcess, listing: Listing | None, at: float
) -> Sighting | None:
    """What a process that lived `at` makes of the sighting; None: nothing new."""
    left_out_at = listing.begun_at if listing is not None and process.uuid not in listing.uuids else None
    if known is None:
        unnamed = Sighting(uuid=process.uuid, name=process.name, state="unknown", begun_at=at, validity="last-known")
        return _held_by_kernel(unnamed, process, at, is_lost=_is_denied(ledger, process, left_out_at, at))
    if known.connection == FROM_KERNEL:
        denied_at = _denied_again_at(ledger, known) if left_out_at is None else left_out_at
        is_lost = known.validity == "lost-by-libvirt" or _is_denied(ledger, process, denied_at, at)
        return _held_by_kernel(known, process, at, is_lost=is_lost)
    if not known.is_active and known.begun_at < at:
        return _held_by_kernel(known, process, at, is_lost=_is_denied(ledger, process, known.begun_at, at))
    if left_out_at is not None and known.begun_at < left_out_at and _is_denied(ledger, process, left_out_at, at):
        return _held_by_kernel(known, process, at, is_lost=True)
    if known.domain is None and process.cpus is not None:
        return msgspec.structs.replace(known, kernel_cpus=process.cpus, kernel_pins=process.pins)
    return None


def _with_others(seen: Sighting, processes: Processes) -> Sighting:
    """The sighting with the processes that live beside its own; unseen ones stay where not all can be seen."""
    process = processes.living.get(seen.uuid)
    others = () if process is None else process.others
    if not processes.can_see:
        told = {other.run for other in others} | (set() if process is None else {process.run})
        others += tuple(other for other in seen.others if other.run not in told)
    return seen if others == seen.others else msgspec.structs.replace(seen, others=others)


def _denied_again_at(ledger: Ledger, known: Sighting) -> float | None:
    """When libvirt said "shut off" of a guest that the last look at processes had shown alive (see _taken_in)."""
    return known.begun_at if ledger.processes is not None and known.begun_at > ledger.processes.begun_at else None


def _is_denied(ledger: Ledger, process: LivingProcess, denied_at: float | None, at: float) -> bool:
    """The process lived before and after libvirt said, at `denied_at`, that its guest is off or not there."""
    if denied_at is None or denied_at >= at:
        return False
    started_at_s = process.run.started_at_boot_s
    if started_at_s is not None and started_at_s + START_SLACK_S < denied_at:
        return True
    looked = ledger.processes
    before = None if looked is None or looked.begun_at >= denied_at else looked.living.get(process.uuid)
    return before is not None and before.run == process.run


def _held_by_kernel(known: Sighting, process: LivingProcess, at: float, *, is_lost: bool) -> Sighting:
    pid = "" if process.run.pid is None else f" {process.run.pid}"
    lost = f"QEMU process{pid} of this guest lives, but libvirt has lost it"
    unclear = f"QEMU process{pid} of this guest lives, but libvirt has not shown it as active yet"
    return msgspec.structs.replace(
        known,
        state="unknown" if known.state == "shut-off" else known.state,
        begun_at=max(at, known.begun_at),
        connection=FROM_KERNEL,
        run=process.run,
        validity="lost-by-libvirt" if is_lost else "last-known",
        xml_at=None if known.domain is None else _xml_time(known),
        kernel_cpus=process.cpus,
        kernel_pins=process.pins,
        problem=lost if is_lost else unclear,
    )


def _without_dead(known: dict[str, Sighting], listing: Listing, processes: Processes) -> dict[str, Sighting]:
    if not processes.can_see:
        return known
    horizon = min(listing.begun_at, processes.begun_at)
    left: dict[str, Sighting] = {}
    for uuid, sighting in known.items():
        if uuid in processes.living:
            left[uuid] = sighting
        elif uuid in listing.uuids:
            left[uuid] = _settled(sighting, listing, processes)
        elif sighting.begun_at >= horizon:
            left[uuid] = sighting
    return left


def _settled(sighting: Sighting, listing: Listing, processes: Processes) -> Sighting:
    """A defined guest of which libvirt showed no state and the kernel no process is off."""
    is_open = sighting.connection == FROM_KERNEL or sighting.state == "unknown"
    if not is_open or sighting.begun_at >= processes.begun_at:
        return sighting
    return msgspec.structs.replace(
        sighting,
        state="shut-off",
        connection=listing.connection,
        run=RunIdentity(),
        memory_elsewhere=CpuSet(),
        validity="last-known",
        xml_at=None if sighting.domain is None else _xml_time(sighting),
        kernel_cpus=None,
        kernel_pins=None,
        problem=sighting.problem
        if sighting.connection != FROM_KERNEL
        else "its QEMU process has ended; its definition has not been read since",
    )
