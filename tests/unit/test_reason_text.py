"""What a refusal says, whole sentences."""

from __future__ import annotations

import typing
from types import MappingProxyType
from typing import Literal

import msgspec
import pytest

from agent.core import reasons
from agent.core.conflicts import Owner
from agent.core.cpuset import CpuSet
from agent.core.pci import PciAddress
from agent.core.pci_request import PciNumaPolicy, PciSpec
from agent.core.reason_text import sentence
from agent.core.reasons import Reason
from agent.core.usage import CpuHolder

KIB = 1024


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


def web(name: str) -> Owner:
    return Owner(type="domain", name=name, uuid=f"uuid-of-{name}")


def held(text: str, *names: str) -> tuple[CpuHolder, ...]:
    return tuple(CpuHolder(cpu=cpu, owners=tuple(web(name) for name in names)) for cpu in cpus(text))


def cpus_short(free: str, *holders: CpuHolder, dedicated: str = "4-7", asked: int = 4) -> Reason:
    return reasons.CpusShort(
        guest_cell=0, cell=1, asked=asked, free=cpus(free), dedicated=cpus(dedicated), holders=holders
    )


def threads_short(policy: Literal["require", "isolate"], placeable: int, free: str = "4-7") -> Reason:
    return reasons.ThreadsShort(guest_cell=0, cell=1, policy=policy, asked=4, placeable=placeable, free=cpus(free))


def devices_far(policy: PciNumaPolicy, cells: str, near: int, by_cell: dict[int, int], elsewhere: int) -> Reason:
    return reasons.DevicesFar(
        request="alias:nic",
        policy=policy,
        asked=1,
        cells=cpus(cells),
        near=near,
        by_cell=MappingProxyType(by_cell),
        elsewhere=elsewhere,
        guest_cells=2,
    )


def kept_back(devices: str, by: str, owner: str, *, is_by_pf: bool = False) -> reasons.KeptBack:
    what, held = (tuple(map(PciAddress.parse, text.split())) for text in (devices, by))
    return reasons.KeptBack(devices=what, by=held, is_by_pf=is_by_pf, owners=(web(owner),))


def not_offered(spec: PciSpec, instead: reasons.NotOffered) -> Reason:
    return reasons.DevicesShort(request="nic", asked=1, free=0, offered=0, specs=(spec,), instead=instead)


GPU = PciSpec(vendor_id="10de", product_id="20b6")
OVERLAY = PciSpec(vendor_id="8086", product_id="154c", tags=MappingProxyType({"physical_network": None}))

SENTENCES: tuple[tuple[Reason, str], ...] = (
    (
        cpus_short("6-7", *held("4-5", "web1")),
        "Cell 1 has 2 of 4 dedicated CPUs free (6-7); guest cell 0 asks for 4; 4-5 are held by web1",
    ),
    (
        cpus_short("", *held("4", "web1"), *held("5-6", "a", "b"), *held("7", "web2")),
        (
            "Cell 1 has none of 4 dedicated CPUs free; guest cell 0 asks for 4; "
            "4 is held by web1, 5-6 by a and b, 7 by web2"
        ),
    ),
    (
        cpus_short("", *(holder for n in range(7) for holder in held(str(n), f"vm{n}")), dedicated="0-6"),
        (
            "Cell 1 has none of 7 dedicated CPUs free; guest cell 0 asks for 4; "
            "0 is held by vm0, 1 by vm1, 2 by vm2, 3 by vm3, 4 by vm4 and 2 more"
        ),
    ),
    (cpus_short("4", dedicated="4"), "Cell 1 has 1 of 1 dedicated CPU free (4); guest cell 0 asks for 4"),
    (
        reasons.CpusShort(guest_cell=0, cell=1, asked=12, free=cpus("4"), dedicated=cpus("4-7"), with_emulator=True),
        "Cell 1 has 1 of 4 dedicated CPUs free (4); guest cell 0 asks for 11 and one for the emulator",
    ),
    (cpus_short("", dedicated=""), "Cell 1 has no dedicated CPUs; guest cell 0 asks for 4"),
    (
        cpus_short("", CpuHolder(cpu=4, owners=(Owner(type="claim", uuid="c-1"),)), dedicated="4", asked=1),
        "Cell 1 has none of 1 dedicated CPU free; guest cell 0 asks for 1; 4 is held by c-1 (promised)",
    ),
    (
        threads_short("isolate", 1),
        (
            "Cell 1 has 4 dedicated CPUs free (4-7), but whole free cores for only 1 of the 4 vCPUs "
            "of guest cell 0 (thread policy isolate)"
        ),
    ),
    (
        threads_short("require", 0, "4"),
        (
            "Cell 1 has 1 dedicated CPU free (4), but free siblings for none of the 4 vCPUs of guest cell 0 "
            "(thread policy require)"
        ),
    ),
    (
        reasons.NoSiblings(guest_cell=0, cell=1),
        "The cores of cell 1 have one thread each; guest cell 0 asks for siblings (thread policy require)",
    ),
    (
        reasons.EmulatorCpuShort(guest_cell=0, cell=1, asked=2, free=cpus("6"), holders=held("4-5", "web1")),
        (
            "Cell 1 has 1 dedicated CPU free (6), enough for the 1 vCPU of guest cell 0, but none is left for the "
            "emulator alone (emulator threads isolate); 4-5 are held by web1"
        ),
    ),
    (
        reasons.EmulatorHomeless(vcpus=cpus("0-3")),
        (
            "All vCPUs (0-3) are realtime, so that emulator threads cannot run beside them: they need a CPU of their "
            "own (emulator threads isolate) or a shared set on this host (share)"
        ),
    ),
    (
        reasons.SharedCpusShort(guest_cell=2, cell=0, asked=3, shared=cpus("0-1")),
        "Cell 0 has 2 shared CPUs (0-1); guest cell 2 has 3 floating vCPUs, and no two of them may share a CPU",
    ),
    (
        reasons.SharedCpusShort(guest_cell=None, cell=None, asked=1, shared=cpus("")),
        "The host as a whole has no shared CPUs; the guest has 1 floating vCPU",
    ),
    (
        reasons.SharedOverRatio(guest_cell=None, cell=None, asked=4, free=1, limit=16),
        "The host as a whole has 1 of 16 floating vCPUs left by its CPU ratio; the guest asks for 4",
    ),
    (
        reasons.SharedOverRatio(guest_cell=0, cell=3, asked=4, free=0, limit=0),
        "Cell 3 has no room for floating vCPUs; guest cell 0 asks for 4",
    ),
    (
        reasons.SharedOverRatio(guest_cell=0, cell=3, asked=4, free=0, limit=1),
        "Cell 3 has none of 1 floating vCPU left by its CPU ratio; guest cell 0 asks for 4",
    ),
    (
        reasons.SharedOverRatio(guest_cell=0, cell=3, asked=1, free=-1, limit=8),
        "Cell 3 has none of 8 floating vCPUs left (1 too many) by its CPU ratio; guest cell 0 asks for 1",
    ),
    (
        reasons.MemoryShort(guest_cell=0, cell=1, asked_kib=4096 * KIB, free_kib=4096 * KIB - 1),
        "Cell 1 has 4095 MiB of small-page memory free; guest cell 0 asks for 4096 MiB",
    ),
    (
        reasons.MemoryShort(guest_cell=None, cell=None, asked_kib=512 * KIB, free_kib=0),
        "The host as a whole has no small-page memory free; the guest asks for 512 MiB",
    ),
    (
        reasons.MemoryShort(guest_cell=None, cell=None, asked_kib=512 * KIB, free_kib=-100 * KIB),
        "The host as a whole has no small-page memory free (100 MiB too much is in use); the guest asks for 512 MiB",
    ),
    (
        reasons.PagesShort(guest_cell=0, cell=1, size_kib=2048, asked=512, free=1, reserved=64),
        "Cell 1 has 1 page of 2 MiB free besides 64 kept in reserve; guest cell 0 asks for 512",
    ),
    (
        reasons.PagesShort(guest_cell=0, cell=1, size_kib=1 << 20, asked=4, free=-2),
        "Cell 1 has no pages of 1 GiB free (2 too many are in use); guest cell 0 asks for 4",
    ),
    (
        reasons.PagesUneven(guest_cell=0, cell=1, size_kib=1 << 20, memory_kib=1536 * KIB),
        "Guest cell 0 has 1536 MiB of memory, which is not a whole number of the 1 GiB pages of cell 1",
    ),
    (
        reasons.NoSuchPages(guest_cell=0, cell=1, asked=1 << 20, sizes_kib=(4, 2048)),
        "Guest cell 0 asks for 1 GiB pages; cell 1 has pages of 4 KiB and 2 MiB",
    ),
    (
        reasons.NoSuchPages(guest_cell=0, cell=1, asked="large", sizes_kib=(64,)),
        "Guest cell 0 asks for large pages; cell 1 has pages of 64 KiB only",
    ),
    (
        reasons.CellWithheld(guest_cell=0, cell=1),
        (
            "A cpuset of this host withholds the memory of cell 1, so that guest cell 0 cannot go there: put 1 into "
            "cpuset.mems of machine.slice (agentctl check names the file)"
        ),
    ),
    (
        reasons.TooFewCells(asked=3, cells=cpus("0-1")),
        "The guest has 3 cells; this host has 2 cells with CPUs (0-1)",
    ),
    (reasons.TooFewCells(asked=1, cells=cpus("")), "The guest has 1 cell; this host has no cells with CPUs"),
    (
        reasons.CellsContended(guest_cells=cpus("0-2"), cells=cpus("1,3")),
        "Guest cells 0-2 together have only cells 1,3 of the host to choose from, and each needs a cell of its own",
    ),
    (
        reasons.NoRoomTogether(guest_cells=cpus("0-1"), cells=cpus("0")),
        (
            "Guest cells 0-1 would each fit alone, but not beside each other on cell 0 of the host, although several "
            "may share one there"
        ),
    ),
    (
        reasons.NoRoomTogether(guest_cells=cpus("0-2"), cells=cpus("0-1"), requests=("alias:nic", "p1")),
        (
            "Guest cells 0-2 would each fit alone, but not beside each other with the devices of alias:nic and p1 near "
            "on cells 0-1 of the host, although several may share one there"
        ),
    ),
    (
        reasons.CpusUncertain(guests=("the db",)),
        (
            "Nobody knows which CPUs the db is pinned to, so that no dedicated CPU can be promised: see agentctl show "
            "'the db'"
        ),
    ),
    (
        reasons.CpusUncertain(guests=("a", "b", "c", "d", "e", "f")),
        (
            "Nobody knows which CPUs a, b, c, d and 2 more are pinned to, so that no dedicated CPU can be promised: "
            "see agentctl show a"
        ),
    ),
    (
        reasons.DevicesShort(request="alias:nic", asked=2, free=1, offered=4, holders=(web("a"), web("b"))),
        "Request alias:nic asks for 2 devices; 1 of 4 of that kind is free (others held by a and b)",
    ),
    (
        reasons.DevicesShort(request="p1", asked=1, free=0, offered=1, holders=(web("a"),)),
        "Request p1 asks for 1 device; none of 1 of that kind is free (held by a)",
    ),
    (
        reasons.DevicesShort(request="p1", asked=1, free=0, offered=3, holders=(web("a"),)),
        "Request p1 asks for 1 device; none of 3 of that kind are free (held by a)",
    ),
    (
        reasons.DevicesShort(
            request="alias:pf",
            asked=1,
            free=0,
            offered=1,
            kept_back=(kept_back("17:00.0", "17:02.1", "taken"),),
            specs=(PciSpec(vendor_id="8086", product_id="1583", device_type="type-PF"),),
        ),
        (
            "Request alias:pf asks for 1 device (8086:1583, type-PF); none of 1 of that kind is free; 0000:17:00.0 "
            "cannot be given while its VF 0000:17:02.1 is held by taken"
        ),
    ),
    (
        reasons.DevicesShort(
            request="p1",
            asked=2,
            free=0,
            offered=2,
            kept_back=(kept_back("17:02.0 17:02.1", "17:00.0", "x", is_by_pf=True),),
        ),
        (
            "Request p1 asks for 2 devices; none of 2 of that kind are free; 0000:17:02.0 and 0000:17:02.1 cannot be "
            "given while their PF 0000:17:00.0 is held by x"
        ),
    ),
    (
        reasons.DevicesShort(request="nic", asked=1, free=0, offered=0),
        "Request nic asks for 1 device; [pci] device_spec offers none of that kind",
    ),
    (
        not_offered(
            GPU, reasons.NotOffered(same_vendor=("10de:20b5", "10de:20b7 (type-PF, which has to be asked for)"))
        ),
        (
            "Request nic asks for 1 device (10de:20b6); this host has none, but it has 10de:20b5 and 10de:20b7 "
            "(type-PF, which has to be asked for)"
        ),
    ),
    (
        not_offered(PciSpec(vendor_id="10de", device_type="vdpa"), reasons.NotOffered()),
        "Request nic asks for 1 device (vendor 10de, vdpa); this host has none",
    ),
    (
        not_offered(OVERLAY, reasons.NotOffered(unnamed=2, entries=(OVERLAY,))),
        (
            "Request nic asks for 1 device (8086:154c, no physical_network: an overlay); this host has 2 such, but "
            '[pci] device_spec does not name them: add {"vendor_id": "8086", "product_id": "154c", '
            '"physical_network": null}'
        ),
    ),
    (
        not_offered(
            PciSpec(tags=MappingProxyType({"physical_network": "physnet9", "remote_managed": "false"})),
            reasons.NotOffered(
                named=4,
                differs=(
                    reasons.SaidElse(name="physical_network", asked="physnet9", found=("physnet1", "physnet2", None)),
                ),
            ),
        ),
        (
            "Request nic asks for 1 device (physical_network physnet9); [pci] device_spec names 4 such, but with "
            "physical_network physnet1 and physnet2 and without physical_network, not physnet9"
        ),
    ),
    (
        not_offered(
            OVERLAY,
            reasons.NotOffered(
                named=1,
                differs=(reasons.SaidElse(name="physical_network", asked=None, found=("physnet1",)),),
                unnamed=1,
                entries=(GPU,),
            ),
        ),
        (
            "Request nic asks for 1 device (8086:154c, no physical_network: an overlay); [pci] device_spec names 1 "
            "such, but with physical_network physnet1, where none is asked for; this host has 1 more such, but [pci] "
            'device_spec does not name it: add {"vendor_id": "10de", "product_id": "20b6"}'
        ),
    ),
    (
        not_offered(GPU, reasons.NotOffered(flaw="device_spec says one_time_use, which is for others")),
        (
            "Request nic asks for 1 device (10de:20b6); this host has such that cannot be given: [pci] device_spec "
            "says one_time_use, which is for others"
        ),
    ),
    (
        devices_far("required", "1", 0, {0: 1}, 2),
        (
            "Request alias:nic asks for 1 device on its own host cells (policy required); the guest could have cell 1, "
            "where none is free (free on this host: 1 on cell 0, 2 without a cell)"
        ),
    ),
    (
        devices_far("socket", "0-1", 2, {0: 1, 1: 1}, 0),
        (
            "Request alias:nic asks for 1 device on the sockets of its host cells (policy socket); the guest could "
            "have cells 0-1, where 2 are free (free on this host: 1 on cell 0, 1 on cell 1)"
        ),
    ),
    (
        msgspec.structs.replace(devices_far("required", "1-2", 1, {1: 1}, 0), guest_cells=1),
        (
            "Request alias:nic asks for 1 device on its own host cells (policy required); the guest could have any of "
            "cells 1-2, where at most 1 is free (free on this host: 1 on cell 1)"
        ),
    ),
    (
        devices_far("legacy", "", 0, {}, 0),
        (
            "Request alias:nic asks for 1 device on its own host cells or on none (policy legacy); no cell of this "
            "host would do for the guest"
        ),
    ),
    (
        reasons.DevicesContended(requests=("alias:a", "alias:b"), asked=(2, 1), free=2),
        (
            "Requests alias:a and alias:b could each be served alone, but not together: they ask for 2 and 1 devices, "
            "only 2 that would do for any of them are free at once"
        ),
    ),
    (
        reasons.DevicesContended(requests=("part", "whole"), asked=(1, 1), free=4, cells=cpus("1"), has_pfs=True),
        (
            "Requests part and whole could each be served alone, but not together: they ask for 1 and 1 devices, 4 "
            "that would do for any of them are free at once for a guest on cell 1, and a physical function and its "
            "virtual ones exclude each other"
        ),
    ),
    (
        reasons.DevicesApart(
            requests=(
                reasons.ServedFrom(request="port0", cells=cpus("0")),
                reasons.ServedFrom(request="port1", cells=cpus("1-2")),
                reasons.ServedFrom(request="port2", cells=None),
            ),
            guest_cells=1,
        ),
        (
            "Requests port0, port1 and port2 could each be served alone, but not together: port0 has devices near cell "
            "0 only, port1 has devices near cells 1-2 only and port2 has devices anywhere; the guest has 1 cell"
        ),
    ),
    (
        reasons.SocketsUnknown(request="p1", cells=cpus("0-1")),
        (
            "Request p1 asks for devices on the socket of the guest (policy socket), but cells 0-1 are on no socket or "
            "on several"
        ),
    ),
    (
        reasons.SearchStopped(steps=20000),
        (
            "The search for host cells and devices ended after 20000 steps without an answer, so there may still be a "
            "way: it is shorter with a softer device policy or with devices of fewer kinds"
        ),
    ),
    (
        reasons.GroupViolated(group="g", instance="i", policy="anti-affinity", members=(web("u1"), web("u2")), limit=2),
        "Server group g allows 2 members on one host (policy anti-affinity); u1 and u2 are here",
    ),
    (
        reasons.GroupViolated(group="g", instance="i", policy="affinity", host="h1", hosts=("h2", "h3")),
        (
            "Server group g keeps its members on one host (policy affinity); they are on h2 and h3, and none is on "
            "this host, h1"
        ),
    ),
    (
        reasons.InMaintenance(since="2026-11-30T20:00:00Z", reason="new memory"),
        ("This host takes no new guests since 2026-11-30T20:00:00Z (new memory): `agentctl maintenance off` ends that"),
    ),
    (
        reasons.ClaimForbidden(code="InstanceBusy", message="Instance a has claim c1 here already", claim_id="c1"),
        "Instance a has claim c1 here already",
    ),
)


@pytest.mark.parametrize(("reason", "words"), SENTENCES)
def test_a_reason_says_what_where_how_many_and_who(reason: Reason, words: str) -> None:
    assert sentence(reason) == words


def test_every_reason_has_a_sentence_here() -> None:
    assert {type(reason) for reason, _ in SENTENCES} == set(typing.get_args(Reason))


def test_names_of_guests_and_ports_cannot_steer_a_terminal() -> None:
    hostile = "web\x1b[2J\n\u202e"
    assert sentence(cpus_short("4-6", *held("7", hostile))).endswith("7 is held by web\\x1b[2J\\x0a\\u202e")
    assert sentence(reasons.DevicesShort(request=hostile, asked=1, free=0, offered=0)).isprintable()
