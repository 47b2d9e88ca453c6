"""Seats in server groups on this host: who has one, whether one more may have one, and who is a member (LEDGER 5).

A member has a seat by a claim that holds, or by a domain: an active one always, one that is off unless the member has
left this host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from agent.core.claim.book import Book, Draft
from agent.core.claim.refusal import ClaimRefusal
from agent.core.claim.values import Claim, ClaimKind, GroupRule, Membership, State, Step
from agent.core.conflicts import Conflict, Owner, Resource, by_name, conflict
from agent.core.guest import Sighting
from agent.core.holds import owner_of
from agent.core.instance import Group
from agent.core.reason_text import listed, owner_name
from agent.core.reasons import GroupViolated
from agent.core.words import agrees, brief, count, plain

Sightings = Mapping[str, Sighting]

Way = Literal[
    "build",
    "rebuild",
    "evacuate",
    "unshelve",
    "prep_resize",
    "check_can_live_migrate_destination",
    "pre_live_migration",
]
"""How a guest comes to a host, by the name of the call that asks for it."""

_COMING: frozenset[State] = frozenset({"pending", "reserved", "overdue", "arriving"})
_LONGEST_NAME = 80
_NOTED_EVERY_S = 3600.0
"""So often the journal is told that a member is still here."""


class Seat(NamedTuple):
    """The place of one member. claim: the earliest by which it has it; None: by its domain alone. sequence: the
    journal's number of when a guest that is still on its way took its seat; 0: it is here, and who comes is later.
    owner: as rows and refusals name it."""

    instance: str
    label: str
    claim: Claim | None
    sequence: int
    owner: Owner


def seats(book: Book, sightings: Sightings, group_id: str, extra_members: Collection[str] = ()) -> tuple[Seat, ...]:
    """Every seat of a group on this host, by name; each instance has one. extra_members: uuids of instances that are
    members too, whether or not the book has them."""
    named = frozenset(extra_members)
    # asked with every claim, under the tracker's lock: members are fewer than guests, and their keys are at hand
    members = named.union([uuid for group, uuid in book.members if group == group_id])
    found = (_member_seat(book, sightings, group_id, uuid, named) for uuid in members)
    return tuple(sorted((seat for seat in found if seat is not None), key=_order))


def group_refusal(
    group: Group | None,
    instance: str,
    book: Book,
    sightings: Sightings,
    *,
    host: str,
    in_place: bool,
    before: int | None = None,
) -> GroupViolated | None:
    """Why the group forbids this host to the instance; None: it does not.

    The instance itself never counts, and one that is seated here already makes nothing worse. host: the name of this
    one; empty: not known. in_place: it is here and stays. before: for a guest that has a seat, the sequence of its
    claim: guests on their way count only if their seat is older, so that of two exactly one has to give way.
    """
    if group is None or in_place or group.policy not in {"anti-affinity", "affinity"}:
        return None
    known = seats(book, sightings, group.id, {instance, *_told_members(group, book)})
    counting = [seat for seat in known if before is None or seat.sequence < before]
    if any(seat.instance == instance for seat in counting):
        return None
    if group.policy == "affinity":
        return None if counting or not _is_elsewhere(group, host) else _apart(group, instance, host)
    limit = _limit(group, book)
    if len(counting) < limit:
        return None
    owners = tuple(sorted((seat.owner for seat in counting), key=by_name))
    return GroupViolated(group=group.id, instance=instance, policy="anti-affinity", members=owners, limit=limit)


def soft_remarks(group: Group | None, instance: str, book: Book, sightings: Sightings, *, host: str) -> tuple[str, ...]:
    """What of the group's policy is only a wish that this host does not meet, or could not be looked at; a sentence
    each, without a full stop. Arguments as of `group_refusal`."""
    if group is None:
        return ()
    others = others_seated(group, instance, book, sightings)
    return tuple(_remarks(group, instance, [plain(seat.label) for seat in others], host))


def others_seated(group: Group | None, instance: str, book: Book, sightings: Sightings) -> tuple[Seat, ...]:
    """Seats of the group that others have: what a step in the journal counts."""
    if group is None:
        return ()
    known = seats(book, sightings, group.id, _told_members(group, book))
    return tuple(seat for seat in known if seat.instance != instance)


def guarantee_of(group: Group | None) -> Literal["host"] | None:
    """ "host": the policy spans hosts, and was checked by what this one knows and was told."""
    return "host" if group is not None and group.policy == "affinity" else None


# --- what a refusal is called ------------------------------------------------------------------------


def way_of(kind: ClaimKind, *, is_recheck: bool = False) -> Way:
    """The call that asks for such a claim, or (is_recheck) asks again before a live migration begins."""
    match kind:
        case "live_migration":
            return "pre_live_migration" if is_recheck else "check_can_live_migrate_destination"
        case "resize" | "cold_migration":
            return "prep_resize"
        case _:
            return kind


def group_message(way: Way, violated: GroupViolated) -> str:
    """The sentence that callers of nova's methods know, word for word."""
    policy = violated.policy.capitalize()
    short = f"Build of instance {violated.instance} was re-scheduled: {policy} instance group policy was violated"
    if way != "check_can_live_migrate_destination":
        return short
    return f"Migration pre-check error: Failed to validate instance group policy due to: {short}."


def group_log_line(way: Way, violated: GroupViolated) -> str:
    """The same for the log, where a pre-check bears the name of its error."""
    prefix = "MigrationPreCheckError: " if way == "check_can_live_migrate_destination" else ""
    return f"{prefix}{group_message(way, violated)}"


def refused(way: Way, violated: GroupViolated) -> ClaimRefusal:
    """The refusal with its message, and who is in the way."""
    return ClaimRefusal(
        code="GroupAffinityViolation", message=group_message(way, violated), retry="elsewhere", reasons=(violated,)
    )


# --- who is a member ---------------------------------------------------------------------------------


def join_group(draft: Draft, group: Group | None, uuid: str, sightings: Sightings) -> None:
    """The instance is a member as of the request's generation, and so are those that the request names and that are
    here. A list that is older than the newest `set_group` makes nobody a member."""
    if group is None:
        return
    _put_member(draft, group, uuid)
    known = draft.book.groups.get(group.id)
    has_numbered_list = known is not None and known.listed is not None
    if not (has_numbered_list and group.generation is None):
        here = (one for one in _told_members(group, draft.book) if _is_here(draft.book, sightings, one))
        for member in here:
            _put_member(draft, group, member)
    _put_rule(draft, group)


def set_group(draft: Draft, group: Group, sightings: Sightings) -> None:
    """These are all members as of the group's generation: who was told to be one before that and is not named now is
    none. A list that is older than the last changes nothing; one without generation only adds. A change is noted as a
    step, with the seats of the group after it."""
    before = draft.book
    known = before.groups.get(group.id)
    if known is not None and _is_older(group.generation, known.listed):
        return
    for uuid in group.members:
        _put_member(draft, group, uuid)
    for member in members_of(draft.book, group.id):
        if _is_older(member.generation, group.generation):
            draft.drop(member)
    _put_rule(draft, group, is_list=True)
    if draft.book is not before:
        seated = MappingProxyType({group.id: len(seats(draft.book, sightings, group.id))})
        draft.note(Step(sequence=0, at=draft.now.wall, event="group-set", groups=(group.id,), seats=seated))


def leave_groups(draft: Draft, uuid: str) -> None:
    """The instance was released or lives elsewhere: what was said of it without a generation ends, once no domain of it
    is active here. Where there is one, only a newer list ends it."""
    for group_id in draft.book.groups:
        member = draft.book.members.get((group_id, uuid))
        if member is not None and member.generation is None:
            draft.put(msgspec.structs.replace(member, is_ended=True))


def prune_members(draft: Draft, sightings: Sightings) -> None:
    """Forget members that have been away from here for longer than `keep_s`, and groups that nobody speaks of."""
    now_s, keep_s = draft.now.wall_s, draft.rules.keep_s + _NOTED_EVERY_S
    left: set[str] = set()
    for (group_id, uuid), member in tuple(draft.book.members.items()):
        if _is_over(draft.book, member, sightings.get(uuid)):
            draft.drop(member)
        elif _is_here(draft.book, sightings, uuid):
            left.add(group_id)
            _note_here(draft, member)
        elif now_s - member.last_here_at_s > keep_s:
            draft.drop(member)
        else:
            left.add(group_id)
    for rule in tuple(draft.book.groups.values()):
        if rule.id not in left and now_s - rule.told_at_s > keep_s:
            draft.drop(rule)


def members_of(book: Book, group_id: str) -> tuple[Membership, ...]:
    """All that the book has of a group, by uuid."""
    return tuple(sorted((one for one in book.members.values() if one.group == group_id), key=_uuid))


# --- what stands against a policy --------------------------------------------------------------------


def group_conflicts(book: Book, sightings: Sightings) -> Iterator[Conflict]:
    """A row for each group with more members here than its policy allows. It names them all and hinders nobody."""
    limits = {rule.id: rule.max_server_per_host for rule in book.groups.values() if rule.policy == "anti-affinity"}
    # asked with every claim, under the tracker's lock: what a seat is, is looked at only where there may be too many
    counted = Counter(group_id for group_id, uuid in book.members if uuid in sightings or uuid in book.of)
    for group_id in sorted(limits.keys() & counted.keys()):
        if counted[group_id] > limits[group_id]:
            found = seats(book, sightings, group_id)
            if len(found) > limits[group_id]:
                yield _violated(group_id, found, limits[group_id])


def _violated(group_id: str, found: Iterable[Seat], limit: int) -> Conflict:
    owners = [seat.owner for seat in found]
    name = brief(group_id, _LONGEST_NAME)
    return conflict(
        "group-violated",
        Resource(kind="group", id=group_id),
        owners,
        cause=f"{len(owners)} members of server group {name} are here, {listed([owner_name(one) for one in owners])}, "
        f"and its policy anti-affinity allows {count(limit, 'member')} on one host",
        severity="warning",
        action=f"Move one of them to another host, or, if the group has changed, tell its members anew with "
        f"`agentctl group set`; doing nothing is not dangerous, but {_fall_together(len(owners))} with this host",
    )


def _fall_together(number: int) -> str:
    return "both fail" if number == 2 else f"all {number} fail"


# --- how -----------------------------------------------------------------------------------------------


def _member_seat(book: Book, sightings: Sightings, group_id: str, uuid: str, named: frozenset[str]) -> Seat | None:
    """The seat of an instance, if it is a member and has one."""
    member = book.members.get((group_id, uuid))
    if uuid in named:
        return _seat(book, uuid, sightings.get(uuid), is_ended=False)
    return None if member is None else _seat(book, uuid, sightings.get(uuid), is_ended=member.is_ended)


def _seat(book: Book, uuid: str, seen: Sighting | None, *, is_ended: bool) -> Seat | None:
    claims = book.claims_of(uuid)
    has_left = is_ended or uuid in book.departures
    by_domain = seen is not None and (seen.is_active or not has_left)
    if not claims and not by_domain:
        return None
    first = min(claims, key=_sequence, default=None)
    if seen is not None:
        owner, label = owner_of(seen), seen.label
    else:
        assert first is not None
        owner, label = Owner(type="claim", uuid=uuid, name=first.instance.name), first.label
    return Seat(uuid, label, first, _taken_at(claims, by_domain=by_domain), owner)


def _taken_at(claims: tuple[Claim, ...], *, by_domain: bool) -> int:
    """When a guest on its way took its seat. It is here already by a claim that has got further, or by a domain that
    none of its claims has brought."""
    states = {claim.state for claim in claims}
    is_coming = bool(claims) and states <= _COMING and (not by_domain or "arriving" in states)
    return min(map(_sequence, claims)) if is_coming else 0


def _told_members(group: Group, book: Book) -> tuple[str, ...]:
    """Members by the request, unless a newer list is known, which then is in the book."""
    known = book.groups.get(group.id)
    return () if known is not None and _is_older(group.generation, known.listed) else group.members


def _limit(group: Group, book: Book) -> int:
    """By the newer of what is asked and what is known."""
    known = book.groups.get(group.id)
    is_known = known is not None and known.policy == group.policy and not _replaces(group, known)
    return known.max_server_per_host if known is not None and is_known else group.max_server_per_host


def _is_older(one: int | None, other: int | None) -> bool:
    """Certainly: what bears no generation is never older nor newer."""
    return one is not None and other is not None and one < other


def _is_elsewhere(group: Group, host: str) -> bool:
    return bool(group.hosts and host) and host not in group.hosts


def _apart(group: Group, instance: str, host: str) -> GroupViolated:
    return GroupViolated(group=group.id, instance=instance, policy="affinity", host=host, hosts=group.hosts)


def _remarks(group: Group, instance: str, here: list[str], host: str) -> Iterator[str]:
    """here: names of other members that have a seat on this host."""
    name, asked = brief(group.id, _LONGEST_NAME), f"(policy {group.policy})"
    hosts = listed([brief(one, _LONGEST_NAME) for one in group.hosts])
    is_alone = group.members == (instance,) and not group.hosts
    match group.policy:
        case None:
            yield f"Server group {name} is named without a policy, so that it is no rule here"
        case "affinity" if not here and not is_alone and not (group.hosts and host):
            why = "the name of this host is not known" if group.hosts else "the request names no hosts of them"
            yield f"Policy affinity of server group {name} is not checked: no other member is here, and {why}"
        case "soft-affinity" if not here and _is_elsewhere(group, host):
            yield f"Server group {name} would rather have its members on one host {asked}: others are on {hosts}"
        case "soft-anti-affinity" if here:
            are = f"{listed(here)} {agrees(here, 'is', 'are')} here"
            yield f"Server group {name} would rather have its members on different hosts {asked}: {are}"


def _put_member(draft: Draft, group: Group, uuid: str) -> None:
    """Add the member or what is newer of it. What was once said without a generation stays so until it ends."""
    was = draft.book.members.get((group.id, uuid))
    generation = group.generation
    if was is not None and not was.is_ended:
        is_unnumbered = generation is None or was.generation is None
        generation = None if is_unnumbered else max(was.generation or 0, generation or 0)
    here_at_s = _noted(draft, 0.0 if was is None else was.last_here_at_s)
    draft.put(Membership(group=group.id, instance=uuid, generation=generation, last_here_at_s=here_at_s))


def _put_rule(draft: Draft, group: Group, *, is_list: bool = False) -> None:
    """The newer of two rules stands. is_list: it comes with all members of its generation."""
    was = draft.book.groups.get(group.id)
    told_at_s = _noted(draft, 0.0 if was is None else was.told_at_s)
    numbers = (None if was is None else was.listed, group.generation if is_list else None)
    rule = GroupRule(
        id=group.id,
        policy=group.policy,
        max_server_per_host=group.max_server_per_host,
        generation=group.generation,
    )
    if was is not None and not _replaces(group, was, is_list=is_list):
        rule = was
    listed = max((number for number in numbers if number is not None), default=None)
    draft.put(msgspec.structs.replace(rule, listed=listed, told_at_s=told_at_s))


def _replaces(group: Group, was: GroupRule, *, is_list: bool = False) -> bool:
    """Whether what is told of a group stands, not what is known. A request that names a group without its policy says
    nothing of the rule, unless it is certainly newer."""
    if _is_older(was.generation, group.generation):
        return True
    if _is_older(group.generation, was.generation) or (group.generation is None and was.generation is not None):
        return False
    return is_list or group.policy is not None


def _note_here(draft: Draft, member: Membership) -> None:
    here_at_s = _noted(draft, member.last_here_at_s)
    if here_at_s != member.last_here_at_s:
        draft.put(msgspec.structs.replace(member, last_here_at_s=here_at_s))


def _noted(draft: Draft, at_s: float) -> float:
    """Now, unless what is noted is of the last hour: a row of the journal each time would tell nothing."""
    return at_s if 0.0 <= draft.now.wall_s - at_s < _NOTED_EVERY_S else draft.now.wall_s


def _is_over(book: Book, member: Membership, seen: Sighting | None) -> bool:
    is_active = seen is not None and seen.is_active
    return member.is_ended and not is_active and not book.of.get(member.instance)


def _is_here(book: Book, sightings: Sightings, uuid: str) -> bool:
    return bool(book.of.get(uuid)) or uuid in sightings


def _order(seat: Seat) -> tuple[str, str]:
    return (seat.label, seat.instance)


def _uuid(member: Membership) -> str:
    return member.instance


def _sequence(claim: Claim) -> int:
    return claim.sequence
