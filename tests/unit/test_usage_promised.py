"""Used, promised and free, with claims beside what is seen."""

from __future__ import annotations

import msgspec

from agent.core.conflicts import Owner
from agent.core.cpuset import CpuSet
from agent.core.host_config import AcceptRule
from agent.core.ledger import STARTING_UP, Holds
from agent.core.pci import MediatedDevice, PciAddress
from agent.core.placement import Placement
from agent.core.usage import Amount, DeviceUsage, Folded
from tests.builders import Host, Node, configured, function, guest, h2x4, h8, host, ht8, unread, uuid_of
from tests.builders_claims import claim_of, place, promised

PF, VF, OTHER_VF, GPU = "0000:3b:00.0", "0000:3b:02.0", "0000:3b:02.1", "0000:af:00.0"
MDEV = "4b20d080-1b54-4048-85b3-a6a62d165c01"
CARD = (function(PF, "type-PF"), function(VF, "type-VF", pf=PF), function(OTHER_VF, "type-VF", pf=PF))


def cpus(made: Folded) -> tuple[str, str, str]:
    sets = made.usage.host.dedicated
    return (str(sets.used), str(sets.promised), str(sets.free))


def held(made: Folded) -> dict[int, list[str]]:
    return {row.cpu: [f"{owner.type} {owner.name}" for owner in row.owners] for row in made.usage.holders}


def free(made: Folded) -> set[str]:
    return {str(row.address) for row in made.usage.pci if row.free}


def told(made: Folded) -> dict[str, tuple[str, ...]]:
    return {row.id: tuple(f"{owner.type} {owner.name}" for owner in row.owners) for row in made.conflicts}


def test_what_is_promised_is_neither_used_nor_free() -> None:
    made = promised(h8(), [claim_of("web", place(2, 3, mem=1024))], guest("db", {0: 4}, mem=512, node=0))
    assert cpus(made) == ("4", "2-3", "5-7")
    assert held(made) == {2: ["claim web"], 3: ["claim web"], 4: ["domain db"]}
    memory = made.usage.cells[0].memory_kib
    assert (memory.used, memory.promised, memory.free) == (512 * 1024, 1024 * 1024, memory.limit - 1536 * 1024)
    assert made.conflicts == ()


def test_a_guest_that_has_come_as_promised_counts_once_and_is_used() -> None:
    seen = guest("web", {0: 2, 1: 3}, mem=1024, node=0)
    made = promised(h8(), [claim_of("web", place(2, 3, mem=1024), state="arriving")], seen)
    assert made == h8().folded(seen)


def test_a_guest_that_came_otherwise_holds_both_until_that_is_settled() -> None:
    seen = guest("web", {0: 5}, mem=2048, node=0)
    made = promised(h8(), [claim_of("web", place(2, mem=1024), state="resident")], seen)
    assert cpus(made) == ("5", "2", "3-4,6-7")
    assert held(made) == {2: ["claim web"], 5: ["domain web"]}
    assert made.usage.host.memory_kib.promised == 0


def test_amounts_may_be_promised_beyond_what_there_is_and_are_shown_below_zero() -> None:
    made = promised(h8(), [claim_of("web", place(2, mem=20000)), claim_of("db", place(3, mem=1000))])
    memory = made.usage.host.memory_kib
    assert (memory.promised, memory.free) == (21000 * 1024, (16384 - 512 - 21000) * 1024)
    assert [row.id for row in made.conflicts] == ["memory-over-commit:memory:host", "memory-over-commit:memory:0"]
    assert {row.severity for row in made.conflicts} == {"warning"}


def test_floating_vcpus_count_in_the_cell_that_confines_them_and_in_the_host() -> None:
    on = host({0: Node("0-3", 8192), 1: Node("4-7", 8192)}, dedicated="2-3,6-7", shared="0-1,4-5")
    made = promised(on, [claim_of("web", place(6, cell=1, floating=2, shared="4-5"))])
    assert [cell.shared.promised for cell in made.usage.cells] == [0, 2]
    assert made.usage.host.shared == Amount(total=4, limit=16, used=0, promised=2, free=14)


def test_a_guest_without_cells_counts_in_the_host_alone() -> None:
    placement = Placement(memory_kib=1024 * 1024, vcpus=3, shared_cpus=CpuSet.parse("0-1,4-5"))
    on = host({0: Node("0-3", 8192), 1: Node("4-7", 8192)}, dedicated="2-3,6-7", shared="0-1,4-5")
    made = promised(on, [claim_of("web", placement)])
    assert [(cell.shared.promised, cell.memory_kib.promised) for cell in made.usage.cells] == [(0, 0), (0, 0)]
    assert (made.usage.host.shared.promised, made.usage.host.memory_kib.promised) == (3, 1024 * 1024)


def test_idle_siblings_are_promised_with_the_cpus_that_they_are_kept_idle_for() -> None:
    made = promised(ht8(), [claim_of("web", place(0, idle="4"))])
    assert cpus(made) == ("", "0,4", "1-3,5-7")
    assert held(made) == {0: ["claim web"], 4: ["claim web"]}


def test_a_cpu_that_two_have_is_released_when_the_last_lets_go() -> None:
    web, db = claim_of("web", place(2)), guest("db", {0: 2}, node=0)
    both = promised(h8(), [web], db)
    assert (cpus(both), held(both)) == (("2", "", "3-7"), {2: ["claim web", "domain db"]})
    assert told(both) == {"cpu-pinned-twice:cpu:2": ("claim web", "domain db")}
    assert cpus(promised(h8(), [web])) == ("", "2", "3-7")
    assert cpus(promised(h8(), [], db)) == ("2", "", "3-7")
    assert cpus(promised(h8(), [])) == ("", "", "2-7")


def test_two_claims_of_one_cpu_are_one_row_and_count_it_once() -> None:
    made = promised(h8(), [claim_of("web", place(2)), claim_of("db", place(2))])
    assert (cpus(made), told(made)) == (("", "2", "3-7"), {"cpu-pinned-twice:cpu:2": ("claim db", "claim web")})
    (row,) = made.conflicts
    assert "promised to web (claim claim-web, reserved) and db (claim claim-db, reserved)" in row.cause
    assert "`agentctl claim abort claim-web` or `agentctl claim abort claim-db`" in row.action


def test_a_row_of_guests_says_who_else_is_promised_the_same() -> None:
    made = promised(h8(), [claim_of("c", place(2))], guest("a", {0: 2}, node=0), guest("b", {0: 2}, node=0))
    (row,) = made.conflicts
    assert told(made) == {"cpu-pinned-twice:cpu:2": ("claim c", "domain a", "domain b")}
    assert (row.severity, row.cause.endswith("; it is promised to c (claim claim-c, reserved) too")) == ("error", True)


def test_a_promised_function_is_not_free_and_neither_is_its_physical_one() -> None:
    made = promised(h8(pci=CARD), [claim_of("web", place(2, dev=(VF,)))])
    assert free(made) == {OTHER_VF}
    assert row_of(made, VF).owners == (Owner(type="claim", uuid=uuid_of("web"), name="web"),)
    assert row_of(made, PF).remark == "1 of its virtual functions is promised to web"


def test_no_virtual_function_of_a_promised_physical_one_is_free() -> None:
    made = promised(h8(pci=CARD), [claim_of("web", place(2, dev=(PF,)))])
    assert free(made) == set()
    assert row_of(made, VF).remark == f"its physical function {PF} is promised to web"


def test_a_physical_function_and_one_of_its_virtual_ones_contradict_each_other_both_ways() -> None:
    part = promised(h8(pci=CARD), [claim_of("web", place(2, dev=(VF,)))], guest("db", dev=(PF,)))
    whole = promised(h8(pci=CARD), [claim_of("web", place(2, dev=(PF,)))], guest("db", dev=(VF,)))
    assert told(part) == told(whole) == {f"pf-and-vf:pci:{PF}": ("claim web", "domain db")}


def test_a_promised_device_that_a_guest_has_or_that_is_gone_is_told_of() -> None:
    made = promised(h8(pci=CARD), [claim_of("web", place(2, dev=(VF, GPU)))], guest("db", dev=(VF,)))
    assert told(made) == {
        f"device-missing:pci:{GPU}": ("claim web",),
        f"device-twice:pci:{VF}": ("claim web", "domain db"),
    }
    assert row_of(made, GPU).remark == "not on this host (any more)"


def test_a_promised_mediated_device_keeps_the_function_below_it_from_others() -> None:
    parent = PciAddress.parse(GPU)
    on = h8(pci=(function(GPU),), mdevs=(MediatedDevice(uuid=MDEV, type="nvidia-35", parent=parent),))
    accepted = Holds(uuid=uuid_of("web"), mdevs=(MDEV,))
    made = promised(on, [claim_of("web", observed=accepted, state="away")])
    assert (free(made), [owner.name for owner in made.usage.mdevs[0].owners]) == (set(), ["web"])
    assert row_of(made, GPU).remark == "a mediated device of it is promised to web"
    gone = promised(h8(), [claim_of("web", observed=accepted, state="away")])
    assert told(gone) == {f"device-missing:mdev:{MDEV}": ("claim web",)}


def test_a_function_that_is_not_offered_any_more_has_a_row_as_long_as_it_is_promised() -> None:
    made = promised(h8(pci=CARD, pci_filter=(GPU,)), [claim_of("web", place(2, dev=(VF,)))])
    assert [(str(row.address), row.offered, row.free) for row in made.usage.pci] == [(VF, False, False)]


def test_a_promised_cpu_that_went_offline_is_told_of() -> None:
    made = promised(h8(online="0-6"), [claim_of("web", place(7))])
    (row,) = made.conflicts
    assert (row.id, row.severity) == ("pinned-to-offline:cpu:7", "warning")
    assert [holder.cpu for holder in made.usage.host.holders] == [7]


def test_pages_that_are_promised_and_not_there_any_more_are_told_of() -> None:
    made = promised(h8(pages={2048: 4}), [claim_of("web", place(2, mem=10, page=2048))])
    (row,) = made.usage.cells[0].pages
    assert (row.used, row.promised, row.free, row.kernel_free) == (0, 5, -1, 4)
    assert told(made) == {"pages-over-commit:pages:2048:0": ("claim web",)}


def with_pages_of_others(free_of_eight: int) -> Host:
    """A host with eight pages, of which so many are free by the kernel."""
    on = h8(pages={2048: 8})
    (cell,) = on.topology.cells
    pools = tuple(msgspec.structs.replace(pool, free=free_of_eight) for pool in cell.pages)
    cells = (msgspec.structs.replace(cell, pages=pools),)
    return Host(msgspec.structs.replace(on.topology, cells=cells), on.config)


def test_pages_of_others_stay_theirs_while_a_guest_starts_anew() -> None:
    """Three pages are others', two the guest's: the kernel shows them as taken only some time after libvirt does."""
    claim = claim_of("web", place(2, mem=4, page=2048), state="resident")
    runs = guest("web", {0: 2}, mem=4, page=2048, node=0)
    starts = msgspec.structs.replace(runs, state="paused", reason=STARTING_UP)
    before = None
    for free_by_the_kernel, seen in (
        (3, (runs,)),
        (5, ()),
        (5, (starts,)),
        (4, (starts,)),
        (3, (starts,)),
        (3, (runs,)),
    ):
        made = promised(with_pages_of_others(free_by_the_kernel), [claim], *seen, before=before)
        (row,) = made.usage.cells[0].pages
        assert (row.used + row.promised, row.free) == (2, 3)
        before = made.usage


def test_pages_that_others_take_while_a_guest_is_awaited_are_not_taken_for_its_own() -> None:
    claim = claim_of("web", place(2, mem=4, page=2048))
    before = promised(with_pages_of_others(8), [claim]).usage
    made = promised(with_pages_of_others(5), [claim], before=before)
    assert made.usage.cells[0].pages[0].free == 3


def test_nobody_is_sent_to_a_cpu_that_is_promised() -> None:
    fought = (guest("a", {0: 2}, node=0), guest("b", {0: 2}, node=0))
    (alone,) = h8().conflicts(*fought)
    assert "virsh vcpupin a 0 3 " in alone.action
    (row,) = promised(h8(), [claim_of("c", place(3, 4))], *fought).conflicts
    assert "virsh vcpupin a 0 5 " in row.action


def test_a_guest_that_cannot_be_read_is_no_proof_that_its_claim_is_used() -> None:
    on, seen = h8(), unread("web", kernel_cpus="0-7")
    made = promised(on, [claim_of("web", place(2, 3), state="arriving")], seen)
    assert (cpus(made), made.usage.free_is_uncertain) == (("", "2-3", "4-7"), True)


def test_what_the_configuration_accepts_of_a_guest_it_accepts_of_its_claim() -> None:
    on = configured(h8(), accept=(AcceptRule(kind="cpu-pinned-twice", guest="web"),))
    made = promised(on, [claim_of("web", place(2))], guest("db", {0: 2}, node=0))
    assert [row.accepted for row in made.conflicts] == [True]


def test_without_claims_the_books_are_those_of_what_is_seen() -> None:
    made = h2x4().folded(guest("a", {0: 2}))
    assert promised(h2x4(), [], guest("a", {0: 2})) == made


def row_of(made: Folded, address: str) -> DeviceUsage:
    return next(row for row in made.usage.pci if str(row.address) == address)
