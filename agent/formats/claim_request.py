"""The request for a claim: plain data into values, and back. docs/api.md has the form.

`binding` is strict at every depth: a field that is not known here may be what the guest cannot do without. `context` is
open: what is not known in it is named in the answer. The digest is made again of what was read, so that a field which
was lost or changed on the way shows.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, NamedTuple

from agent.core.claim.values import MOVES, ClaimContext, ClaimKind, ClaimRequest, ClaimRules
from agent.core.instance import Group, Instance, InstanceRequest, RequestSpec
from agent.core.values import ReadOnlyMap, Value
from agent.core.words import brief
from agent.errors import FaultyInput
from agent.formats import request as request_format
from agent.formats import wire
from agent.formats.binding_rules import binding_faults
from agent.formats.claim_forms import GroupForm, form_faults, group_form, group_of, lowered
from agent.formats.digest import digest_of
from agent.formats.validate import validated
from agent.formats.wall_time import in_utc

MOST_FACTS = 256
"""Entries of source_facts."""

MOST_IGNORED = 20

NEED_MOVE: frozenset[ClaimKind] = MOVES | {"rebuild"}
"""Kinds that keep what was, and what comes, until somebody finishes the move."""


class ContextForm(Value, frozen=True, kw_only=True):
    """What may differ between two calls of one claim, and what the group's members are now. More keys may be sent: they
    are told and left out before."""

    ttl_s: float | None = None
    replaces: str | None = None
    move_id: str | None = None
    peer: str | None = None
    not_after: str | None = None
    source_facts: ReadOnlyMap[str, str] = MappingProxyType({})
    group: GroupForm | None = None


class ClaimForm(Value, frozen=True, kw_only=True):
    """binding or spec, one of both. digest: of binding always, of spec where the caller knows it."""

    claim_id: str
    kind: ClaimKind
    instance: Instance | None = None
    binding: InstanceRequest | None = None
    spec: RequestSpec | None = None
    digest: str | None = None
    context: ContextForm = ContextForm()


class Asked(NamedTuple):
    """A claim request that was read. spec: where flavor, image and ports were sent instead of a binding. ignored: keys
    of the context that mean nothing here."""

    claim_id: str
    kind: ClaimKind
    instance: Instance
    group: Group | None
    context: ClaimContext
    digest: str | None
    binding: InstanceRequest | None
    spec: RequestSpec | None
    ignored: tuple[str, ...]


def read_claim(data: object, rules: ClaimRules) -> Asked:
    """What is asked, of plain dicts and lists. rules: the limits of ttl_s.

    Raises FaultyInput with a sentence for each fault, by the path of the field: "binding.cells[0].cpus: unknown. ...".
    """
    known, ignored = _parted(lowered(data))
    spec = known.pop("spec", None) if isinstance(known, dict) else None
    form = validated(known, ClaimForm)
    faults = [*form_faults(form, rules), *_claim_faults(form, has_spec=spec is not None)]
    ordered, more = (None, []) if spec is None else _spec(spec, form)
    faults += more
    if faults:
        raise FaultyInput(*faults)
    group = None if form.context.group is None else group_of(form.context.group)
    instance = form.instance if ordered is None else ordered.instance
    assert instance is not None
    return Asked(
        claim_id=form.claim_id,
        kind=form.kind,
        instance=instance,
        group=group if ordered is None or ordered.group is None else ordered.group,
        context=_context(form.context),
        digest=form.digest,
        binding=form.binding,
        spec=ordered,
        ignored=ignored,
    )


def claim_request(asked: Asked, binding: InstanceRequest) -> ClaimRequest:
    """The request with its digest, made of what was read. binding: the one that was sent, or what spec has become.

    Raises FaultyInput when the digest that came with it is of something else.
    """
    own = digest_of(asked.kind, asked.instance.uuid, binding, asked.group)
    if asked.digest is not None and asked.digest != own:
        raise FaultyInput(
            f"digest: {brief(asked.digest, 80)} was sent, but what arrived has {own}. A field was lost or changed on "
            "the way, or the digest is of another kind, instance, binding or group: send all of them as they were made"
        )
    return ClaimRequest(
        claim_id=asked.claim_id,
        kind=asked.kind,
        instance=asked.instance,
        binding=binding,
        digest=own,
        group=asked.group,
        context=asked.context,
    )


def claim_document(request: ClaimRequest) -> dict[str, Any]:
    """The request as plain data; `read_claim` and `claim_request` make the same of it again."""
    context: dict[str, Any] = wire.to_builtins(request.context)
    if request.group is not None:
        context["group"] = wire.to_builtins(group_form(request.group))
    return {
        "v": 1,
        "claim_id": request.claim_id,
        "kind": request.kind,
        "instance": wire.to_builtins(request.instance),
        "binding": wire.to_builtins(request.binding),
        "digest": request.digest,
        "context": {name: value for name, value in context.items() if value is not None},
    }


def _parted(data: object) -> tuple[Any, tuple[str, ...]]:
    """Without the keys of the context that are not known, and those keys."""
    context = data.get("context") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(context, dict):
        return data, ()
    names = ContextForm.__struct_fields__
    inner = {name: value for name, value in lowered(context).items() if name in names and value is not None}
    strange = [brief(str(name), 80) for name in context if name not in names]
    return {**data, "context": inner}, tuple(strange[:MOST_IGNORED])


def _claim_faults(form: ClaimForm, *, has_spec: bool) -> list[str]:
    faults: list[str] = []
    if (form.binding is not None) is has_spec:
        faults.append(f"binding: {'spec is there too; send one of both' if has_spec else 'missing (or send spec)'}")
    if form.binding is not None:
        faults += binding_faults(form.binding)
        if form.digest is None:
            faults.append("digest: missing; it is made where the binding is made, and sent with it")
    if form.instance is None and not has_spec:
        faults.append("instance: missing")
    if form.kind in NEED_MOVE and form.context.move_id is None:
        faults.append(f"context.move_id: missing; a {form.kind} ends when the move of this id is finished")
    facts = form.context.source_facts
    if len(facts) > MOST_FACTS:
        faults.append(f"context.source_facts: more than {MOST_FACTS}")
    return faults


def _spec(data: object, form: ClaimForm) -> tuple[RequestSpec | None, list[str]]:
    """The order, of the instance that the claim names, and what is wrong with it."""
    if isinstance(data, dict) and data.get("instance") is None and form.instance is not None:
        data = {**data, "instance": {"uuid": form.instance.uuid, "name": form.instance.name}}
    try:
        spec = request_format.from_plain(data)
    except FaultyInput as error:
        return None, [_below("spec", fault) for fault in error.faults]
    faults: list[str] = []
    if spec.instance.uuid == request_format.NOBODY and form.instance is None:
        faults.append("instance: missing")
    elif form.instance is not None and spec.instance != form.instance:
        faults.append("spec.instance: another than the claim's; leave it out")
    if spec.group is not None:
        if form.context.group is not None:
            faults.append("spec.group: context.group is there too; give one of them")
        faults += form_faults(group_form(spec.group), ClaimRules(), "spec.group")
    return spec, faults


def _below(path: str, fault: str) -> str:
    """A fault of what stands below `path`; one of all of it has no path of its own."""
    return f"{path}.{fault}" if fault[:1].islower() and ":" in fault else f"{path}: {fault}"


def _context(form: ContextForm) -> ClaimContext:
    return ClaimContext(
        ttl_s=form.ttl_s,
        replaces=form.replaces,
        move_id=form.move_id,
        peer=form.peer,
        not_after=None if form.not_after is None else in_utc(form.not_after),
        source_facts=form.source_facts,
    )
