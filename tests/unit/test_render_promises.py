"""What is promised, where people and programs read it."""

from __future__ import annotations

import msgspec

from agent.cli.source import started
from agent.core.claim.book import Book
from agent.core.claim.values import BuildFailure, Claim, Maintenance
from agent.core.pci import PciAddress
from agent.core.report import ClaimReport, Report
from agent.core.report import report as report_of
from agent.core.snapshot import with_book
from agent.core.words import plain
from agent.formats.wire import from_json, to_json
from agent.render.cpu_states import CpuState, cpu_states
from agent.render.guest_text import guest_text
from agent.render.holders import why_cpu, why_device, why_guest, why_text
from agent.render.host_state import status_text
from agent.render.prometheus import prometheus_text
from agent.render.usage_text import usage_rows, usage_text
from tests.builders_claims import book_with, claim_of, place
from tests.cli_reports import NOW_S, VF, WEB, devices, host_snapshot, smt_topology

NIC = "0000:3b:02.1"
PROMISED = claim_of("db", place(4, 5, mem=1024, page=2048, dev=(NIC,)), claim_id="c-7")


def told(*claims: Claim, failures: tuple[BuildFailure, ...] = (), maintenance: Maintenance | None = None) -> Report:
    """A host with the guest web, these claims, and what else is in the book."""
    topology = msgspec.structs.replace(smt_topology(), pci=devices())
    snapshot = host_snapshot(topology, WEB)
    book = book_with(*claims)._replace(failures=failures, maintenance=maintenance)
    after = with_book(snapshot, book, {claim.instance.uuid for claim in claims})
    return report_of(after, now_s=NOW_S, interval_s=10.0)


def rows(report: Report) -> dict[tuple[int | str, str], tuple[object, object, object]]:
    """Used, promised and free."""
    return {(row.cell, row.resource): (row.used, row.promised, row.free) for row in usage_rows(report.usage)}


def test_usage_tells_what_is_promised_apart_from_what_is_used() -> None:
    found = rows(told(PROMISED))
    assert found["host", "dedicated_cpus"] == ("2-3", "4-5", "6-7,10-15")
    assert found[1, "pci:8086:154c:type-VF"] == (1, 1, 1)
    assert found["host", "pages_2048_kib"][1] == 512
    assert "PROMISED" in usage_text(told(PROMISED).usage)


def test_why_names_the_claim_that_a_cpu_or_a_device_is_promised_by() -> None:
    report = told(PROMISED)
    assert "  promised to db (claim c-7, reserved)\n" in why_text(why_cpu(report, 4, started))
    nic = why_text(why_device(report, PciAddress.parse(NIC), started))
    assert "  promised to db (claim c-7, reserved)\n" in nic
    assert "held by web" in why_text(why_device(report, PciAddress.parse(VF), started))


def test_a_guest_shows_the_claims_that_hold_for_it() -> None:
    report = told(claim_of("web", place(2, 3, mem=2048, page=2048, dev=(VF,)), state="resident", claim_id="c-1"))
    (guest,) = report.guests
    assert [one.claim_id for one in guest.claims] == ["c-1"]
    assert "  claim     c-1, build, resident since " in guest_text(guest, (), started=None)
    assert "  claim c-1 holds for it, resident\n" in why_text(why_guest(report, guest, started))


def test_status_counts_claims_and_says_why_the_host_takes_no_guests() -> None:
    failure = BuildFailure(claim_id="c-0", instance="i", at="2026-11-30T11:00:00Z", at_s=0.0, reason="it went away")
    closed = Maintenance(reason="new\nmemory", since="2026-11-30T11:30:00Z")
    late = claim_of("late", place(6), state="overdue")
    text = status_text(told(PROMISED, late, failures=(failure,), maintenance=closed), width=200)
    assert "pinned    2 CPUs used, 3 promised, 7 of 12 dedicated free\n" in text
    assert "claims    2 held, 1 overdue\n" in text
    assert "failures  1 guest admitted that did not come to be, lately\n" in text
    assert f"closed    for maintenance since 2026-11-30T11:30:00Z: {plain(closed.reason)}\n" in text


def test_a_host_without_claims_says_nothing_of_them() -> None:
    text = status_text(told())
    assert [word for word in ("promised", "claims", "closed", "failures") if word in text] == []


def test_the_map_marks_a_cpu_that_is_promised_and_not_used() -> None:
    report = told(PROMISED)
    states = cpu_states(report.topology, report.usage, report.conflicts)
    assert (states[2], states[4], states[6]) == (CpuState.PINNED, CpuState.PROMISED, CpuState.FREE)


def test_metrics_tell_claims_of_every_state_and_what_is_promised() -> None:
    lines = prometheus_text(told(PROMISED, maintenance=Maintenance(reason="r", since=""))).splitlines()
    assert 'compute_agent_claims{state="reserved"} 1.0' in lines
    assert 'compute_agent_claims{state="doubtful"} 0.0' in lines
    assert 'compute_agent_dedicated_cpus{cell="1",state="promised"} 2.0' in lines
    assert 'compute_agent_hugepages{cell="0",size="2097152",state="promised"} 512.0' in lines
    assert 'compute_agent_devices{state="promised",type="type-VF"} 1.0' in lines
    assert "compute_agent_maintenance 1.0" in lines
    assert "compute_agent_build_failures 0.0" in lines


def test_health_counts_claims_and_the_report_survives_the_wire() -> None:
    report = told(PROMISED, claim_of("split", place(7), state="doubtful"))
    health = report.health
    assert (health.claims, health.claims_overdue, health.claims_doubtful, health.maintenance) == (2, 0, 1, None)
    assert isinstance(report.claims[0], ClaimReport)
    assert from_json(to_json(report), Report) == report


def test_an_empty_book_is_told_as_such() -> None:
    assert (told().claims, told().maintenance, told().health.claims) == ((), None, len(Book().claims))
