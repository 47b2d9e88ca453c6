"""A libvirt in memory with the methods of `LibvirtHost`; it passes the same contract tests."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from types import MappingProxyType

import msgspec

from agent.adapters.libvirt import DomainText, NodeDevices, Patience
from agent.core.guest import DomainState
from agent.core.ledger import ListedDomain, Listing
from agent.errors import DomainGone, LibvirtError, LibvirtUnavailable


def _ignore(_: object) -> None:
    """Nobody listens."""


class FakeLibvirt:
    """Domains by uuid in `domains`, node devices by name in `devices`; both may also be changed by the methods below.

    settle_s: as of `Patience`. Control: define, start, stop, undefine, add_device, remove_device; fail(uuid, error) and
    fail_list(error) until `heal`; lose(sentence) and reconnect(). reads: uuids in the order in which they were read.
    """

    def __init__(
        self,
        *,
        on_change: Callable[[str], None] = _ignore,
        on_device_change: Callable[[str], None] = _ignore,
        on_connected: Callable[[int], None] = _ignore,
        on_lost: Callable[[str], None] = _ignore,
        clock: Callable[[], float] = time.monotonic,
        settle_s: float = Patience().settle_s,
        capabilities: str = "<capabilities/>",
    ) -> None:
        self.domains: dict[str, DomainText] = {}
        self.devices: dict[str, str] = {}
        self.device_errors: dict[str, str] = {}
        self.capabilities = capabilities
        self.reads: list[str] = []
        self.loop_problem: str | None = None
        self._on_change = on_change
        self._on_device_change = on_device_change
        self._on_connected = on_connected
        self._on_lost = on_lost
        self._clock = clock
        self._settle_s = settle_s
        self._errors: dict[str, LibvirtError] = {}
        self._list_error: LibvirtError | None = None
        self._number = 0
        self._opened_at = 0.0
        self._lost_because: str | None = "libvirt has not been opened yet"
        self._next_id = 1

    # --- the methods of LibvirtHost ----------------------------------------------------------

    @property
    def connection_number(self) -> int:
        return self._number

    @property
    def is_connected(self) -> bool:
        return self._lost_because is None

    @property
    def problem(self) -> str | None:
        return self._lost_because or self.loop_problem

    def start(self) -> None:
        if self._number == 0:
            self.reconnect()

    def connect(self, timeout_s: float) -> None:
        self.start()
        self._check()

    def close(self) -> None:
        self._lost_because = "the agent has closed its connection to libvirt"

    def list_domains(self) -> Listing:
        self._check()
        if self._list_error is not None:
            raise self._list_error
        begun_at = self._clock()
        entries = {
            text.uuid: ListedDomain(uuid=text.uuid, name=text.name, libvirt_id=text.libvirt_id)
            for text in self.domains.values()
        }
        return Listing(
            connection=self._number,
            begun_at=begun_at,
            complete=begun_at - self._opened_at >= self._settle_s,
            entries=MappingProxyType(entries),
        )

    def read_domain_texts(self, uuids: Iterable[str]) -> Iterator[tuple[str, DomainText | LibvirtError]]:
        self._check()
        return ((uuid, self._read(uuid)) for uuid in uuids)

    def capabilities_xml(self) -> str:
        self._check()
        return self.capabilities

    def node_device_xmls(self) -> NodeDevices:
        self._check()
        failed = {name: error for name, error in self.device_errors.items() if name in self.devices}
        xmls = {name: self.devices[name] for name in sorted(self.devices) if name not in failed}
        return NodeDevices(
            begun_at=self._clock(),
            connection=self._number,
            xmls=MappingProxyType(xmls),
            failed=MappingProxyType(failed),
        )

    # --- control -----------------------------------------------------------------------------

    def define(self, xml: str) -> str:
        """Define from an XML with name and uuid, or replace the text of a known one; returns the uuid."""
        uuid, name = _first(r"<uuid>(.*?)</uuid>", xml), _first(r"<name>(.*?)</name>", xml)
        known = self.domains.get(uuid)
        if known is None:
            known = DomainText(
                uuid=uuid,
                name=name,
                xml=xml,
                state="shut-off",
                reason=None,
                persistent=True,
                libvirt_id=None,
                begun_at=0.0,
                connection=0,
            )
        self._put(msgspec.structs.replace(known, xml=xml, name=name))
        return uuid

    def start_domain(self, uuid: str, state: DomainState = "running", reason: str | None = "booted") -> None:
        """Make it active with the next id."""
        libvirt_id, self._next_id = self._next_id, self._next_id + 1
        self._put(msgspec.structs.replace(self.domains[uuid], state=state, reason=reason, libvirt_id=libvirt_id))

    def set_state(self, uuid: str, state: DomainState, reason: str | None) -> None:
        """Another state of a domain that stays active, or not."""
        self._put(msgspec.structs.replace(self.domains[uuid], state=state, reason=reason))

    def stop_domain(self, uuid: str) -> None:
        """Destroy it: a transient one is gone."""
        text = self.domains[uuid]
        if text.persistent:
            self._put(msgspec.structs.replace(text, state="shut-off", reason="destroyed", libvirt_id=None))
        else:
            self._remove(uuid)

    def undefine(self, uuid: str) -> None:
        """Take its definition away: an active one runs on, transient."""
        text = self.domains[uuid]
        if text.libvirt_id is None:
            self._remove(uuid)
        else:
            self._put(msgspec.structs.replace(text, persistent=False))

    def fail(self, uuid: str, error: LibvirtError) -> None:
        """Reading this domain gives this error (LibvirtTimeout: the call hangs) until `heal`."""
        self._errors[uuid] = error

    def fail_list(self, error: LibvirtError) -> None:
        """The list raises this error until `heal`."""
        self._list_error = error

    def heal(self) -> None:
        """Nothing fails any more."""
        self._errors.clear()
        self._list_error = None

    def add_device(self, name: str, xml: str) -> None:
        """A node device comes, or its XML changes."""
        self.devices[name] = xml
        self._tell_device(name)

    def remove_device(self, name: str) -> None:
        """A node device goes."""
        del self.devices[name]
        self._tell_device(name)

    def lose(self, sentence: str) -> None:
        """The connection ends; domains go on changing unheard."""
        self._lost_because = sentence
        self._on_lost(sentence)

    def reconnect(self) -> None:
        """The next connection."""
        self._number += 1
        self._opened_at = self._clock()
        self._lost_because = None
        self._on_connected(self._number)

    # --- inside ------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._lost_because is not None:
            raise LibvirtUnavailable(self._lost_because)

    def _read(self, uuid: str) -> DomainText | LibvirtError:
        self.reads.append(uuid)
        if self._lost_because is not None:
            return LibvirtUnavailable(self._lost_because)
        if uuid in self._errors:
            return self._errors[uuid]
        if uuid not in self.domains:
            return DomainGone(f"libvirt could not read domain {uuid}: Domain not found (error 42)")
        return msgspec.structs.replace(self.domains[uuid], begun_at=self._clock(), connection=self._number)

    def _put(self, text: DomainText) -> None:
        self.domains[text.uuid] = text
        self._tell(text.uuid)

    def _remove(self, uuid: str) -> None:
        del self.domains[uuid]
        self._tell(uuid)

    def _tell(self, uuid: str) -> None:
        if self._lost_because is None:
            self._on_change(uuid)

    def _tell_device(self, name: str) -> None:
        if self._lost_because is None:
            self._on_device_change(name)


def _first(pattern: str, xml: str) -> str:
    found = re.search(pattern, xml)
    assert found, f"no {pattern} in {xml!r}"
    return found[1]
