"""What a look at the host proves of a claim's domain: that a run of it has come, that it is off, that it is gone."""

from __future__ import annotations

import msgspec

from agent.core.guest import RunIdentity, Sighting
from agent.core.ledger import Ledger

NO_RUN = RunIdentity()


def shows_all(ledger: Ledger) -> bool:
    """Whatever is here is among the sightings: there was a complete list over the current connection, and a look at
    processes that can be seen (LEDGER R2)."""
    listing, processes = ledger.listing, ledger.processes
    if listing is None or processes is None or not processes.can_see:
        return False
    return listing.complete and listing.connection == ledger.connection


def is_absent(ledger: Ledger, uuid: str, since_s: float) -> bool:
    """Nothing of the uuid is here (LEDGER R2).

    That takes looks that show all, begun after `since_s` (monotonic) and after the domain was last seen, and the domain
    in none of them.
    """
    listing, processes = ledger.listing, ledger.processes
    if listing is None or processes is None or not shows_all(ledger):
        return False
    # what was seen of it since would be a sighting: `core/ledger.account` drops one only for such a proof
    if uuid in ledger.sightings or uuid in listing.uuids or uuid in processes.living:
        return False
    return since_s < min(listing.begun_at, processes.begun_at)


def is_off(ledger: Ledger, uuid: str, since_s: float) -> bool:
    """By libvirt, in a reading begun after `since_s`, the domain is shut off, and the kernel shows no QEMU of it."""
    seen, processes = ledger.sightings.get(uuid), ledger.processes
    if seen is None or processes is None or not processes.can_see:
        return False
    return says_off(seen, since_s) and uuid not in processes.living and processes.begun_at >= seen.begun_at


def is_gone(ledger: Ledger, uuid: str, since_s: float) -> bool:
    """No run of the domain is here any more, whether it is still defined or not."""
    return is_absent(ledger, uuid, since_s) or is_off(ledger, uuid, since_s)


def says_off(seen: Sighting, since_s: float) -> bool:
    """The word of libvirt alone: enough to wait for what comes next, not to give anything away."""
    return seen.validity == "valid" and seen.state == "shut-off" and seen.begun_at > since_s and not seen.others


def shows_run(seen: Sighting) -> bool:
    """The reading itself shows that the domain is active, and which run of it."""
    return seen.validity != "last-known" and seen.is_active and seen.run != NO_RUN


def is_other_run(before: RunIdentity | None, now: RunIdentity) -> bool:
    """Certainly another run than before; what is known of only one of them proves nothing.

    A process is told by its pid and start, and where the pid of one is not known, libvirt's id decides.
    """
    if now == NO_RUN:
        return False
    if before is None or before == NO_RUN:
        return True
    if before.pid is not None and now.pid is not None:
        starts = before.started_at_boot_s, now.started_at_boot_s
        return before.pid != now.pid or (None not in starts and starts[0] != starts[1])
    return None not in (before.libvirt_id, now.libvirt_id) and before.libvirt_id != now.libvirt_id


def joined(before: RunIdentity | None, now: RunIdentity) -> RunIdentity:
    """All that is known of one run."""
    if before is None or is_other_run(before, now):
        return now
    return msgspec.structs.replace(
        now,
        libvirt_id=now.libvirt_id if now.libvirt_id is not None else before.libvirt_id,
        pid=now.pid if now.pid is not None else before.pid,
        started_at_boot_s=before.started_at_boot_s if now.started_at_boot_s is None else now.started_at_boot_s,
    )
