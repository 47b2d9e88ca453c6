"""A device for one use (one_time_use) that a guest has had is offered again on an operator's word alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agent.cli.main import main
from agent.core.admission import question_of, why_not
from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.values import SpentDevice
from agent.core.fit.host import host_facts
from agent.core.host_config import DeviceSpec
from agent.core.instance import Instance, InstanceRequest
from agent.core.pci import PciAddress
from agent.core.pci_request import PciRequest, PciSpec
from agent.core.usage import DeviceUsage
from agent.errors import RequestRefused
from agent.formats import snapshot_file, wire
from tests.at_work import AtWork, asked, pinned
from tests.builders import Host, configured, function, guest, h8, uuid_of
from tests.promising_agent import PromisingAgent

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
    assert row.kept_back
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


def test_a_saved_snapshot_keeps_a_spent_device_back_too(agent: AtWork) -> None:
    agent.look(guest("a", {0: 2}, dev=[str(CARD)]))
    told = agent.look()
    read = snapshot_file.from_json(wire.to_json(snapshot_file.saved(told)))
    assert read.usage == told.usage
    facts = host_facts(read.topology, read.config)
    assert why_not(question_of(_with_card(), read, facts, Instance(uuid=uuid_of("b")), None))


# --- over the local API and by the command ---------------------------------------------------------

PATH = f"/v1/devices/{CARD}/offer-again"


def test_over_the_api_a_spent_device_is_offered_again_once_its_guest_has_gone(agent: AtWork) -> None:
    looked = agent.look(guest("a", {0: 2}, dev=[str(CARD)]))
    since = looked.book.spent[CARD].at
    status, told = agent.ask("POST", PATH)
    assert told.refusal is not None
    assert (status, told.refusal.code, told.refusal.retry) == (409, "IllegalTransition", "later")
    agent.look()
    assert agent.result("POST", PATH) == {"address": str(CARD), "instance": uuid_of("a"), "name": "a", "at": since}
    assert _row(agent).free
    assert agent.granted(asked("c1", "b", _with_card())).state == "reserved"


@pytest.mark.parametrize(
    ("address", "fault"),
    [
        (str(CARD), f"Device {CARD} is not kept back: `agentctl usage` has every device and its state"),
        ("0000:3b:20.0", "address: '0000:3b:20.0' is not a PCI address (domain:bus:slot.function in hexadecimal)"),
    ],
)
def test_over_the_api_what_is_not_kept_back_or_no_device_is_refused_in_a_sentence(
    agent: AtWork, address: str, fault: str
) -> None:
    status, told = agent.ask("POST", f"/v1/devices/{address}/offer-again")
    assert told.refusal is not None
    assert (status, told.refusal.code, told.refusal.message) == (400, "InvalidRequest", fault)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[PromisingAgent]:
    """An agent that the commands find, on a host whose card a guest has had."""
    with PromisingAgent(_host()) as made:
        made.look(guest("a", {0: 2}, dev=[str(CARD)]))
        monkeypatch.setenv("COMPUTE_AGENT_SOCKET", str(made.read_only_socket))
        monkeypatch.setenv("COLUMNS", "100")
        yield made


def test_the_command_that_the_usage_names_offers_a_spent_device_again(
    served: PromisingAgent, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["device", "offer-again", str(CARD)]) == 1
    assert f"Device {CARD} is held by a" in " ".join(capsys.readouterr().out.split())
    served.look()
    assert main(["usage"]) == 0
    command = f"agentctl device offer-again {CARD}"
    assert command in " ".join(capsys.readouterr().out.split())
    assert main(["topology"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("  kept back")
    assert main([*command.split()[1:], "-f", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["address"], told["instance"], told["name"]) == (str(CARD), uuid_of("a"), "a")
    assert _row(served).free


def test_the_command_takes_an_address_as_lspci_writes_it_and_names_the_guest(
    served: PromisingAgent, capsys: pytest.CaptureFixture[str]
) -> None:
    at = served.look().book.spent[CARD].at
    assert main(["device", "offer-again", "3b:00.0"]) == 0
    assert capsys.readouterr().out == f"device {CARD} is offered again, which a had at {at}\n"
    assert main(["device", "offer-again", "3b:00.0"]) == 2
    assert "is not kept back" in capsys.readouterr().err


def test_the_command_says_of_what_is_no_address_that_it_is_none(
    served: PromisingAgent, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["device", "offer-again", "eth0"]) == 2
    assert "'eth0' is not a PCI address (domain:bus:slot.function in hexadecimal)" in capsys.readouterr().err


def test_the_client_offers_a_spent_device_again_and_raises_what_is_refused(served: PromisingAgent) -> None:
    served.look()
    assert served.client.offer_again(CARD).name == "a"
    with pytest.raises(RequestRefused) as caught:
        served.client.offer_again(CARD)
    assert caught.value.code == "InvalidRequest"
