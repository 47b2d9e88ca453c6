"""From what somebody typed to a guest, a CPU or a device."""

from __future__ import annotations

from collections.abc import Sequence

from agent.cli.exits import BadArguments
from agent.core.pci import PciAddress
from agent.core.report import GuestReport, Report
from agent.core.words import plain

KINDS = ("guest", "cpu", "device")


def find_guest(guests: Sequence[GuestReport], text: str) -> GuestReport:
    """The guest of that uuid or name, else the only one whose name or uuid begins so.

    Raises BadArguments that lists the candidates, or says that there are none.
    """
    found = matching_guests(guests, text)
    if len(found) == 1:
        return found[0]
    if not found:
        raise BadArguments(f"there is no guest {plain(text)!r} here. `agentctl domains` lists the guests.")
    listed = "".join(f"\n  {plain(g.sighting.name)}  {plain(g.sighting.uuid)}" for g in found)
    raise BadArguments(f"{plain(text)!r} fits {len(found)} guests; give more of the name, or the uuid:{listed}")


def matching_guests(guests: Sequence[GuestReport], text: str) -> tuple[GuestReport, ...]:
    """Those of that uuid; else of that name; else those whose name or uuid begins so."""
    seen = [(guest, guest.sighting.uuid.lower(), guest.sighting.name) for guest in guests]
    lower = text.lower()
    for matches in (
        [guest for guest, uuid, _ in seen if uuid == lower],
        [guest for guest, _, name in seen if name == text],
        [guest for guest, uuid, name in seen if text and (uuid.startswith(lower) or name.startswith(text))],
    ):
        if matches:
            return tuple(matches)
    return ()


def find_thing(report: Report, text: str) -> int | PciAddress | str | GuestReport:
    """A CPU number, an address, a mediated device's uuid or a guest. "cpu:3", "guest:3", "device:ens1f0" say which.

    Raises BadArguments when it is none, or several.
    """
    kind, _, rest = text.partition(":")
    if kind in KINDS and rest:
        return _thing(report, kind, rest)
    if text.isdecimal():
        named = [guest for guest in report.guests if guest.sighting.name == text]
        if named and _has_cpu(report, int(text)):
            raise BadArguments(f"{text} is a CPU and a guest; say cpu:{text} or guest:{text}")
        return _thing(report, "guest" if named else "cpu", text)
    device = _device(report, text)
    return find_guest_or_explain(report, text) if device is None else device


def find_guest_or_explain(report: Report, text: str) -> GuestReport:
    """As find_guest, with a message that names what else could have been meant."""
    if not matching_guests(report.guests, text):
        raise BadArguments(
            f"{plain(text)!r} is no guest, CPU number, PCI address, interface or mediated device of this host. "
            "See `agentctl domains` and `agentctl topology`."
        )
    return find_guest(report.guests, text)


def _thing(report: Report, kind: str, text: str) -> int | PciAddress | str | GuestReport:
    if kind == "guest":
        return find_guest(report.guests, text)
    if kind == "device":
        device = _device(report, text)
        if device is None:
            raise BadArguments(
                f"there is no device {plain(text)!r} here. `agentctl topology --all-devices` lists them."
            )
        return device
    if not text.isdecimal() or not _has_cpu(report, int(text)):
        cpus = [cpu.id for cpu in report.topology.cpus]
        known = f"they are {min(cpus)} to {max(cpus)}" if cpus else "none is known"
        raise BadArguments(f"this host has no CPU {plain(text)}; {known}")
    return int(text)


def _has_cpu(report: Report, number: int) -> bool:
    return any(cpu.id == number for cpu in report.topology.cpus)


def _device(report: Report, text: str) -> PciAddress | str | None:
    """The address of a PCI function that exists or that a guest names; the uuid of a mediated device; else None."""
    try:
        return PciAddress.parse(text)
    except ValueError:
        pass
    if any(mdev.uuid == text.lower() for mdev in report.usage.mdevs):
        return text.lower()
    named = [device.address for device in report.topology.pci if any(net.name == text for net in device.netdevs)]
    return named[0] if named else None
