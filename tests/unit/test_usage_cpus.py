"""Who holds which CPU, and what contradicts about it."""

from __future__ import annotations

import re

import msgspec
import pytest

from agent.core.conflicts import Conflict, Owner, Resource
from agent.core.cpuset import CpuSet
from agent.core.guest import Sighting
from agent.core.host_config import AcceptRule
from agent.core.usage import CpuHolder
from tests.builders import Host, Node, configured, guest, h2x4, h8, host, ht8, unread, uuid_of

ISOLATE = {"extra:hw:cpu_thread_policy": "isolate"}
LEGACY = configured(h8(), dedicated=None, shared=None)


def _owner(name: str, maker: str = "libvirt") -> Owner:
    return Owner(type="domain", uuid=uuid_of(name), name=name, maker=maker)


def _only(conflicts: tuple[Conflict, ...]) -> Conflict:
    (row,) = conflicts
    return row


def _with_cpu(on: Host, number: int, **facts: object) -> Host:
    cpus = tuple(msgspec.structs.replace(cpu, **facts) if cpu.id == number else cpu for cpu in on.topology.cpus)
    return Host(msgspec.structs.replace(on.topology, cpus=cpus), on.config)


def _lost(seen: Sighting) -> Sighting:
    return msgspec.structs.replace(seen, validity="lost-by-libvirt")


def _commands(row: Conflict) -> list[str]:
    return re.findall("`([^`]*)`", row.action)


def test_a_cpu_pinned_twice_is_one_row_that_names_threads_and_a_command() -> None:
    a, b = guest("a", {0: 2, 1: 3}), guest("b", {0: 5}, emu="3")
    assert _only(h8().conflicts(a, b)) == Conflict(
        id="cpu-pinned-twice:cpu:3",
        kind="cpu-pinned-twice",
        resource=Resource(kind="cpu", id="3", cell=0),
        owners=(_owner("a"), _owner("b")),
        cause="CPU 3 is pinned by 2 guests: a (vCPU 1), b (emulator)",
        severity="error",
        action="Pin the emulator of b to the shared set (`virsh emulatorpin b 0-1 --live --config`); left alone "
        "nothing breaks, but these guests share the time of one CPU",
    )


def test_guests_are_told_by_name_and_those_of_one_name_by_uuid() -> None:
    names = ("c", "a", "b")
    guests = [guest(name, {0: 3}) for name in names]
    twins = [msgspec.structs.replace(one, name="b") for one in guests]
    assert min(uuid_of(name) for name in names) != uuid_of("a")
    row, of_twins = _only(h8().conflicts(*guests)), _only(h8().conflicts(*twins))
    assert row.owners == (_owner("a"), _owner("b"), _owner("c"))
    assert row.cause == "CPU 3 is pinned by 3 guests: a (vCPU 0), b (vCPU 0), c (vCPU 0)"
    assert [owner.uuid for owner in of_twins.owners] == sorted(uuid_of(name) for name in names)
    assert h8().usage(*guests).holders == (CpuHolder(cpu=3, owners=row.owners),)


def test_two_rows_never_propose_the_same_free_cpu_and_stay_in_the_cell_while_it_has_one() -> None:
    guests = [guest(name, {0: 0, 1: 1, 2: 2}) for name in ("a", "b")] + [guest("c", {0: 4})]
    actions = [row.action for row in h2x4().conflicts(*guests)]
    assert [action.split(" --live")[0].split(" ")[-1] for action in actions] == ["3", "5", "6"]
    in_cell_1 = h2x4().conflicts(guest("a", {0: 4}), guest("b", {0: 4}))[0].action
    assert in_cell_1.split(" --live")[0].endswith(" 0 5")


def test_a_command_that_serves_two_rows_is_told_once() -> None:
    """The second row names the first: done twice, the command would be a fault or a second migration."""
    router, runner = guest("router", {}, vcpus=1, emu="3-4"), guest("runner", {0: 3, 1: 4})
    rows = {row.id: row for row in h8().conflicts(router, runner)}
    first = rows["cpu-pinned-twice:cpu:3"]
    others = [rows["cpu-pinned-twice:cpu:4"], rows[f"emulator-on-dedicated:guest:{router.uuid}"]]
    assert _commands(first) == ["virsh emulatorpin router 0-1 --live --config"]
    assert [_commands(row) for row in others] == [[], []]
    for row in others:
        assert row.action.startswith(f"Do what is proposed for {first.id}, which serves here too; left alone ")

    of_nova = h8().conflicts(*(guest(name, {0: 3, 1: 4}, maker="nova") for name in "ab"))
    assert [len(_commands(row)) for row in of_nova] == [1, 0]
    moved = h8().conflicts(guest("a", {0: 3, 1: 4}), guest("b", {0: 3, 1: 4}))
    assert [_commands(row) for row in moved] == [
        ["virsh vcpupin a 0 2 --live --config"],
        ["virsh vcpupin a 1 5 --live --config"],
    ]


def test_without_a_free_cpu_the_way_out_is_another_host() -> None:
    full = [guest("a", {0: 2, 1: 3, 2: 4, 3: 5, 4: 6, 5: 7}), guest("b", {0: 7})]
    assert "to another host or shut it down, since no dedicated CPU is free here" in _only(h8().conflicts(*full)).action


def test_guests_of_other_managers_are_left_to_their_managers() -> None:
    nova = [guest("a", {0: 2}, maker="nova"), guest("b", {0: 2}, maker="nova")]
    assert "openstack server migrate --live-migration" in _only(h8().conflicts(*nova)).action
    ovirt = [guest("a", {0: 2}, maker="ovirt"), guest("b", {0: 2}, maker="ovirt")]
    assert "let ovirt migrate" in _only(h8().conflicts(*ovirt)).action.lower()
    mixed = [guest("a", {0: 2}, maker="nova"), guest("b", {0: 2})]
    assert "virsh vcpupin b 0 3" in _only(h8().conflicts(*mixed)).action


def test_names_are_quoted_for_a_shell_and_transient_guests_have_no_config_to_change() -> None:
    odd = [guest("it's", {0: 2}, persistent=False), guest("n", {0: 2}, maker="nova")]
    assert """virsh vcpupin 'it'"'"'s' 0 3 --live`""" in _only(h8().conflicts(*odd)).action


@pytest.mark.parametrize(
    "name",
    [
        "7",
        " +7",
        "--live",
        "  ",
        "11111111-2222-3333-4444-555555555555",
        "AAAAAAAA-BBBB-CCCC-DDDD-EEEEEEEEEEEE",
        "aaaaaaaa bbbb cccc dddd eeeeeeeeeeee",
        " 1111111122223333-4444-555555555555 ",
    ],
)
def test_a_guest_whose_name_virsh_would_take_for_something_else_is_named_by_uuid(name: str) -> None:
    (command,) = _commands(_only(h8().conflicts(guest(name, {0: 2}), guest("n", {0: 2}, maker="nova"))))
    assert command == f"virsh vcpupin {uuid_of(name)} 0 3 --live --config"


@pytest.mark.parametrize("name", ["vm7", "7-up", "cafe", "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeeg"])
def test_a_guest_whose_name_is_nothing_else_to_virsh_is_named_by_it(name: str) -> None:
    (command,) = _commands(_only(h8().conflicts(guest(name, {0: 2}), guest("n", {0: 2}, maker="nova"))))
    assert command == f"virsh vcpupin {name} 0 3 --live --config"


def test_a_guest_whose_name_is_blank_is_told_by_its_uuid() -> None:
    row = _only(h8().conflicts(guest("  ", {0: 2}), guest("n", {0: 2}, maker="nova")))
    assert f"{uuid_of('  ')} (vCPU 0)" in row.cause
    assert row.action.startswith(f"Re-pin {uuid_of('  ')} with `virsh vcpupin {uuid_of('  ')} 0 3")


def test_three_guests_on_one_cpu_are_one_row_and_one_that_leaves_frees_nothing() -> None:
    three = [guest(name, {0: 2}) for name in ("a", "b", "c")]
    assert len(_only(h8().conflicts(*three)).owners) == 3
    two = h8().folded(*three[:2])
    assert len(_only(two.conflicts).owners) == 2
    one = h8().folded(three[0])
    assert (one.conflicts, str(one.usage.host.dedicated.used)) == ((), "2")


def test_two_threads_of_one_guest_on_one_cpu_contradict_nobody() -> None:
    made = h8().folded(guest("a", {0: 2, 1: 2}, emu="2"))
    assert (made.conflicts, str(made.usage.host.dedicated.used)) == ((), "2")


def test_an_accept_rule_marks_the_row_by_guest_name_uuid_or_star() -> None:
    for who in ("a", uuid_of("b"), "*"):
        accepting = configured(h8(), accept=(AcceptRule(kind="cpu-pinned-twice", guest=who),))
        assert _only(accepting.conflicts(guest("a", {0: 2}), guest("b", {0: 2}))).accepted
    for rule in (AcceptRule(kind="cpu-pinned-twice", guest="c"), AcceptRule(kind="device-twice", guest="*")):
        refusing = configured(h8(), accept=(rule,))
        assert not _only(refusing.conflicts(guest("a", {0: 2}), guest("b", {0: 2}))).accepted


@pytest.mark.parametrize(
    ("named", "accepted"),
    [
        ((), False),
        (("a",), False),
        (("a", "b"), False),
        (("a", "b", "c"), True),
        (("a", uuid_of("b"), "c", "d"), True),
        (("a", "a", "a"), False),
        (("*",), True),
        (("e", "f", "g"), False),
    ],
)
def test_of_four_guests_on_one_cpu_at_most_one_may_be_named_by_no_accept_rule(
    named: tuple[str, ...], accepted: bool
) -> None:
    on = configured(h8(), accept=tuple(AcceptRule(kind="cpu-pinned-twice", guest=name) for name in named))
    row = _only(on.conflicts(*(guest(name, {0: 2}) for name in "abcd")))
    assert (len(row.owners), row.accepted) == (4, accepted)


@pytest.mark.parametrize(("named", "accepted"), [(("a",), False), (("a", "b"), True), (("*",), True)])
def test_a_fault_that_each_guest_has_for_itself_is_accepted_for_each(named: tuple[str, ...], accepted: bool) -> None:
    """Two guests pinned to an offline CPU are not in each other's way: bringing one of them home leaves the other."""
    rules = [AcceptRule(kind="pinned-to-offline", guest=name) for name in named]
    on = configured(h8(online="0-6"), accept=(*rules, AcceptRule(kind="cpu-pinned-twice", guest="*")))
    rows = {row.kind: row.accepted for row in on.conflicts(guest("a", {0: 7}), guest("b", {0: 7}))}
    assert rows == {"cpu-pinned-twice": True, "pinned-to-offline": accepted}


def test_a_row_of_one_guest_is_accepted_when_that_guest_is() -> None:
    rule = AcceptRule(kind="pinned-outside-dedicated", guest="a")
    on = configured(h8(), accept=(rule,))
    rows = on.conflicts(guest("a", {0: 0}), guest("b", {0: 1}))
    assert {owner.name: row.accepted for row in rows for owner in row.owners} == {"a": True, "b": False}


def test_holders_name_every_held_cpu_and_cells_those_of_their_own() -> None:
    usage = h2x4().usage(guest("a", {0: 0, 1: 4}), guest("b", {0: 4}))
    rows = (CpuHolder(cpu=0, owners=(_owner("a"),)), CpuHolder(cpu=4, owners=(_owner("a"), _owner("b"))))
    assert usage.holders == rows
    assert [cell.holders for cell in usage.cells] == [rows[:1], rows[1:]]


def test_siblings_of_an_isolated_guest_are_not_offered_and_not_to_be_pinned() -> None:
    alone = ht8().folded(guest("a", {0: 0, 1: 1}, facts=ISOLATE))
    assert str(alone.usage.host.dedicated.free) == "2-3,6-7"
    assert [one.text for one in alone.usage.remarks] == [
        "thread policy isolate keeps CPUs 4-5 idle, not offered to others"
    ]
    assert alone.conflicts == ()
    row = _only(ht8().conflicts(guest("a", {0: 0, 1: 1}, facts=ISOLATE), guest("b", {0: 5, 1: 2})))
    assert (row.id, row.severity) == ("sibling-of-isolated:cpu:5", "warning")
    assert row.owners == (_owner("a"), _owner("b"))
    assert "virsh vcpupin b 0 3 --live --config" in row.action


def test_two_isolated_guests_on_one_core_are_two_rows() -> None:
    made = ht8().folded(guest("a", {0: 0}, facts=ISOLATE), guest("b", {0: 4}, facts=ISOLATE))
    assert [row.id for row in made.conflicts] == ["sibling-of-isolated:cpu:0", "sibling-of-isolated:cpu:4"]


def test_a_pin_to_an_offline_cpu_says_how_to_bring_it_back() -> None:
    row = _only(h8(online="0-6").conflicts(guest("a", {0: 7})))
    assert (row.id, row.severity, row.resource.cell) == ("pinned-to-offline:cpu:7", "error", None)
    assert row.cause == "CPU 7 is offline, and a (vCPU 0) is pinned to it"
    assert "echo 1 > /sys/devices/system/cpu/cpu7/online" in row.action


def test_pins_to_cpus_that_are_withheld_or_do_not_exist_count_as_offline() -> None:
    withheld = _with_cpu(h8(), 7, allowed=False)
    assert "CPU 7 is withheld from guests by a cpuset" in _only(withheld.conflicts(guest("a", {0: 7}))).cause
    legacy = LEGACY.folded(guest("a", {0: 9}))
    assert "CPU 9 is not on this host" in _only(legacy.conflicts).cause


def test_a_cpu_whose_state_cannot_be_read_is_neither_offered_nor_called_offline() -> None:
    unsure = _with_cpu(h8(), 3, online=None)
    assert str(unsure.usage().host.dedicated.free) == "2,4-7"
    assert unsure.conflicts(guest("a", {0: 3})) == ()


def test_a_guest_pinned_outside_of_the_dedicated_set_is_named_once_with_its_cpus() -> None:
    row = _only(h8().conflicts(guest("a", {0: 0, 1: 1, 2: 2})))
    assert (row.id, row.severity) == (f"pinned-outside-dedicated:guest:{uuid_of('a')}", "warning")
    assert row.cause == "a is pinned to CPUs 0-1, outside the dedicated set (2-7)"
    assert "floating guests run on CPUs 0-1 too" in row.action


def test_without_configured_sets_nothing_is_said_of_a_split() -> None:
    guests = (guest("a", {0: 0}), guest("b", {0: "2-5"}), guest("c", {0: "0-1"}, emu="6"))
    made = LEGACY.folded(*guests)
    assert made.conflicts == ()
    assert made.usage.remarks == ()
    assert str(made.usage.host.dedicated.free) == "1-7"
    assert str(made.usage.host.shared_cpus) == "0-7"


def test_a_shared_set_alone_leaves_no_cpu_for_pins() -> None:
    shared_only = host({0: Node("0-7", 16384)}, shared="0-3")
    made = shared_only.folded(guest("a", {0: 5}))
    assert (made.usage.host.dedicated.total, made.usage.host.dedicated.free) == (CpuSet(), CpuSet())
    assert _only(made.conflicts).kind == "pinned-outside-dedicated"


def test_floating_vcpus_confined_to_dedicated_cpus_disturb_whoever_is_pinned_there() -> None:
    float_over = guest("f", vcpus=2, cpuset="1-3")
    quiet = _only(h8().conflicts(float_over))
    assert (quiet.id, quiet.severity) == (f"shared-on-dedicated:guest:{uuid_of('f')}", "warning")
    assert quiet.cause == ("Floating vCPUs of f are confined to CPUs 1-3, of which 2-3 are dedicated to pinned guests")
    loud = _only(h8().conflicts(float_over, guest("a", {0: 3})))
    assert loud.severity == "error"
    assert "it takes time from a" in loud.action
    assert loud.owners == (_owner("f"),)


def test_floating_vcpus_without_a_cpuset_or_over_the_guests_own_pins_are_no_contradiction() -> None:
    made = h8().folded(guest("f", vcpus=2), guest("s", vcpus=1, cpuset="0-1"), guest("m", {0: 2, 1: 3, 2: "2-3"}))
    assert made.conflicts == ()


def test_an_iothread_on_another_guests_cpu_is_moved_by_its_own_command() -> None:
    made = h8().folded(guest("a", {0: 2}, iothreads={1: "0", 4: "3"}), guest("n", {0: 3}, maker="nova"))
    row = _only(made.conflicts)
    assert "a (iothread 4)" in row.cause
    assert row.action.startswith("Pin iothread 4 of a to the shared set (`virsh iothreadpin a 4 0-1 --live --config`);")


def test_emulator_and_iothreads_that_alone_hold_a_cpu_move_to_the_shared_set_each_by_its_command() -> None:
    threads = {1: "3", 2: "0", 5: "3-4"}
    helpers = guest("h", {0: 2}, emu="3", iothreads=threads, persistent=False)
    row = _only(h8().conflicts(helpers, guest("a", {0: 3})))
    assert row.action.startswith("Pin the emulator and iothreads 1,5 of h to the shared set (`")
    assert _commands(row) == [
        "virsh emulatorpin h 0-1 --live",
        "virsh iothreadpin h 1 0-1 --live",
        "virsh iothreadpin h 5 0-1 --live",
    ]


@pytest.mark.parametrize("sets", [{"dedicated": None, "shared": None}, {"shared": None}, {"shared": CpuSet([9])}])
def test_without_a_usable_shared_set_emulator_and_iothreads_move_to_a_free_cpu(sets: dict[str, CpuSet | None]) -> None:
    on = configured(h8(), **sets)
    helpers = guest("h", {0: 2}, emu="3,5", iothreads={1: "3", 2: "5"})
    row = _only(on.conflicts(helpers, guest("n", {0: 3}, maker="nova")))
    free = "0" if "dedicated" in sets else "4"
    both = str(CpuSet.parse(f"5,{free}"))
    assert row.action.startswith("Re-pin h with `")
    assert _commands(row) == [
        f"virsh emulatorpin h {both} --live --config",
        f"virsh iothreadpin h 1 {free} --live --config",
    ]


def test_whoever_follows_a_proposal_moves_all_of_the_guests_threads_off_the_cpu() -> None:
    on = host({0: Node("0-7", 16384)}, dedicated="0-7")
    both = guest("b", {0: 2, 1: 3, 2: 3}, emu="2-3", iothreads={1: "3", 2: "0-7"})
    row = _only(on.conflicts(both, guest("n", {0: 3}, maker="nova")))
    assert _commands(row) == [
        "virsh vcpupin b 1 0 --live --config",
        "virsh vcpupin b 2 0 --live --config",
        "virsh emulatorpin b 0,2 --live --config",
        "virsh iothreadpin b 1 0 --live --config",
    ]


def test_threads_of_another_managers_guest_are_not_moved_for_it() -> None:
    made = h8().folded(guest("n", {0: 2}, emu="3", maker="nova"), guest("o", {0: 3}, maker="ovirt"))
    assert "virsh" not in _only(made.conflicts).action
    by_hand = h8().folded(guest("n", {0: 2}, emu="3", maker="nova"), guest("a", {0: 3}))
    assert _commands(_only(by_hand.conflicts)) == ["virsh vcpupin a 0 4 --live --config"]
    alone = _only(h8().conflicts(guest("n", vcpus=2, emu="3", maker="nova")))
    assert (alone.kind, alone.action.split(",")[0]) == ("emulator-on-dedicated", "Let nova give n other CPUs")


def test_an_emulator_pinned_to_every_cpu_is_not_blamed_for_its_iothreads() -> None:
    made = h8().folded(guest("h", {0: 2}, emu="0-7", iothreads={1: "3"}), guest("n", {0: 3}, maker="nova"))
    row = _only(made.conflicts)
    assert "h (iothread 1)" in row.cause
    assert _commands(row) == ["virsh iothreadpin h 1 0-1 --live --config"]


def test_threads_pinned_to_an_offline_cpu_move_to_the_shared_set_too() -> None:
    row = _only(h8(online="0-6").conflicts(guest("a", {0: 2}, emu="7")))
    assert row.action.startswith(
        "Pin the emulator of a to the shared set (`virsh emulatorpin a 0-1 --live --config`), or"
    )


def test_emulators_of_pinned_guests_on_one_cpu_contradict_only_where_cpus_are_set_apart() -> None:
    guests = (guest("a", {0: 4}, emu="2-3"), guest("b", {0: 5}, emu="2", iothreads={1: "3"}))
    shared = LEGACY.folded(*guests)
    assert (shared.conflicts, str(shared.usage.host.dedicated.free)) == ((), "0-1,6-7")
    apart = h8().folded(*guests)
    assert [(row.id, row.severity) for row in apart.conflicts] == [
        ("cpu-pinned-twice:cpu:2", "warning"),
        ("cpu-pinned-twice:cpu:3", "warning"),
    ]
    with_vcpu = LEGACY.folded(*guests, guest("c", {0: 3}))
    assert [(row.id, row.severity) for row in with_vcpu.conflicts] == [("cpu-pinned-twice:cpu:3", "error")]


def test_an_emulator_alone_on_dedicated_cpus_is_named_and_still_holds_them() -> None:
    made = h8().folded(guest("f", vcpus=2, emu="1-2", iothreads={1: "5"}))
    row = _only(made.conflicts)
    assert (row.id, row.severity) == (f"emulator-on-dedicated:guest:{uuid_of('f')}", "warning")
    assert "dedicated CPUs 2,5" in row.cause
    assert _commands(row) == ["virsh emulatorpin f 0-1 --live --config", "virsh iothreadpin f 1 0-1 --live --config"]
    assert row.action.endswith("; left alone nothing breaks, but CPUs 2,5 are not offered to pinned guests")
    assert str(made.usage.host.dedicated.free) == "3-4,6-7"


def test_an_iothread_alone_on_dedicated_cpus_is_moved_by_its_own_command_live_where_nothing_is_defined() -> None:
    row = _only(h8().conflicts(guest("f", vcpus=2, emu="0", iothreads={1: "0", 3: "5"}, persistent=False)))
    assert row.cause == "f has no pinned vCPU, but its iothread 3 is pinned to dedicated CPU 5"
    assert _commands(row) == ["virsh iothreadpin f 3 0-1 --live"]


def test_an_emulator_on_dedicated_cpus_without_a_shared_set_asks_for_one() -> None:
    row = _only(configured(h8(), shared=None).conflicts(guest("f", vcpus=2, emu="2")))
    assert (row.kind, _commands(row)) == ("emulator-on-dedicated", [])
    assert row.action.startswith("Name CPUs for the emulator of f in [compute] cpu_shared_set and pin it there;")


def test_a_lost_guest_is_critical_and_nobody_is_told_to_re_pin_it() -> None:
    made = h8().folded(_lost(guest("a", {0: 2})), _lost(guest("b", {0: 2})))
    assert [(row.kind, row.severity) for row in made.conflicts] == [
        ("cpu-pinned-twice", "error"),
        ("domain-lost-by-libvirt", "critical"),
        ("domain-lost-by-libvirt", "critical"),
    ]
    assert "virsh vcpupin" not in made.conflicts[0].action


def test_cpus_guessed_from_threads_are_not_offered_and_prove_no_contradiction() -> None:
    made = h8().folded(guest("a", {0: 2}), unread("u", kernel_cpus="2-3"), unread("v", kernel_cpus="3"))
    assert made.conflicts == ()
    assert str(made.usage.host.dedicated.free) == "4-7"
    assert not made.usage.free_is_uncertain
    texts = {one.name: one.text for one in made.usage.remarks}
    assert texts["u"] == (
        "pins unknown, CPU 3 held, since its threads may run there: the definition is not well-formed"
    )


def test_a_guest_of_which_nothing_is_known_makes_free_uncertain() -> None:
    usage = h8().usage(unread("u"))
    assert usage.free_is_uncertain
    assert usage.remarks[0].text == ("pins unknown, so free CPUs are uncertain: the definition is not well-formed")


def test_an_unreadable_guest_is_remarked_with_the_pins_that_still_count() -> None:
    seen = guest("a", {0: 2}, validity="last-known", problem="not well-formed")
    usage = h8().usage(seen)
    assert [one.text for one in usage.remarks] == [
        "definition unreadable, last known pins used (CPU 2): not well-formed"
    ]
    assert str(usage.host.dedicated.used) == "2"


def test_shared_load_is_counted_where_it_is_confined_and_limited_by_the_ratio() -> None:
    both = host({0: Node("0-3", 8192), 1: Node("4-7", 8192)}, dedicated="2-3,6-7", shared="0-1,4-5")
    usage = both.usage(guest("a", vcpus=6, cpuset="0-1"), guest("b", vcpus=3, cpuset="0-1,4-5"))
    assert [(row.shared.limit, row.shared.used, row.shared.free) for row in usage.cells] == [(8, 6, 2), (8, 0, 8)]
    assert (usage.host.shared.limit, usage.host.shared.used, usage.host.shared.free) == (16, 9, 7)


def test_an_unknown_topology_gives_no_rows_about_cpus_that_may_well_exist() -> None:
    nothing = Host(msgspec.structs.replace(h8().topology, cells=(), cpus=()), h8().config)
    assert nothing.conflicts(guest("a", {0: 2})) == ()


def test_what_is_said_of_cpus_agrees_with_how_many_there_are() -> None:
    one, two = (_only(h8().conflicts(guest("a", pins))) for pins in ({0: 0}, {0: 0, 1: 1}))
    assert (one.cause, two.cause) == (
        "a is pinned to CPU 0, outside the dedicated set (2-7)",
        "a is pinned to CPUs 0-1, outside the dedicated set (2-7)",
    )
    assert one.action.endswith("; left alone floating guests run on CPU 0 too and take its time")
    assert two.action.endswith("; left alone floating guests run on CPUs 0-1 too and take their time")
    in_no_set = configured(h8(), shared=CpuSet())
    assert _only(in_no_set.conflicts(guest("a", {0: 0}))).action.endswith("but this CPU is in nobody's books")
    offline = _with_cpu(h8(), 5, online=False)
    rows = {row.kind: row for row in offline.conflicts(guest("a", {0: 5}), guest("b", {0: 5}))}
    assert "CPU 5 is offline, and a (vCPU 0), b (vCPU 0) are pinned to it" in rows["pinned-to-offline"].cause
    assert rows["pinned-to-offline"].action.endswith(
        "runs the threads on any other CPU, also on those of pinned guests, and the guests do not start again"
    )
