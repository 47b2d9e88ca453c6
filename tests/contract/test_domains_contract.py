"""What every libvirt gives: the real adapter over libvirt's test driver, and the fake that other tests use."""

from __future__ import annotations

import contextlib
import queue
import uuid as uuids
from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from agent.adapters.libvirt import DomainText, LibvirtConnection, LibvirtHost, Patience
from agent.adapters.libvirt.binding import event_loop, load_libvirt
from agent.core.ledger import ListedDomain
from agent.errors import DomainGone, LibvirtUnavailable
from tests.fakes_libvirt import FakeLibvirt

SETTLE_S = 5.0


def new_xml(name: str) -> tuple[str, str]:
    uuid = str(uuids.uuid4())
    return uuid, (
        f"<domain type='test'><name>{name}</name><uuid>{uuid}</uuid><memory>1024</memory>"
        "<os><type>hvm</type></os></domain>"
    )


def device_xml(wwpn: str) -> str:
    return (
        "<device><parent>scsi_host1</parent><capability type='scsi_host'><capability type='fc_host'>"
        f"<wwnn>2000000012341234</wwnn><wwpn>{wwpn}</wwpn></capability></capability></device>"
    )


class Peer(Protocol):
    """A libvirt whose domains can be changed from outside. now: what its clock says; heard, devices_heard: events."""

    host: LibvirtHost | FakeLibvirt
    now: float
    heard: queue.SimpleQueue[str]
    devices_heard: queue.SimpleQueue[str]

    def define(self, xml: str) -> str: ...
    def start(self, uuid: str) -> None: ...
    def stop(self, uuid: str) -> None: ...
    def undefine(self, uuid: str) -> None: ...
    def add_device(self) -> str: ...
    def close(self) -> None: ...


class RealPeer:
    """The adapter, and a second connection that changes things; both see the same hosts of the test driver."""

    def __init__(self) -> None:
        self.now = 100.0
        self.heard: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.devices_heard: queue.SimpleQueue[str] = queue.SimpleQueue()
        event_loop()
        self._raw: Any = load_libvirt().open("test:///default")
        for domain in self._raw.listAllDomains(0):
            if domain.isActive():
                domain.destroy()
            domain.undefine()
        connection = LibvirtConnection(
            "test:///default",
            patience=Patience(settle_s=SETTLE_S),
            clock=lambda: self.now,
            on_change=self.heard.put,
            on_device_change=self.devices_heard.put,
        )
        self.host = LibvirtHost(connection)

    def define(self, xml: str) -> str:
        uuid: str = self._raw.defineXML(xml).UUIDString()
        return uuid

    def start(self, uuid: str) -> None:
        self._raw.lookupByUUIDString(uuid).create()

    def stop(self, uuid: str) -> None:
        self._raw.lookupByUUIDString(uuid).destroy()

    def undefine(self, uuid: str) -> None:
        self._raw.lookupByUUIDString(uuid).undefine()

    def add_device(self) -> str:
        name: str = self._raw.nodeDeviceCreateXML(device_xml("1000000012341234"), 0).name()
        return name

    def close(self) -> None:
        self.host.close()
        self._raw.close()


class FakePeer:
    """The fake."""

    def __init__(self) -> None:
        self.now = 100.0
        self.heard: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.devices_heard: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.host = FakeLibvirt(
            clock=lambda: self.now,
            settle_s=SETTLE_S,
            on_change=self.heard.put,
            on_device_change=self.devices_heard.put,
        )
        self.define = self.host.define
        self.start = self.host.start_domain
        self.stop = self.host.stop_domain
        self.undefine = self.host.undefine

    def add_device(self) -> str:
        self.host.add_device("scsi_host12", device_xml("1000000012341234"))
        return "scsi_host12"

    def close(self) -> None:
        self.host.close()


@pytest.fixture(params=[RealPeer, FakePeer])
def unopened(request: pytest.FixtureRequest) -> Iterator[Peer]:
    with contextlib.closing(request.param()) as peer:
        yield peer


@pytest.fixture
def peer(unopened: Peer) -> Peer:
    unopened.host.connect(30)
    return unopened


def read(peer: Peer, uuid: str) -> DomainText:
    """A domain that can be read."""
    [(_, text)] = peer.host.read_domain_texts([uuid])
    assert isinstance(text, DomainText)
    return text


def test_the_list_holds_every_domain_with_its_id_while_active(peer: Peer) -> None:
    active, inactive = peer.define(new_xml("active")[1]), peer.define(new_xml("inactive")[1])
    peer.start(active)
    listing = peer.host.list_domains()
    ids = {entry.uuid: entry.libvirt_id for entry in listing.entries.values()}
    assert (listing.begun_at, listing.connection, set(listing.uuids)) == (100.0, 1, {active, inactive})
    assert set(listing.entries.values()) == {
        ListedDomain(uuid=active, name="active", libvirt_id=ids[active]),
        ListedDomain(uuid=inactive, name="inactive", libvirt_id=None),
    }
    assert isinstance(ids[active], int)


def test_a_list_is_complete_once_the_connection_has_settled(peer: Peer) -> None:
    told = []
    for peer.now in (100.0, 100.0 + SETTLE_S - 0.1, 100.0 + SETTLE_S):
        told.append(peer.host.list_domains().complete)
    assert told == [False, False, True]


def test_a_domain_is_read_with_state_reason_and_persistence(peer: Peer) -> None:
    uuid = peer.define(new_xml("a")[1])
    told = []
    for change in (lambda _uuid: None, peer.start, peer.stop, peer.start, peer.undefine):
        change(uuid)
        text = read(peer, uuid)
        assert (text.uuid, text.name, text.connection) == (uuid, "a", 1)
        assert f"<uuid>{uuid}</uuid>" in text.xml
        told.append((text.state, text.reason, text.persistent, text.libvirt_id is not None))
    assert told == [
        ("shut-off", None, True, False),
        ("running", "booted", True, True),
        ("shut-off", "destroyed", True, False),
        ("running", "booted", True, True),
        ("running", "booted", False, True),
    ]


def test_a_transient_domain_is_gone_when_it_stops(peer: Peer) -> None:
    uuid = peer.define(new_xml("a")[1])
    peer.start(uuid)
    peer.undefine(uuid)
    peer.stop(uuid)
    assert peer.host.list_domains().entries == {}


def test_the_reading_of_a_domain_begins_when_the_clock_says_so(peer: Peer) -> None:
    uuid = peer.define(new_xml("a")[1])
    peer.now = 123.5
    assert read(peer, uuid).begun_at == 123.5


def test_an_unknown_domain_is_gone_and_costs_nobody_else(peer: Peer) -> None:
    uuid, (gone, _) = peer.define(new_xml("a")[1]), new_xml("gone")
    texts = dict(peer.host.read_domain_texts([gone, uuid]))
    assert isinstance(texts[gone], DomainGone)
    assert gone in str(texts[gone])
    assert texts[uuid] == read(peer, uuid)


def test_many_domains_are_each_read_once(peer: Peer) -> None:
    wanted = [peer.define(new_xml(f"d{number}")[1]) for number in range(30)]
    uuids = [uuid for uuid, text in peer.host.read_domain_texts(wanted) if not isinstance(text, Exception)]
    assert sorted(uuids) == sorted(wanted)


def test_each_change_of_a_domain_is_told_by_its_uuid(peer: Peer) -> None:
    uuid = peer.define(new_xml("a")[1])
    assert peer.heard.get(timeout=30) == uuid
    for change in (peer.start, peer.stop, peer.undefine):
        while not peer.heard.empty():
            peer.heard.get()
        change(uuid)
        assert peer.heard.get(timeout=30) == uuid


def test_a_new_node_device_is_told_by_its_name(peer: Peer) -> None:
    name = peer.add_device()
    assert peer.devices_heard.get(timeout=30) == name


def test_capabilities_and_node_devices_are_read(peer: Peer) -> None:
    assert peer.host.capabilities_xml().startswith("<capabilities")
    devices = peer.host.node_device_xmls()
    assert (devices.connection, devices.begun_at) == (1, 100.0)


def test_nothing_is_read_before_and_after_the_connection(unopened: Peer) -> None:
    host = unopened.host
    assert (host.is_connected, host.connection_number) == (False, 0)
    assert "not been opened yet" in str(host.problem)
    with pytest.raises(LibvirtUnavailable, match=r"not been opened yet"):
        host.list_domains()
    host.connect(30)
    assert (host.is_connected, host.connection_number, host.problem, host.loop_problem) == (True, 1, None, None)
    host.close()
    assert (host.is_connected, host.connection_number) == (False, 1)
    for read in (
        host.list_domains,
        host.capabilities_xml,
        host.node_device_xmls,
        lambda: host.read_domain_texts([new_xml("a")[0]]),
    ):
        with pytest.raises(LibvirtUnavailable, match=r"has closed its connection"):
            read()
