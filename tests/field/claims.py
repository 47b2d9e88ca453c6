"""What the field cases call a claim, before there are claims: an answer, and on a yes the guest comes as placed."""

from __future__ import annotations

import msgspec

from agent.core.admission import Admitted, Answer, Refused, admit, question_of
from agent.core.fit.host import host_facts
from agent.core.guest import Sighting
from agent.core.host_config import DeviceSpec
from agent.core.instance import Instance, InstanceRequest
from agent.core.placement import CellPlacement, Placement
from agent.core.reasons import Reason
from agent.core.snapshot import Identity, Snapshot, configured, first
from agent.core.usage import Usage
from tests import builders
from tests.builders import Host, ledger_of, uuid_of
from tests.fit.arrival import guest_of, topology_with

EVERY_DEVICE = (DeviceSpec(address="*:*:*.*"),)


def offering(before: Host) -> Host:
    """The same host whose configuration lets guests have every device."""
    return builders.configured(before, device_spec=EVERY_DEVICE)


def ask(snapshot: Snapshot, request: InstanceRequest) -> Answer:
    """Yes or no on a host as it was seen, to a guest that nobody knows yet."""
    facts = host_facts(snapshot.topology, snapshot.config)
    return admit(question_of(request, snapshot, facts, Instance(uuid=uuid_of("new")), None))


def placed(answer: Answer) -> Placement:
    """Of a yes."""
    assert isinstance(answer, Admitted), answer
    return answer.placement


def only_cell(answer: Answer) -> CellPlacement:
    """Of a yes to a guest of one cell."""
    (cell,) = placed(answer).cells
    return cell


def reasons(answer: Answer) -> tuple[Reason, ...]:
    """Of a no."""
    assert isinstance(answer, Refused), answer
    return answer.reasons


def given(answer: Answer) -> list[str]:
    """Addresses of the devices of a yes."""
    return [str(address) for one in placed(answer).devices for address in one.devices]


class Claims:
    """A host, and guests that come and go."""

    def __init__(self, on: Host, *guests: Sighting) -> None:
        self._host = on
        self._guests = {guest.uuid: guest for guest in guests}
        self._placements: dict[str, Placement] = {}

    @property
    def snapshot(self) -> Snapshot:
        """The host as it would be seen now; the kernel has given the guests their huge pages."""
        topology = self._host.topology
        for placement in self._placements.values():
            topology = topology_with(topology, placement)
        empty = first(Identity(agent_id="agent", boot_id="boot", epoch=1), self._host.config)
        seen = msgspec.structs.replace(empty, topology=topology, ledger=ledger_of(*self._guests.values()))
        return configured(seen, self._host.config)

    @property
    def usage(self) -> Usage:
        """What is used now."""
        return self.snapshot.usage

    def claim(self, name: str, request: InstanceRequest) -> Answer:
        """The answer; on a yes the guest is here from now on."""
        answer = ask(self.snapshot, request)
        if isinstance(answer, Admitted):
            self._guests[uuid_of(name)] = guest_of(name, answer.placement, request)
            self._placements[uuid_of(name)] = answer.placement
        return answer

    def release(self, name: str) -> None:
        """The guest is gone."""
        del self._guests[uuid_of(name)], self._placements[uuid_of(name)]
