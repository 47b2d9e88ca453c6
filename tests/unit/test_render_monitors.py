"""What monitoring reads: Nagios's one line, Prometheus's text format."""

from __future__ import annotations

import re

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.core.conflicts import Owner, Resource, Severity
from agent.render.nagios import nagios_failure, nagios_line
from agent.render.prometheus import prometheus_failure, prometheus_text
from tests.builders import unread
from tests.cli_reports import (
    accepting,
    blind,
    calm,
    conflict,
    contended,
    host_report,
    lost,
    smt_topology,
    with_conflicts,
)

# https://www.monitoring-plugins.org/doc/guidelines.html: STATUS text | 'label'=value[UOM];[warn];[crit];[min];[max]
PERFORMANCE = re.compile(r"(?P<label>[a-z_]+)=(?P<value>-?\d+)[a-zA-Z%]?(;-?\d*){0,4}")
LINE = re.compile(r"COMPUTE-AGENT (?P<word>OK|WARNING|CRITICAL|UNKNOWN) - (?P<text>[^|\n]+)(?: \| (?P<data>[^|\n]+))?")


def parsed(line: str) -> tuple[str, dict[str, int]]:
    match = LINE.fullmatch(line)
    assert match, line
    values = [PERFORMANCE.fullmatch(part) for part in (match["data"] or "").split()]
    assert all(values), line
    return match["word"], {value["label"]: int(value["value"]) for value in values if value}


@pytest.mark.parametrize(
    ("severity", "word", "code"),
    [("info", "OK", 0), ("warning", "WARNING", 1), ("error", "CRITICAL", 2), ("critical", "CRITICAL", 2)],
)
def test_the_worst_severity_is_what_nagios_hears(severity: Severity, word: str, code: int) -> None:
    line = nagios_line(with_conflicts(calm(), conflict("info"), conflict(severity)))
    assert (parsed(line.text)[0], line.code) == (word, code)


def test_a_calm_host_is_ok_with_its_numbers() -> None:
    line = nagios_line(calm())
    assert line.code == 0
    assert line.text.startswith("COMPUTE-AGENT OK - no conflicts | ")
    assert parsed(line.text)[1] == {
        "conflicts": 0, "critical": 0, "error": 0, "warning": 0, "info": 0, "accepted": 0, "guests": 1, "problems": 0,
        "dedicated_free": 10,
    }  # fmt: skip


def test_the_line_names_what_conflicts_and_who() -> None:
    text = nagios_line(contended()).text
    assert text.startswith("COMPUTE-AGENT CRITICAL - 2 conflicts: 2 errors. CPU 2: pinned twice (database, web), ")
    assert parsed(text)[1]["error"] == 2


def test_accepted_conflicts_do_not_alarm() -> None:
    line = nagios_line(accepting())
    assert line.code == 0
    assert parsed(line.text)[1]["accepted"] == len(contended().conflicts)


def test_a_host_whose_guests_cannot_be_seen_is_unknown_rather_than_ok() -> None:
    line = nagios_line(blind())
    assert (parsed(line.text)[0], line.code) == ("UNKNOWN", 3)
    assert "libvirt is not running" in line.text


def test_a_lost_libvirt_is_unknown_although_guests_are_known() -> None:
    line = nagios_line(lost())
    assert (parsed(line.text)[0], line.code) == ("UNKNOWN", 3)
    assert "libvirt: libvirt is not running. Start it (last read 1 min 4 s ago)" in line.text


def test_one_guest_that_cannot_be_read_is_a_warning() -> None:
    line = nagios_line(with_conflicts(host_report(smt_topology(), unread("dark"))))
    assert (parsed(line.text)[0], line.code) == ("WARNING", 1)
    assert "cannot be read now, last known is shown: dark" in line.text


def test_a_failure_is_unknown_on_one_line() -> None:
    line = nagios_failure("libvirt | is\nnot running")
    assert line.text == "COMPUTE-AGENT UNKNOWN - libvirt / is not running"
    assert line.code == 3


def test_many_conflicts_stay_on_one_line_that_counts_the_rest() -> None:
    rows = [conflict(resource=Resource(kind="cpu", id=str(n), cell=0)) for n in range(40)]
    text = nagios_line(with_conflicts(calm(), *rows)).text
    assert "CPU 2: pinned twice (web) and 37 more" in text


def families(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Value by labels, by family; the real parser refuses what is no exposition format."""
    return {
        family.name: {tuple(sorted(sample.labels.items())): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(text)
    }


def test_prometheus_reads_every_family_with_help_and_type() -> None:
    found = list(text_string_to_metric_families(prometheus_text(contended())))
    assert len({family.name for family in found}) == len(found) >= 13
    assert {family.type for family in found} == {"gauge"}
    assert all(family.documentation and family.samples for family in found)
    assert all(family.name.startswith("compute_agent_") for family in found)


def test_prometheus_gets_the_numbers_of_the_books() -> None:
    found = families(prometheus_text(contended()))
    assert found["compute_agent_look_success"] == {(): 1}
    assert found["compute_agent_conflicts"][("accepted", "false"), ("severity", "error")] == 2
    assert found["compute_agent_guests"] == {(("state", "active"),): 2, (("state", "inactive"),): 1}
    assert found["compute_agent_dedicated_cpus"][("cell", "0"), ("state", "free")] == 1
    assert found["compute_agent_memory_bytes"][("cell", "0"), ("state", "used")] == 1 << 30
    pages = found["compute_agent_hugepages"]
    assert pages[("cell", "0"), ("size", "2097152"), ("state", "free")] == -512
    assert found["compute_agent_devices"][("state", "used"), ("type", "type-VF")] == 1


def test_every_conflict_is_a_series_that_names_it() -> None:
    series = families(prometheus_text(contended()))["compute_agent_conflict_info"]
    assert {dict(labels)["resource"] for labels in series} == {"cpu 2", "pages 2048"}
    assert {dict(labels)["owners"] for labels in series} == {"database,web", "web"}


def test_labels_survive_quotes_backslashes_and_newlines() -> None:
    name = 'a"b\\c\nd'
    row = conflict(owners=(Owner(type="domain", uuid="u", name=name),))
    series = families(prometheus_text(with_conflicts(calm(), row)))["compute_agent_conflict_info"]
    assert [dict(labels)["owners"] for labels in series] == [name]


def test_a_host_without_guests_devices_or_pages_still_parses() -> None:
    bare = msgspec.structs.replace(host_report(smt_topology()), topology=smt_topology())
    assert families(prometheus_text(bare))["compute_agent_guests"][("state", "active"),] == 0


def test_a_failed_look_tells_prometheus_just_that() -> None:
    assert families(prometheus_failure()) == {"compute_agent_look_success": {(): 0}}
