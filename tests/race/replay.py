"""The journal's steps played again: what was held at each of them, and whether each answer was true then."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from immutables import Map

from agent.core.claim.refusal import REMEMBERED
from agent.core.claim.values import ClaimRequest, Step
from agent.core.cpuset import CpuSet
from agent.core.placement import Placement
from agent.formats.claim_view import ClaimView
from tests.race.callers import Call
from tests.race.hosts import Room

Held = Map[str, ClaimView]
"""By claim id."""


class Played(NamedTuple):
    """steps: all. held: what was held after each, by sequence; 0: at first. replaced: by claim id, the step from which
    on another claim had its place. asked: by claim id."""

    steps: tuple[Step, ...]
    held: Mapping[int, Held]
    replaced: Mapping[str, int]
    asked: Mapping[str, ClaimRequest]
    room: Room


def play(
    steps: Sequence[Step],
    views: Mapping[str, ClaimView],
    asked: Iterable[ClaimRequest],
    room: Room,
) -> Played:
    """views: each claim that there ever was, with its placement.

    What is replaced holds until the disk has both: until its second step, "committed".
    """
    held: dict[int, Held] = {0: Map()}
    replaced: dict[str, int] = {}
    for number, step in enumerate(steps, 1):
        assert step.sequence == number, f"a step is missing before {step}"
        now, claim_id = held[number - 1], str(step.claim_id)
        if step.event == "admitted":
            assert claim_id not in now, step
            beside = {one for one, view in now.items() if _uuid(view) == step.instance}
            assert beside <= replaced.keys(), step
            now = now.set(claim_id, views[claim_id])
        elif step.event == "replace":
            replaced[claim_id] = number
        elif step.after == "ended":
            assert claim_id in now, [one for one in steps if one.claim_id == claim_id]
            assert (step.event == "committed") == (claim_id in replaced), step
            now = now.delete(claim_id)
        held[number] = now
    return Played(tuple(steps), held, replaced, {one.claim_id: one for one in asked}, room)


class Taken(NamedTuple):
    """cpus: how many instances hold each. memory_kib: by cell."""

    cpus: Counter[int]
    memory_kib: Counter[int]


def taken(held: Held) -> Taken:
    """Of an instance that is being replaced both claims count as one: ids once, and of each cell's memory the more."""
    cpus: dict[str, CpuSet] = {}
    memory: dict[tuple[str, int], int] = {}
    for view in held.values():
        uuid, own = _uuid(view), Counter[int]()
        for cell in _placement(view).cells:
            cpus[uuid] = cpus.get(uuid, CpuSet()) | cell.cpus
            own[cell.host_cell] += cell.memory_kib
        memory |= {(uuid, cell): max(kib, memory.get((uuid, cell), 0)) for cell, kib in own.items()}
    by_cell = Counter[int]()
    for (_, number), kib in memory.items():
        by_cell[number] += kib
    return Taken(Counter(itertools.chain.from_iterable(cpus.values())), by_cell)


# --- at each step --------------------------------------------------------------------------------------


def check_books(played: Played) -> None:
    """Nothing is held twice and nothing beyond what there is; no group has more seats than its rule allows."""
    before = None
    for sequence, held in played.held.items():
        if held is not before:
            _check_room(sequence, held, played)
            _check_seats(sequence, held, played)
        before = held


def _check_room(sequence: int, held: Held, played: Played) -> None:
    room = played.room
    for view in held.values():
        for cell in _placement(view).cells:
            assert cell.cpus <= room.cells[cell.host_cell].cpus, view.claim_id
    assert max(taken(held).cpus.values(), default=1) == 1, (sequence, held)
    # what is still counted of a claim whose place another has needs no room of its own
    last = {one: view for one, view in held.items() if played.replaced.get(one, sequence + 1) > sequence}
    memory_kib = taken(Map(last)).memory_kib
    for number, used_kib in memory_kib.items():
        assert used_kib <= room.cells[number].memory_kib, (sequence, number)
    assert memory_kib.total() <= room.memory_kib, sequence


def _check_seats(sequence: int, held: Held, played: Played) -> None:
    seated: dict[str, set[str]] = {}
    for view in held.values():
        if view.group is not None:
            seated.setdefault(view.group, set()).add(_uuid(view))
    for claim_id in held:
        group = played.asked[claim_id].group
        if group is not None:
            assert len(seated[group.id]) <= group.max_server_per_host, (sequence, group.id, seated)


# --- answers -----------------------------------------------------------------------------------------------


def check_refusals(played: Played) -> Counter[str]:
    """Each refusal that is remembered was true on the books that it names; how many of each code there were."""
    codes: Counter[str] = Counter()
    for step in played.steps:
        if step.event == "refused":
            assert step.claim_id is not None
            assert step.as_of is not None
            codes[str(step.ending)] += 1
            assert step.as_of < step.sequence, step
            _check_refusal(step, played.asked[step.claim_id], played.held[step.as_of], played.room)
        elif step.event == "admitted":
            _check_admission(step, played)
    return codes


def _check_admission(step: Step, played: Played) -> None:
    group = played.asked[str(step.claim_id)].group
    if group is not None:
        others = _others(played.held[step.sequence], group.id, step.instance)
        assert step.seats == {group.id: len(others)}, (step, others)


def _check_refusal(step: Step, asked: ClaimRequest, held: Held, room: Room) -> None:
    there = Map({claim_id: view for claim_id, view in held.items() if claim_id != asked.context.replaces})
    match step.ending:
        case "ComputeResourcesUnavailable":
            assert not has_room(asked, there, room), (step, sorted(there))
        case "GroupAffinityViolation":
            assert asked.group is not None
            others = _others(held, asked.group.id, asked.instance.uuid)
            assert len(others) >= asked.group.max_server_per_host, (step, others)
            assert step.seats == {asked.group.id: len(others)}, (step, others)
        case "InstanceBusy":
            # one that is not on the disk yet cannot be replaced either
            busy = held if "cannot be replaced now" in str(step.note) else there
            assert asked.instance.uuid in map(_uuid, busy.values()), step
        case _:
            raise AssertionError(step)


def has_room(asked: ClaimRequest, held: Held, room: Room) -> bool:
    """Whether any way of putting guest cells onto cells of the host gives each its CPUs and memory."""
    cpus, memory_kib = taken(held)
    left = {
        number: (len(cell.cpus - CpuSet(cpus)), cell.memory_kib - memory_kib[number])
        for number, cell in room.cells.items()
    }
    if asked.binding.memory_kib > room.memory_kib - memory_kib.total():
        return False
    wanted = [(len(cell.pinned), cell.memory_kib) for cell in asked.binding.cells]
    return any(
        all(count <= left[cell][0] and kib <= left[cell][1] for (count, kib), cell in zip(wanted, chosen, strict=True))
        for chosen in itertools.permutations(left, len(wanted))
    )


def check_answers(played: Played, calls: Sequence[Sequence[Call]], ends: Mapping[str, ClaimView]) -> None:
    """All that was answered of a claim agrees, with the steps too. calls: by caller; ends: what each claim became."""
    admitted = {str(step.claim_id) for step in played.steps if step.event == "admitted"}
    refused = {step.claim_id: step for step in played.steps if step.event == "refused"}
    assert not admitted & refused.keys()
    made: Counter[str] = Counter()
    for call in itertools.chain.from_iterable(calls):
        if call.request is None:
            continue
        if call.answer.refusal is None:
            told = call.told
            made[call.claim_id] += told.is_new
            assert call.claim_id in admitted, call
            assert told.claim.placement == ends[call.claim_id].placement, call
        elif call.claim_id in refused and call.code in REMEMBERED:
            ended = ends[call.claim_id].ended
            assert ended is not None
            assert call.answer.refusal == ended.refusal, call
        elif call.code in REMEMBERED:
            raise AssertionError(call)
    assert max(made.values(), default=1) == 1
    # whoever made a claim that another had ended before it could be told of it was told that it has ended
    assert all(ends[claim_id].state == "ended" for claim_id in admitted if not made[claim_id])


def check_order(played: Played, calls: Sequence[Sequence[Call]]) -> None:
    """A refusal is no older than what whoever asked had been told before."""
    ended = {step.claim_id: step.sequence for step in played.steps if step.after == "ended"}
    admitted = {step.claim_id: step.sequence for step in played.steps if step.event == "admitted"}
    refused = {step.claim_id: step for step in played.steps if step.event == "refused"}
    for of_one in calls:
        known = 0
        for call in of_one:
            if call.verb == "claim" and call.claim_id in refused:
                as_of = refused[call.claim_id].as_of
                assert as_of is not None
                assert as_of >= known, (call, known, refused[call.claim_id])
            elif call.verb == "claim" and call.answer.refusal is None:
                known = max(known, admitted[call.claim_id])
            elif call.verb == "abort" and call.answer.refusal is None:
                known = max(known, ended.get(call.claim_id, 0))


def _others(held: Held, group: str, uuid: str | None) -> set[str]:
    return {_uuid(view) for view in held.values() if view.group == group} - {uuid}


def _uuid(view: ClaimView) -> str:
    assert view.instance is not None, view
    return view.instance.uuid


def _placement(view: ClaimView) -> Placement:
    assert view.placement is not None, view
    return view.placement
