"""A device for one use (one_time_use) that a guest has had is offered again on an operator's word alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.values import SpentDevice
from agent.core.host_config import DeviceSpec
from agent.core.instance import InstanceRequest
from agent.core.pci import PciAddress
from agent.core.pci_request import PciRequest, PciSpec
from agent.core.usage import DeviceUsage
from tests.at_work import AtWork, asked, pinned
from tests.builders import Host, configured, function, guest, h8, uuid_of

CARD = PciAddress.parse("0000:3b:00.0")
ONCE = DeviceSpec(address=str(CARD), one_time_use=True)


def _host(spec: DeviceSpec = ONCE) -> Host:
    return configured(h8(pci=(function(str(CARD)),)), device_spec=(spec,))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AtWork]:
    with AtWork(tmp_path / "state", _host()) as made:
        made.look()
        yield made


def _row(agent: AtWork) -> DeviceUsage:
    (row,) = agent.tracker.snapshot.usage.pci
    return row


def _with_card() -> InstanceRequest:
    wish = PciRequest(id="alias:card", specs=(PciSpec(vendor_id=function(str(CARD)).vendor_id),))
    return msgspec.structs.replace(pinned(1), devices=(wish,))


def test_a_device_for_one_use_is_not_offered_again_once_a_guest_has_had_it(agent: AtWork) -> None:
    agent.look(guest("a", {0: 2}, dev=[str(CARD)]))
    agent.look()
    row = _row(agent)
    assert not row.free
    assert row.remark is not None
    assert "which a had at" in row.remark
    assert f"agentctl device offer-again {CARD}" in row.remark
    assert agent.refused(asked("c1", "b", _with_card())).code == "PciRequestError"


def test_a_device_that_was_promised_and_never_used_is_offered_again(agent: AtWork) -> None:
    agent.granted(asked("c1", "a", _with_card()))
    agent.claims.abort("c1")
    agent.look()
    assert _row(agent).free


def test_a_spent_device_stays_spent_over_a_restart(agent: AtWork) -> None:
    agent.look(guest("a", {0: 2}, dev=[str(CARD)]))
    agent.restart()
    agent.look()
    assert not _row(agent).free


def test_an_operator_offers_a_spent_device_again(agent: AtWork) -> None:
    agent.look(guest("a", {0: 2}, dev=[str(CARD)]))
    agent.look()
    spent = agent.claims.offer_again(CARD)
    assert isinstance(spent, SpentDevice)
    assert (spent.address, spent.instance) == (CARD, uuid_of("a"))
    assert _row(agent).free
    agent.restart()
    agent.look()
    assert _row(agent).free


def test_a_spent_device_that_a_guest_still_has_is_not_offered_again(agent: AtWork) -> None:
    agent.look(guest("a", {0: 2}, dev=[str(CARD)]))
    refusal = agent.claims.offer_again(CARD)
    assert isinstance(refusal, ClaimRefusal)
    assert refusal.code == "IllegalTransition"
    assert "held by a" in refusal.message


def test_a_device_that_is_not_kept_back_cannot_be_offered_again(agent: AtWork) -> None:
    refusal = agent.claims.offer_again(CARD)
    assert isinstance(refusal, ClaimRefusal)
    assert refusal.code == "InvalidRequest"


def test_a_device_for_any_number_of_uses_is_free_once_its_guest_has_gone(tmp_path: Path) -> None:
    with AtWork(tmp_path, _host(DeviceSpec(address=str(CARD)))) as agent:
        agent.look(guest("a", {0: 2}, dev=[str(CARD)]))
        agent.look()
        assert _row(agent).free
