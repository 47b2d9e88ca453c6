"""The request for a claim is read whole, or refused by the path of what is wrong with it."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.core.claim.values import ClaimContext, ClaimRequest, ClaimRules
from agent.core.cpuset import CpuSet
from agent.core.flavor import Requested
from agent.core.instance import CellRequest, Group, Instance, InstanceRequest
from agent.errors import FaultyInput
from agent.formats import wire
from agent.formats.binding_rules import binding_faults
from agent.formats.claim_request import Asked, ContextForm, claim_document, claim_request, read_claim
from agent.formats.digest import digest_of
from tests.unit.flavor_requests import answer, asked
from tests.unit.test_wire import anything

UUID, OTHER = "6b0e7d9c-6d55-4bd4-9d3c-6f6c3f9b9d31", "6b0e7d9c-6d55-4bd4-9d3c-6f6c3f9b9d32"
RULES = ClaimRules()
BINDING = InstanceRequest(
    vcpus=2,
    memory_kib=65536,
    cells=(CellRequest(id=0, vcpus=CpuSet((0, 1)), memory_kib=65536, pinned=CpuSet((0, 1))),),
    cpu_policy="dedicated",
)
GROUP = Group(
    id="g1", policy="anti-affinity", members=(UUID, OTHER), max_server_per_host=2, generation=7, hosts=("h1",)
)
REQUEST = ClaimRequest(
    claim_id="claim 1/ä",
    kind="live_migration",
    instance=Instance(uuid=UUID, name="web"),
    binding=BINDING,
    digest=digest_of("live_migration", UUID, BINDING, GROUP),
    group=GROUP,
    context=ClaimContext(
        ttl_s=60.5,
        replaces="before",
        move_id="m1",
        peer="other-host",
        not_after="2026-11-30T12:00:00Z",
        source_facts=MappingProxyType({"machine": "pc-q35"}),
    ),
)
SPEC: dict[str, Any] = {"flavor": {"vcpus": 2, "memory_mb": 64, "extra_specs": {"hw:cpu_policy": "dedicated"}}}


def document(**changes: Any) -> dict[str, Any]:
    """Of a build; None takes a field out."""
    built = msgspec.structs.replace(
        REQUEST, kind="build", digest=digest_of("build", UUID, BINDING, GROUP), context=ClaimContext()
    )
    told = {**json.loads(wire.to_json(claim_document(built))), **changes}
    told.pop("v")
    return {name: value for name, value in told.items() if value is not None}


def read(data: Any) -> ClaimRequest:
    asked = read_claim(data, RULES)
    assert asked.binding is not None
    return claim_request(asked, asked.binding)


def faults(data: Any) -> tuple[str, ...]:
    with pytest.raises(FaultyInput) as caught:
        read(data)
    return caught.value.faults


def test_a_request_is_the_same_after_the_way_through_json() -> None:
    for told in (claim_document(REQUEST), json.loads(wire.to_json(claim_document(REQUEST)))):
        assert told.pop("v") == 1
        assert read(told) == REQUEST


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(context=anything(ClaimContext), data=st.data())
def test_no_field_of_the_context_is_lost_on_the_way(context: ClaimContext, data: st.DataObject) -> None:
    texts = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=8)
    small = msgspec.structs.replace(
        context,
        ttl_s=data.draw(st.none() | st.floats(10, 86400)),
        replaces=data.draw(st.none() | texts),
        move_id=data.draw(st.none() | texts),
        peer=data.draw(st.none() | texts),
        not_after=data.draw(st.none() | st.just("2026-11-30T12:00:00Z")),
        source_facts=MappingProxyType(data.draw(st.dictionaries(texts, texts, max_size=3))),
    )
    request = msgspec.structs.replace(
        REQUEST, kind="build", digest=digest_of("build", UUID, BINDING, GROUP), context=small
    )
    told = claim_document(request)
    del told["v"]
    assert read(told) == request
    assert set(ContextForm.__struct_fields__) == {*ClaimContext.__struct_fields__, "group"}


@pytest.mark.parametrize(
    ("way", "path"),
    [
        ((), "from_the_future"),
        (("instance",), "instance.from_the_future"),
        (("binding",), "binding.from_the_future"),
        (("binding", "cells", 0), "binding.cells[0].from_the_future"),
        (("context", "group"), "context.group.from_the_future"),
        (("context", "group", "rules"), "context.group.rules.from_the_future"),
    ],
)
def test_an_unknown_field_is_refused_by_its_path_wherever_something_could_be_lost(
    way: tuple[str | int, ...], path: str
) -> None:
    data: Any = document()
    at = data
    for step in way:
        at = at[step]
    at["from_the_future"] = 1
    (fault,) = faults(data)
    assert fault.startswith(f"{path}: unknown.")


def test_unknown_keys_of_the_context_are_told_and_not_refused() -> None:
    data = document()
    data["context"] |= {"from_the_future": {"deep": [1]}, "request_id": None}
    asked = read_claim(data, RULES)
    assert asked.ignored == ("from_the_future", "request_id")
    assert asked.group == GROUP


def test_a_digest_of_something_else_is_refused_with_both() -> None:
    other = digest_of("rebuild", UUID, BINDING, GROUP)
    (fault,) = faults(document(digest=other))
    own = digest_of("build", UUID, BINDING, GROUP)
    assert fault.startswith(f"digest: {other} was sent, but what arrived has {own}.")


def test_a_field_that_was_lost_on_the_way_shows_in_the_digest() -> None:
    data = document()
    del data["binding"]["cells"][0]["pinned"]
    data["binding"]["cpu_policy"] = "shared"
    assert faults(data)[0].startswith("digest: ")
    data = document()
    data["context"].pop("group")
    assert faults(data)[0].startswith("digest: ")


def test_members_and_context_are_not_in_the_digest() -> None:
    data = document()
    data["context"]["group"] |= {"members": [OTHER], "generation": 8, "hosts": []}
    data["context"]["ttl_s"] = 20
    assert read(data).digest == document()["digest"]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"claim_id": ""}, "claim_id: empty"),
        ({"claim_id": "x" * 256}, "claim_id: longer than 255 characters"),
        ({"claim_id": "a\nb"}, 'claim_id: "a\\x0ab" has characters that cannot be printed'),
        ({"claim_id": " a"}, "claim_id: begins or ends with a blank"),
        ({"claim_id": 7}, "claim_id: a text is expected, not 7"),
        ({"kind": "bild"}, 'kind: "bild" is none of build, rebuild, evacuate, unshelve, resize, cold_migration'),
        ({"instance": {"uuid": "web"}}, "instance.uuid: no uuid"),
        ({"instance": {"uuid": UUID, "name": "x" * 256}}, "instance.name: longer than 255 characters"),
        ({"instance": None}, "instance: missing"),
        ({"digest": None}, "digest: missing"),
        ({"binding": None}, "binding: missing (or send spec)"),
        ({"spec": SPEC}, "binding: spec is there too; send one of both"),
        ({"context": {"ttl_s": 9.9}}, "context.ttl_s: it is not between 10 and 86400 seconds"),
        ({"context": {"ttl_s": 86401}}, "context.ttl_s: it is not between 10 and 86400 seconds"),
        ({"context": {"ttl_s": 10**400}}, "not a ClaimForm: "),
        ({"context": {"ttl_s": True}}, "context.ttl_s: a number is expected, not true"),
        ({"context": {"not_after": "tomorrow"}}, "context.not_after: no time with its zone"),
        ({"context": {"not_after": "2026-11-30T12:00:00"}}, "context.not_after: no time with its zone"),
        ({"context": {"source_facts": {str(n): "" for n in range(257)}}}, "context.source_facts: more than 256"),
        ({"context": {"group": {"id": "g", "members": ["web"]}}}, "context.group.members[0]: no uuid"),
        ({"context": {"group": {"id": "g", "members": [UUID] * 1001}}}, "context.group.members: more than 1000"),
        (
            {"context": {"group": {"id": "g", "rules": {"max_server_per_host": 0}}}},
            "context.group.rules.max_server_per",
        ),
        ({"context": {"group": {"id": "g", "generation": -1}}}, "context.group.generation: it is not between 0"),
        ({"context": {"group": {"id": "g", "policy": "anti"}}}, 'context.group.policy: "anti" is none of'),
        ({"context": {"group": {"id": ""}}}, "context.group.id: empty"),
        ({"context": []}, "context: an object is expected, not a list"),
        ({"context": {"not_after": "0001-01-01T00:00:00+14:00"}}, "context.not_after: no time with its zone"),
        ({"kind": "resize"}, "context.move_id: missing; a resize ends when the move of this id is finished"),
        ({"kind": "rebuild"}, "context.move_id: missing; a rebuild ends"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_path(changes: dict[str, Any], fault: str) -> None:
    assert [one for one in faults(document(**changes)) if one.startswith(fault)]


@pytest.mark.parametrize("data", [None, [], "x", 5, True])
def test_what_is_no_object_is_refused(data: object) -> None:
    (fault,) = faults(data)
    assert fault.startswith("An object is expected, not ")


def test_uuids_may_come_in_capitals() -> None:
    data = document(instance={"uuid": UUID.upper(), "name": "web"})
    data["context"]["group"]["members"] = [UUID.upper()]
    asked = read_claim(data, RULES)
    assert (asked.instance.uuid, asked.group and asked.group.members) == (UUID, (UUID,))


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("2026-11-30T12:00:00+01:00", "2026-11-30T11:00:00Z"),
        ("2026-11-30T12:00:00.75Z", "2026-11-30T12:00:00Z"),
        ("0999-01-01T00:00:00Z", "0999-01-01T00:00:00Z"),
    ],
)
def test_times_are_kept_so_that_they_compare_with_the_agents(sent: str, kept: str) -> None:
    assert read_claim(document(context={"not_after": sent}), RULES).context.not_after == kept


def test_the_limits_of_times_are_the_operators() -> None:
    data = document(context={"ttl_s": 5.0})
    assert read_claim(data, ClaimRules(least_ttl_s=5.0)).context.ttl_s == 5.0


# --- flavor, image and ports in the place of a binding ---------------------------------------------


def ordered(**changes: Any) -> dict[str, Any]:
    return {"claim_id": "c", "kind": "build", "instance": {"uuid": UUID, "name": "web"}, "spec": SPEC, **changes}


def spec_of(data: Any) -> Asked:
    asked = read_claim(data, RULES)
    assert asked.spec is not None
    return asked


def test_an_order_is_of_the_instance_that_the_claim_names() -> None:
    asked = spec_of(ordered())
    assert asked.spec is not None
    assert (asked.binding, asked.digest, asked.instance) == (None, None, asked.spec.instance)
    assert asked.instance == Instance(uuid=UUID, name="web")


def test_an_order_may_name_the_instance_itself() -> None:
    data = ordered(spec={**SPEC, "instance": {"uuid": UUID, "name": "web"}})
    del data["instance"]
    assert spec_of(data).instance == Instance(uuid=UUID, name="web")


def test_the_group_may_be_in_the_order_or_in_the_context() -> None:
    group = {"id": "g1", "policy": "affinity", "members": [OTHER]}
    for data in (ordered(spec={**SPEC, "group": group}), ordered(context={"group": group})):
        assert spec_of(data).group == Group(id="g1", policy="affinity", members=(OTHER,))


def test_a_digest_that_comes_with_an_order_is_held_against_its_binding() -> None:
    digest = digest_of("build", UUID, BINDING)
    assert claim_request(spec_of(ordered(digest=digest)), BINDING).digest == digest
    with pytest.raises(FaultyInput, match="digest: "):
        claim_request(spec_of(ordered(digest="0" * 64)), BINDING)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"spec": {}}, "spec.flavor: missing"),
        ({"spec": {"flavor": {"vcpus": 0, "memory_mb": 1}}}, "spec.flavor.vcpus: 0 is not between"),
        ({"spec": {**SPEC, "flavr": 1}}, "spec.flavr: unknown."),
        ({"spec": 5}, "spec: An object is expected"),
        ({"instance": None}, "instance: missing"),
        ({"spec": {**SPEC, "instance": {"uuid": OTHER}}}, "spec.instance: another than the claim's"),
        ({"spec": {**SPEC, "group": {"id": "g"}}, "context": {"group": {"id": "g"}}}, "spec.group: context.group is"),
        ({"spec": {**SPEC, "group": {"id": "g", "members": ["x"]}}}, "spec.group.members[0]: no uuid"),
    ],
)
def test_an_order_with_faults_is_refused_by_their_paths(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(FaultyInput) as caught:
        read_claim(ordered(**changes), RULES)
    assert [one for one in caught.value.faults if one.startswith(fault)]


# --- bindings that nobody made of a flavor ---------------------------------------------------------


def changed(**changes: Any) -> dict[str, Any]:
    """The binding as plain data; `cell` changes its cell."""
    data: dict[str, Any] = json.loads(wire.to_json(BINDING))
    data["cells"][0] |= changes.pop("cell", {})
    return {**data, **changes}


DEVICE = {"id": "d", "specs": [{"vendor_id": "8086"}]}


@pytest.mark.parametrize(
    ("binding", "fault"),
    [
        (changed(vcpus=0), "binding.vcpus: 0 is not between 1 and 4096"),
        (changed(vcpus=10**30), "binding.vcpus: it is not between 1 and 4096"),
        (changed(memory_kib=-1), "binding.memory_kib: -1 is not between"),
        (changed(memory_kib=1), "binding.cells: their memory_kib is not, in sum, that of the guest"),
        (changed(vcpus=3), "binding.cells: vCPUs 2 are in none of them"),
        (changed(cell={"id": 4}), "binding.cells[0].id: 4 is not 0"),
        (changed(cell={"vcpus": "0-5"}), "binding.cells[0].vcpus: 2-5 of other cells, or of no vCPU"),
        (changed(cell={"vcpus": ""}), "binding.cells[0].vcpus: empty"),
        (changed(cell={"pinned": "0-1,9"}), "binding.cells[0].pinned: 9 are no vCPUs of this cell"),
        (changed(cell={"pinned": "0"}), "binding.cpu_policy: dedicated, but not all vCPUs are pinned"),
        (changed(cpu_policy="mixed", cell={"pinned": ""}), "binding.cpu_policy: mixed, but no vCPUs are pinned"),
        (changed(cpu_policy=None), "binding.cpu_policy: vCPUs 0-1 are pinned ones"),
        (changed(realtime="7"), "binding.realtime: vCPUs 7 are not pinned"),
        (changed(page_size=0), "binding.page_size: 0 is not between"),
        (changed(page_size="huge"), 'binding.page_size: "huge" is none of small, large, any'),
        (changed(cells=[], cpu_policy=None, page_size=4), "binding.page_size: a guest with pages of its own needs"),
        (
            changed(cells=[], cpu_policy=None, emulator_policy="isolate"),
            "binding.emulator_policy: isolate needs pinned",
        ),
        (changed(cpu_topology={"sockets": 1, "cores": 1, "threads": 1}), "binding.cpu_topology: sockets * cores"),
        (changed(cpu_topology={"sockets": -1, "cores": -2, "threads": 1}), "binding.cpu_topology: sockets * cores"),
        (changed(devices=[DEVICE, DEVICE]), "binding.devices[1].id: the same as of another request"),
        (changed(devices=[{**DEVICE, "id": ""}]), "binding.devices[0].id: empty"),
        (changed(devices=[{**DEVICE, "specs": []}]), "binding.devices[0].specs: empty"),
        (changed(devices=[{**DEVICE, "count": 0}]), "binding.devices[0].count: 0 is not between"),
        (changed(devices=[{**DEVICE, "numa_policy": "near"}]), 'binding.devices[0].numa_policy: "near" is none of'),
    ],
)
def test_a_binding_that_contradicts_itself_is_refused(binding: dict[str, Any], fault: str) -> None:
    assert [one for one in faults(document(binding=binding)) if one.startswith(fault)]


def test_devices_without_end_are_refused() -> None:
    data = changed(devices=[{**DEVICE, "id": str(n)} for n in range(513)])
    assert "binding.devices: more than 512" in faults(document(binding=data))


def choice(name: str, *values: str) -> st.SearchStrategy[dict[str, str]]:
    return st.sampled_from([{}, *({name: value} for value in values)])


@settings(max_examples=300)
@given(
    parts=st.tuples(
        choice("hw:numa_nodes", "1", "2", "4"),
        choice("hw:cpu_policy", "dedicated", "mixed", "shared"),
        choice("hw:cpu_dedicated_mask", "0-1", "^0"),
        choice("hw:cpu_thread_policy", "isolate", "require"),
        choice("hw:emulator_threads_policy", "isolate", "share"),
        choice("hw:cpu_realtime", "yes"),
        choice("hw:cpu_realtime_mask", "^0", "^0-1"),
        choice("hw:mem_page_size", "2048", "large", "any"),
        choice("hw:cpu_threads", "2"),
        choice("pci_passthrough:alias", "gpu:2", "gpu:1,nic:1"),
        choice("hw:numa_cpus.0", "0"),
    ),
    vcpus=st.sampled_from((1, 2, 4)),
)
def test_what_a_flavor_becomes_is_without_fault(parts: tuple[dict[str, str], ...], vcpus: int) -> None:
    made = answer({name: value for part in parts for name, value in part.items()}, vcpus=vcpus)
    if isinstance(made, Requested):
        assert list(binding_faults(made.request)) == []


def test_each_way_to_have_vcpus_pinned_or_not_is_without_fault() -> None:
    pinned = {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-1", "hw:numa_nodes": "2"}
    for words in ({}, {"hw:cpu_policy": "dedicated"}, pinned, {"hw:mem_page_size": "large"}):
        assert list(binding_faults(asked(words))) == []
