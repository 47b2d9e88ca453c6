"""Which CPUs there are, which are online, isolated or tickless, and of what kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from agent.adapters.sysfs.files import Files
from agent.core.cpuset import HIGHEST_ID, CpuSet
from agent.core.values import ReadOnlyMap, Value
from agent.core.words import agrees, plural

FOLDER = "sys/devices/system/cpu"

_CPU = re.compile(r"cpu(\d{1,5})")
_DIGITS = re.compile(r"\d{1,15}", re.ASCII)
_HYBRID = (("performance", "cpu_core"), ("efficiency", "cpu_atom"), ("efficiency", "cpu_lowpower"))
_ALIKE = 0.85
"""Cores of one kind, favoured ones included, differ by less than this in highest frequency and in nominal performance,
cores of two kinds by more. acpi_cppc/highest_perf is another number for each favoured core, so it is not asked."""


class Masks(Value, frozen=True, kw_only=True):
    """The CPU sets of a host. unknown: present, but nobody can say whether online. entries: files in cpuN/, by CPU."""

    present: CpuSet
    online: CpuSet
    unknown: CpuSet
    isolated: CpuSet
    nohz_full: CpuSet
    entries: ReadOnlyMap[int, frozenset[str]]


def read_masks(files: Files) -> Masks:
    """The CPU sets. Source: cpu/present, cpu/online, cpuN/online, cpu/isolated, cpu/nohz_full (else kernel options)."""
    numbers = (int(match[1]) for name in files.names(FOLDER) if (match := _CPU.fullmatch(name)))
    folders = CpuSet(number for number in numbers if number < HIGHEST_ID)
    online_mask = files.cpulist(f"{FOLDER}/online")
    present = _present(files, folders, online_mask)
    entries = {cpu: files.names(f"{FOLDER}/cpu{cpu}") for cpu in present & folders}
    online, unknown = _online(files, present, online_mask, entries)
    isolated, nohz_full = _boot_set(files, "isolated", "isolcpus"), _boot_set(files, "nohz_full", "nohz_full")
    files.require(FOLDER, *(f"{FOLDER}/{name}" for name in ("online", "present", "isolated", "nohz_full")))
    return Masks(
        present=present,
        online=online,
        unknown=unknown,
        isolated=isolated,
        nohz_full=nohz_full,
        entries=ReadOnlyMap(entries),
    )


def read_kinds(files: Files, masks: Masks) -> dict[int, str]:
    """ "performance" or "efficiency" by CPU; empty when all are alike.

    Source: the PMU of each kind (x86), else cpu_capacity (ARM), else cpufreq/cpuinfo_max_freq, else, of a recorded tree
    alone, acpi_cppc/nominal_perf. On a live host each read of acpi_cppc has the kernel interrupt the CPU it asks about
    (x86) or ring the doorbell of the platform's firmware, and not even the first look is worth that; base_frequency
    interrupts too and is never read.
    """
    kinds: dict[int, str] = {}
    for kind, folder in _HYBRID:
        for cpu in files.cpulist(f"sys/devices/{folder}/cpus") or ():
            kinds[cpu] = kind
    if kinds:
        return kinds if len(set(kinds.values())) > 1 else {}
    return (
        _split(_numbers(files, masks, "cpu_capacity"), 1.0)
        or _split(_easy_numbers(files, masks, "cpufreq", "cpuinfo_max_freq"), _ALIKE)
        or _split(_easy_numbers(files, masks, "acpi_cppc", "nominal_perf") if files.recorded else {}, _ALIKE)
    )


def _present(files: Files, folders: CpuSet, online: CpuSet | None) -> CpuSet:
    present = files.cpulist(f"{FOLDER}/present")
    if present is None:
        return folders | (online or CpuSet())
    if online is not None and not online <= present:
        said = ((f"{FOLDER}/present", present), (f"{FOLDER}/online", online))
        odd = online - present
        what = f"{plural(odd)} {agrees(odd, 'is', 'are')} online, yet not present"
        files.contradiction(f"{FOLDER}/online", what, said)
        present |= online
    if not present <= folders:
        said = ((f"{FOLDER}/present", present), (f"{FOLDER}/cpu*", folders))
        odd = present - folders
        what = f"{plural(odd)} {agrees(odd, 'is present, yet has', 'are present, yet have')} no folder"
        files.contradiction(f"{FOLDER}/present", what, said)
    return present


def _online(
    files: Files, present: CpuSet, mask: CpuSet | None, entries: Mapping[int, frozenset[str]]
) -> tuple[CpuSet, CpuSet]:
    """Online for certain, and unknown. A CPU's own file is more direct than the mask of all."""
    own = {cpu: _own_state(files, cpu) for cpu, names in entries.items() if "online" in names}
    unknown = CpuSet(cpu for cpu, state in own.items() if state is None and files.failed(_own_file(cpu)))
    if mask is not None and any(state is not None and state != (cpu in mask) for cpu, state in own.items()):
        mask, own = _look_once_more(files, mask, own)
    default = present if mask is None else mask
    online = CpuSet(cpu for cpu in present if (cpu in default if own.get(cpu) is None else own[cpu]))
    return online - unknown, unknown


def _look_once_more(files: Files, mask: CpuSet, own: dict[int, bool | None]) -> tuple[CpuSet, dict[int, bool | None]]:
    """A CPU that came or went between the two reads is no contradiction; what still differs is."""
    mask = files.cpulist(f"{FOLDER}/online") or mask
    own = {c: state if state is None or state == (c in mask) else _own_state(files, c) for c, state in own.items()}
    differ = CpuSet(cpu for cpu, state in own.items() if state is not None and state != (cpu in mask))
    if differ:
        said = (
            (f"{FOLDER}/online", mask),
            (f"{FOLDER}/cpu*/online = 1", CpuSet(c for c, state in own.items() if state)),
            (f"{FOLDER}/cpu*/online = 0", CpuSet(c for c, state in own.items() if state is False)),
        )
        files_of = agrees(differ, "its own file, which is", "their own files, which are")
        what = f"{plural(differ)}: the mask of online CPUs contradicts {files_of} taken"
        files.contradiction(f"{FOLDER}/online", what, said)
    return mask, own


def _own_file(cpu: int) -> str:
    return f"{FOLDER}/cpu{cpu}/online"


def _own_state(files: Files, cpu: int) -> bool | None:
    number = files.number(_own_file(cpu))
    return None if number is None else number != 0


def _boot_set(files: Files, name: str, option: str) -> CpuSet:
    text = files.text(f"{FOLDER}/{name}")
    if text == "(null)":  # kernels before 6.0 print a null pointer when there is no such set
        return CpuSet()
    if text is not None:
        return files.cpulist(f"{FOLDER}/{name}") or CpuSet()
    try:
        return CpuSet.parse(_boot_option(files, option))
    except ValueError as error:
        files.problem("proc/cmdline", f"option {option} holds no CPU set, so it is taken as empty", why=error)
        return CpuSet()


def _boot_option(files: Files, option: str) -> str:
    """CPU list of a kernel option without its flags: "isolcpus=domain,managed_irq,2-3" gives "2-3"."""
    words = [w for w in (files.text("proc/cmdline") or "").split() if w.startswith(f"{option}=")]
    parts = words[-1].partition("=")[2].split(",") if words else []
    return ",".join(part for part in parts if part[:1].isdecimal())


def _numbers(files: Files, masks: Masks, name: str) -> dict[int, int]:
    asked = [cpu for cpu in masks.online if name in masks.entries.get(cpu, ())]
    found = ((cpu, files.number(f"{FOLDER}/cpu{cpu}/{name}")) for cpu in asked)
    return {cpu: number for cpu, number in found if number is not None}


def _easy_numbers(files: Files, masks: Masks, folder: str, name: str) -> dict[int, int]:
    asked = [cpu for cpu in masks.online if folder in masks.entries.get(cpu, ())]
    found = ((cpu, files.text_if_easy(f"{FOLDER}/cpu{cpu}/{folder}/{name}")) for cpu in asked)
    return {cpu: int(text) for cpu, text in found if text and _DIGITS.fullmatch(text)}


def _split(strength: Mapping[int, int], alike: float) -> dict[int, str]:
    best = max(strength.values(), default=0)
    kinds = {cpu: "performance" if value >= best * alike else "efficiency" for cpu, value in strength.items()}
    return kinds if _several(kinds.values()) else {}


def _several(values: Iterable[str]) -> bool:
    return len(set(values)) > 1
