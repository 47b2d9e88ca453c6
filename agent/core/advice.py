"""What an operator can do about a contradiction: commands that are safe to copy, in the words of who made the guest."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from agent.core.cpuset import NO_CPUS, CpuMask, CpuSet, lowest
from agent.core.guest import ObservedDomain, Sighting
from agent.core.holds import GuestHolds, is_one
from agent.core.ledger import Holds
from agent.core.words import plural

MAKERS = {"nova": "nova", "ovirt": "oVirt"}

_MISREAD_NAME = re.compile(r"-.*|\s*\+?\d+|\s*|[\s-]*(?:[0-9a-fA-F][\s-]*){32}", re.DOTALL)
"""Names that virsh takes for an option, an id, nothing at all, or for a uuid, which may well be another guest's."""


class FreeCpus:
    """Free dedicated CPUs to propose, each to one row only: who follows two proposals makes no new contradiction."""

    def __init__(self, free: Iterable[tuple[CpuMask, int]]) -> None:
        self._cells = [[cpus, unproposed] for cpus, unproposed in free]
        self.proposed = NO_CPUS

    def near(self, cpu: int) -> int | None:
        """The lowest one that is left in the cell of `cpu`, else in any cell."""
        for entry in sorted(self._cells, key=lambda cell: not cell[0] >> cpu & 1):
            if entry[1]:
                found = lowest(entry[1])
                entry[1] &= ~(1 << found)
                self.proposed = CpuMask(self.proposed | 1 << found)
                return found
        return None


def names(guests: Iterable[GuestHolds]) -> str:
    """The guests' names, at most five of them, as a person would list them."""
    known = [guest.sighting.label for guest in guests]
    shown = known if len(known) <= 5 else [*known[:4], f"{len(known) - 4} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


class Proposals:
    """What the rows have proposed so far, so that no command is given twice: whoever copied it twice would start a
    second migration, or be told of a fault."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}

    def once(self, way_out: str, row: str) -> str:
        """The way out, or the id of the first row that named the very same; begins with a capital letter."""
        first = self._first.setdefault(way_out, row)
        return (
            way_out[:1].upper() + way_out[1:]
            if first == row
            else f"Do what is proposed for {first}, which serves here too"
        )


class Helpers(NamedTuple):
    """A guest's emulator and iothreads that are pinned to some CPUs."""

    emulator: bool
    iothreads: CpuSet

    @property
    def is_one(self) -> bool:
        """Only the emulator, or only one iothread."""
        return self.emulator + len(self.iothreads) == 1

    def __str__(self) -> str:
        """ "emulator", "iothread 2", "emulator and iothreads 1-3"."""
        threads = plural(self.iothreads, "iothread") if self.iothreads else ""
        return " and ".join(part for part in ("emulator" if self.emulator else "", threads) if part)


class Room(NamedTuple):
    """Where threads can go. shared: usable CPUs of the shared set, empty where pinned guests have no set of their own.
    usable: all CPUs of the host that guests may use. proposals: those made by the rows before."""

    free: FreeCpus
    shared: CpuSet
    usable: CpuSet
    proposals: Proposals


def helpers_on(guest: GuestHolds, cpus: CpuSet, usable: CpuSet) -> Helpers:
    """The emulator and iothreads of a guest that are pinned to any of these CPUs."""
    return _helpers(guest.sighting.domain, cpus, usable)


def _helpers(domain: ObservedDomain | None, cpus: CpuSet, usable: CpuSet) -> Helpers:
    if domain is None:
        return Helpers(emulator=False, iothreads=CpuSet())
    return Helpers(
        emulator=domain.emulator_pin is not None and _binds_to(domain.emulator_pin, cpus, usable),
        iothreads=CpuSet(pin.thread for pin in domain.iothread_pins if _binds_to(pin.cpus, cpus, usable)),
    )


def described(guest: GuestHolds, cpu: int, usable: CpuSet) -> str:
    """The guest and its threads that hold this CPU: "a (vCPU 1)", "b (emulator, iothread 2)", "c (some vCPU)"."""
    threads = ", ".join(threads_on(guest.sighting, guest.holds, cpu, usable))
    return f"{guest.sighting.label} ({threads})" if threads else guest.sighting.label


def threads_on(seen: Sighting, holds: Holds, cpu: int, usable: CpuSet) -> tuple[str, ...]:
    """The threads of a guest that hold this CPU: "vCPU 1", "emulator", "iothread 2"; where the kernel alone
    tells "some vCPU", or "some thread" that may run elsewhere too. usable: all CPUs of the host that guests may use."""
    domain = seen.domain
    threads = [] if domain is None else [f"vCPU {vcpu}" for vcpu in _vcpus_on(domain, cpu)]
    if cpu in holds.emulator_cpus:
        helpers = _helpers(domain, CpuSet([cpu]), usable)
        threads += ["emulator"] if helpers.emulator else []
        threads += [f"iothread {thread}" for thread in helpers.iothreads]
    if not threads and cpu in holds.kernel_pins:
        threads = ["some vCPU"]
    if not threads and holds.guessed and cpu in holds.cpus:
        threads = ["some thread"]
    return tuple(threads)


def make_way(guests: Sequence[GuestHolds], cpu: int, room: Room) -> str:
    """How one of these guests can get off this CPU, the easiest first; no full stop at the end.

    Emulators and iothreads have the shared set to go to. Else a guest that an administrator may re-pin by hand moves:
    other makers keep their own books of pins.
    """
    by_hand = [
        guest
        for guest in guests
        if guest.owner.maker == "libvirt" and _is_seen_running(guest) and not guest.sighting.others
    ]
    aside = [guest for guest in by_hand if room.shared and cpu in guest.holds.emulator_cpus]
    return move_away([*aside, *by_hand, *guests][0], cpu, room)


def move_away(guest: GuestHolds, cpu: int, room: Room) -> str:
    """How to get a guest's threads off this CPU; no full stop at the end."""
    if guest.sighting.others:
        return f"end all but one of the QEMU processes of {guest.sighting.label}"
    if cannot := _not_ours(guest):
        return cannot
    if cpu in guest.holds.emulator_cpus and room.shared:
        return _share(guest, CpuSet([cpu]), room)
    name = guest.sighting.label
    target = room.free.near(cpu)
    if target is None:
        return f"move {name} to another host or shut it down, since no dedicated CPU is free here"
    return f"re-pin {name} with {_quoted(_commands_to(target, guest, cpu, room.usable))}"


def off_dedicated(guest: GuestHolds, cpus: CpuSet, room: Room) -> str:
    """How to get emulator and iothreads off these dedicated CPUs; no full stop at the end."""
    if cannot := _not_ours(guest):
        return cannot
    if room.shared:
        return _share(guest, cpus, room)
    helpers = helpers_on(guest, cpus, room.usable)
    name = guest.sighting.label
    them = "it" if helpers.is_one else "them"
    return f"name CPUs for {_of(name, helpers)} in [compute] cpu_shared_set and pin {them} there"


def _not_ours(guest: GuestHolds) -> str | None:
    """What to do of a guest whose threads nobody should pin by hand now; None for any other."""
    name = guest.sighting.label
    manager = MAKERS.get(guest.owner.maker or "")
    if manager == "nova":
        command = f"openstack server migrate --live-migration {shlex.quote(guest.sighting.uuid)}"
        return f"let nova give {name} other CPUs, for instance with `{command}`"
    if manager is not None:
        return f"let {manager} migrate {name}, since it keeps its own books of this guest's pins"
    if not _is_seen_running(guest):
        until = "its definition can be read" if guest.holds.guessed else "libvirt shows it again"
        return f"re-pin {name} or move it to another host once {until}"
    return None


def _share(guest: GuestHolds, cpus: CpuSet, room: Room) -> str:
    helpers = helpers_on(guest, cpus, room.usable)
    command = _virsh(guest.sighting)
    commands = [command("emulatorpin", room.shared)] if helpers.emulator else []
    commands += [command("iothreadpin", thread, room.shared) for thread in helpers.iothreads]
    name = guest.sighting.label
    return f"pin {_of(name, helpers)} to the shared set ({_quoted(commands)})"


def _commands_to(target: int, guest: GuestHolds, cpu: int, usable: CpuSet) -> list[str]:
    """The commands that pin whatever of the guest is on `cpu` to the target instead; other CPUs of a pin stay."""
    domain, command = guest.sighting.domain, _virsh(guest.sighting)
    if domain is None:
        return []
    was, now = CpuSet([cpu]), CpuSet([target])
    helpers = helpers_on(guest, was, usable)
    commands = [command("vcpupin", vcpu, now) for vcpu in _vcpus_on(domain, cpu)]
    if helpers.emulator and domain.emulator_pin is not None:
        commands.append(command("emulatorpin", domain.emulator_pin - was | now))
    iothread_pins = (pin for pin in domain.iothread_pins if pin.thread in helpers.iothreads)
    return commands + [command("iothreadpin", pin.thread, pin.cpus - was | now) for pin in iothread_pins]


def _virsh(sighting: Sighting) -> Callable[..., str]:
    """Makes commands for this guest; a transient one has no definition to change with it."""
    scope = "--live" if sighting.persistent is False else "--live --config"

    def command(verb: str, *arguments: object) -> str:
        return " ".join(("virsh", verb, domain_argument(sighting), *map(str, arguments), scope))

    return command


def _quoted(commands: Sequence[str]) -> str:
    return " and ".join(f"`{command}`" for command in commands)


def _of(name: str, helpers: Helpers) -> str:
    return f"{'the ' if helpers.emulator else ''}{helpers} of {name}"


def _binds_to(pin: CpuSet, cpus: CpuSet, usable: CpuSet) -> bool:
    # A pin to every CPU there is says the same as none.
    return not usable <= pin and not pin.isdisjoint(cpus)


def domain_argument(sighting: Sighting) -> str:
    """The guest as an argument of virsh, quoted for a shell; by uuid where its name would be read as something else."""
    return shlex.quote(sighting.uuid if _MISREAD_NAME.fullmatch(sighting.name) else sighting.name)


def _vcpus_on(domain: ObservedDomain, cpu: int) -> Iterator[int]:
    for pin in domain.vcpu_pins:
        if pin.thread in domain.vcpus_online and is_one(pin.cpus.mask) and cpu in pin.cpus:
            yield pin.thread


def _is_seen_running(guest: GuestHolds) -> bool:
    return guest.sighting.validity == "valid" and guest.sighting.is_active
