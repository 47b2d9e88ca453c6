"""What may be asked about claims, groups and moves: the form of each request but that of a claim, and its limits."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from agent.core.claim.values import ClaimRules, Outcome
from agent.core.instance import MOST_MEMBERS, Group, GroupPolicy, Instance
from agent.core.pci import PciAddress
from agent.core.values import Value
from agent.errors import FaultyInput
from agent.formats.validate import field_path, number_text, validated
from agent.formats.wall_time import in_utc

LONGEST_ID = 255
"""Characters of an id that a caller chose, and of a host's name."""

LONGEST_REASON = 1000
NIL = str(uuid.UUID(int=0))
MOST_GENERATION = 2**63 - 1

V = TypeVar("V", bound=Value)

MoveKind = Literal["resize", "cold_migration", "live_migration"]
"""Of the kinds of claims those whose guest leaves another host."""


class GroupRules(Value, frozen=True, kw_only=True):
    """nova's `rules` of a server group."""

    max_server_per_host: int = 1


class GroupForm(Value, frozen=True, kw_only=True):
    """A server group. members: uuids of all its instances. generation: of the list of members. hosts: names of the
    hosts that have members."""

    id: str
    policy: GroupPolicy | None = None
    rules: GroupRules | None = None
    members: tuple[str, ...] = ()
    generation: int | None = None
    hosts: tuple[str, ...] = ()


class Nothing(Value, frozen=True, kw_only=True):
    """No field at all."""


class OfClaim(Value, frozen=True, kw_only=True):
    """One claim."""

    claim_id: str


class Renewal(Value, frozen=True, kw_only=True):
    """ttl_s: from now on, None: as many as last time."""

    claim_id: str
    ttl_s: float | None = None


class End(Value, frozen=True, kw_only=True):
    """reason: one sentence for whoever reads the claim later."""

    claim_id: str
    reason: str | None = None


class Recheck(Value, frozen=True, kw_only=True):
    """group: as it is known now, None: as the claim has it."""

    claim_id: str
    group: GroupForm | None = None


class OfMove(Value, frozen=True, kw_only=True):
    """One move."""

    move_id: str


class Hold(Value, frozen=True, kw_only=True):
    """The source half of a move. peer: the host that it goes to. is_cold: the guest is switched off for it; None: as
    its kind says."""

    move_id: str
    kind: MoveKind
    instance: Instance
    peer: str | None = None
    is_cold: bool | None = None


class Finish(Value, frozen=True, kw_only=True):
    """How a move ended."""

    move_id: str
    outcome: Outcome


class OfGroup(Value, frozen=True, kw_only=True):
    """One server group."""

    id: str


class MaintenanceForm(Value, frozen=True, kw_only=True):
    """reason: why new guests are refused; null: they no longer are."""

    reason: str | None


class Forget(Value, frozen=True, kw_only=True):
    """moved_to: the host where the instance lives now."""

    uuid: str
    moved_to: str | None = None


class OfDevice(Value, frozen=True, kw_only=True):
    """One PCI function of the host."""

    address: PciAddress


def read(data: object, kind: type[V], rules: ClaimRules) -> V:
    """The request that plain data stands for, uuids in lower case. Raises FaultyInput, a sentence for each fault."""
    form = validated(lowered(data), kind)
    faults = list(form_faults(form, rules))
    if faults:
        raise FaultyInput(*faults)
    return form


def group_of(form: GroupForm) -> Group:
    """The group that a form is of."""
    rules = form.rules or GroupRules()
    return Group(
        id=form.id,
        policy=form.policy,
        max_server_per_host=rules.max_server_per_host,
        members=form.members,
        generation=form.generation,
        hosts=form.hosts,
    )


def group_form(group: Group) -> GroupForm:
    """The inverse of `group_of`."""
    return GroupForm(
        id=group.id,
        policy=group.policy,
        rules=GroupRules(max_server_per_host=group.max_server_per_host),
        members=group.members,
        generation=group.generation,
        hosts=group.hosts,
    )


def form_faults(form: Value, rules: ClaimRules, path: str = "") -> Iterator[str]:
    """What is wrong with the texts and numbers of a form, by the path of the field."""
    if isinstance(form, Instance):
        yield from _uuid_faults(form.uuid, field_path(path, "uuid"))
        yield from text_faults(form.name, field_path(path, "name"), least=0)
        return
    if isinstance(form, GroupForm):
        yield from _group_faults(form, path)
        return
    for name in form.__struct_fields__:
        value, where = getattr(form, name), field_path(path, name)
        if isinstance(value, Value):
            yield from form_faults(value, rules, where)
        elif value is not None and name in _CHECKS:
            yield from _CHECKS[name](value, where)
        elif value is not None and name == "ttl_s":
            yield from _ttl_faults(value, where, rules)


def text_faults(text: str, path: str, *, least: int = 1, most: int = LONGEST_ID) -> Iterator[str]:
    """Why this cannot be an id, a host's name or a sentence. That it is printable has been seen to."""
    if len(text) > most:
        yield f"{path}: longer than {most} characters"
    elif len(text.strip()) < least:
        yield f"{path}: empty"
    elif least and text != text.strip():
        yield f"{path}: begins or ends with a blank"


def _uuid_faults(text: str, path: str) -> Iterator[str]:
    try:
        is_right = str(uuid.UUID(text)) == text
    except ValueError:
        is_right = False
    if not is_right:
        yield f"{path}: no uuid, as in 6b0e7d9c-6d55-4bd4-9d3c-6f6c3f9b9d31"
    elif text == NIL:
        yield f"{path}: all zeros, which is the uuid of no instance"


def _reason_faults(text: str, path: str) -> Iterator[str]:
    yield from text_faults(text, path, most=LONGEST_REASON)


def _time_faults(text: str, path: str) -> Iterator[str]:
    try:
        in_utc(text)
    except ValueError:
        yield f"{path}: no time with its zone, as in 2026-11-30T12:00:00Z"


def _ttl_faults(ttl_s: float, path: str, rules: ClaimRules) -> Iterator[str]:
    if not rules.least_ttl_s <= ttl_s <= rules.most_ttl_s:
        yield f"{path}: it is not between {rules.least_ttl_s:g} and {rules.most_ttl_s:g} seconds"


def _group_faults(form: GroupForm, path: str) -> Iterator[str]:
    yield from text_faults(form.id, field_path(path, "id"))
    members = field_path(path, "members")
    if len(form.members) > MOST_MEMBERS:
        yield f"{members}: more than {MOST_MEMBERS}"
    else:
        for place, member in enumerate(form.members):
            yield from _uuid_faults(member, f"{members}[{place}]")
    if form.rules is not None and not 1 <= (most := form.rules.max_server_per_host) <= MOST_MEMBERS:
        where = field_path(path, "rules.max_server_per_host")
        yield f"{where}: {number_text(most)} is not between 1 and {MOST_MEMBERS}"
    if form.generation is not None and not 0 <= form.generation <= MOST_GENERATION:
        yield f"{field_path(path, 'generation')}: it is not between 0 and {MOST_GENERATION}"
    hosts = field_path(path, "hosts")
    if len(form.hosts) > MOST_MEMBERS:
        yield f"{hosts}: more than {MOST_MEMBERS}"
    else:
        for place, host in enumerate(form.hosts):
            yield from text_faults(host, f"{hosts}[{place}]")


_CHECKS: Mapping[str, Callable[[str, str], Iterator[str]]] = MappingProxyType(
    {
        "claim_id": text_faults,
        "replaces": text_faults,
        "move_id": text_faults,
        "id": text_faults,
        "peer": text_faults,
        "moved_to": text_faults,
        "uuid": _uuid_faults,
        "reason": _reason_faults,
        "not_after": _time_faults,
    }
)
"""By the name of a field, whatever form it is in."""


def lowered(data: Any) -> Any:
    """With uuids in lower case, as libvirt writes them, wherever a form has one."""
    if not isinstance(data, dict):
        return data
    low: dict[str, Any] = {**data}
    if isinstance(text := low.get("uuid"), str):
        low["uuid"] = text.lower()
    if isinstance(members := low.get("members"), list):
        low["members"] = [one.lower() if isinstance(one, str) else one for one in members]
    for name in ("instance", "group"):
        if isinstance(part := low.get(name), dict):
            low[name] = lowered(part)
    return low
