"""What would make a guest fit, in words that go on after "It would fit"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from agent.core.pci_request import PciNumaPolicy, PolicySource
from agent.core.reason_text import listed, mib_asked, page_size
from agent.core.relax.values import (
    CellShortfall,
    FewerDevices,
    FewerVcpus,
    GuestsLeave,
    Leaving,
    LessMemory,
    MaintenanceEnds,
    MoreFree,
    OtherCells,
    OtherCpuPolicy,
    OtherDevicePolicy,
    OtherEmulatorPolicy,
    OtherPageSize,
    OtherThreadPolicy,
    Relaxation,
    ShareCells,
)
from agent.core.words import count, plain, plural, some

_ALIAS_PREFIX = "alias:"

_EMULATOR = {
    "isolate": "with a CPU for the emulator threads alone (hw:emulator_threads_policy=isolate)",
    "share": "with the emulator threads on the shared CPUs (hw:emulator_threads_policy=share)",
    None: "with the emulator threads beside the vCPUs (without hw:emulator_threads_policy)",
}


def phrase(relaxation: Relaxation) -> str:
    """The change alone, and what to set: "with page size any (hw:mem_page_size=any)". Names are made safe to show."""
    return plain(_phrase(relaxation))


def _phrase(relaxation: Relaxation) -> str:  # noqa: PLR0912 - a line for each kind
    match relaxation:
        case MoreFree():
            return _more_free(relaxation)
        case OtherDevicePolicy():
            return _device_policy(relaxation)
        case OtherCpuPolicy():
            unmasked = " without hw:cpu_dedicated_mask" if relaxation.was == "mixed" else ""
            return f"with a CPU for each vCPU alone (hw:cpu_policy={relaxation.policy}{unmasked})"
        case OtherThreadPolicy():
            return f"with thread policy {relaxation.policy} (hw:cpu_thread_policy={relaxation.policy})"
        case OtherEmulatorPolicy():
            return _EMULATOR[relaxation.policy]
        case OtherPageSize():
            size = relaxation.page_size
            pages = f"{page_size(size)} pages" if isinstance(size, int) else f"page size {size}"
            return f"with {pages} (hw:mem_page_size={size})"
        case OtherCells():
            return f"in {count(relaxation.count, 'cell')} (hw:numa_nodes={relaxation.count})"
        case ShareCells():
            return "if the configuration let several of its cells go to one host cell ([compute] share_host_cells)"
        case FewerDevices():
            name = plain(relaxation.request)
            return f"with {count(relaxation.count, 'device')} for {name}" if relaxation.count else f"without {name}"
        case FewerVcpus():
            return f"with {count(relaxation.vcpus, 'vCPU')}"
        case LessMemory():
            return f"with {mib_asked(relaxation.memory_kib)} of memory"
        case MaintenanceEnds():
            return "if this host took new guests again (agentctl maintenance off)"
        case GuestsLeave():
            return f"if {listed([_leaving(guest) for guest in relaxation.guests])} left"
        case _:
            assert_never(relaxation)


def _device_policy(relaxation: OtherDevicePolicy) -> str:
    names = listed([plain(name) for name in relaxation.requests])
    sources = zip(relaxation.requests, relaxation.sources, strict=True)
    settings = dict.fromkeys(_device_setting(plain(name), source, relaxation.policy) for name, source in sources)
    return f"with device policy {relaxation.policy} for {names} ({listed(list(settings))})"


def _device_setting(request: str, source: PolicySource, policy: PciNumaPolicy) -> str:
    """Where the policy of a request has to be changed; a port and an alias that say nothing could say it themselves."""
    if source == "flavor":
        return f"hw:pci_numa_affinity_policy={policy}"
    if source == "image":
        return f"hw_pci_numa_affinity_policy={policy} of the image"
    alias = request.removeprefix(_ALIAS_PREFIX)
    return f"numa_policy of [pci] alias {alias}" if alias != request else f"numa_affinity_policy of port {request}"


def _more_free(relaxation: MoreFree) -> str:
    places = [f"{listed(list(_lacks(lack)))} free on cell {lack.cell}" for lack in relaxation.cells]
    rest = [f"{mib_asked(relaxation.memory_kib)} more memory"] if relaxation.memory_kib else []
    rest += [_floating(relaxation.floating)] if relaxation.floating else []
    if rest:
        places.append(f"{listed(rest)} free {'anywhere' if places else 'on the host'}")
    return f"with {some(places, between=' and ')}"


def _lacks(lack: CellShortfall) -> Iterator[str]:
    if lack.cpus:
        yield f"{len(lack.cpus)} more dedicated {'CPU' if len(lack.cpus) == 1 else 'CPUs'} ({lack.cpus})"
    if lack.floating:
        yield _floating(lack.floating)
    if lack.memory_kib:
        yield f"{mib_asked(lack.memory_kib)} more memory"
    if lack.pages and lack.page_size_kib is not None:
        yield f"{lack.pages} more {'page' if lack.pages == 1 else 'pages'} of {page_size(lack.page_size_kib)}"


def _floating(vcpus: int) -> str:
    return f"room for {vcpus} more floating {'vCPU' if vcpus == 1 else 'vCPUs'}"


def _leaving(guest: Leaving) -> str:
    return f"guest {plain(guest.label)}" + (f" (on {plural(guest.cells, 'cell')})" if guest.cells else "")
