"""Reading domains, capabilities and node devices from a real libvirtd with real guests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from agent.adapters.libvirt import LibvirtConnection, LibvirtHost
from agent.core.ledger import ListedDomain
from agent.errors import DomainGone
from tests.functional.lab import Guest, Libvirtd


@pytest.fixture
def host(libvirtd: Libvirtd) -> Iterator[LibvirtHost]:
    host = LibvirtHost(LibvirtConnection(libvirtd.ro_uri))
    host.connect(30)
    yield host
    host.close()


def test_one_list_holds_running_and_stopped_domains(host: LibvirtHost, guest: Callable[..., Guest]) -> None:
    running, stopped = guest("running"), guest("stopped", start=False)
    listing = host.list_domains()
    ids = {entry.name: entry.libvirt_id for entry in listing.entries.values()}
    assert listing.connection == host.connection_number == 1
    assert listing.uuids == {running.uuid, stopped.uuid}
    assert set(listing.entries.values()) == {
        ListedDomain(uuid=running.uuid, name="running", libvirt_id=ids["running"]),
        ListedDomain(uuid=stopped.uuid, name="stopped", libvirt_id=None),
    }
    assert ids["running"] is not None


def test_state_reason_and_persistence_of_each_domain_are_read(
    libvirtd: Libvirtd, host: LibvirtHost, guest: Callable[..., Guest]
) -> None:
    running, stopped, paused = guest("running"), guest("stopped", start=False), guest("paused")
    libvirtd.virsh("suspend", "paused")
    libvirtd.virsh("undefine", "paused")  # it runs on, but is transient now
    texts = dict(host.read_domain_texts([running.uuid, stopped.uuid, paused.uuid]))
    told = {
        text.name: (text.uuid, text.state, text.reason, text.persistent, text.libvirt_id is not None, text.connection)
        for text in texts.values()
        if not isinstance(text, Exception)
    }
    assert told == {
        "running": (running.uuid, "running", "booted", True, True, 1),
        "stopped": (stopped.uuid, "shut-off", None, True, False, 1),
        "paused": (paused.uuid, "paused", "user", False, True, 1),
    }


def test_the_live_definition_is_read_of_an_active_domain(
    libvirtd: Libvirtd, host: LibvirtHost, guest: Callable[..., Guest]
) -> None:
    pinned = guest("pinned", pin={0: "0"})
    libvirtd.virsh("vcpupin", "pinned", "0", "1", "--live")
    [(_, text)] = host.read_domain_texts([pinned.uuid])
    assert not isinstance(text, Exception)
    assert "<vcpupin vcpu='0' cpuset='1'/>" in text.xml


def test_a_domain_that_vanishes_between_list_and_read_costs_only_itself(
    libvirtd: Libvirtd, host: LibvirtHost, guest: Callable[..., Guest]
) -> None:
    stays, goes = guest("stays", start=False), guest("goes", start=False)
    listing = host.list_domains()
    libvirtd.virsh("undefine", "goes")
    texts = dict(host.read_domain_texts(sorted(listing.uuids)))
    assert isinstance(texts[goes.uuid], DomainGone)
    assert not isinstance(texts[stays.uuid], Exception)
    assert goes.uuid in str(texts[goes.uuid])


def test_capabilities_and_pci_devices_are_read(libvirtd: Libvirtd, host: LibvirtHost) -> None:
    assert host.capabilities_xml().startswith("<capabilities>")
    devices = host.node_device_xmls()
    assert devices.xmls.keys() >= set(libvirtd.virsh("nodedev-list", "--cap", "pci").split())
    assert not devices.failed
    assert all(f"<name>{name}</name>" in xml for name, xml in devices.xmls.items())
