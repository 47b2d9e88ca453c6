"""Where a running guest's domain holds other things than its claim."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from agent.core.advice import MAKERS, domain_argument
from agent.core.claim.values import Claim
from agent.core.commands import command
from agent.core.cpuset import CpuSet
from agent.core.guest import ObservedDomain, Sighting
from agent.core.ledger import Holds
from agent.core.words import count, plural, some

KIB_PER_MIB = 1024

ROUNDING_KIB = KIB_PER_MIB
"""libvirt and QEMU round a guest's memory up to what the machine type can plug."""

MOST_COMMANDS = 8


def drift(claim: Claim, promised: Holds, seen: Sighting | None, holds: Holds | None) -> tuple[str, ...]:
    """What differs, one part of a sentence each; nothing unless the claim is resident and its domain seen to run.

    promised: what the claim holds by itself. Idle siblings do not count, since a domain cannot say that it keeps any,
    nor where vCPUs float that are confined to no single CPU.
    """
    if claim.state != "resident" or seen is None or holds is None:
        return ()
    if seen.validity != "valid" or seen.domain is None or not seen.is_active or seen.others:
        return ()
    return tuple(_differences(promised, holds))


def way_back(claim: Claim, seen: Sighting) -> str | None:
    """How to give a running guest the pins of its claim; None where pins do not differ or cannot be set by hand."""
    domain = seen.domain
    if domain is None or claim.placement is None or claim.observed is not None or domain.maker in MAKERS:
        return None
    commands = list(_commands(claim, seen, domain))
    if not commands:
        return None
    if len(commands) > MOST_COMMANDS:
        return f"re-pin it as `{command('agentctl claim show', claim.claim_id, options=('--domain-xml',))}` prints"
    return f"re-pin it with {' and '.join(f'`{one}`' for one in commands)}"


def _commands(claim: Claim, seen: Sighting, domain: ObservedDomain) -> Iterator[str]:
    placement = claim.placement
    scope = "--live" if seen.persistent is False else "--live --config"
    pins = {pin.thread: pin.cpus for pin in domain.vcpu_pins}
    for cell in placement.cells if placement else ():
        for vcpu, cpu in sorted(cell.pins.items()):
            if pins.get(vcpu) != CpuSet([cpu]) and vcpu in domain.vcpus_online:
                yield f"virsh vcpupin {domain_argument(seen)} {vcpu} {cpu} {scope}"
    if placement and placement.emulator_cpus and domain.emulator_pin != placement.emulator_cpus:
        yield f"virsh emulatorpin {domain_argument(seen)} {placement.emulator_cpus} {scope}"


def _differences(promised: Holds, holds: Holds) -> Iterator[str]:
    was, now = promised.cpus - holds.cpus, holds.cpus - promised.cpus
    yield from _ids("is pinned to", "is not pinned to", plural(was), plural(now), lacks=bool(was), has_more=bool(now))
    yield from _names("device", map(str, promised.devices), map(str, holds.devices))
    yield from _names("mediated device", promised.mdevs, holds.mdevs)
    yield from _memory(promised, holds)
    yield from _pages(promised, holds)
    floated, floating = _floating(promised), _floating(holds)
    if floated != floating:
        yield f"has {count(floating, 'floating vCPU')} and was promised {floated or 'none'}"


def _ids(has: str, lacking: str, was: str, now: str, *, lacks: bool, has_more: bool) -> Iterator[str]:
    if lacks and has_more:
        yield f"{has} {now} instead of {was}"
    elif has_more:
        yield f"{has} {now} besides what it was promised"
    elif lacks:
        yield f"{lacking} {was}, which it was promised"


def _names(what: str, promised: Iterable[str], held: Iterable[str]) -> Iterator[str]:
    one, other = set(promised), set(held)
    was, now = some(sorted(one - other)), some(sorted(other - one))
    return _ids("has", "lacks", f"{what} {was}", f"{what} {now}", lacks=bool(was), has_more=bool(now))


def _memory(promised: Holds, holds: Holds) -> Iterator[str]:
    for cell in sorted(promised.cell_memory_kib.keys() | holds.cell_memory_kib.keys()):
        was, now = promised.cell_memory_kib.get(cell, 0), holds.cell_memory_kib.get(cell, 0)
        if abs(was - now) >= ROUNDING_KIB:
            yield f"has {_mib(now)} MiB of cell {cell} and was promised {_mib(was)} MiB"
    was, now = promised.host_memory_kib, holds.host_memory_kib
    if abs(was - now) >= ROUNDING_KIB:
        yield f"has {_mib(now)} MiB of memory that is bound to no one cell and was promised {_mib(was)} MiB"


def _pages(promised: Holds, holds: Holds) -> Iterator[str]:
    was, now = _pools(promised), _pools(holds)
    for cell, size in sorted(was.keys() | now.keys(), key=lambda pool: (pool[0] is None, pool[0] or 0, pool[1])):
        before, after = was.get((cell, size), 0), now.get((cell, size), 0)
        if before != after:
            place = "bound to no one cell" if cell is None else f"of cell {cell}"
            yield f"has {count(after, 'page')} of {size} KiB {place} and was promised {before or 'none'}"


def _pools(holds: Holds) -> Mapping[tuple[int | None, int], int]:
    return {(hold.cell, hold.size_kib): hold.count for hold in holds.pages}


def _floating(holds: Holds) -> int:
    return sum(holds.cell_shared.values()) + holds.host_shared


def _mib(kib: int) -> int:
    return round(kib / KIB_PER_MIB)
