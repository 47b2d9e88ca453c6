"""A host's devices by cell, without the hundred bridges that no guest wants."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from agent.core.pci import PciAddress, PciDevice
from agent.core.topology import HostTopology
from agent.core.usage import DeviceUsage, Usage
from agent.render import words
from agent.render.table import text_table, wrap

_CLASSES = {
    "0104": "RAID", "0106": "SATA", "0107": "SAS", "0108": "NVMe", "01": "storage",
    "0200": "Ethernet", "0207": "InfiniBand", "02": "network",
    "0300": "graphics", "0302": "3D / GPU", "03": "display", "04": "multimedia",
    "0b40": "co-processor", "0c03": "USB", "0c04": "Fibre Channel", "0c06": "InfiniBand",
    "10": "encryption", "12": "accelerator",
}  # fmt: skip
_SYSTEM = ("05", "06", "07", "08", "11", "13", "0c05", "0b00", "ff")
"""Memory controllers, bridges, serial ports, system peripherals, performance counters: not for guests."""


def class_word(class_code: str) -> str:
    """What a device is, in a word: "Ethernet", "NVMe"; "class 0c05" when there is none."""
    return _CLASSES.get(class_code) or _CLASSES.get(class_code[:2]) or f"class {class_code}"


def devices_text(topology: HostTopology, usage: Usage, *, width: int = 80, everything: bool = False) -> str:
    """One line for each device a guest could want, by cell; virtual functions are counted beside their physical one.

    everything: every function on a line of its own. Ends with a newline; empty when the host has no devices.
    """
    books = {device.address: device for device in usage.pci}
    functions = _functions_by_card(topology.pci)
    cards = {device.address for device in topology.pci} & functions.keys()
    shown = [device for device in topology.pci if everything or _is_shown(device, books, cards)]
    rows = [_row(device, books, () if everything else functions.get(device.address, ())) for device in _by_cell(shown)]
    text = text_table(("CELL", "ADDRESS", "DEVICE", "DRIVER", "NAME", "STATE"), rows, width) if rows else ""
    hidden = sum(_is_system(device, books) for device in topology.pci) if not everything else 0
    note = (
        f"{words.count(hidden, 'bridge or system function', 'bridges and system functions')} not shown (--all-devices)"
    )
    return text + (wrap(note, width) if hidden else "")


def _functions_by_card(devices: Iterable[PciDevice]) -> dict[PciAddress, tuple[PciDevice, ...]]:
    functions: dict[PciAddress, tuple[PciDevice, ...]] = {}
    for device in devices:
        if device.parent is not None:
            functions[device.parent] = (*functions.get(device.parent, ()), device)
    return functions


def _is_system(device: PciDevice, books: Mapping[PciAddress, DeviceUsage]) -> bool:
    held = books.get(device.address)
    return device.class_code.startswith(_SYSTEM) and not (held and held.owners)


def _is_shown(device: PciDevice, books: Mapping[PciAddress, DeviceUsage], cards: Container[PciAddress]) -> bool:
    """Not a free virtual function whose card is listed; one that a guest has gets its own line."""
    held = books.get(device.address)
    counted = device.parent is not None and device.parent in cards and not (held and held.owners)
    return not counted and not _is_system(device, books)


def _by_cell(devices: Iterable[PciDevice]) -> list[PciDevice]:
    """Devices without a cell last."""
    return sorted(devices, key=lambda d: (d.cell is None, d.cell or 0, d.address))


def _row(
    device: PciDevice, books: Mapping[PciAddress, DeviceUsage], functions: tuple[PciDevice, ...]
) -> tuple[str, ...]:
    kind = {"type-PF": " PF", "type-VF": " VF", "vdpa": " vDPA"}.get(device.type, "")
    what = f"{class_word(device.class_code)}{kind} {device.vendor_id}:{device.product_id}"
    names = ", ".join(words.plain(net.name) for net in device.netdevs)
    cell = words.NOTHING if device.cell is None else str(device.cell)
    state = _state(books.get(device.address))
    if functions:
        taken = sum(bool((used := books.get(f.address)) and used.owners) for f in functions)
        state = (
            f"{words.count(len(functions), 'VF')}, {taken} used"
            if state in ("", "free")
            else f"{state}; {len(functions)} VFs"
        )
    return (
        cell,
        str(device.address),
        what,
        device.driver or words.NOTHING,
        names or words.NOTHING,
        state or words.NOTHING,
    )


def _state(used: DeviceUsage | None) -> str:
    """Who has it; "free" when a guest could; empty for the host's own."""
    if used is None:
        return ""
    if used.owners:
        return words.owners(used.owners)
    return "free" if used.free else ""
