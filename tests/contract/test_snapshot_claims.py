"""A saved snapshot has the claims too, so that another machine answers as this one would."""

from __future__ import annotations

from pathlib import Path

from agent.core.admission import question_of, why_not
from agent.core.fit.host import host_facts
from agent.core.instance import Group, Instance
from agent.core.reasons import CpusShort, GroupViolated, Reason
from agent.core.snapshot import Snapshot
from agent.formats import snapshot_file, wire
from tests.at_work import AtWork, asked, pinned
from tests.builders import guest, uuid_of

GROUP = Group(id="g", policy="anti-affinity")


def _saved_and_read(snapshot: Snapshot) -> Snapshot:
    return snapshot_file.from_json(wire.to_json(snapshot_file.saved(snapshot)))


def _reasons(snapshot: Snapshot, vcpus: int, group: Group | None = None) -> list[type[Reason]]:
    facts = host_facts(snapshot.topology, snapshot.config)
    question = question_of(pinned(vcpus), snapshot, facts, Instance(uuid=uuid_of("new")), group)
    return [type(reason) for reason in why_not(question)]


def test_what_is_promised_is_not_free_in_a_saved_snapshot(tmp_path: Path) -> None:
    with AtWork(tmp_path) as agent:
        agent.look(guest("here", {0: 2}))
        agent.granted(asked("c1", "coming", pinned(3)))
        told = agent.tracker.snapshot
        read = _saved_and_read(told)
    assert read.usage == told.usage
    assert _reasons(read, 3) == [CpusShort]
    assert _reasons(read, 2) == []


def test_seats_of_a_server_group_are_in_a_saved_snapshot(tmp_path: Path) -> None:
    with AtWork(tmp_path) as agent:
        agent.look()
        agent.granted(asked("c1", "coming", pinned(1), group=GROUP))
        read = _saved_and_read(agent.tracker.snapshot)
    assert _reasons(read, 1, GROUP) == [GroupViolated]
    assert _reasons(read, 1) == []
