"""A host that somebody wrote in the short form: what types alone do not tell is checked, then it is folded."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from agent.core.cpuset import HIGHEST_ID, CpuSet
from agent.core.host_config import DeviceSpec, HostConfig
from agent.core.instance import Instance
from agent.core.pci import PciAddress, PciDevice
from agent.core.pci_request import Alias
from agent.core.placement import Placement
from agent.core.snapshot import Identity, Snapshot, configured, first
from agent.core.what_if import with_guest
from agent.core.words import agrees, brief, plural
from agent.errors import FaultyInput
from agent.formats import device_spec, pci_alias, short_spelling
from agent.formats.short_form import CpuList, ShortCell, ShortSnapshot
from agent.formats.short_host import KIB, CheckedCell, CheckedHost, bound, floating, pci_devices, topology_of
from agent.formats.short_offering import Offering, OwnTags, own_tags, with_serial
from agent.formats.validate import entry_path, number_text, validated

MOST_CELLS = 1024
MOST_MB = 1 << 40
MOST_DEVICES = 10_000
MOST_VCPUS = 1 << 20
MOST_RATIO = 1_000_000
_FOUR_DIGITS = re.compile(r"[0-9a-f]{4}")


def from_plain(data: object) -> Snapshot:
    """The snapshot of such a host: what is taken is held by a guest named "taken". Raises FaultyInput."""
    short = validated(short_spelling.spelled(data), ShortSnapshot)
    host = _Reader(short).host()
    topology = topology_of(short, host)
    empty = first(Identity(agent_id="", boot_id="", epoch=0), host.config)
    snapshot = configured(msgspec.structs.replace(empty, topology=topology, complete=True), host.config)
    snapshot = msgspec.structs.replace(snapshot, generation=0)
    for number, taken in enumerate((bound(short, host), floating(short, host)), 1):
        if taken != Placement(vcpus=0, memory_kib=0):
            snapshot = with_guest(snapshot, Instance(uuid=str(uuid.UUID(int=number)), name="taken"), taken)
    return snapshot


class _Reader:
    """Collects the faults of what types alone do not tell."""

    def __init__(self, short: ShortSnapshot) -> None:
        self.faults: list[str] = []
        self._short = short

    def host(self) -> CheckedHost:
        """All of it. Raises FaultyInput."""
        short = self._short
        by_cell, anywhere = self._used_memory()
        cells = tuple(self._cell(cell, f"cells[{n}]", by_cell.get(cell.id, 0)) for n, cell in enumerate(short.cells))
        known = self._disjoint(((f"cell {cell.short.id}", cell.cpus) for cell in cells), "cells")
        self._check_numbers()
        self._check_devices()
        self._check_places()
        self._check_reserves()
        devices, specs = self._offered()
        dedicated, shared, pinned = (self._cpu_set(name, cells, known) for name in ("dedicated", "shared", "pinned"))
        if pinned is not None and not (dedicated is None and shared is None):
            self._check_within("pinned", pinned & known, dedicated or CpuSet(), "not among the dedicated CPUs")
        config = self._config(dedicated, shared, specs)
        host = CheckedHost(cells, devices, pinned or CpuSet(), anywhere, config)
        if self.faults:
            raise FaultyInput(*self.faults)
        return host

    def _cell(self, cell: ShortCell, path: str, used_mb: int) -> CheckedCell:
        cpus = self._cpus(cell.cpus, f"{path}.cpus")
        cores = self._groups(cell.siblings, f"{path}.siblings", cpus)
        lone = cpus - CpuSet(cpu for core in cores for cpu in core)
        every = sorted((*cores, *(CpuSet((cpu,)) for cpu in lone)), key=lambda core: core.lowest)
        caches = self._groups(cell.l3, f"{path}.l3", cpus)
        for size_kib, used in cell.used_by_size().items():
            if not 0 <= used <= cell.by_size().get(size_kib, 0):
                self.faults.append(f"{entry_path(f'{path}.used_pages', str(size_kib))}: more than there are")
        in_pools_kib = sum(size_kib * count for size_kib, count in cell.by_size().items())
        if in_pools_kib > max(cell.memory_mb, 0) * KIB:
            self.faults.append(f"{path}.pages: {in_pools_kib // KIB} MiB, more than memory_mb has ({cell.memory_mb})")
        return CheckedCell(cell, cpus, tuple(every), caches, cell.used_memory_mb + used_mb)

    def _groups(self, lists: Iterable[CpuList], path: str, within: CpuSet) -> tuple[CpuSet, ...]:
        groups = [self._cpus(text, f"{path}[{n}]") for n, text in enumerate(lists)]
        both = self._disjoint(((f"[{n}]", group) for n, group in enumerate(groups)), path)
        self._check_within(path, both, within, "not among the CPUs of the cell")
        return tuple(group for group in groups if group)

    def _disjoint(self, groups: Iterable[tuple[str, CpuSet]], path: str) -> CpuSet:
        seen = CpuSet()
        named: list[tuple[str, CpuSet]] = []
        for name, group in groups:
            if not seen.isdisjoint(group):
                earlier, twice = next((one, cpus & group) for one, cpus in named if not cpus.isdisjoint(group))
                self.faults.append(f"{path}: {plural(twice)} {agrees(twice, 'is', 'are')} in {earlier} and in {name}")
            seen |= group
            named.append((name, group))
        return seen

    def _check_within(self, path: str, cpus: CpuSet, within: CpuSet, lost: str) -> None:
        if beyond := cpus - within:
            self.faults.append(f"{path}: {plural(beyond)} {agrees(beyond, 'is', 'are')} {lost}")

    def _cpus(self, given: CpuList, path: str) -> CpuSet:
        try:
            if isinstance(given, str):
                return CpuSet.parse(given)
            return CpuSet.parse(",".join(map(str, given)))
        except ValueError as error:
            self.faults.append(f"{path}: {error}")
            return CpuSet()

    def _cpu_set(self, name: str, cells: Iterable[CheckedCell], known: CpuSet) -> CpuSet | None:
        """One that stands at the host, at its cells, or both; None: nowhere."""
        given = [(name, getattr(self._short, name), known, "in no cell")]
        for n, cell in enumerate(cells):
            given.append((f"cells[{n}].{name}", getattr(cell.short, name), cell.cpus, "not among the CPUs of the cell"))
        found = CpuSet()
        for path, text, within, lost in given:
            cpus = CpuSet() if text is None else self._cpus(text, path)
            found |= cpus
            self._check_within(path, cpus, within, lost)
        return None if all(text is None for _, text, _, _ in given) else found

    def _used_memory(self) -> tuple[Mapping[int, int], int]:
        used, cells = self._short.used_memory_mb, {cell.id for cell in self._short.cells}
        if isinstance(used, int):
            return {}, used
        missing = used.keys() - cells
        self.faults += [f"{entry_path('used_memory_mb', str(cell))}: there is no such cell" for cell in missing]
        return used, 0

    def _check_numbers(self) -> None:
        short = self._short
        if not 1 <= len(short.cells) <= MOST_CELLS:
            self.faults.append(f"cells: {len(short.cells)} of them, not between 1 and {MOST_CELLS}")
        ids = [cell.id for cell in short.cells]
        if len(set(ids)) < len(ids):
            self.faults.append("cells: two have the same id")
        for name in ("cpu_allocation_ratio", "ram_allocation_ratio"):
            if not 0 < (ratio := getattr(short, name)) <= MOST_RATIO:
                self.faults.append(f"{name}: {ratio:g} is not above 0 and up to {MOST_RATIO}")
        for path, number, least, most in self._numbers():
            if not least <= number <= most:
                self.faults.append(f"{path}: {number_text(number)} is not between {least} and {most}")

    def _numbers(self) -> Iterable[tuple[str, int, int, int]]:
        short, used = self._short, self._short.used_memory_mb
        for n, cell in enumerate(short.cells):
            yield f"cells[{n}].id", cell.id, 0, HIGHEST_ID - 1
            yield f"cells[{n}].memory_mb", cell.memory_mb, 0, MOST_MB
            yield f"cells[{n}].used_memory_mb", cell.used_memory_mb, 0, MOST_MB
            for name, sizes in (("pages", cell.by_size()), ("used_pages", cell.used_pages)):
                yield from ((f"cells[{n}].{name}", size_kib, 1, MOST_MB) for size_kib in sizes)
                yield from ((f"cells[{n}].{name}", count, 0, MOST_MB) for count in sizes.values())
        yield from (("used_memory_mb", mb, 0, MOST_MB) for mb in ([used] if isinstance(used, int) else used.values()))
        yield "used_vcpus", short.used_vcpus, 0, MOST_VCPUS
        yield "reserved_memory_mb", short.reserved_memory_mb, 0, MOST_MB
        yield "page_size_kib", short.page_size_kib, 1, 1024
        yield "pci", len(short.pci), 0, MOST_DEVICES

    def _check_devices(self) -> None:
        seen: set[PciAddress] = set()
        for n, device in enumerate(self._short.pci):
            if device.address in seen:
                self.faults.append(f"pci[{n}].address: {device.address} is there twice")
            seen.add(device.address)
            for name in ("vendor_id", "product_id", "class"):
                text = getattr(device, "class_code" if name == "class" else name)
                if not _FOUR_DIGITS.fullmatch(text):
                    self.faults.append(f'pci[{n}].{name}: "{text}" is not of four hexadecimal digits in lower case')

    def _check_places(self) -> None:
        """Whatever is in a cell or below a device."""
        short = self._short
        ids = {cell.id for cell in short.cells}
        places = [(f"pci[{n}].cell", device.cell) for n, device in enumerate(short.pci)]
        places += [(f"reserved_pages[{n}].cell", row.cell) for n, row in enumerate(short.reserved_pages)]
        places += [(f"cells[{n}].distances", other) for n, cell in enumerate(short.cells) for other in cell.distances]
        for path, cell in places:
            if cell is not None and cell not in ids:
                self.faults.append(f"{path}: there is no cell {cell}")
        addresses = {device.address for device in short.pci}
        for n, device in enumerate(short.pci):
            if device.parent is not None and device.parent not in addresses:
                self.faults.append(f"pci[{n}].parent: there is no device {device.parent}")

    def _check_reserves(self) -> None:
        """No more can be kept back than there is."""
        short = self._short
        memory_mb = sum(cell.memory_mb for cell in short.cells)
        if short.reserved_memory_mb > memory_mb:
            self.faults.append(f"reserved_memory_mb: {short.reserved_memory_mb} of {memory_mb} in all cells")
        pools = {(cell.id, size_kib): total for cell in short.cells for size_kib, total in cell.by_size().items()}
        for n, row in enumerate(short.reserved_pages):
            has = pools.get((row.cell, row.size_kib), 0)
            if row.size_kib != short.page_size_kib and not 0 <= row.count <= has:
                self.faults.append(f"reserved_pages[{n}].count: {row.count} of {has} pages of {row.size_kib} KiB")

    def _config(self, dedicated: CpuSet | None, shared: CpuSet | None, specs: tuple[DeviceSpec, ...]) -> HostConfig:
        short = self._short
        if dedicated is not None and shared is not None and dedicated != shared and (both := dedicated & shared):
            self.faults.append(f"dedicated: CPUs {both} are in shared, too; only sets that are the same may overlap")
        return HostConfig(
            dedicated=dedicated,
            shared=shared,
            reserved_memory_mb=short.reserved_memory_mb,
            reserved_pages=short.reserved_pages,
            cpu_allocation_ratio=short.cpu_allocation_ratio,
            ram_allocation_ratio=short.ram_allocation_ratio,
            device_spec=specs,
            alias=self._aliases(),
            pack_cells=short.pack_cells,
            share_cells=short.share_cells,
        )

    def _offered(self) -> tuple[tuple[PciDevice, ...], tuple[DeviceSpec, ...]]:
        """All devices, and the entries of device_spec that say which are offered, and as what."""
        short = self._short
        specs = None if short.device_spec is None else self._specs(short.device_spec)
        own = self._own_tags()
        devices = tuple(with_serial(one, own.get(one.address), specs or ()) for one in pci_devices(short))
        offering = Offering(devices, own, specs)
        for n, device in enumerate(short.pci):
            if flaw := offering.flaw_of(device.address):
                self.faults.append(f"pci[{n}].tags: {flaw}")
        return devices, offering.entries()

    def _own_tags(self) -> dict[PciAddress, OwnTags]:
        """Of the devices that have any."""
        found: dict[PciAddress, OwnTags] = {}
        for n, device in enumerate(self._short.pci):
            try:
                if device.tags:
                    self._check_keys(device.tags, f"pci[{n}].tags")
                    found[device.address] = own_tags(device.tags)
            except (ValueError, msgspec.MsgspecError) as error:
                self.faults.append(f"pci[{n}].tags: {brief(str(error))}")
        return found

    def _specs(self, data: Any) -> tuple[DeviceSpec, ...]:
        try:
            specs, _ = device_spec.device_specs(_text(data))
        except (ValueError, msgspec.MsgspecError) as error:
            self.faults.append(f"device_spec: {brief(str(error))}")
            return ()
        entries = msgspec.json.decode(_text(data))
        for entry in entries if isinstance(entries, list) else [entries]:
            self._check_keys(entry, "device_spec")
        return specs

    def _check_keys(self, keys: Iterable[str], path: str) -> None:
        """Tags of somebody's own may be any, but a mistyped product_id would offer every product."""
        for key in keys:
            if meant := device_spec.meant_by(key):
                self.faults.append(f"{path}: {brief(key, 80)} is unknown. Is {meant} meant?")

    def _aliases(self) -> tuple[Alias, ...]:
        if self._short.alias is None:
            return ()
        try:
            return pci_alias.joined(pci_alias.aliases(_text(self._short.alias)))
        except (ValueError, msgspec.MsgspecError) as error:
            self.faults.append(f"alias: {brief(str(error))}")
            return ()


def _text(data: Any) -> str:
    """JSON text, as the options have it."""
    return data if isinstance(data, str) else msgspec.json.encode(data).decode()
