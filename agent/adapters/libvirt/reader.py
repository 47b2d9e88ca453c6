"""`LibvirtHost`: everything that is read from the libvirt of one host, behind one object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.adapters.libvirt import domains, host
from agent.adapters.libvirt.connection import LibvirtConnection
from agent.adapters.libvirt.domains import DomainText
from agent.adapters.libvirt.host import NodeDevices
from agent.core.ledger import Listing
from agent.errors import LibvirtError


class LibvirtHost:
    """Reads over a connection that keeps itself up. Every method may be called from any thread.

    Whatever is read raises LibvirtUnavailable at once while there is no connection, LibvirtTimeout when libvirt does
    not answer in time, LibvirtError when it refuses.
    """

    def __init__(self, connection: LibvirtConnection) -> None:
        self._connection = connection

    @property
    def connection_number(self) -> int:
        """Number of the last connection that was made, 1 for the first; 0: there never was one."""
        return self._connection.number

    @property
    def is_connected(self) -> bool:
        """A connection is open, as far as is known."""
        return self._connection.is_connected

    @property
    def problem(self) -> str | None:
        """Why libvirt cannot be read now and what to do, one sentence; None: connected."""
        return self._connection.problem

    @property
    def loop_problem(self) -> str | None:
        """Why no event will come any more in this process, which only a restart of it cures; None: events flow."""
        return self._connection.loop_problem

    def start(self) -> None:
        """Begin to connect in the background, and stay connected from then on."""
        self._connection.start()

    def connect(self, timeout_s: float) -> None:
        """Start if need be and wait until connected. Raises LibvirtUnavailable when the first attempt fails."""
        self._connection.connect(timeout_s)

    def close(self) -> None:
        """Give the connection up for good; hung calls are left to themselves."""
        self._connection.close()

    def list_domains(self) -> Listing:
        """All domains, defined or active, by one call."""
        return domains.list_domains(self._connection)

    def read_domain_texts(self, uuids: Iterable[str]) -> Iterator[tuple[str, DomainText | LibvirtError]]:
        """XML and state of many, each pair as it comes back; an error stands in the place of its text."""
        return domains.read_domain_texts(self._connection, uuids)

    def capabilities_xml(self) -> str:
        """The capabilities XML of the host."""
        return host.capabilities_xml(self._connection)

    def node_device_xmls(self) -> NodeDevices:
        """XML of the PCI, mdev and vDPA node devices."""
        return host.node_device_xmls(self._connection)
