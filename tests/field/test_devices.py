"""Field cases of the kinds pci-lifecycle, pci-address-numa, pci-pf-vf, pci-policy and mdev."""

from __future__ import annotations

from typing import TypeVar, get_args

import pytest

from agent.claims import Granted
from agent.core.claim.refusal import ClaimRefusal
from agent.core.pci import MediatedDevice, PciAddress
from agent.core.pci_request import PciNumaPolicy, PciRequest
from agent.core.reasons import CpusShort, DevicesContended, DevicesFar, DevicesShort
from agent.core.usage import DeviceUsage, Usage
from agent.errors import WireError
from agent.formats import wire
from tests.builders import function, guest, h2x4, h8
from tests.field.claims import given, offering, only_cell, placed, reasons
from tests.field.conftest import ClaimsOn
from tests.fit.requests import asks, wants

T = TypeVar("T")

VGPU = "0b5fd3fb-2389-4a22-ba70-52969a26b9d5"
PF, VF0, VF1 = "0000:3b:00.0", "0000:3b:02.0", "0000:3b:02.1"
CARD = (function(PF, "type-PF"), function(VF0, "type-VF", pf=PF), function(VF1, "type-VF", pf=PF))


def _rows(usage: Usage) -> dict[str, DeviceUsage]:
    return {str(row.address): row for row in usage.pci}


def _free(usage: Usage) -> list[str]:
    return [address for address, row in _rows(usage).items() if row.free]


def stored(value: T) -> T:
    """The value as it comes out of the journal and off the wire again."""
    return wire.from_builtins(wire.to_builtins(wire.from_json(wire.to_json(value), type(value))), type(value))


def test_pci_numa_node_unknown(claims_on: ClaimsOn) -> None:
    """k8snetworkplumbingwg/sriov-network-device-plugin#160. On a host of one cell nothing is far."""
    unknown = function("0000:b1:00.0", numa=None)
    usage = h2x4(pci=(unknown,)).usage()
    assert [(row.cell, row.free) for row in usage.pci] == [(None, True)]
    claims = claims_on(offering(h2x4(pci=(unknown,))))
    (far,) = reasons(claims.claim("x", asks(2, pci=(wants(policy="required"),))))
    assert isinstance(far, DevicesFar)
    assert (far.policy, far.asked, far.near, dict(far.by_cell), far.elsewhere) == ("required", 1, 0, {}, 1)
    assert given(claims.claim("y", asks(2, pci=(wants(policy="legacy"),)))) == ["0000:b1:00.0"]
    claims.release("y")
    assert given(claims.claim("z", asks(2, pci=(wants(policy="preferred"),)))) == ["0000:b1:00.0"]
    one_cell = claims_on(offering(h8(pci=(unknown,))))
    assert given(one_cell.claim("x", asks(2, pci=(wants(policy="required"),)))) == ["0000:b1:00.0"]


def test_pci_pf_blocked_by_vf(claims_on: ClaimsOn) -> None:
    """LP#1567549."""
    card = h8(pci=CARD)
    both = guest("x", dev=(VF0, VF1))
    assert _free(card.usage(both)) == []
    assert _rows(card.usage(both))[PF].remark == f"2 of its virtual functions are held, {VF0} by x"
    assert PF in _free(card.usage())
    whole = card.folded(guest("z", dev=(PF,)))
    assert _free(whole.usage) == []
    assert _rows(whole.usage)[VF0].remark == f"its physical function {PF} is held by z"
    assert whole.conflicts == ()
    claims = claims_on(offering(card))
    assert given(claims.claim("x", asks(nodes=0, pci=(wants(count=2, type="type-VF"),)))) == [VF0, VF1]
    (in_use,) = reasons(claims.claim("y", asks(nodes=0, pci=(wants(type="type-PF"),))))
    assert isinstance(in_use, DevicesShort)
    assert [(owner.name, kept.is_by_pf) for kept in in_use.kept_back for owner in kept.owners] == [("x", False)]
    claims.release("x")
    assert given(claims.claim("z", asks(nodes=0, pci=(wants(type="type-PF"),)))) == [PF]
    (taken,) = reasons(claims.claim("w", asks(nodes=0, pci=(wants(type="type-VF"),))))
    assert isinstance(taken, DevicesShort)
    assert [(owner.name, kept.is_by_pf) for kept in taken.kept_back for owner in kept.owners] == [("z", True)]


def test_pci_two_requests_one_device(claims_on: ClaimsOn) -> None:
    """LP#1986838."""
    card = offering(h8(pci=(function("0000:5e:00.0"),)))
    claims = claims_on(card)
    before = claims.usage
    both = asks(2, pci=(wants("a1"), wants("a2")))
    refused = claims.claim("x", both)
    assert reasons(refused) == (DevicesContended(requests=("alias:a1", "alias:a2"), asked=(1, 1), free=1),)
    assert isinstance(refused, ClaimRefusal)
    assert (refused.code, refused.retry) == ("PciRequestError", "elsewhere")
    assert claims.usage == before
    assert _free(claims.usage) == ["0000:5e:00.0"]


def test_policy_survives_store_and_wire(claims_on: ClaimsOn) -> None:
    """LP#1805891. On the way each request is stored and read again."""
    claims = claims_on(offering(h2x4(pci=(function("0000:3b:00.0", numa=0),))), guest("a", {0: 0, 1: 1, 2: 2}))
    preferred = stored(asks(3, pci=(wants(policy="preferred"),)))
    assert [one.numa_policy for one in preferred.devices] == ["preferred"]
    answer = claims.claim("x", preferred, kind="live_migration", comes=False)
    assert (only_cell(answer).host_cell, str(only_cell(answer).cpus)) == (1, "4-6")
    assert given(answer) == ["0000:3b:00.0"]
    claims.restart()
    again = claims.at_work.claims.recheck("x")
    assert isinstance(again, Granted)
    assert again.claim.placement == placed(answer)
    assert again.claim.binding == preferred
    claims.come("x", again, preferred)
    (held,) = reasons(claims.claim("y", stored(asks(1, pci=(wants(policy="required"),)))))
    assert isinstance(held, DevicesShort)
    assert [owner.name for owner in held.holders] == ["x"]
    for policy in get_args(PciNumaPolicy):
        assert stored(stored(wants(policy=policy))).numa_policy == policy
    unsaid = wire.to_builtins(wants())
    del unsaid["numa_policy"]
    assert wire.from_builtins(unsaid, PciRequest) == wants(policy="legacy")
    with pytest.raises(WireError, match="'prefered'"):
        wire.from_builtins({**unsaid, "numa_policy": "prefered"}, PciRequest)


def test_policy_in_live_migration_claim(claims_on: ClaimsOn) -> None:
    """LP#1893221."""
    pci = (
        function("0000:3b:02.0", "type-VF", numa=0, pf="0000:3b:00.0"),
        function("0000:af:02.0", "type-VF", numa=1, pf="0000:af:00.0"),
    )
    claims = claims_on(offering(h2x4(pci=pci)), guest("a", {0: 0, 1: 1, 2: 2}))
    moving = asks(2, 1024, pci=(wants(policy="required", type="type-VF"),))
    answer = claims.claim("x", moving, kind="live_migration")
    assert (only_cell(answer).host_cell, given(answer)) == (1, ["0000:af:02.0"])
    before = claims.usage
    refused = reasons(claims.claim("y", moving, kind="live_migration"))
    short = next(reason for reason in refused if isinstance(reason, CpusShort))
    assert (short.cell, short.asked, str(short.free)) == (0, 2, "3")
    far = next(reason for reason in refused if isinstance(reason, DevicesFar))
    assert (far.near, str(far.cells), dict(far.by_cell)) == (0, "1", {0: 1})
    assert claims.usage == before


def test_mdev_hostdev_without_alias() -> None:
    """LP#2074219. USB and SCSI elements are left out where the definition is read; PCI and mediated ones are held."""
    parent = PciAddress.parse("0000:65:00.0")
    card = h8(
        pci=(function("0000:5e:00.0"), function("0000:65:00.0", mdev_types={"t4": 3})),
        mdevs=(MediatedDevice(uuid=VGPU, type="t4", parent=parent),),
    )
    made = card.folded(guest("a", mem=1024, dev=("0000:5e:00.0",), mdev=VGPU))
    assert [owner.name for owner in _rows(made.usage)["0000:5e:00.0"].owners] == ["a"]
    assert [(row.exists, row.parent, len(row.owners)) for row in made.usage.mdevs] == [(True, parent, 1)]
    assert made.conflicts == ()
    assert _free(made.usage) == []
