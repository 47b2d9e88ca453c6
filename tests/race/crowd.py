"""Many callers at once on a host with room for half of what they want, and the proof that each was answered right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from agent.adapters.journal import read_steps
from agent.core.conflicts import Conflict
from agent.core.cpuset import CpuSet
from agent.formats.claim_view import ClaimView
from agent.handlers.reads import UsageAnswer
from tests.race import replay
from tests.race.callers import Call, run_callers
from tests.race.hosts import Cell, RaceHost, Room

CALLERS = 32


def check_crowd(host: RaceHost, calls: int, seed: int) -> Counter[str]:
    """Each of 32 callers makes so many calls on a daemon that has seen none yet; how often what was decided."""
    answered = run_callers(host, CALLERS, calls, seed)
    known = {call.claim_id: call.request for one in answered for call in one if call.request is not None}
    ends = {claim_id: host.client().get_claim(claim_id).claim for claim_id in known if _was_decided(host, claim_id)}
    steps = read_steps(host.state)
    played = replay.play(steps, ends, known.values(), host.room)
    replay.check_books(played)
    codes = replay.check_refusals(played)
    replay.check_answers(played, answered, ends)
    replay.check_order(played, answered)
    _check_codes(answered)
    _check_end(host, played.held[len(steps)])
    before = _told(host)
    host.restart()
    assert _told(host) == before
    _check_end(host, played.held[len(steps)])
    return codes + Counter(step.event for step in steps if step.event != "refused")


def _was_decided(host: RaceHost, claim_id: str) -> bool:
    return host.client().get(f"/v1/claims/{claim_id}").ok


def _check_codes(answered: Sequence[Sequence[Call]]) -> None:
    """Nobody was told of a fault, or put off."""
    codes = Counter(call.code for one in answered for call in one)
    assert not codes.keys() - EXPECTED, codes


EXPECTED = {
    None,
    "ClaimEnded",
    "ClaimNotFound",
    "ComputeResourcesUnavailable",
    "GroupAffinityViolation",
    "IllegalTransition",
    "InstanceBusy",
}


def _check_end(host: RaceHost, held: replay.Held) -> None:
    """What is told now is what the steps have led to, and all that nobody holds is free."""
    claims = host.claims().claims
    assert {one.claim_id for one in claims} == set(held)
    taken = CpuSet(cpu for one in claims for cpu in _cpus(one))
    used_kib = Counter[int]()
    for one in claims:
        assert one.holds is not None
        assert one.holds.cpus == _cpus(one)
        used_kib.update(one.holds.cell_memory_kib)
    cells = {
        number: Cell(cell.cpus - taken, cell.memory_kib - used_kib[number]) for number, cell in host.room.cells.items()
    }
    assert host.free() == Room(cells, host.room.memory_kib - used_kib.total())
    usage = host.client().value("/v1/usage", UsageAnswer)
    assert (usage.host.dedicated.used, usage.host.dedicated.promised) == (CpuSet(), taken)
    assert host.client().value("/v1/conflicts", tuple[Conflict, ...]) == ()


def _cpus(view: ClaimView) -> CpuSet:
    assert view.placement is not None
    return CpuSet(cpu for cell in view.placement.cells for cpu in cell.cpus)


def _told(host: RaceHost) -> list[tuple[object, ...]]:
    return [(one.claim_id, one.state, one.instance, one.placement, one.group) for one in host.claims().claims]
