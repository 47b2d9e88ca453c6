"""Field cases of the kinds domain-xml and domain-lifecycle, as far as values alone decide them."""

from __future__ import annotations

from agent.core.ledger import account
from tests.builders import guest, h8, ledger_of, listing, processes, qemu


def test_xml_current_vcpu_attribute_missing() -> None:
    """RHBZ#1545862. The elements are read elsewhere; here: what floating and confined vCPUs hold."""
    a = guest("a", vcpus=3, mem=1024)
    b = guest("b", dict.fromkeys(range(16), "2-7"), vcpus=16, online_vcpus="0-1")
    on = h8()
    made = on.folded(a, b)
    assert made.holds[a.uuid].host_shared == 3
    assert made.holds[b.uuid].cell_shared == {0: 2}
    assert str(made.usage.host.dedicated.free) == "2-7"
    (row,) = made.conflicts
    assert [(one.name, one.text) for one in made.usage.remarks] == [("b", row.cause)]
    assert row.cause == "Floating vCPUs of b are confined to CPUs 2-7, of which 2-7 are dedicated to pinned guests"


def test_domain_lost_by_libvirt_still_holds() -> None:
    """A QEMU process whose domain libvirt has forgotten holds on, and is named."""
    ledger = ledger_of(guest("a", {0: 2, 1: 3}))
    alive = qemu("a", started_at_s=1.0)
    ledger = account(ledger, listing("a", at=10.0), processes(alive, at=10.5))
    lost = account(ledger, listing(at=20.0), processes(alive, at=20.5))
    made = h8().folded(*lost.sightings.values())
    assert str(made.usage.host.dedicated.free) == "4-7"
    assert [row.kind for row in made.conflicts] == ["domain-lost-by-libvirt"]
