"""The smallest changes that would make a guest fit, for whoever asks why it does not; never for a claim.

Each change is put to the test: the whole fit is run with it, and it is told only when the answer is yes. Told are, in
this order: what others would have to give back (`shortfall`); one setting of the guest or the host made softer; fewer
devices, vCPUs or less memory, the most that fits; and guests that would have to go, those that hold the least first.
Of several steps of one setting the smallest that helps is told. Two settings at once are not tried; two guests are
where no single one helps. The work is bounded by the number of fits, never by time, and what was left out is counted.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from agent.core.admission import Question, why_not
from agent.core.fit.pages import huge_pools
from agent.core.instance import EmulatorPolicy, PageWord
from agent.core.pci_request import PciNumaPolicy, PciRequest
from agent.core.reasons import Reason, SharedCpusShort
from agent.core.relax.changed import KIB_PER_MIB, changed
from agent.core.relax.guests import at_best, who_could_help
from agent.core.relax.shortfall import more_free
from agent.core.relax.values import (
    FewerDevices,
    FewerVcpus,
    GuestsLeave,
    LessMemory,
    MoreFree,
    OtherCells,
    OtherCpuPolicy,
    OtherDevicePolicy,
    OtherEmulatorPolicy,
    OtherPageSize,
    OtherThreadPolicy,
    Relaxation,
    Relaxations,
    ShareCells,
)

MOST_FITS = 250
"""In all; a fit for many devices takes longer, and counts as one more for each REQUESTS_A_FIT requests."""

REQUESTS_A_FIT = 16

MOST_GUESTS_TRIED = 128
"""Each try is a fit, and a fold of the books of the whole host where that fit is a yes."""

MOST_PLACES_TRIED = 16
MOST_TOLD = 4
"""Of what others could give back, and of guests that could go: who reads needs a few, not all."""

MOST_STEPS_EACH = 500
"""A search that finds something so early finds the same when it may go on for longer."""

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


def relaxations(question: Question) -> Relaxations:
    """What would make it fit, the cheapest first; the same for the same question. Nothing where it fits as it is."""
    reasons = why_not(question)
    if not reasons:
        return Relaxations()
    question = question._replace(rules=msgspec.structs.replace(question.rules, most_steps=MOST_STEPS_EACH))
    tries = _Tries(question)
    found = (*_more_free(tries), *_softer(tries, reasons), *_smaller(tries), *_guests(tries, reasons))
    return Relaxations(found=found, untried=tries.untried)


class _Tries:
    """Changes of one question put to the test. untried: those that were left out, since the bound was met."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self._left = MOST_FITS
        self.untried = 0

    def helps(self, change: Relaxation) -> bool:
        """The guest may come once this alone is changed; False, too, where that is not tried any more."""
        after = changed(self.question, change)
        return after is not None and self._is_yes(after)

    def leaving_helps(self, change: GuestsLeave) -> bool:
        """As `helps`; the books are folded anew only where the guests hold enough if nobody else holds the same."""
        gone = [self.question.snapshot.holds[guest.uuid] for guest in change.guests]
        at_most = self.question._replace(offer=at_best(self.question.offer, gone), group=None)
        return self._is_yes(at_most) and self.helps(change)

    def _is_yes(self, question: Question) -> bool:
        if self._left <= 0:
            self.untried += 1
            return False
        self._left -= 1 + len(question.request.devices) // REQUESTS_A_FIT
        return not why_not(question)


def _more_free(tries: _Tries) -> Iterator[MoreFree]:
    """For a guest of several cells one is told: others differ from it in a single host cell."""
    question = tries.question
    tried = itertools.islice(more_free(question), MOST_PLACES_TRIED)
    most = MOST_TOLD if len(question.request.cells) == 1 else 1
    return itertools.islice((change for change in tried if tries.helps(change)), most)


def _softer(tries: _Tries, reasons: Sequence[Reason]) -> Iterator[Relaxation]:
    yield from _device_policies(tries)
    if any(isinstance(reason, SharedCpusShort) for reason in reasons):
        # nobody's leaving makes shared CPUs
        yield from _first(tries, (OtherCpuPolicy(policy="dedicated", was=tries.question.request.cpu_policy),))
    for steps in _settings(tries.question):
        yield from _first(tries, steps)


def _first(tries: _Tries, steps: Iterable[_Change]) -> Iterator[_Change]:
    """The first step that helps, if any does."""
    return itertools.islice((change for change in steps if tries.helps(change)), 1)


def _settings(question: Question) -> Iterator[Iterable[Relaxation]]:
    request = question.request
    if request.thread_policy in ("require", "isolate"):
        yield (OtherThreadPolicy(policy="prefer"),)
    yield _emulator_policies(question)
    yield _page_sizes(question)
    if len(request.cells) > 1 and not question.rules.share_cells:
        yield (ShareCells(),)
    now = len(request.cells)
    counts = sorted(_CELL_COUNTS, key=lambda count: abs(count - now))
    yield tuple(OtherCells(count=count) for count in counts if now and count != now)


def _device_policies(tries: _Tries) -> Iterator[Relaxation]:
    """Of each place where policies are set by itself, else of all of them together."""
    request = tries.question.request
    strict = [one for one in request.devices if request.cells and _SOFTER[one.numa_policy]]
    settings = list(_by_setting(strict))
    alone = ([_other_policy(some, policy) for policy in _SOFTER[some[0].numa_policy]] for some in settings)
    found = [change for steps in alone for change in _first(tries, steps)]
    if not found and len(strict) > max(map(len, settings), default=0):
        found += _first(tries, [_other_policy(strict, policy) for policy in _SOFTER["socket"]])
    yield from found


def _by_setting(requests: Sequence[PciRequest]) -> Iterator[Sequence[PciRequest]]:
    """One property of a flavor or an image is the policy of several requests; an alias or a port is that of one."""
    for source in ("flavor", "image"):
        if some := [one for one in requests if one.policy_source == source]:
            yield some
    for one in _distinct([one for one in requests if one.policy_source not in ("flavor", "image")]):
        yield (one,)


def _other_policy(requests: Sequence[PciRequest], policy: PciNumaPolicy) -> OtherDevicePolicy:
    return OtherDevicePolicy(
        requests=tuple(one.id for one in requests),
        policy=policy,
        sources=tuple(one.policy_source for one in requests),
    )


def _distinct(requests: Iterable[PciRequest]) -> list[PciRequest]:
    """The first of those that ask for the same: what helps one helps each of them."""
    kinds: dict[object, PciRequest] = {}
    for one in requests:
        kinds.setdefault(repr(msgspec.structs.replace(one, id="", alias=None, policy_source="default")), one)
    return list(kinds.values())[:MOST_REQUESTS]


def _emulator_policies(question: Question) -> Iterable[Relaxation]:
    """Shared CPUs only where there are some apart from the dedicated ones."""
    request, now = question.request, question.request.emulator_policy
    share: tuple[EmulatorPolicy, ...] = (
        ("share",) if question.offer.shared_cpus and not question.facts.is_legacy else ()
    )
    policies: tuple[EmulatorPolicy | None, ...] = ()
    if now == "isolate":
        policies = (*share, None)
    elif request.cells and len(request.realtime) == request.vcpus:
        policies = (*share, "isolate")
    return tuple(OtherEmulatorPolicy(policy=policy) for policy in policies if policy != now)


def _page_sizes(question: Question) -> Iterable[Relaxation]:
    """Any size first: it keeps huge pages where there are some."""
    sizes: tuple[PageWord, ...] = ("any", "small", "large") if question.request.cells else ()
    return tuple(OtherPageSize(page_size=size) for size in sizes if size != question.request.page_size)


def _smaller(tries: _Tries) -> Iterator[Relaxation]:
    question, request = tries.question, tries.question.request
    for one in _distinct(request.devices):
        yield from _most(tries, one.count - 1, functools.partial(_fewer_devices, one.id), least=0)
    step = max(1, len(request.cells))
    counts = range(step, request.vcpus, step)
    fewest = next((count for count in counts if changed(question, FewerVcpus(vcpus=count)) is not None), request.vcpus)
    most = (request.vcpus - 1) // step
    yield from _most(tries, most, lambda count: FewerVcpus(vcpus=count * step), least=fewest // step)
    step_kib = step * _memory_step(question)
    half, whole = -(-request.memory_kib // (2 * step_kib)), (request.memory_kib - 1) // step_kib
    yield from _most(tries, whole, lambda count: LessMemory(memory_kib=count * step_kib), least=max(half, 1))


def _fewer_devices(name: str, count: int) -> Relaxation:
    return FewerDevices(request=name, count=count)


def _memory_step(question: Question) -> int:
    """What memory can be made smaller by without leaving a part of a page over."""
    sizes = [pool.size_kib for room in question.offer.cells for pool in huge_pools(question.request, room)]
    return max(KIB_PER_MIB, min(sizes, default=KIB_PER_MIB))


def _most(tries: _Tries, most: int, change: Callable[[int], Relaxation], *, least: int) -> Iterator[Relaxation]:
    """The largest number that helps, by halving: who fits also fits with less."""
    if most < least or not tries.helps(change(least)):
        return
    while least < most:
        middle = (least + most + 1) // 2
        if tries.helps(change(middle)):
            least = middle
        else:
            most = middle - 1
    yield change(least)


def _guests(tries: _Tries, reasons: Sequence[Reason]) -> Sequence[GuestsLeave]:
    """Guests whose leaving helps."""
    able = who_could_help(tries.question.snapshot, reasons)
    alone = (GuestsLeave(guests=(guest,)) for guest in able[:MOST_GUESTS_TRIED])
    found = tuple(itertools.islice((change for change in alone if tries.leaving_helps(change)), MOST_TOLD))
    if len(found) < MOST_TOLD:
        tries.untried += max(0, len(able) - MOST_GUESTS_TRIED)
    if found or tries.untried:
        return found
    pairs = (GuestsLeave(guests=pair) for pair in itertools.combinations(able[-MOST_PAIRED:], 2))
    return tuple(itertools.islice((pair for pair in pairs if tries.leaving_helps(pair)), 1))
