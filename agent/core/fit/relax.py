"""The smallest changes that would make a guest fit, for whoever asks why it does not; never for a claim.

Each change is put to the test: the whole fit is run with it, and it is told only when the answer is yes. Told are, in
this order: what others would have to give back (`lacks`); one setting of the guest or the host made softer; fewer
devices, vCPUs or less memory, the most that fits; and guests that would have to go, those that hold the least first.
Of several steps of one setting the smallest that helps is told. Two settings at once are not tried; two guests are
where no single one helps. The work is bounded by the number of fits, never by time.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from agent.core.fit.changed import KIB_PER_MIB, Case, case_of, changed, fits
from agent.core.fit.decide import fit
from agent.core.fit.host import HostFacts
from agent.core.fit.lacks import more_free
from agent.core.fit.leaving import who_could_help
from agent.core.fit.rules import NoFit
from agent.core.instance import EmulatorPolicy, InstanceRequest, PageWord
from agent.core.pci_request import PciNumaPolicy
from agent.core.relaxation import (
    FewerDevices,
    FewerVcpus,
    GuestsLeave,
    LessMemory,
    MoreFree,
    OtherCells,
    OtherDevicePolicy,
    OtherEmulatorPolicy,
    OtherPageSize,
    OtherThreadPolicy,
    Relaxation,
    Relaxations,
    ShareCells,
)
from agent.core.snapshot import Snapshot

MOST_GUESTS_TRIED = 64
"""Each try folds the books of the whole host anew."""

MOST_PLACES_TRIED = 16
MOST_TOLD = 4
"""Of what others could give back, and of guests that could go: who reads needs a few, not all."""

MOST_REQUESTS = 8
MOST_PAIRED = 8

_SOFTER: dict[PciNumaPolicy, tuple[PciNumaPolicy, ...]] = {
    "required": ("socket", "legacy", "preferred"),
    "socket": ("legacy", "preferred"),
    "legacy": ("preferred",),
    "preferred": (),
}
_CELL_COUNTS = (1, 2, 4)

_Change = TypeVar("_Change", bound=Relaxation)


def relaxations(request: InstanceRequest, snapshot: Snapshot, facts: HostFacts) -> Relaxations:
    """What would make it fit, the cheapest first; the same for the same arguments. Nothing where it fits as it is.

    facts: `host_facts` of the snapshot's topology and configuration.
    """
    case = case_of(request, snapshot, facts)
    answer = fit(case.request, case.offer, case.rules)
    if not isinstance(answer, NoFit):
        return Relaxations()
    guests, untried = _guests(case, answer)
    return Relaxations(found=(*_more_free(case), *_softer(case), *_smaller(case), *guests), untried=untried)


def helps(case: Case, change: Relaxation) -> bool:
    """The guest fits once this alone is changed."""
    after = changed(case, change)
    return after is not None and fits(after)


def _more_free(case: Case) -> Iterator[MoreFree]:
    tried = itertools.islice(more_free(case), MOST_PLACES_TRIED)
    return itertools.islice((change for change in tried if helps(case, change)), MOST_TOLD)


def _softer(case: Case) -> Iterator[Relaxation]:
    yield from _device_policies(case)
    for steps in _settings(case):
        yield from _first(case, steps)


def _first(case: Case, steps: Iterable[_Change]) -> Iterator[_Change]:
    """The first step that helps, if any does."""
    return itertools.islice((change for change in steps if helps(case, change)), 1)


def _settings(case: Case) -> Iterator[Iterable[Relaxation]]:
    request = case.request
    if request.thread_policy in ("require", "isolate"):
        yield (OtherThreadPolicy(policy="prefer"),)
    yield _emulator_policies(request)
    yield _page_sizes(case)
    if len(request.cells) > 1 and not case.rules.share_cells:
        yield (ShareCells(),)
    now = len(request.cells)
    counts = sorted(_CELL_COUNTS, key=lambda count: abs(count - now))
    yield tuple(OtherCells(count=count) for count in counts if now and count != now)


def _device_policies(case: Case) -> Iterator[Relaxation]:
    """Of each request by itself, else of all of them together."""
    strict = [one for one in case.request.devices if case.request.cells and _SOFTER[one.numa_policy]]
    alone = (
        [OtherDevicePolicy(requests=(one.id,), policy=policy) for policy in _SOFTER[one.numa_policy]]
        for one in strict[:MOST_REQUESTS]
    )
    found = [change for steps in alone for change in _first(case, steps)]
    if not found and len(strict) > 1:
        names = tuple(one.id for one in strict)
        together = [OtherDevicePolicy(requests=names, policy=policy) for policy in _SOFTER["socket"]]
        found += _first(case, together)
    yield from found


def _emulator_policies(request: InstanceRequest) -> Iterable[Relaxation]:
    policies: tuple[EmulatorPolicy | None, ...] = ()
    if request.emulator_policy == "isolate":
        policies = ("share", None)
    elif len(request.realtime) == request.vcpus:
        policies = ("share", "isolate")
    return tuple(
        OtherEmulatorPolicy(policy=policy) for policy in policies if request.cells and policy != request.emulator_policy
    )


def _page_sizes(case: Case) -> Iterable[Relaxation]:
    """Any size first: it keeps huge pages where there are some."""
    sizes: tuple[PageWord, ...] = ("any", "small", "large") if case.request.cells else ()
    return tuple(OtherPageSize(page_size=size) for size in sizes if size != case.request.page_size)


def _smaller(case: Case) -> Iterator[Relaxation]:
    request = case.request
    for one in request.devices[:MOST_REQUESTS]:
        yield from _most(case, one.count - 1, functools.partial(_fewer_devices, one.id), least=0)
    step = max(1, len(request.cells))
    vcpus = (request.vcpus - 1) // step
    yield from _most(case, vcpus, lambda count: FewerVcpus(vcpus=count * step))
    step_kib = step * _memory_step(request)
    half, whole = -(-request.memory_kib // (2 * step_kib)), (request.memory_kib - 1) // step_kib
    yield from _most(case, whole, lambda count: LessMemory(memory_kib=count * step_kib), least=half)


def _fewer_devices(name: str, count: int) -> Relaxation:
    return FewerDevices(request=name, count=count)


def _memory_step(request: InstanceRequest) -> int:
    return request.page_size if isinstance(request.page_size, int) and request.page_size > KIB_PER_MIB else KIB_PER_MIB


def _most(case: Case, most: int, change: Callable[[int], Relaxation], least: int = 1) -> Iterator[Relaxation]:
    """The largest number that helps, by halving: who fits also fits with less."""
    if most < least or not helps(case, change(least)):
        return
    while least < most:
        middle = (least + most + 1) // 2
        if helps(case, change(middle)):
            least = middle
        else:
            most = middle - 1
    yield change(least)


def _guests(case: Case, answer: NoFit) -> tuple[Sequence[GuestsLeave], int]:
    """Guests whose leaving helps, and how many were not looked at."""
    able = who_could_help(case.snapshot, answer.reasons)
    found: list[GuestsLeave] = []
    for guest in able[:MOST_GUESTS_TRIED]:
        if len(found) == MOST_TOLD:
            return found, 0
        change = GuestsLeave(guests=(guest,))
        found += [change] if helps(case, change) else []
    if not found and len(able) <= MOST_GUESTS_TRIED:
        pairs = (GuestsLeave(guests=pair) for pair in itertools.combinations(able[-MOST_PAIRED:], 2))
        found += itertools.islice((pair for pair in pairs if helps(case, pair)), 1)
    return found, max(0, len(able) - MOST_GUESTS_TRIED)
