"""Claims for people: all that hold something, one of them with what may be done with it, and why one was refused."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from agent.core.claim.table import FROM_CALLERS, Event, events
from agent.core.claim.values import ClaimKind, Ending, Role, State
from agent.core.claim.way_out import claim_command, finish_command
from agent.core.commands import command, option
from agent.core.cpuset import CpuSet
from agent.core.instance import GroupPolicy, Instance
from agent.core.ledger import Holds
from agent.core.pci import PciAddress
from agent.core.placement import Placement
from agent.core.words import count, plain, plural, some
from agent.render import words
from agent.render.fit_text import NO_CELLS, place_text
from agent.render.guest_text import held_text
from agent.render.paint import Paint, no_paint
from agent.render.table import wrap

MEANING: Mapping[State, str] = MappingProxyType(
    {
        "pending": "it is being written down",
        "reserved": "its place is kept until its domain comes",
        "overdue": "its deadline has passed; its place is kept a little longer",
        "arriving": "its domain is here and settles",
        "resident": "the guest lives here",
        "away": "its domain is gone, though nobody said that the guest left",
        "leaving": "the guest is being moved to another host",
        "parked": "it waits until its move is confirmed or reverted",
        "doubtful": "its move broke in the middle: the guest may be on both hosts, or on none",
        "ended": "it holds nothing any more",
    }
)

ROLES: Mapping[Role, str] = MappingProxyType(
    {
        "owner": "",
        "incoming": ", on its way here",
        "in_place": ", of a guest that stays here",
    }
)

IN_PLACE: Mapping[State, str] = MappingProxyType(
    {
        "reserved": "what its guest is to have is kept until that is changed",
        "overdue": "its deadline has passed; what its guest is to have is kept a little longer",
    }
)
"""What differs for a guest that is here already and stays."""

STYLES: Mapping[State, str] = MappingProxyType(
    {"overdue": "warning", "away": "warning", "doubtful": "error", "ended": "faint"}
)

WAITING: frozenset[State] = frozenset({"reserved", "overdue"})
NOT_HERE_YET: frozenset[State] = WAITING | {"pending", "arriving"}

ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "elsewhere": "Try another host.",
        "later": "Ask this host again later.",
        "never": "Asking the same again will not help.",
    }
)
"""By `retry` of a refusal."""


WIDEST_ID = 36
"""Of the column of ids: that of a uuid. What is longer moves its own line only."""

LEAST_ROOM = 40
"""Columns beside an id and a state for the rest to stay there: a uuid is not to be broken."""


class ClaimPage(NamedTuple):
    """What is shown of one claim. kind, role, instance: None of an id that was refused, or aborted, before there was a
    claim. since, made_at, deadline_at: RFC 3339. group: its id. ended: how, of one that is no more. ending: as what it
    ends once its domain is gone. is_observed: no claim made the guest, which is only seen here."""

    claim_id: str
    state: State
    kind: ClaimKind | None = None
    role: Role | None = None
    instance: Instance | None = None
    since: str | None = None
    made_at: str | None = None
    deadline_at: str | None = None
    move_id: str | None = None
    peer: str | None = None
    placement: Placement | None = None
    group: str | None = None
    holds: Holds | None = None
    reason: str | None = None
    ended: str | None = None
    ending: Ending | None = None
    is_observed: bool = False

    @property
    def meaning(self) -> str:
        """Of its state, in a sentence."""
        in_place = IN_PLACE.get(self.state) if self.role == "in_place" else None
        return in_place or MEANING[self.state]

    @property
    def guest(self) -> str:
        """The guest in a sentence: its name, or its uuid where it has none."""
        if self.instance is None:
            return "no guest"
        return plain(self.instance.name if self.instance.name.strip() else self.instance.uuid)


def claim_text(
    page: ClaimPage,
    *,
    now_s: float,
    device_cells: Mapping[PciAddress, int | None] = NO_CELLS,
    width: int = 80,
    paint: Paint = no_paint,
) -> str:
    """All of one claim, and the commands that go on from here. now_s: since 1970. Ends with a newline."""
    state = f"{page.state} ({plain(page.ended)})" if page.ended else page.state
    title = wrap(f"{state}: {page.meaning}", width, rest="  ")
    lines = [paint("strong", f"claim {plain(page.claim_id)}") + "\n"]
    lines.append(paint(STYLES.get(page.state, "ok"), state) + title.removeprefix(state))
    lines += [_fact(name, text, width) for name, text in _facts(page, now_s)]
    if page.placement is not None:
        size = words.size(page.placement.memory_kib)
        lines.append(_fact("place", f"{plural(CpuSet(range(page.placement.vcpus)), 'vCPU')} and {size}", width))
        place = place_text(page.placement, device_cells=device_cells, width=width - 2)
        lines += [f"  {line}\n" for line in place.splitlines()]
    lines += _next_lines(page, width)
    return "".join(lines)


def claims_text(pages: Sequence[ClaimPage], *, now_s: float, width: int = 80) -> str:
    """A paragraph each: its id and its state in columns, then what it is. Ends with a newline."""
    if not pages:
        return "no claims\n"
    ids = [plain(page.claim_id) for page in pages]
    id_width = min(max(map(len, ids)), WIDEST_ID)
    state_width = max(len(page.state) for page in pages)
    indent = " " * (id_width + state_width + 4)
    rest = indent if width - len(indent) >= LEAST_ROOM else "    "
    heads = [f"{one:<{id_width}}  {page.state:<{state_width}}  " for one, page in zip(ids, pages, strict=True)]
    return "".join(
        wrap("; ".join(_parts(page, now_s)), width, first=head, rest=rest)
        for head, page in zip(heads, pages, strict=True)
    )


def claim_line(page: ClaimPage, *, now_s: float, width: int = 80) -> str:
    """What has become of it, in a sentence. Ends with a newline."""
    return wrap(f"claim {page.claim_id}: {_in_short(page, now_s)}", width, rest="  ")


def refused_text(
    message: str,
    reasons: Sequence[str],
    advice: str,
    *,
    for_callers: bool = False,
    width: int = 80,
    paint: Paint = no_paint,
) -> str:
    """The sentence, each reason, and the advice whether and where to ask again. Ends with a newline.

    for_callers: the sentence is one that programs wait for, and says less than the reasons, which come first.
    """
    first, *others = [*reasons, message] if for_callers and reasons else [message, *reasons]
    title = wrap(f"Refused: {first}", width, rest="  ")
    lines = [paint("error", "Refused") + title.removeprefix("Refused")]
    if for_callers and reasons:
        *others, told = others
        others.append(f"what callers are told: {told}")
    is_said = len(others) == 1 and (others[0].rpartition(": ")[0] or others[0]) in message
    lines += [] if is_said else [wrap(reason, width, first="  - ") for reason in others]
    return "".join([*lines, wrap(advice, width)])


class GroupPage(NamedTuple):
    """A server group as this host knows it. most: instances on one host, of anti-affinity. members: by uuid, whether
    it counts here; seated: all that count here."""

    group: str
    policy: GroupPolicy | None
    most: int
    generation: int | None
    members: Mapping[str, bool]
    seated: Sequence[str]


def group_text(page: GroupPage, *, width: int = 80, paint: Paint = no_paint) -> str:
    """All of it. Ends with a newline."""
    most, members, seated = page.most, page.members, page.seated
    rule = {None: "no policy, so no rule", "anti-affinity": f"anti-affinity, at most {most} on a host"}
    lines = [
        paint("strong", f"group {plain(page.group)}") + "\n",
        _fact("policy", rule.get(page.policy) or str(page.policy), width),
    ]
    lines.append(_fact("generation", "not told" if page.generation is None else str(page.generation), width))
    for uuid, is_here in members.items():
        lines.append(_fact("member", f"{uuid}{', has a seat here' if is_here else ''}", width))
    lines += [_fact("member", f"{uuid}, has a seat here", width) for uuid in seated if uuid not in members]
    lines.append(_fact("seats", count(len(seated), "seat", "seats") + " taken on this host", width))
    return "".join(lines)


def held_cpus(page: ClaimPage) -> CpuSet:
    """Host CPUs that it holds for itself."""
    return CpuSet() if page.holds is None else page.holds.cpus


def until(moment: str, now_s: float) -> str:
    """RFC 3339 with how far off it is: "2026-11-30T12:15:00Z (in 14 min 3 s)"."""
    try:
        left_s = datetime.fromisoformat(moment).timestamp() - now_s
    except (ValueError, OverflowError):
        return plain(moment)
    distance = f"in {words.age(left_s)}" if left_s > 0 else f"{words.age(-left_s)} ago"
    return f"{plain(moment)} ({distance})"


def _in_short(page: ClaimPage, now_s: float) -> str:
    how = f" ({page.ended})" if page.ended else ""
    what, *rest = _parts(page, now_s)
    return "; ".join([f"{page.state}{how}, {what}", *rest])


def _parts(page: ClaimPage, now_s: float) -> list[str]:
    """What it is, what it holds, until when, and why."""
    parts = [_what(page)]
    if page.ending is not None:
        parts.append(f"ends ({page.ending}) once its domain is gone")
    if held := held_cpus(page):
        parts.append(plural(held))
    if page.deadline_at is not None:
        parts.append(f"until {until(page.deadline_at, now_s)}")
    if page.reason:
        parts.append(page.reason)
    return parts


def _what(page: ClaimPage) -> str:
    if page.kind is None:
        return "before there was a claim"
    if page.is_observed:
        return f"guest {page.guest}, which no claim made"
    return f"{_kind(page)} of {page.guest}"


def _kind(page: ClaimPage) -> str:
    return "" if page.kind is None else page.kind.replace("_", " ")


def _whole_kind(page: ClaimPage) -> str:
    if page.is_observed:
        return "observed: no claim made this guest; it holds what is seen of it"
    return f"{_kind(page)}{'' if page.role is None else ROLES[page.role]}"


def _facts(page: ClaimPage, now_s: float) -> Iterator[tuple[str, str]]:
    if page.instance is not None:
        name = f"{page.instance.name}  " if page.instance.name.strip() else ""
        yield "guest", f"{name}{page.instance.uuid}"
    if page.kind is not None:
        yield "kind", _whole_kind(page)
    if page.ending is not None:
        yield "ends", f"as {page.ending}, by itself, once its domain is gone; until then it holds"
    if page.since is not None:
        yield "since", until(page.since, now_s)
    if page.made_at is not None and page.made_at != page.since:
        yield "made", until(page.made_at, now_s)
    if page.deadline_at is not None:
        yield "deadline", until(page.deadline_at, now_s)
    if page.move_id is not None or page.peer is not None:
        yield "move", ", ".join([page.move_id or "without an id", *([f"with host {page.peer}"] if page.peer else [])])
    if page.group is not None:
        yield "group", page.group
    if page.reason:
        yield "reason", page.reason
    if page.holds is not None:
        yield "holds", _held(page.holds)


def _held(held: Holds) -> str:
    parts = [held_text(held)]
    if held.sibling_cpus:
        parts.append(f"keeps {plural(held.sibling_cpus)} idle")
    shared = sum(held.cell_shared.values()) + held.host_shared
    if shared:
        parts.append(f"{shared} of its vCPUs {'float' if shared > 1 else 'floats'}")
    names = [*map(str, held.devices), *held.mdevs]
    if names:
        parts.append(f"{'device' if len(names) == 1 else 'devices'} {some(names, 8)}")
    return "; ".join(part for part in parts if part != "nothing" or len(parts) == 1)


def _next_lines(page: ClaimPage, width: int) -> Iterator[str]:
    """What a caller may do in this state, each with its command on a line of its own, however long that is."""
    heading = "next"
    for what, line in _next(page):
        yield _fact(heading, what, width)
        if line:
            yield f"{'':15}{plain(line)}\n"
        heading = ""


def _next(page: ClaimPage) -> Iterator[tuple[str, str]]:
    if page.state == "ended" or page.role is None:
        yield "nothing: claim it anew, under a new id", ""
        return
    callers = {event for event in events(page.state, page.role) if event in FROM_CALLERS}
    yield from _of_its_place(page, callers)
    if page.state == "resident":
        yield "what its domain has now is what it shall hold", claim_command("accept-observed", page.claim_id)
    if "release" in callers:
        yield "end it; a domain that runs holds on by itself", claim_command("release", page.claim_id)
    if "finish-confirmed" in callers and page.move_id is not None:
        yield "its move is over; HOW: confirmed, reverted or failed", finish_command(page.move_id)
    if "forget" in callers and page.state not in NOT_HERE_YET and page.instance is not None:
        there = option("--moved-to", page.peer or "HOST")
        yield "it lives elsewhere now", command("agentctl instance forget", page.instance.uuid, options=(there,))


def _of_its_place(page: ClaimPage, callers: Container[Event]) -> Iterator[tuple[str, str]]:
    """While its guest is still to come, or to be changed."""
    wording = _WORDING.get(page.role or "owner", _WORDING["owner"])
    if page.state in WAITING and page.placement is not None:
        yield wording.begin, command("agentctl claim show", page.claim_id, options=("--domain-xml",))
    if "confirm" in callers:
        yield wording.confirm if page.ending is None else wording.keep, claim_command("confirm", page.claim_id)
    if "renew" in callers and page.deadline_at is not None:
        yield "more time", claim_command("renew", page.claim_id)
    if "abort" in callers and page.ending is None:
        yield wording.abort, claim_command("abort", page.claim_id)


class _Wording(NamedTuple):
    """What may be done while a guest is to come, by the claim's role."""

    begin: str
    confirm: str
    abort: str
    keep: str = "it shall stay after all"


_WORDING: Mapping[Role, _Wording] = MappingProxyType(
    {
        "owner": _Wording(
            begin="start the guest: its place, as parts of its domain",
            confirm="it is here: do not wait",
            abort="the guest does not come: give its place back",
        ),
        "incoming": _Wording(
            begin="bring the guest here: its place, as parts of its domain",
            confirm="it is here: do not wait",
            abort="the guest does not come: give its place back",
        ),
        "in_place": _Wording(
            begin="change the guest: what it is to have, as parts of its domain",
            confirm="it runs as changed: do not wait",
            abort="the guest stays as it is: give back what was kept for it",
        ),
    }
)


def _fact(name: str, text: str, width: int) -> str:
    return wrap(text, width, first=f"  {name:<10} ")
