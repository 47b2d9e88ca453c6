"""What the field cases call a claim: the real one, on a host that is thought of; on a yes the guest comes as placed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from agent.claims import Granted
from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.values import ClaimKind, Tombstone
from agent.core.conflicts import Conflict
from agent.core.guest import RunIdentity, Sighting
from agent.core.host_config import DeviceSpec
from agent.core.instance import InstanceRequest
from agent.core.placement import CellPlacement, Placement
from agent.core.reasons import Reason
from agent.core.usage import Usage
from tests import builders
from tests.at_work import AtWork, asked
from tests.builders import Host, uuid_of
from tests.fit.arrival import guest_of, topology_with

Answer = Granted | ClaimRefusal

EVERY_DEVICE = (DeviceSpec(address="*:*:*.*"),)


def offering(before: Host) -> Host:
    """The same host whose configuration lets guests have every device."""
    return builders.configured(before, device_spec=EVERY_DEVICE)


def placed(answer: Answer) -> Placement:
    """Of a yes."""
    assert isinstance(answer, Granted), answer
    assert answer.claim.placement is not None
    return answer.claim.placement


def only_cell(answer: Answer) -> CellPlacement:
    """Of a yes to a guest of one cell."""
    (cell,) = placed(answer).cells
    return cell


def reasons(answer: Answer) -> tuple[Reason, ...]:
    """Of a no."""
    assert isinstance(answer, ClaimRefusal), answer
    return answer.reasons


def given(answer: Answer) -> list[str]:
    """Addresses of the devices of a yes."""
    return [str(address) for one in placed(answer).devices for address in one.devices]


class Claims:
    """A host, the guests that are there already, and guests that come and go by claims."""

    def __init__(self, state_path: Path, on: Host, *guests: Sighting) -> None:
        self.at_work = AtWork(state_path, on)
        self._guests = {guest.uuid: guest for guest in guests}
        self._pid = 1000
        self._look()

    @property
    def usage(self) -> Usage:
        """What is used and promised now."""
        return self.at_work.tracker.snapshot.usage

    @property
    def conflicts(self) -> tuple[Conflict, ...]:
        """What contradicts now."""
        return self.at_work.tracker.snapshot.conflicts

    def restart(self) -> None:
        """The agent ends and starts, and has the same books and the same usage."""
        before, kept = self.at_work.book.claims, _kept(self.usage)
        self.at_work.restart()
        self._look()
        assert (set(self.at_work.book.claims), _kept(self.usage)) == (set(before), kept)

    def claim(self, name: str, request: InstanceRequest, *, kind: ClaimKind = "build", comes: bool = True) -> Answer:
        """The answer, under the guest's name as claim id; on a yes the guest comes at once, unless told otherwise."""
        before = self.usage
        answer = self.at_work.claims.claim(asked(name, name, request, kind=kind))
        if isinstance(answer, ClaimRefusal):
            assert self.usage == before, "a refusal takes nothing"
        elif comes:
            self.come(name, answer, request)
        return answer

    def come(self, name: str, answer: Answer, request: InstanceRequest) -> None:
        """The guest comes as it was placed, and nothing more or less is kept from others than was promised."""
        promised, placement = _kept(self.usage), placed(answer)
        came = guest_of(name, placement, request)
        self._pid += 1
        self._guests[came.uuid] = msgspec.structs.replace(came, run=RunIdentity(libvirt_id=self._pid, pid=self._pid))
        on = self.at_work.host
        self.at_work.host = Host(topology_with(on.topology, placement), on.config)
        self._look()
        assert _kept(self.usage) == promised, "claim and guest count once"
        assert self.at_work.book.claims[name].state == "arriving"

    def release(self, name: str) -> None:
        """The guest has settled, is given up and is gone. For guests without huge pages."""
        self._look()
        assert self.at_work.book.claims[name].state == "resident"
        assert isinstance(self.at_work.claims.release(name), Tombstone)
        del self._guests[uuid_of(name)]
        self._look()

    def _look(self) -> None:
        self.at_work.look(*self._guests.values())


def _kept(usage: Usage) -> object:
    """What is kept from others: by CPU, cell, page size and device, and in all."""
    return (
        usage.host.dedicated.free,
        usage.host.memory_kib.free,
        [(cell.id, cell.dedicated.free, cell.memory_kib.free) for cell in usage.cells],
        [(cell.id, row.size_kib, row.free) for cell in usage.cells for row in cell.pages],
        [row.address for row in usage.pci if row.free],
    )
