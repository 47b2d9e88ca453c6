"""Which domains a pass reads, and what becomes of those that it cannot; over a libvirt in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.adapters.processes import QemuProcesses
from agent.core.cpuset import CpuSet
from agent.core.guest import ObservedDomain
from agent.core.host_config import HostConfig
from agent.core.ledger import Listing
from agent.core.snapshot import Findings, Identity, Snapshot, SourceState, Wish, first, take_in
from agent.errors import DomainGone, LibvirtError, LibvirtTimeout, LibvirtUnavailable
from agent.look.domains import DomainsLook
from tests.builders import uuid_of
from tests.builders_proc import add_qemu, empty_proc, remove_process
from tests.builders_xml import domain_xml
from tests.fakes_libvirt import FakeLibvirt

INTERVAL_S, DEEP_INTERVAL_S = 10.0, 100.0
TIMED, EVENT = Wish(periodic=True), Wish()


class Libvirt(FakeLibvirt):
    """lists: how often the list was asked for; after_list: is called once, after the next one was given."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.lists = 0
        self.after_list: Callable[[], None] | None = None

    def list_domains(self) -> Listing:
        self.lists += 1
        listing = super().list_domains()
        after, self.after_list = self.after_list, None
        if after is not None:
            after()
        return listing


class Bench:
    """Passes over the domains alone, taken in one after another."""

    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        self.proc = empty_proc(folder)
        self.libvirt = Libvirt(clock=self.clock)
        self.libvirt.start()
        self.now += 100.0
        processes = QemuProcesses(self.proc, clock=self.clock, boot_clock=lambda: self.now + 1000.0)
        self.look = DomainsLook(
            self.libvirt,
            processes,
            clock=self.clock,
            interval_s=INTERVAL_S,
            deep_interval_s=DEEP_INTERVAL_S,
        )
        self.snapshot = first(Identity(agent_id="a", boot_id="b", epoch=1), HostConfig())
        self.found = Findings()

    def clock(self) -> float:
        """Each thing takes a moment, so that one comes before the other."""
        self.now += 1e-6
        return self.now

    def run(self, *names: str, **options: Any) -> None:
        """Running guests of these names, guest n pinned to CPU n."""
        for number, name in enumerate(names):
            uuid = self.libvirt.define(domain_xml(name, {0: number}, **options))
            add_qemu(self.proc, 2000 + len(self.libvirt.domains), uuid=uuid, name=name, vcpus=str(number))
            self.libvirt.start_domain(uuid)

    def one_pass(self, wish: Wish = TIMED, after_s: float = INTERVAL_S) -> list[str]:
        """Names of the domains that a pass read, in order."""
        self.now += after_s
        self.libvirt.reads.clear()
        self.found = self.look.look(self.snapshot.ledger, wish)
        self.snapshot = take_in(self.snapshot, self.found)
        names = {text.uuid: text.name for text in self.libvirt.domains.values()}
        return sorted(names.get(uuid, uuid) for uuid in self.libvirt.reads)

    def domain(self, name: str) -> ObservedDomain | None:
        return self.snapshot.ledger.sightings[uuid_of(name)].domain

    def held(self, name: str) -> CpuSet:
        return self.snapshot.holds[uuid_of(name)].cpus

    def validity(self) -> dict[str, str]:
        return {seen.name: seen.validity for seen in self.snapshot.ledger.sightings.values()}

    def source(self, name: str) -> SourceState:
        return self.snapshot.source(name)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "proc")


def marked(*names: str) -> Wish:
    return Wish(marked=frozenset(uuid_of(name) for name in names))


def names(numbers: Iterable[int]) -> list[str]:
    return [f"g{number:03}" for number in numbers]


def test_the_first_pass_reads_every_domain_and_the_next_none_without_a_reason(bench: Bench) -> None:
    bench.run("a", "b")
    bench.libvirt.define(domain_xml("off"))
    assert bench.one_pass() == ["a", "b", "off"]
    assert bench.one_pass(EVENT) == []
    assert bench.libvirt.lists == 2


def test_a_marked_domain_is_read_again_and_no_other(bench: Bench) -> None:
    bench.run("a", "b", "c")
    bench.one_pass()
    assert bench.one_pass(marked("b")) == ["b"]


def test_a_mark_of_a_domain_that_libvirt_no_longer_has_reads_nothing(bench: Bench) -> None:
    bench.run("a")
    bench.one_pass()
    assert bench.one_pass(marked("never-seen")) == []


def test_what_the_list_alone_shows_as_changed_is_read_again(bench: Bench) -> None:
    """A restart gives another id, a rename another name; no event told of them."""
    bench.run("a", "b", "c", "d")
    bench.one_pass()
    bench.libvirt.stop_domain(uuid_of("a"))
    bench.libvirt.stop_domain(uuid_of("b"))
    bench.libvirt.start_domain(uuid_of("b"))
    bench.libvirt.define(domain_xml("c", {0: 2}).replace("<name>c<", "<name>renamed<"))
    bench.libvirt.define(domain_xml("new"))
    assert bench.one_pass(EVENT) == ["a", "b", "new", "renamed"]


def test_a_wish_for_all_domains_reads_all(bench: Bench) -> None:
    bench.run("a", "b")
    bench.one_pass()
    assert bench.one_pass(Wish(domains=True)) == ["a", "b"]


def test_after_a_reconnect_every_domain_is_read_over_the_new_connection(bench: Bench) -> None:
    bench.run("a", "b")
    bench.one_pass()
    bench.libvirt.lose("libvirtd was stopped")
    bench.libvirt.reconnect()
    assert bench.one_pass(EVENT) == ["a", "b"]
    assert {seen.connection for seen in bench.snapshot.ledger.sightings.values()} == {2}


def test_an_unchanged_text_is_not_parsed_again(bench: Bench) -> None:
    bench.run("a")
    bench.one_pass()
    before, read_at = bench.domain("a"), bench.snapshot.ledger.sightings[uuid_of("a")].begun_at
    bench.one_pass(marked("a"))
    assert bench.domain("a") is before
    assert bench.snapshot.ledger.sightings[uuid_of("a")].begun_at > read_at
    bench.libvirt.define(domain_xml("a", {0: 5}))
    bench.one_pass(marked("a"))
    assert [str(pin.cpus) for pin in getattr(bench.domain("a"), "vcpu_pins", ())] == ["5"]


def test_a_reading_that_changed_nothing_leaves_the_folded_usage_as_it_is(bench: Bench) -> None:
    bench.run("a", "b")
    bench.one_pass()
    before = bench.snapshot.usage
    bench.one_pass(marked("a", "b"))
    assert bench.snapshot.usage is before


def test_timed_passes_read_their_share_of_the_oldest(bench: Bench) -> None:
    bench.run(*names(range(25)))
    bench.one_pass()
    share = math.ceil(25 * INTERVAL_S / DEEP_INTERVAL_S)
    read = [bench.one_pass() for _ in range(8)]
    assert [len(one) for one in read] == [share] * 8
    assert len({name for one in read for name in one}) == 8 * share


@pytest.mark.parametrize("late_s", [0.0, 0.4, 3.0])
@pytest.mark.parametrize("count", [1, 9, 10, 53])
def test_no_definition_grows_older_than_the_deep_interval_though_passes_come_late(
    bench: Bench, count: int, late_s: float
) -> None:
    bench.run(*names(range(count)))
    bench.one_pass()
    for _ in range(25):
        bench.one_pass(after_s=INTERVAL_S + late_s)
        ages = [bench.now - seen.begun_at for seen in bench.snapshot.ledger.sightings.values()]
        assert max(ages) <= DEEP_INTERVAL_S + late_s + 0.1
    per_pass = (INTERVAL_S + late_s) / DEEP_INTERVAL_S
    assert len(bench.one_pass()) <= math.ceil(count * per_pass) + 1


def test_events_do_not_use_up_the_share_of_the_timed_passes(bench: Bench) -> None:
    bench.run(*names(range(20)))
    bench.one_pass()
    assert bench.one_pass(EVENT) == []
    assert len(bench.one_pass()) == 2


def test_a_new_deep_interval_is_shared_out_anew(bench: Bench) -> None:
    bench.run(*names(range(20)))
    bench.one_pass()
    bench.look.deep_interval_s = 40.0
    assert len(bench.one_pass()) == 5


def test_a_domain_that_vanishes_between_list_and_read_is_proven_gone_by_a_second_list(bench: Bench) -> None:
    bench.run("b")
    bench.one_pass()
    remove_process(bench.proc, 2001)
    bench.libvirt.after_list = bench.libvirt.domains.clear
    bench.libvirt.lists = 0
    bench.one_pass(marked("b"))
    assert bench.libvirt.lists == 2
    assert bench.validity() == {}
    assert all(one.validity == "valid" for one in bench.found.sightings)
    assert (bench.source("libvirt").problem, bench.source("domains").problem) == (None, None)


def test_no_such_domain_for_one_call_is_no_absence(bench: Bench) -> None:
    bench.run("a", "b")
    bench.one_pass()
    bench.libvirt.fail(uuid_of("b"), DomainGone("no such domain"))
    bench.one_pass(marked("a", "b"))
    assert bench.validity() == {"a": "valid", "b": "valid"}


def test_a_definition_that_does_not_parse_costs_itself_and_its_last_known_text_counts(bench: Bench) -> None:
    bench.run("a", "b")
    bench.one_pass()
    good = bench.domain("b")
    bench.libvirt.define(domain_xml("b", {0: 1}).replace("</domain>", "<domain>"))
    bench.one_pass(marked("a", "b"))
    assert bench.validity() == {"a": "valid", "b": "last-known"}
    assert bench.domain("b") is good
    seen = bench.snapshot.ledger.sightings[uuid_of("b")]
    assert (seen.state, seen.problem) == (
        "running",
        "the XML of domain 'b' is not well-formed XML: no element found: line 1, column 225",
    )
    told = bench.source("domains").problem
    assert told is not None
    assert told.startswith("1 definition cannot be read, what was last known of it counts; b: the XML of domain 'b'")
    bench.libvirt.define(domain_xml("b", {0: 1}))
    assert bench.one_pass(EVENT) == ["b"]
    assert bench.validity() == {"a": "valid", "b": "valid"}
    assert bench.source("domains").problem is None


def test_of_a_domain_never_readable_the_threads_of_its_process_tell_the_cpus(bench: Bench) -> None:
    uuid = bench.libvirt.define("<domain><name>x</name><uuid>6695eb01-f6a4-8304-79aa-97f2502e193f</uuid>")
    bench.libvirt.start_domain(uuid)
    add_qemu(bench.proc, 2001, uuid=uuid, name="x", vcpus="4-5")
    bench.one_pass()
    seen = bench.snapshot.ledger.sightings[uuid]
    assert (seen.validity, seen.domain, seen.kernel_cpus) == ("last-known", None, CpuSet((4, 5)))
    assert seen.kernel_pins == CpuSet()


@pytest.mark.parametrize("error", [LibvirtTimeout("it hangs"), LibvirtError("refused"), LibvirtUnavailable("lost")])
def test_a_domain_whose_call_fails_keeps_what_was_last_known_and_holds_it(bench: Bench, error: LibvirtError) -> None:
    bench.run("a", "b")
    bench.one_pass()
    good = bench.domain("b")
    bench.libvirt.fail(uuid_of("b"), error)
    bench.one_pass(marked("a", "b"))
    seen = bench.snapshot.ledger.sightings[uuid_of("b")]
    assert (seen.validity, seen.is_active, seen.problem) == ("last-known", True, str(error))
    assert seen.domain is good
    assert bench.validity()["a"] == "valid"
    bench.libvirt.heal()
    bench.one_pass(EVENT)
    assert bench.validity() == {"a": "valid", "b": "valid"}


def test_a_shut_off_domain_whose_call_fails_does_not_begin_to_hold(bench: Bench) -> None:
    bench.libvirt.define(domain_xml("off", {0: 3}))
    bench.one_pass()
    bench.libvirt.fail(uuid_of("off"), LibvirtTimeout("it hangs"))
    bench.one_pass(marked("off"))
    seen = bench.snapshot.ledger.sightings[uuid_of("off")]
    assert (seen.validity, seen.is_active) == ("last-known", False)


def test_while_libvirt_is_out_of_reach_all_that_was_known_stays(bench: Bench) -> None:
    bench.run("a", "b")
    bench.libvirt.define(domain_xml("off"))
    bench.one_pass()
    before, read_at = bench.snapshot, bench.source("libvirt").read_at
    bench.libvirt.lose("libvirtd was stopped. Start it.")
    for _ in range(3):
        assert bench.one_pass() == []
    assert dict(bench.snapshot.ledger.sightings) == dict(before.ledger.sightings)
    assert bench.snapshot.usage is before.usage
    assert bench.source("libvirt") == SourceState(
        name="libvirt", read_at=read_at, problem="libvirtd was stopped. Start it."
    )
    assert bench.source("processes").read_at == bench.now
    assert bench.found.listing is None


def test_a_list_that_fails_over_a_good_connection_keeps_all_too(bench: Bench) -> None:
    bench.run("a")
    bench.one_pass()
    bench.libvirt.fail_list(LibvirtTimeout("did not list the domains within 10 s"))
    bench.one_pass(Wish(domains=True))
    assert bench.validity() == {"a": "valid"}
    assert bench.found.listing is None
    assert bench.source("libvirt").problem == "did not list the domains within 10 s"


def test_a_guest_that_ends_while_libvirt_is_out_of_reach_is_found_off_afterwards(bench: Bench) -> None:
    bench.run("a", "b")
    bench.one_pass()
    bench.libvirt.lose("libvirtd was stopped")
    bench.libvirt.stop_domain(uuid_of("b"))
    remove_process(bench.proc, 2002)
    bench.one_pass()
    assert bench.snapshot.ledger.sightings[uuid_of("b")].is_active
    bench.libvirt.reconnect()
    bench.one_pass(EVENT)
    assert not bench.snapshot.ledger.sightings[uuid_of("b")].is_active


def test_a_guest_that_libvirt_forgets_while_its_qemu_lives_still_holds(bench: Bench) -> None:
    bench.run("a", "b")
    bench.one_pass()
    del bench.libvirt.domains[uuid_of("b")]
    bench.one_pass()
    assert bench.validity() == {"a": "valid", "b": "lost-by-libvirt"}
    remove_process(bench.proc, 2002)
    bench.one_pass()
    assert bench.validity() == {"a": "valid"}


def test_of_two_processes_of_a_guest_the_one_that_is_left_holds_its_own_cpus_at_once(bench: Bench) -> None:
    bench.run("a")
    bench.one_pass()
    uuid = uuid_of("a")
    bench.libvirt.stop_domain(uuid)
    bench.one_pass()
    assert bench.validity() == {"a": "lost-by-libvirt"}
    bench.libvirt.define(domain_xml("a", {0: 5}))
    bench.libvirt.start_domain(uuid)
    add_qemu(bench.proc, 3000, uuid=uuid, name="a", start_ticks=200, vcpus="5")
    bench.one_pass()
    seen = bench.snapshot.ledger.sightings[uuid]
    assert (seen.validity, seen.run.pid, [other.run.pid for other in seen.others]) == ("valid", 3000, [2001])
    assert bench.held("a") == CpuSet([0, 5])

    remove_process(bench.proc, 3000)
    bench.libvirt.stop_domain(uuid)
    bench.one_pass(marked("a"))
    left = bench.snapshot.ledger.sightings[uuid]
    assert (left.validity, left.run.pid, left.others) == ("lost-by-libvirt", 2001, ())
    assert bench.held("a") == CpuSet([0])


def test_qemu_processes_of_another_libvirt_are_no_guests_of_this_one(bench: Bench) -> None:
    bench.run("a")
    add_qemu(bench.proc, 3000, uuid=uuid_of("stranger"), name="stranger")
    bench.one_pass()
    bench.one_pass()
    assert bench.validity() == {"a": "valid"}


def test_when_processes_cannot_be_seen_nothing_is_taken_for_gone(bench: Bench) -> None:
    bench.run("a")
    bench.one_pass()
    remove_process(bench.proc, 1)
    bench.libvirt.stop_domain(uuid_of("a"))
    bench.libvirt.undefine(uuid_of("a"))
    bench.one_pass()
    assert set(bench.validity()) == {"a"}
    told = bench.source("processes").problem
    assert told is not None
    assert "ProtectProc=default" in told


def test_a_list_of_a_connection_that_has_not_settled_removes_nothing(bench: Bench) -> None:
    bench.run("a")
    bench.one_pass()
    bench.libvirt.lose("libvirtd was restarted")
    remove_process(bench.proc, 2001)
    del bench.libvirt.domains[uuid_of("a")]
    bench.libvirt.reconnect()
    bench.one_pass(after_s=0.1)
    assert set(bench.validity()) == {"a"}
    bench.one_pass(after_s=5.0)
    assert bench.validity() == {}


def test_texts_of_domains_that_are_gone_are_forgotten(bench: Bench) -> None:
    """The cache is keyed by uuid: one that comes back with its old text is parsed anew."""
    bench.libvirt.define(domain_xml("off"))
    bench.one_pass()
    before = bench.domain("off")
    text = bench.libvirt.domains[uuid_of("off")]
    bench.libvirt.undefine(uuid_of("off"))
    bench.one_pass()
    bench.libvirt.domains[text.uuid] = msgspec.structs.replace(text)
    bench.one_pass()
    assert bench.domain("off") == before
    assert bench.domain("off") is not before


def test_snapshot_is_complete_once_domains_were_listed(bench: Bench) -> None:
    bench.libvirt.lose("not there yet")
    bench.one_pass()
    before: Snapshot = bench.snapshot
    bench.libvirt.reconnect()
    bench.one_pass()
    assert (before.complete, bench.snapshot.complete) == (False, True)


def without_process(bench: Bench, *names: str) -> None:
    """Guests that libvirt lists as starting, and no QEMU of theirs is seen."""
    for name in names:
        bench.libvirt.start_domain(bench.libvirt.define(domain_xml(name)), "paused", "starting-up")


def test_one_guest_without_a_process_puts_no_other_in_doubt_where_processes_have_been_seen(bench: Bench) -> None:
    bench.run("a", "b")
    bench.one_pass()
    without_process(bench, "phantom")
    for number, name in ((2001, "a"), (2002, "b")):
        remove_process(bench.proc, number)
        bench.libvirt.stop_domain(uuid_of(name))
    bench.libvirt.undefine(uuid_of("b"))

    bench.one_pass()

    assert bench.source("processes").problem is None
    states = {seen.name: seen.state for seen in bench.snapshot.ledger.sightings.values()}
    assert states == {"a": "shut-off", "phantom": "paused"}


def test_in_the_kernels_first_pid_namespace_no_process_is_out_of_sight(bench: Bench) -> None:
    (bench.proc / "self/ns").mkdir(parents=True)
    (bench.proc / "self/ns/pid").symlink_to("pid:[4026531836]")
    without_process(bench, "phantom")
    bench.one_pass()
    assert bench.source("processes").problem is None


def test_active_guests_without_any_visible_process_make_nothing_absent(bench: Bench) -> None:
    without_process(bench, "a", "b", "c")
    bench.one_pass()

    bench.libvirt.stop_domain(uuid_of("a"))
    bench.libvirt.undefine(uuid_of("a"))
    bench.one_pass()

    assert bench.validity().keys() == {"a", "b", "c"}
    assert "PID namespace" in (bench.source("processes").problem or "")
