"""A saved snapshot has the claims too, so that another machine answers as this one would."""

from __future__ import annotations

from pathlib import Path

from agent.core.admission import Admitted, Refused, admit, question_of
from agent.core.fit.host import host_facts
from agent.core.instance import Group, Instance
from agent.core.reasons import CpusShort, GroupViolated
from agent.core.snapshot import Snapshot
from agent.formats import snapshot_file, wire
from tests.at_work import AtWork, asked, pinned
from tests.builders import guest, uuid_of

GROUP = Group(id="g", policy="anti-affinity")


def _saved_and_read(snapshot: Snapshot) -> Snapshot:
    return snapshot_file.from_json(wire.to_json(snapshot_file.saved(snapshot)))


def _answer(snapshot: Snapshot, vcpus: int, group: Group | None = None) -> Admitted | Refused:
    facts = host_facts(snapshot.topology, snapshot.config)
    return admit(question_of(pinned(vcpus), snapshot, facts, Instance(uuid=uuid_of("new")), group))


def test_what_is_promised_is_not_free_in_a_saved_snapshot(tmp_path: Path) -> None:
    with AtWork(tmp_path) as agent:
        agent.look(guest("here", {0: 2}))
        agent.granted(asked("c1", "coming", pinned(3)))
        told = agent.tracker.snapshot
        read = _saved_and_read(told)
    assert read.usage == told.usage
    assert [type(reason) for reason in _reasons(_answer(read, 3))] == [CpusShort]
    assert isinstance(_answer(read, 2), Admitted)


def test_seats_of_a_server_group_are_in_a_saved_snapshot(tmp_path: Path) -> None:
    with AtWork(tmp_path) as agent:
        agent.look()
        agent.granted(asked("c1", "coming", pinned(1), group=GROUP))
        read = _saved_and_read(agent.tracker.snapshot)
    assert [type(reason) for reason in _reasons(_answer(read, 1, GROUP))] == [GroupViolated]
    assert isinstance(_answer(read, 1), Admitted)


def _reasons(answer: Admitted | Refused) -> tuple[object, ...]:
    assert isinstance(answer, Refused), answer
    return answer.reasons
