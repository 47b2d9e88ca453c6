"""Who sits where: the list, the domains that must be read again, and the QEMU processes as a second witness."""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Protocol

import msgspec

from agent.adapters.libvirt import DomainText
from agent.adapters.processes import QemuProcesses
from agent.core.cpuset import CpuSet
from agent.core.guest import DomainState, ObservedDomain, RunIdentity, Sighting
from agent.core.guest_memory import binding, elsewhere
from agent.core.ledger import Ledger, ListedDomain, Listing, LivingProcess, Processes
from agent.core.snapshot import Findings, SourceState, Wish
from agent.core.words import agrees, count
from agent.errors import DomainGone, FormatError, LibvirtError
from agent.formats.domain_xml import ReadDomain, read_domain


class Domains(Protocol):
    """Gives libvirt's domains; `agent.adapters.libvirt.LibvirtHost` is one, and tells what is raised."""

    def list_domains(self) -> Listing:
        """All domains, defined or active."""
        ...

    def read_domain_texts(self, uuids: Iterable[str]) -> Iterator[tuple[str, DomainText | LibvirtError]]:
        """XML and state of many, each pair as it comes back."""
        ...


class DomainsLook:
    """interval_s: time between two timed passes. deep_interval_s: no definition is older than that, since each timed
    pass reads its share of the oldest again. has_processes: an active guest of this driver is a QEMU process."""

    def __init__(
        self,
        libvirt: Domains,
        processes: QemuProcesses,
        *,
        clock: Callable[[], float],
        interval_s: float,
        deep_interval_s: float,
        has_processes: bool = True,
    ) -> None:
        self._libvirt, self._processes, self._clock = libvirt, processes, clock
        self._has_processes = has_processes
        self.interval_s, self.deep_interval_s = interval_s, deep_interval_s
        self._has_seen_qemu = False
        self._parsed: dict[str, tuple[bytes, ReadDomain]] = {}

    def look(self, ledger: Ledger, wish: Wish) -> Findings:
        """One pass over the domains. libvirt out of reach costs its own part; processes are looked at all the same."""
        begun_at = self._clock()
        try:
            listing, texts = self._ask_libvirt(ledger, wish)
        except LibvirtError as error:
            return self._without_libvirt(ledger, str(error))
        parsed = {uuid: self._parse(text) for uuid, text in texts.items() if isinstance(text, DomainText)}
        told_off = {uuid for uuid, text in texts.items() if isinstance(text, DomainText) and text.state == "shut-off"}
        processes = self._scan(ledger, listing.uuids, parsed, told_off)
        self._has_seen_qemu = self._has_seen_qemu or bool(processes.living)
        may_be_elsewhere = self._has_processes and not (self._has_seen_qemu or processes.sees_host)
        if may_be_elsewhere and _none_is_visible(listing, processes):
            processes = msgspec.structs.replace(processes, can_see=False)
        sightings = tuple(
            self._sighting(text, read, processes.living.get(uuid), ledger.sightings.get(uuid))
            for uuid, text in texts.items()
            if isinstance(text, DomainText) and isinstance(read := parsed[uuid], ReadDomain)
        )
        unreadable = tuple(
            _with_cpus(lost, processes.living.get(lost.uuid)) for lost in _unreadable(listing, texts, parsed, begun_at)
        )
        self._forget(listing.uuids | processes.living.keys())
        return Findings(
            listing=listing,
            processes=processes,
            sightings=sightings + unreadable,
            sources=(
                SourceState(name="libvirt", read_at=begun_at),
                SourceState(name="domains", read_at=begun_at, problem=_unreadable_sentence(unreadable)),
                _processes_state(processes),
            ),
        )

    def _ask_libvirt(self, ledger: Ledger, wish: Wish) -> tuple[Listing, Mapping[str, DomainText | LibvirtError]]:
        listing = self._libvirt.list_domains()
        due = self._due(ledger, listing, wish)
        texts = dict(self._libvirt.read_domain_texts(due)) if due else {}
        if any(isinstance(answer, DomainGone) for answer in texts.values()):
            # gone between the list and the read: only a list begun after that is proof of it
            listing = self._libvirt.list_domains()
        return listing, texts

    def _due(self, ledger: Ledger, listing: Listing, wish: Wish) -> list[str]:
        if wish.domains:
            return list(listing.uuids)
        known = ledger.sightings
        due = {
            e.uuid
            for e in listing.entries.values()
            if e.uuid in wish.marked or _is_news(known.get(e.uuid), e, listing.connection)
        }
        if wish.periodic:
            due |= self._due_by_age(known, listing.uuids, listing.uuids - due)
        return sorted(due)

    def _due_by_age(self, known: Mapping[str, Sighting], every: AbstractSet[str], rest: AbstractSet[str]) -> set[str]:
        """The oldest share, and what would be too old at the next pass: passes come a little late."""
        share = min(1.0, self.interval_s / self.deep_interval_s)
        oldest = heapq.nsmallest(math.ceil(len(every) * share), rest, key=lambda uuid: known[uuid].begun_at)
        late = self._clock() - (self.deep_interval_s - self.interval_s)
        return {*oldest, *(uuid for uuid in rest if known[uuid].begun_at < late)}

    def _scan(
        self,
        ledger: Ledger,
        listed: AbstractSet[str],
        parsed: Mapping[str, ReadDomain | FormatError],
        told_off: AbstractSet[str],
    ) -> Processes:
        processes = _of_this_libvirt(self._processes.scan(), listed | ledger.sightings.keys())
        bare = [
            uuid
            for uuid in processes.living
            if uuid in told_off or _needs_cpus(ledger.sightings.get(uuid), parsed.get(uuid))
        ]
        if not bare:
            return processes
        living = dict(processes.living)
        for uuid in bare:
            pid = living[uuid].run.pid
            threads = None if pid is None else self._processes.vcpu_threads(pid)
            if threads is not None:
                living[uuid] = msgspec.structs.replace(living[uuid], cpus=threads.cpus, pins=threads.pins)
        return msgspec.structs.replace(processes, living=MappingProxyType(living))

    def _without_libvirt(self, ledger: Ledger, problem: str) -> Findings:
        processes = self._scan(ledger, frozenset(), {}, frozenset())
        state = SourceState(name="libvirt", problem=problem)
        return Findings(processes=processes, sources=(state, _processes_state(processes)))

    def _parse(self, text: DomainText) -> ReadDomain | FormatError:
        digest = hashlib.blake2b(text.xml.encode(), digest_size=16).digest()
        known = self._parsed.get(text.uuid)
        if known is not None and known[0] == digest:
            return known[1]
        try:
            parsed = read_domain(text.xml)
        except FormatError as error:
            return error
        self._parsed[text.uuid] = (digest, parsed)
        return parsed

    def _sighting(
        self, text: DomainText, read: ReadDomain, process: LivingProcess | None, known: Sighting | None
    ) -> Sighting:
        was = RunIdentity() if process is None else process.run
        run = RunIdentity(libvirt_id=text.libvirt_id, pid=was.pid, started_at_boot_s=was.started_at_boot_s)
        return Sighting(
            uuid=text.uuid,
            name=text.name,
            state=text.state,
            reason=text.reason,
            persistent=text.persistent,
            run=run,
            begun_at=text.begun_at,
            connection=text.connection,
            domain=read.domain,
            memory_elsewhere=self._memory_elsewhere(run, read.domain, known),
            problem="; ".join(read.problems) or None,
        )

    def _memory_elsewhere(self, run: RunIdentity, domain: ObservedDomain, known: Sighting | None) -> CpuSet:
        """Told with each reading of a bound guest, so that a pass costs no more than the guests that it reads."""
        bound = binding(domain)
        if bound is None or run.libvirt_id is None or run.pid is None:
            return CpuSet()
        before = CpuSet() if known is None or known.run != run else known.memory_elsewhere
        kib_by_cell = self._processes.memory_cells(run.pid)
        return before if kib_by_cell is None else elsewhere(bound, kib_by_cell, before)

    def _forget(self, here: AbstractSet[str]) -> None:
        for uuid in self._parsed.keys() - here:
            del self._parsed[uuid]


def _of_this_libvirt(processes: Processes, known: AbstractSet[str]) -> Processes:
    """Without the QEMU of others: session-mode guests and other libvirts have processes that this one never had."""
    ours = {uuid: p for uuid, p in processes.living.items() if uuid in known or p.has_pid_file}
    return msgspec.structs.replace(processes, living=MappingProxyType(ours))


def _none_is_visible(listing: Listing, processes: Processes) -> bool:
    """Guests are active and no process of any is seen: where none ever was, this is another PID namespace (a container)
    without the host's processes, though a pid 1 is there. Else it is libvirt that shows guests without a process."""
    active = [entry.uuid for entry in listing.entries.values() if entry.libvirt_id is not None]
    return bool(active) and not any(uuid in processes.living for uuid in active)


def _is_news(known: Sighting | None, listed: ListedDomain, connection: int) -> bool:
    return (
        known is None
        or known.validity != "valid"
        or known.connection != connection
        or known.name != listed.name
        or known.run.libvirt_id != listed.libvirt_id
    )


def _needs_cpus(known: Sighting | None, parsed: ReadDomain | FormatError | None) -> bool:
    """What the kernel shows of the guest's threads matters only where no definition tells, or maybe another run's."""
    if isinstance(parsed, ReadDomain):
        return known is not None and known.validity != "valid"
    return known is None or known.domain is None or known.validity != "valid"


def _unreadable(
    listing: Listing,
    texts: Mapping[str, DomainText | LibvirtError],
    parsed: Mapping[str, ReadDomain | FormatError],
    begun_at: float,
) -> Iterator[Sighting]:
    """A reading of each domain whose definition could not be had; its state is known where that alone was told."""
    for uuid, answer in texts.items():
        if isinstance(answer, DomainText):
            error = parsed[uuid]
            if isinstance(error, FormatError):
                yield _last_known(
                    uuid, answer.name, error, begun_at=answer.begun_at, connection=answer.connection, state=answer.state
                )
        elif not isinstance(answer, DomainGone):
            listed = listing.entries.get(uuid)
            name = uuid if listed is None else listed.name
            yield _last_known(uuid, name, answer, begun_at=begun_at, connection=listing.connection)


def _last_known(
    uuid: str, name: str, why: Exception, *, begun_at: float, connection: int, state: DomainState = "unknown"
) -> Sighting:
    return Sighting(
        uuid=uuid,
        name=name,
        state=state,
        begun_at=begun_at,
        connection=connection,
        validity="last-known",
        problem=str(why),
    )


def _with_cpus(lost: Sighting, process: LivingProcess | None) -> Sighting:
    return (
        lost if process is None else msgspec.structs.replace(lost, kernel_cpus=process.cpus, kernel_pins=process.pins)
    )


def _unreadable_sentence(unreadable: tuple[Sighting, ...]) -> str | None:
    if not unreadable:
        return None
    first = min(unreadable, key=lambda lost: lost.name)
    return (
        f"{count(len(unreadable), 'definition')} cannot be read, what was last known of "
        f"{agrees(unreadable, 'it', 'them')} counts;"
        f" {first.name}: {first.problem}"
    )


def _processes_state(processes: Processes) -> SourceState:
    if processes.can_see:
        return SourceState(name="processes", read_at=processes.begun_at)
    return SourceState(
        name="processes",
        problem="QEMU processes of other users cannot be seen (hidepid on /proc, ProtectProc=invisible in the unit, or"
        " a container with a PID namespace of its own), so no guest is taken for gone: mount /proc without hidepid, set"
        " ProtectProc=default, run in the host's PID namespace",
    )
