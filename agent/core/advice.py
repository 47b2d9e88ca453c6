"""What an operator can do about a contradiction: commands that are safe to copy, in the words of who made the guest."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

from agent.core.cpuset import CpuSet
from agent.core.guest import ObservedDomain, Sighting
from agent.core.holds import GuestHolds, is_one

MAKERS = {"nova": "nova", "ovirt": "oVirt"}


class FreeCpus:
    """Free dedicated CPUs to propose, each to one row only: who follows two proposals makes no new contradiction."""

    def __init__(self, free: Iterable[tuple[int, int]]) -> None:
        self._cells = [[cpus, unproposed] for cpus, unproposed in free]

    def near(self, cpu: int) -> int | None:
        """The lowest one that is left in the cell of `cpu`, else in any cell."""
        for entry in sorted(self._cells, key=lambda cell: not cell[0] >> cpu & 1):
            if entry[1]:
                lowest = entry[1] & -entry[1]
                entry[1] &= ~lowest
                return lowest.bit_length() - 1
        return None


def names(guests: Iterable[GuestHolds]) -> str:
    """The guests' names, at most five of them, as a person would list them."""
    known = [guest.sighting.name or guest.sighting.uuid for guest in guests]
    shown = known if len(known) <= 5 else [*known[:4], f"{len(known) - 4} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def threads_on(guest: GuestHolds, cpu: int) -> tuple[str, ...]:
    """The threads of a guest that hold this CPU: "vCPU 1", "emulator", "iothread 2"."""
    domain = guest.sighting.domain
    if domain is None:
        return ()
    found = [f"vCPU {vcpu}" for vcpu in _vcpus_on(domain, cpu)]
    if cpu in guest.holds.emulator_cpus:
        found += ["emulator"] if domain.emulator_pin is not None and cpu in domain.emulator_pin else []
        found += [f"iothread {pin.thread}" for pin in domain.iothread_pins if cpu in pin.cpus]
    return tuple(found)


def described(guest: GuestHolds, cpu: int) -> str:
    """The guest and its threads on this CPU: "a (vCPU 1)"."""
    threads = ", ".join(threads_on(guest, cpu))
    name = guest.sighting.name or guest.sighting.uuid
    return f"{name} ({threads})" if threads else name


def easiest_to_move(guests: Sequence[GuestHolds]) -> GuestHolds:
    """The guest that an administrator may re-pin by hand, else the first: other makers keep their own books of pins."""
    return next((one for one in guests if _is_by_hand(one) and one.sighting.validity == "valid"), guests[0])


def move_away(guest: GuestHolds, cpu: int, free: FreeCpus) -> str:
    """How to get a guest's threads off this CPU; no full stop at the end."""
    name = guest.sighting.name or guest.sighting.uuid
    manager = MAKERS.get(guest.owner.maker or "")
    if manager == "nova":
        command = f"openstack server migrate --live-migration {shlex.quote(guest.sighting.uuid)}"
        return f"let nova give {name} other CPUs, for instance with `{command}`"
    if manager is not None:
        return f"let {manager} migrate {name}, since it keeps its own books of this guest's pins"
    if guest.sighting.validity != "valid" or not guest.sighting.is_active:
        return f"re-pin {name} or move it to another host once libvirt shows it again"
    target = free.near(cpu)
    if target is None:
        return f"move {name} to another host or shut it down, since no dedicated CPU is free here"
    return f"re-pin {name} with `{repin_command(guest, cpu, str(target))}`"


def repin_command(guest: GuestHolds, cpu: int, target: str) -> str:
    """The virsh command that pins the first of the guest's threads on `cpu` elsewhere."""
    domain, name, scope = guest.sighting.domain, domain_argument(guest.sighting), _scope(guest.sighting)
    vcpu = next(_vcpus_on(domain, cpu), None) if domain is not None else None
    if vcpu is not None:
        return f"virsh vcpupin {name} {vcpu} {target} {scope}"
    if domain is not None and (domain.emulator_pin is None or cpu not in domain.emulator_pin):
        iothread = next((pin.thread for pin in domain.iothread_pins if cpu in pin.cpus), None)
        if iothread is not None:
            return f"virsh iothreadpin {name} {iothread} {target} {scope}"
    return f"virsh emulatorpin {name} {target} {scope}"


def domain_argument(sighting: Sighting) -> str:
    """The guest as an argument of virsh, quoted for a shell; by uuid where its name would be read as something else."""
    plain = sighting.name and not sighting.name.startswith("-") and not sighting.name.isdigit()
    return shlex.quote(sighting.name if plain else sighting.uuid)


def _vcpus_on(domain: ObservedDomain, cpu: int) -> Iterator[int]:
    for pin in domain.vcpu_pins:
        if pin.thread in domain.vcpus_online and is_one(pin.cpus.mask) and cpu in pin.cpus:
            yield pin.thread


def _is_by_hand(guest: GuestHolds) -> bool:
    return guest.owner.maker == "libvirt"


def _scope(sighting: Sighting) -> str:
    return "--live" if sighting.persistent is False else "--live --config"


def plural(cpus: CpuSet) -> str:
    """ "CPU 3" or "CPUs 3-5,8"."""
    return f"CPU {cpus}" if len(cpus) == 1 else f"CPUs {cpus}"
