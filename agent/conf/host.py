"""What the operator says of this host's resources, from our own options and from nova's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from agent.conf import parse
from agent.conf.nova import ALIAS_NAMES, DEVICE_SPEC_NAMES
from agent.conf.options import DEFAULT_GROUP, DEFAULTS
from agent.conf.reading import Found, Source
from agent.core.cpuset import CpuSet
from agent.core.host_config import DeviceSpec, HostConfig, ReservedPages
from agent.core.pci_request import Alias
from agent.core.words import agrees, plural
from agent.formats import device_spec, pci_alias

T = TypeVar("T")

HIGHEST_RATIO = 1_000_000
HIGHEST_RESERVED_MB = 2**40


class HostReader:
    """Own options win over nova's, one by one; the CPU sets win together, since halves of two splits make no split."""

    def __init__(self, own: Source, nova: Source) -> None:
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.used: list[Found] = []
        """What was set by somebody and is in force."""
        self._own = own
        self._nova = nova

    def read(self) -> HostConfig:
        """All of it. What is wrong is a fault of its source and left out here."""
        dedicated, shared = self._cpu_sets()
        return HostConfig(
            dedicated=dedicated,
            shared=shared,
            reserved_memory_mb=self._reserved_memory_mb(),
            reserved_pages=self._reserved_pages(),
            cpu_allocation_ratio=self._ratio("cpu_allocation_ratio", DEFAULTS.cpu_allocation_ratio),
            ram_allocation_ratio=self._ratio("ram_allocation_ratio", DEFAULTS.ram_allocation_ratio),
            device_spec=self._device_spec(),
            alias=self._alias(),
            pack_cells=bool(self.choose("compute", "packing_host_numa_cells_allocation_strategy")[1].value),
            share_cells=self._share_cells(),
            accept=self._own.parsed(self._own.get("conflicts", "accept"), parse.accept_rule),
            host=self._own.get("agent", "host").value,
        )

    def choose(self, group: str, dest: str) -> tuple[Source, Found]:
        """Our option if it is set, else nova's if it is set there, else our default."""
        own, nova = self._own.get(group, dest), self._nova.get(group, dest)
        source, found = (self._own, own) if own.where or not nova.where else (self._nova, nova)
        if own.where and nova.where and own.value != nova.value:
            self.notes.append(f"{own} is used, not {nova.text} in {nova.where}")
        if found.where:
            self.used.append(found)
        return source, found

    def _cpu_sets(self) -> tuple[CpuSet | None, CpuSet | None]:
        own = [self._own.get("compute", name) for name in ("cpu_dedicated_set", "cpu_shared_set")]
        nova = [self._nova.get("compute", name) for name in ("cpu_dedicated_set", "cpu_shared_set")]
        pin_set = self._nova.get(DEFAULT_GROUP, "vcpu_pin_set")
        if any(found.value for found in own):
            self._note_unused_sets(own, [*nova, pin_set])
            return self._split(self._own, *own)
        if pin_set.value:
            return self._pin_set(pin_set, *nova)
        reserved = self._nova.get(DEFAULT_GROUP, "reserved_host_cpus")
        if reserved.value and any(found.value for found in nova):
            self._nova.fault(
                reserved,
                "nova allows it only without CPU sets",
                "Leave these CPUs out of both sets and remove the option.",
            )
        return self._split(self._nova, *nova)

    def _split(self, source: Source, dedicated: Found, shared: Found) -> tuple[CpuSet | None, CpuSet | None]:
        sets = (_only(source.parsed(dedicated, parse.cpu_set)), _only(source.parsed(shared, parse.cpu_set)))
        self.used += [found for found in (dedicated, shared) if found.value]
        both = (sets[0] or CpuSet()) & (sets[1] or CpuSet())
        if both:
            source.fault(
                dedicated,
                f"{plural(both)} {agrees(both, 'is', 'are')} in {shared.name}={shared.text} too",
                "Give each CPU to one of the two sets.",
            )
        return sets

    def _pin_set(self, pin_set: Found, dedicated: Found, shared: Found) -> tuple[CpuSet | None, CpuSet | None]:
        """The mode from before the split: one set for pinned and floating guests."""
        if dedicated.value:
            self._nova.fault(
                pin_set,
                f"nova does not allow it beside {dedicated.name}={dedicated.text}",
                "Remove vcpu_pin_set and name its CPUs in cpu_dedicated_set or cpu_shared_set.",
            )
        if shared.value:
            self.notes.append(f"{shared} is not used: beside vcpu_pin_set nova takes it for emulator threads only")
        self.used.append(pin_set)
        cpus = _only(self._nova.parsed(pin_set, parse.cpu_set))
        return cpus, cpus

    def _note_unused_sets(self, own: list[Found], nova: list[Found]) -> None:
        unused = [found for found in nova if found.value]
        if unused:
            used = ", ".join(f"{found.name}={found.text}" for found in own if found.value)
            self.notes.append(f"{used} is used, not {' nor '.join(map(str, unused))}: CPU sets count together")

    def _reserved_memory_mb(self) -> int:
        source, found = self.choose(DEFAULT_GROUP, "reserved_host_memory_mb")
        if found.value > HIGHEST_RESERVED_MB:
            source.fault(found, "more than any host has")
        return int(found.value)

    def _reserved_pages(self) -> tuple[ReservedPages, ...]:
        source, found = self.choose(DEFAULT_GROUP, "reserved_huge_pages")
        pages = source.parsed(found, parse.reserved_pages)
        return tuple({(entry.cell, entry.size_kib): entry for entry in pages}.values())

    def _share_cells(self) -> bool:
        found = self._own.get("compute", "share_host_cells")
        if found.where:
            self.used.append(found)
        return bool(found.value)

    def _ratio(self, name: str, default: float) -> float:
        """0 means not set, as in nova; nova's initial_ ratio is what it starts a host with."""
        for source, dest in ((self._own, name), (self._nova, name), (self._nova, f"initial_{name}")):
            found = source.get(DEFAULT_GROUP, dest)
            if found.value:
                if not 0 <= found.value <= HIGHEST_RATIO:  # false for nan too
                    source.fault(found, f"it is no number from 0 to {HIGHEST_RATIO}")
                if found.where:
                    self.used.append(found)
                return float(found.value)
        return default

    def _device_spec(self) -> tuple[DeviceSpec, ...]:
        source, chosen = self._choose_all(("pci", "device_spec"), DEVICE_SPEC_NAMES)
        return tuple(
            spec
            for found in chosen
            for specs in source.parsed(found, self._spec_parser(source, found))
            for spec in specs
        )

    def _alias(self) -> tuple[Alias, ...]:
        source, chosen = self._choose_all(("pci", "alias"), ALIAS_NAMES)
        entries = [alias for found in chosen for some in source.parsed(found, pci_alias.aliases) for alias in some]
        try:
            return pci_alias.joined(entries)
        except ValueError as error:
            source.fault(chosen[0], str(error), "Let them agree, or give one another name.")
            return ()

    def _choose_all(
        self, own_name: tuple[str, str], nova_names: Iterable[tuple[str, str]]
    ) -> tuple[Source, list[Found]]:
        """Of an option that may be given many times: ours if it is set, else what nova has under all of its names."""
        own = self._own.get(*own_name)
        nova = [found for names in nova_names if (found := self._nova.get(*names)).where]
        if own.where:
            self.notes += [f"{own} is used, not {found}" for found in nova]
        source, chosen = (self._own, [own]) if own.where else (self._nova, nova)
        self.used += chosen
        return source, chosen

    def _spec_parser(self, source: Source, found: Found) -> Callable[[str], tuple[DeviceSpec, ...]]:
        def parsed(text: str) -> tuple[DeviceSpec, ...]:
            specs, odd = device_spec.device_specs(text)
            if odd and source is self._own:
                raise ValueError("; ".join(odd))
            self.notes += [f"{found._replace(text=text)}: {what}" for what in odd]
            return specs

        return parsed


def _only(values: tuple[T, ...]) -> T | None:
    return values[0] if values else None
