"""A host's devices by cell, without the hundred bridges that no guest wants."""

from __future__ import annotations

from agent.core.conflicts import Owner
from agent.core.pci import PciAddress, PciDevice
from agent.core.topology import HostTopology
from agent.core.usage import Usage
from agent.core.words import count, plain
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
_PASSTHROUGH_DRIVERS = ("vfio-pci", "pci-stub", "xen-pciback")


def class_word(class_code: str) -> str:
    """What a device is, in a word: "Ethernet", "NVMe"; "class 0c05" when there is none."""
    return _CLASSES.get(class_code) or _CLASSES.get(class_code[:2]) or f"class {class_code}"


def devices_text(topology: HostTopology, usage: Usage, *, width: int = 80, everything: bool = False) -> str:
    """One line for each device a guest could want, by cell; virtual functions are counted beside their physical one.

    everything: every function on a line of its own. Ends with a newline; empty when the host has no devices.
    """
    shelf = Shelf(topology, usage)
    shown = [device for device in topology.pci if everything or shelf.is_shown(device)]
    by_cell = sorted(shown, key=lambda d: (d.cell is None, d.cell or 0, d.address))  # those without a cell last
    rows = [_row(device, shelf.state(device, count_functions=not everything)) for device in by_cell]
    text = text_table(("CELL", "ADDRESS", "DEVICE", "DRIVER", "NAME", "STATE"), rows, width) if rows else ""
    hidden = 0 if everything else sum(shelf.is_system(device) for device in topology.pci)
    note = count(hidden, "bridge or system function", "bridges and system functions")
    return text + (wrap(f"{note} not shown (--all-devices)", width) if hidden else "")


class Shelf:
    """The devices of a host with who has them."""

    def __init__(self, topology: HostTopology, usage: Usage) -> None:
        self._books = {device.address: device for device in usage.pci}
        self._has_filter = usage.has_device_filter
        self._cards = {device.address for device in topology.pci}
        self._functions: dict[PciAddress, list[PciAddress]] = {}
        for device in topology.pci:
            if device.parent is not None:
                self._functions.setdefault(device.parent, []).append(device.address)

    def is_system(self, device: PciDevice) -> bool:
        """A bridge or the like, that no guest has."""
        return device.class_code.startswith(_SYSTEM) and not self._owners(device.address)

    def is_shown(self, device: PciDevice) -> bool:
        """Not a virtual function that its card counts; one that a guest has gets its own line."""
        counted = device.parent in self._cards and not self._owners(device.address)
        return not counted and not self.is_system(device)

    def state(self, device: PciDevice, *, count_functions: bool) -> str:
        """Who has it, "free" when a guest could have it, "kept back" after its only use, else "-"; for a card with
        functions how many are used."""
        owners = self._owners(device.address)
        state = words.owners(owners) if owners else ""
        functions = self._functions.get(device.address, ()) if count_functions else ()
        if functions:
            used = sum(bool(self._owners(function)) for function in functions)
            parts = (state, f"{count(len(functions), 'VF')}, {used} used")
            return "; ".join(part for part in parts if part)
        return state or self._without_owner(device)

    def _owners(self, address: PciAddress) -> tuple[Owner, ...]:
        used = self._books.get(address)
        return used.owners if used else ()

    def _without_owner(self, device: PciDevice) -> str:
        used = self._books.get(device.address)
        if used is not None and used.kept_back:
            return "kept back"
        return "free" if self._could_be_given(device) else words.NOTHING

    def _could_be_given(self, device: PciDevice) -> bool:
        """By the configuration; where that offers everything, virtual functions and what no driver of the host uses."""
        used = self._books.get(device.address)
        idle = device.type == "type-VF" or device.driver in (None, *_PASSTHROUGH_DRIVERS)
        return used is not None and used.free and (self._has_filter or idle)


def _row(device: PciDevice, state: str) -> tuple[str, ...]:
    kind = {"type-PF": " PF", "type-VF": " VF", "vdpa": " vDPA"}.get(device.type, "")
    what = f"{class_word(device.class_code)}{kind} {device.vendor_id}:{device.product_id}"
    names = ", ".join(plain(net.name) for net in device.netdevs)
    cell = words.NOTHING if device.cell is None else str(device.cell)
    return (cell, str(device.address), what, device.driver or words.NOTHING, names or words.NOTHING, state)
