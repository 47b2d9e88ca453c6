"""vCPUs, iothreads and their pins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agent.core.cpuset import CpuSet
from agent.core.guest import Pin
from agent.core.words import count
from agent.formats.xml_text import Element, Reader

MOST_VCPUS = 1 << 16
"""More than any hypervisor gives; a larger number is a fault of the text."""


class Cpus(NamedTuple):
    """The fields of `ObservedDomain` about CPUs, under the same names."""

    vcpus: int
    vcpus_online: CpuSet
    cpuset: CpuSet | None
    vcpu_pins: tuple[Pin, ...]
    emulator_pin: CpuSet | None
    iothreads: int
    iothread_pins: tuple[Pin, ...]


def read_cpus(root: Element, reader: Reader) -> Cpus:
    """<vcpu>, <vcpus>, <iothreads>, <iothreadids> and <cputune>."""
    tune = root.find("cputune")
    vcpu_pins = _pins(tune, "vcpupin", "vcpu", reader)
    vcpus = _vcpus(root, vcpu_pins, reader)
    emulator = None if tune is None else tune.find("emulatorpin")
    vcpu = root.find("vcpu")
    return Cpus(
        vcpus=vcpus,
        vcpus_online=_online(root, vcpus, reader),
        cpuset=None if vcpu is None else reader.cpus(vcpu.get("cpuset"), "vcpu cpuset"),
        vcpu_pins=_within(vcpu_pins, vcpus, reader),
        emulator_pin=None if emulator is None else reader.cpus(emulator.get("cpuset"), "emulatorpin cpuset"),
        iothreads=_iothreads(root, reader),
        iothread_pins=_pins(tune, "iothreadpin", "iothread", reader),
    )


def _vcpus(root: Element, pins: Iterable[Pin], reader: Reader) -> int:
    # Without the element libvirt takes 1. With a bad one, the highest number named elsewhere is the best that is known.
    text = root.findtext("vcpu")
    number = reader.number(text, "vcpu", MOST_VCPUS)
    if number:
        return number
    if number == 0:
        reader.problems.append("vcpu is '0', not a number of vCPUs")
    return 1 if text is None else max((pin.thread + 1 for pin in pins), default=1)


def _online(root: Element, vcpus: int, reader: Reader) -> CpuSet:
    every = (1 << vcpus) - 1
    listed = root.find("vcpus")
    if listed is not None:
        numbers = (
            reader.number(vcpu.get("id"), "vcpus vcpu id", MOST_VCPUS)
            for vcpu in listed.iterfind("vcpu")
            if vcpu.get("enabled") == "yes"
        )
        online = CpuSet(number for number in numbers if number is not None)
        if online:
            return CpuSet.from_mask(online.mask & every)
    vcpu = root.find("vcpu")
    current = None if vcpu is None else reader.number(vcpu.get("current"), "vcpu current", MOST_VCPUS)
    return CpuSet.from_mask(every if current is None else ((1 << current) - 1) & every)


def _pins(tune: Element | None, tag: str, thread: str, reader: Reader) -> tuple[Pin, ...]:
    pins: dict[int, Pin] = {}
    for element in () if tune is None else tune.iterfind(tag):
        number = reader.number(element.get(thread, ""), f"{tag} {thread}", MOST_VCPUS)
        if number is None:
            continue
        cpus = reader.cpus(element.get("cpuset", ""), f"{tag} of {thread} {number}: cpuset")
        if number in pins:
            reader.problems.append(f"{tag} of {thread} {number} is there twice; the first is taken")
        elif cpus is not None:
            pins[number] = Pin(thread=number, cpus=cpus)
    return tuple(pins[number] for number in sorted(pins))


def _within(pins: tuple[Pin, ...], vcpus: int, reader: Reader) -> tuple[Pin, ...]:
    # libvirt ignores a pin of a vCPU that the guest does not have; so it binds nothing.
    if not pins or pins[-1].thread < vcpus:
        return pins
    beyond = CpuSet(pin.thread for pin in pins if pin.thread >= vcpus)
    reader.problems.append(f"vcpupin of vcpu {beyond}: the guest has {count(vcpus, 'vCPU')}")
    return tuple(pin for pin in pins if pin.thread < vcpus)


def _iothreads(root: Element, reader: Reader) -> int:
    number = reader.number(root.findtext("iothreads"), "iothreads", MOST_VCPUS)
    named = root.find("iothreadids")
    return max(number or 0, 0 if named is None else len(named.findall("iothread")))
