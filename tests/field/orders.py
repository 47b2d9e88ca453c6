"""Field cases in which passes, callers and the ends of claims meet at one time, in as many orders as are asked for.

Threads begin together, in an order by chance, and are told to step aside a thousand times as often as is usual.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from agent.claims import Granted
from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.values import Claim, Tombstone
from agent.core.cpuset import CpuSet
from agent.core.guest import DomainState, RunIdentity, Sighting
from agent.core.instance import Group
from agent.core.snapshot import Snapshot
from tests.at_work import AtWork, asked, pinned
from tests.builders import function, guest, h8, uuid_of
from tests.field.claims import offering
from tests.fit.requests import asks, wants

PATIENCE_S = 60.0
MIB = 1024
SWITCH_S = 5e-6
CARD = "0000:5e:00.0"


def check_claims_between_passes(state_path: Path, orders: int, seed: int) -> None:
    """audit-claim-not-yet-stored: three claims and two passes; no pass shows as free what was answered before it."""
    with AtWork(state_path) as at_work, restless(seed) as rng:
        at_work.look()
        for order in range(orders):
            answered: list[CpuSet] = []

            def claim(name: str, order: int = order, answered: list[CpuSet] = answered) -> None:
                made = at_work.granted(asked(f"{name}-{order}", f"{name}-{order}", pinned(2)))
                answered.append(cpus_of(made))

            def look(answered: list[CpuSet] = answered) -> None:
                known = list(answered)
                seen = at_work.look()
                assert not any(free(seen) & cpus for cpus in known)

            at_once(rng, lambda: claim("k1"), look, lambda: claim("k2"), look, lambda: claim("k3"))
            assert sorted(cpu for cpus in answered for cpu in cpus) == [2, 3, 4, 5, 6, 7]
            assert str(free(at_work.tracker.snapshot)) == ""
            for claim_id in tuple(at_work.book.claims):
                at_work.claims.abort(claim_id)
            assert str(free(at_work.tracker.snapshot)) == "2-7"


def check_end_of_evacuation(state_path: Path, orders: int, seed: int) -> None:
    """audit-end-of-evacuation: a guest starts and its claim is confirmed while a pass looks at before or after."""
    taking = asks(1, pci=(wants(),))
    with AtWork(state_path, offering(h8(pci=(function(CARD),)))) as at_work, restless(seed) as rng:
        at_work.look()
        for order in range(orders):
            e1 = at_work.granted(asked(f"e1-{order}", "a", taking, kind="evacuate"))
            world = [] if rng.random() < 0.5 else [of_run("a", order + 1, 2, dev=(CARD,), state="paused")]
            at_work.look(*world)

            def start(order: int = order, world: list[Sighting] = world) -> None:
                world[:] = [of_run("a", order + 1, 2, dev=(CARD,))]
                at_work.claims.confirm(f"e1-{order}")

            at_once(rng, start, partial(look_at, at_work, world), lambda: shows(at_work, "2", 1))
            after = at_work.look(*world)
            assert (str(after.holds[uuid_of("a")].cpus), str(free(after))) == ("2", "3-7")
            assert [owner.name for row in after.usage.pci for owner in row.owners] == ["a"]
            assert at_work.refused(asked(f"k1-{order}", "x", taking)).code == "PciRequestError"
            at_work.look(*world)
            assert isinstance(at_work.claims.release(e1.claim_id), Tombstone)
            assert str(free(at_work.look())) == "2-7"


def check_reverts_between_passes(state_path: Path, orders: int, seed: int) -> None:
    """resize-revert-meets-audit: what came with the move is gone, and is in each picture whole or not at all."""
    b = of_run("b", 1, 7, mem=1024)
    whole, without = (CpuSet([2, 3, 7]), 3072 * MIB), (CpuSet([7]), 1024 * MIB)
    with AtWork(state_path) as at_work, restless(seed) as rng:
        at_work.look(b)
        for order in range(orders):
            r1 = at_work.granted(asked(f"r1-{order}", "a", pinned(2, 2048), kind="resize"))
            a = of_run("a", order + 2, 2, 3, mem=2048)
            at_work.look(a, b)
            at_work.look(a, b)
            assert at_work.book.claims[r1.claim_id].state == "resident"
            if rng.random() < 0.5:
                at_work.look(b)
            told: list[tuple[CpuSet, int]] = []

            def watch(told: list[tuple[CpuSet, int]] = told) -> None:
                told.extend(taken(at_work.tracker.snapshot) for _ in range(20))

            at_once(rng, partial(at_work.claims.finish_move, r1.claim_id, "reverted"), lambda: at_work.look(b), watch)
            assert set(told) <= {whole, without}
            assert taken(at_work.look(b)) == without
            assert at_work.book.tombstones[r1.claim_id].ending == "reverted"


def check_two_members_at_once(state_path: Path, orders: int, seed: int) -> None:
    """group-two-live-migrations-one-target: one of two comes; who was refused then still is after a restart."""
    with AtWork(state_path) as at_work, restless(seed) as rng:
        at_work.look()
        for order in range(orders):
            group = Group(id=f"g-{order}", policy="anti-affinity", members=(uuid_of("a"), uuid_of("b")))
            answers: dict[str, Granted | ClaimRefusal] = {}

            def ask(
                name: str,
                number: int = order,
                group: Group = group,
                answers: dict[str, Granted | ClaimRefusal] = answers,
            ) -> None:
                request = asked(f"{name}-{number}", name, pinned(1), kind="live_migration", group=group)
                answers[name] = at_work.claims.claim(request)

            at_once(rng, lambda: ask("a"), lambda: ask("b"))
            (won,) = (answer.claim for answer in answers.values() if isinstance(answer, Granted))
            ((lost, refusal),) = ((name, one) for name, one in answers.items() if isinstance(one, ClaimRefusal))
            assert (refusal.code, refusal.retry) == ("GroupAffinityViolation", "elsewhere")
            if order % 50 == 0:
                at_work.restart()
                at_work.look()
            run = of_run(won.instance.name, order + 1, *cpus_of(won))
            at_work.look(run)
            assert isinstance(at_work.claims.confirm(won.claim_id), Granted)
            ask(lost, orders + order)
            again = answers[lost]
            assert isinstance(again, ClaimRefusal)
            assert (again.code, again.retry) == ("GroupAffinityViolation", "elsewhere")
            assert isinstance(at_work.claims.release(won.claim_id), Tombstone)
            at_work.look()


# --- at one time -------------------------------------------------------------------------------------


@contextlib.contextmanager
def restless(seed: int) -> Iterator[random.Random]:
    """Threads take turns often; chance with this seed."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield random.Random(seed)
    finally:
        sys.setswitchinterval(before)


def at_once(rng: random.Random, *acts: Callable[[], object]) -> None:
    """All of them, each in a thread of its own; what one raises is raised here."""
    gate = threading.Barrier(len(acts))
    raised: list[BaseException] = []

    def run(act: Callable[[], object]) -> None:
        try:
            gate.wait(PATIENCE_S)
            act()
        except BaseException as error:  # noqa: BLE001 - of whatever kind, it is raised anew below
            raised.append(error)

    threads = [threading.Thread(target=run, args=(act,)) for act in rng.sample(acts, len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    if raised:
        raise raised[0]


def of_run(
    name: str, run: int, *pins: int, dev: tuple[str, ...] = (), mem: int = 512, state: DomainState = "running"
) -> Sighting:
    """A guest in one of its runs."""
    identity = RunIdentity(libvirt_id=run, pid=run)
    return guest(name, dict(enumerate(pins)), dev=dev, mem=mem, node=0, run=identity, state=state)


def look_at(at_work: AtWork, world: list[Sighting]) -> None:
    """A pass over the guests that there are when it begins."""
    at_work.look(*world)


def shows(at_work: AtWork, cpus: str, devices: int) -> None:
    """In whatever picture, somebody has these CPUs and so many devices."""
    for _ in range(20):
        snapshot = at_work.tracker.snapshot
        assert str(taken(snapshot)[0]) == cpus
        assert sum(bool(row.owners) for row in snapshot.usage.pci) == devices


def taken(snapshot: Snapshot) -> tuple[CpuSet, int]:
    """CPUs and memory (KiB) that guests and claims have."""
    cell = snapshot.usage.cells[0]
    return cell.dedicated.used | cell.dedicated.promised, cell.memory_kib.used + cell.memory_kib.promised


def free(snapshot: Snapshot) -> CpuSet:
    """What a claim would find."""
    return snapshot.usage.host.dedicated.free


def cpus_of(claim: Claim) -> CpuSet:
    """What was promised."""
    assert claim.placement is not None
    return CpuSet(cpu for cell in claim.placement.cells for cpu in cell.pins.values())
