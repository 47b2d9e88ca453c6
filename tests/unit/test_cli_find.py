"""From what somebody typed to a guest, a CPU or a device."""

from __future__ import annotations

import msgspec
import pytest

from agent.cli.exits import BadArguments
from agent.cli.find import find_guest, find_thing
from agent.core.pci import MediatedDevice, PciAddress
from agent.core.report import GuestReport, Report
from tests.builders import guest
from tests.cli_reports import DATABASE, VF, WEB, contended, host_report, smt_topology

MDEV = "aa618089-8b16-4d01-a136-25a0f3c73123"


def crowded() -> Report:
    """Guests whose names begin alike, and one that is called like a CPU."""
    names = ("web", "web-1", "web-2", "3", "99", "mail")
    topology = msgspec.structs.replace(smt_topology(), mdevs=(MediatedDevice(uuid=MDEV),))
    return host_report(topology, *(guest(name, at=100) for name in names))


def name_of(found: object) -> str:
    assert isinstance(found, GuestReport)
    return found.sighting.name


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("web", "web"),
        ("mai", "mail"),
        ("web-2", "web-2"),
        (guest("web").uuid, "web"),
        (guest("web").uuid.upper(), "web"),
        (guest("mail").uuid[:13], "mail"),
        ("3", "3"),
    ],
)
def test_a_guest_is_found_by_name_uuid_or_the_beginning_of_one(typed: str, name: str) -> None:
    assert name_of(find_guest(crowded().guests, typed)) == name


def test_a_beginning_that_fits_several_lists_them() -> None:
    with pytest.raises(BadArguments) as caught:
        find_guest(crowded().guests, "web-")
    assert str(caught.value).splitlines() == [
        "'web-' fits 2 guests; give more of the name, or the uuid:",
        f"  web-1  {guest('web-1').uuid}",
        f"  web-2  {guest('web-2').uuid}",
    ]


@pytest.mark.parametrize("typed", ["nobody", ""])
def test_a_guest_that_is_not_here_is_named_with_where_to_look(typed: str) -> None:
    with pytest.raises(BadArguments, match=f"there is no guest '{typed}' here. `agentctl domains` lists the guests"):
        find_guest(crowded().guests, typed)


@pytest.mark.parametrize(
    ("typed", "thing"),
    [
        ("2", 2),
        ("cpu:3", 3),
        (VF, PciAddress.parse(VF)),
        ("3b:02.0", PciAddress.parse(VF)),
        ("device:3b:02.0", PciAddress.parse(VF)),
        ("ens1f0", PciAddress.parse("0000:3b:00.0")),
        ("device:ens1f0", PciAddress.parse("0000:3b:00.0")),
    ],
)
def test_a_cpu_or_a_device_is_found_by_the_names_that_people_use(typed: str, thing: object) -> None:
    assert find_thing(contended(), typed) == thing


@pytest.mark.parametrize(("typed", "name"), [("web", "web"), ("guest:3", "3"), ("99", "99"), ("guest:web-1", "web-1")])
def test_a_thing_may_be_a_guest(typed: str, name: str) -> None:
    assert name_of(find_thing(crowded(), typed)) == name


def test_a_mediated_device_is_found_by_uuid() -> None:
    assert find_thing(crowded(), MDEV.upper()) == MDEV


def test_a_number_that_is_a_cpu_and_a_guest_must_be_told_apart() -> None:
    with pytest.raises(BadArguments, match="3 is a CPU and a guest; say cpu:3 or guest:3"):
        find_thing(crowded(), "3")


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("16", "this host has no CPU 16; they are 0 to 15"),
        ("cpu:x", "this host has no CPU x; they are 0 to 15"),
        ("device:ens9", "there is no device 'ens9' here"),
        ("nothing", "'nothing' is no guest, CPU number, PCI address, interface or mediated device of this host"),
    ],
)
def test_what_is_not_here_is_named(typed: str, message: str) -> None:
    with pytest.raises(BadArguments) as caught:
        find_thing(contended(), typed)
    assert message in str(caught.value)


def test_the_exact_name_wins_over_longer_ones() -> None:
    report = host_report(smt_topology(), WEB, DATABASE, guest("web-long", at=100))
    assert name_of(find_guest(report.guests, "web")) == "web"
