"""What would help, in words."""

from __future__ import annotations

import typing

import pytest

from agent.core.cpuset import CpuSet
from agent.core.relax.text import phrase
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

KIB = 1024


def leaving(name: str, cells: str = "") -> Leaving:
    return Leaving(uuid=f"uuid-of-{name}", name=name, cells=CpuSet.parse(cells))


WHOLE = CellShortfall(cell=1, cpus=CpuSet([4, 5]), floating=1, memory_kib=512 * KIB, pages=1, page_size_kib=2048)

SENTENCES: tuple[tuple[Relaxation, str], ...] = (
    (MoreFree(cells=(CellShortfall(cell=1, cpus=CpuSet([4])),)), "with 1 more dedicated CPU (4) free on cell 1"),
    (
        MoreFree(cells=(WHOLE,)),
        (
            "with 2 more dedicated CPUs (4-5), room for 1 more floating vCPU, 512 MiB more memory and "
            "1 more page of 2 MiB free on cell 1"
        ),
    ),
    (
        MoreFree(
            cells=(CellShortfall(cell=0, pages=2, page_size_kib=1 << 20), CellShortfall(cell=1, floating=2)),
            memory_kib=KIB + 1,
        ),
        (
            "with 2 more pages of 1 GiB free on cell 0 and room for 2 more floating vCPUs free on cell 1 and "
            "2 MiB more memory free anywhere"
        ),
    ),
    (
        MoreFree(floating=3, memory_kib=KIB),
        "with 1 MiB more memory and room for 3 more floating vCPUs free on the host",
    ),
    (
        OtherDevicePolicy(requests=("alias:a",), policy="preferred", sources=("alias",)),
        "with device policy preferred for alias:a (numa_policy of [pci] alias a)",
    ),
    (
        OtherDevicePolicy(requests=("alias:a", "b"), policy="legacy", sources=("default", "port")),
        "with device policy legacy for alias:a and b (numa_policy of [pci] alias a and numa_affinity_policy of port b)",
    ),
    (
        OtherDevicePolicy(requests=("alias:a", "b"), policy="legacy", sources=("flavor", "flavor")),
        "with device policy legacy for alias:a and b (hw:pci_numa_affinity_policy=legacy)",
    ),
    (
        OtherDevicePolicy(requests=("b",), policy="legacy", sources=("image",)),
        "with device policy legacy for b (hw_pci_numa_affinity_policy=legacy of the image)",
    ),
    (OtherCpuPolicy(policy="dedicated", was=None), "with a CPU for each vCPU alone (hw:cpu_policy=dedicated)"),
    (
        OtherCpuPolicy(policy="dedicated", was="mixed"),
        "with a CPU for each vCPU alone (hw:cpu_policy=dedicated without hw:cpu_dedicated_mask)",
    ),
    (OtherThreadPolicy(policy="prefer"), "with thread policy prefer (hw:cpu_thread_policy=prefer)"),
    (
        OtherEmulatorPolicy(policy=None),
        "with the emulator threads beside the vCPUs (without hw:emulator_threads_policy)",
    ),
    (
        OtherEmulatorPolicy(policy="share"),
        "with the emulator threads on the shared CPUs (hw:emulator_threads_policy=share)",
    ),
    (
        OtherEmulatorPolicy(policy="isolate"),
        "with a CPU for the emulator threads alone (hw:emulator_threads_policy=isolate)",
    ),
    (OtherPageSize(page_size="any"), "with page size any (hw:mem_page_size=any)"),
    (OtherPageSize(page_size=1 << 20), "with 1 GiB pages (hw:mem_page_size=1048576)"),
    (OtherCells(count=1), "in 1 cell (hw:numa_nodes=1)"),
    (
        ShareCells(),
        "if the configuration let several of its cells go to one host cell ([compute] share_host_cells)",
    ),
    (MaintenanceEnds(), "if this host took new guests again (agentctl maintenance off)"),
    (FewerDevices(request="alias:a", count=1), "with 1 device for alias:a"),
    (FewerDevices(request="alias:a", count=0), "without alias:a"),
    (FewerVcpus(vcpus=1), "with 1 vCPU"),
    (LessMemory(memory_kib=2048 * KIB), "with 2048 MiB of memory"),
    (GuestsLeave(guests=(leaving("web", "0"),)), "if guest web (on cell 0) left"),
    (GuestsLeave(guests=(leaving("web", "0-1"), leaving(" "))), "if guest web (on cells 0-1) and guest uuid-of-  left"),
)


@pytest.mark.parametrize(("change", "words"), SENTENCES)
def test_a_change_says_what_would_have_to_be_how_and_where(change: Relaxation, words: str) -> None:
    assert phrase(change) == words


def test_every_change_has_a_sentence_here() -> None:
    assert {type(change) for change, _ in SENTENCES} == set(typing.get_args(Relaxation))


def test_names_of_guests_and_requests_cannot_steer_a_terminal() -> None:
    hostile = "web\x1b[2J\n\u202e"
    assert phrase(GuestsLeave(guests=(leaving(hostile),))) == "if guest web\\x1b[2J\\x0a\\u202e left"
    assert phrase(FewerDevices(request=hostile, count=0)).isprintable()
