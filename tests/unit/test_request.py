"""What somebody orders, as JSON and as words of a command line."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest

from agent.core.instance import MOST_MEMBERS, MOST_PORTS, Flavor, Group, Image, Instance, Port, RequestSpec
from agent.errors import FaultyInput
from agent.formats import request, wire

UUID = "6b0e7d9c-6d55-4bd4-9d3c-6f6c3f9b9d31"
FLAVOR = {"vcpus": 2, "memory_mb": 2048}


KINDS = (
    "normal, direct, direct-physical, macvtap, vdpa, remote-managed, accelerator-direct, accelerator-direct-physical, "
    "baremetal, smart-nic, virtio-forwarder"
)


def faults_of(document: object) -> tuple[str, ...]:
    text = document if isinstance(document, str | bytes) else json.dumps(document)
    with pytest.raises(FaultyInput) as caught:
        request.from_json(text)
    return caught.value.faults


def test_the_whole_form_is_read() -> None:
    document = {
        "instance": {"uuid": UUID, "name": "db"},
        "flavor": {**FLAVOR, "name": "m1", "root_gb": 10, "extra_specs": {"hw:cpu_policy": "dedicated"}},
        "image": {"properties": {"hw_numa_nodes": "2"}},
        "ports": [{"id": "p1", "vnic_type": "direct", "physical_network": "net", "numa_affinity_policy": "socket"}],
        "group": {"id": "g", "policy": "anti-affinity", "members": [UUID]},
    }
    assert request.from_json(json.dumps(document)) == RequestSpec(
        instance=Instance(uuid=UUID, name="db"),
        flavor=Flavor(
            vcpus=2, memory_mb=2048, name="m1", root_gb=10, extra_specs=MappingProxyType({"hw:cpu_policy": "dedicated"})
        ),
        image=Image(properties=MappingProxyType({"hw_numa_nodes": "2"})),
        ports=(Port(id="p1", vnic_type="direct", physical_network="net", numa_affinity_policy="socket"),),
        group=Group(id="g", policy="anti-affinity", members=(UUID,)),
    )


def test_a_flavor_is_enough_and_ports_are_named_by_their_place() -> None:
    read = request.from_json(json.dumps({"flavor": FLAVOR, "ports": [{}, {"vnic_type": "direct"}]}))
    assert read.instance == Instance(uuid=request.NOBODY)
    assert [port.id for port in read.ports] == ["port0", "port1"]


def test_null_and_absence_of_a_physical_network_are_the_same_overlay() -> None:
    read = request.from_json(json.dumps({"flavor": FLAVOR, "ports": [{"physical_network": None}]}))
    assert read.ports[0].physical_network is None


def test_whole_numbers_true_and_false_are_taken_as_text_where_people_write_them_and_nothing_else_is() -> None:
    words = {"hw:numa_nodes": 2, "hw:locked_memory": True, "hw:watchdog": False}
    read = request.from_json(json.dumps({"flavor": {**FLAVOR, "extra_specs": words}, "image": {"properties": words}}))
    assert [dict(some) for some in (read.flavor.extra_specs, read.image.properties)] == [
        {"hw:numa_nodes": "2", "hw:locked_memory": "true", "hw:watchdog": "false"}
    ] * 2
    assert faults_of({"flavor": {**FLAVOR, "extra_specs": {"a": 1.5, "c": None, "d.e": []}}}) == (
        'flavor.extra_specs["a"]: a text is expected, not 1.5',
        'flavor.extra_specs["c"]: a text is expected, not null',
        'flavor.extra_specs["d.e"]: a text is expected, not a list',
    )


def test_every_fault_is_told_at_once_with_the_path_of_its_field() -> None:
    assert faults_of(
        {
            "flavour": {},
            "flavor": {"vcpus": "2", "memory": 1},
            "ports": [7, {"vnic_type": "dirct"}],
            "group": {"policy": "affinity"},
            "instance": 0,
        }
    ) == (
        "flavour: unknown. Is flavor meant?",
        "instance: an object is expected, not 0",
        "flavor.memory: unknown. Is memory_mb meant?",
        'flavor.vcpus: a whole number is expected, not "2"',
        "flavor.memory_mb: missing",
        "ports[0]: an object is expected, not 7",
        f'ports[1].vnic_type: "dirct" is none of {KINDS}',
        "group.id: missing",
    )


def test_numbers_beyond_what_any_guest_has_are_refused() -> None:
    assert faults_of({"flavor": {"vcpus": 10**300, "memory_mb": 0, "root_gb": -1, "swap_mb": 2**41}}) == (
        "flavor.vcpus: it is not between 1 and 4096",
        "flavor.memory_mb: 0 is not between 1 and 2147483647",
        "flavor.root_gb: -1 is not between 0 and 2147483647",
        "flavor.swap_mb: 2199023255552 is not between 0 and 2147483647",
    )
    assert faults_of({"flavor": FLAVOR, "ports": [{}] * 257}) == ("ports: more than 256",)
    group = {"id": "g", "max_server_per_host": 0, "members": [UUID] * 1001, "hosts": ["h"] * 1001, "generation": -1}
    assert faults_of({"flavor": FLAVOR, "group": group}) == (
        "group.members: more than 1000",
        "group.hosts: more than 1000",
        "group.max_server_per_host: 0 is not between 1 and 1000",
        "group.generation: -1 is not between 0 and 9223372036854775807",
    )
    nobody = {"id": " ", "hosts": ["h1", ""], "generation": 2**63}
    assert faults_of({"flavor": FLAVOR, "group": nobody}) == (
        "group.generation: 9223372036854775808 is not between 0 and 9223372036854775807",
        "group.id: empty",
        "group.hosts[1]: empty",
    )


def test_the_most_ports_and_members_have_not_half_of_the_longest_request() -> None:
    port = {"id": UUID, "vnic_type": "accelerator-direct-physical", "physical_network": "x" * 60}
    group = {"id": UUID, "policy": "soft-anti-affinity", "members": [UUID] * MOST_MEMBERS}
    document = {"flavor": FLAVOR, "ports": [{**port, "id": f"{n:036}"} for n in range(MOST_PORTS)], "group": group}
    text = json.dumps(document)
    assert len(text) < request.LONGEST_REQUEST / 2
    assert len(request.from_json(text).ports) == MOST_PORTS


def test_names_that_would_mix_guests_or_ports_up_are_refused() -> None:
    document = {
        "instance": {"uuid": UUID[1:]},
        "flavor": {**FLAVOR, "extra_specs": {"": "x"}},
        "ports": [{"id": ""}, {"id": "a"}],
    }
    assert faults_of(document) == (
        "instance.uuid: no uuid, as in 6b0e7d9c-6d55-4bd4-9d3c-6f6c3f9b9d31",
        "ports[0].id: empty",
        'flavor.extra_specs[""]: the name is empty',
    )


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (b"", "The request is empty"),
        (b" \n", "The request is empty"),
        ('{"flavor": {}}'.encode("utf-16"), "The request is UTF-16; save it as UTF-8"),
        (b'{"a\\u001b": 1, "a\x1b": 1}', "The request is not JSON"),
        (b'{"a\\u001b": 1, "a\\u001B": 1}', 'The request has "a\\x1b" twice in one object'),
        (b"\xff\x00", "The request is not JSON"),
        (b"[" * 100_000, "The request is nested too deeply"),
        (b'{"flavor":' * 50_000, "The request is nested too deeply"),
        (b"[]", "An object is expected, not a list"),
        (b"null", "An object is expected, not null"),
        (b'{"flavor":{"vcpus":1,"memory_mb":1,"name":"\\u0000"}}', 'flavor.name: "\\x00" has characters that'),
        (b'{"flavor":{"vcpus":1,"memory_mb":1,"extra_specs":{"a\\u001b[2J":"x"}}}', 'flavor.extra_specs["a\\x1b[2J"]'),
        (b'{"flavor":{"vcpus":1,"memory_mb":1,"name":"' + b"x" * 10**6 + b'"}}', "flavor.name: longer than 4096"),
        (b'{"flavor":{"vcpus":1e400,"memory_mb":1}}', "The request is not JSON"),
    ],
)
def test_hostile_texts_are_refused_in_one_printable_line(text: bytes, start: str) -> None:
    (fault,) = faults_of(text)
    assert fault.startswith(start)
    assert fault.isprintable()
    assert len(fault) < 500


def test_a_name_that_is_twice_in_one_object_is_refused_at_any_depth() -> None:
    text = (
        '{"flavor": {"vcpus": 1, "vcpus": 2, "memory_mb": 1, "extra_specs": {"a": "1", "a": "1"}}, "ports": [{}, {}]}'
    )
    assert faults_of(text) == (
        'The request has "a" twice in one object',
        'The request has "vcpus" twice in one object',
    )
    flood = "{" + ", ".join(f'"x{n}": 1, "x{n}": 2' for n in range(100)) + "}"
    assert (len(faults_of(flood)), faults_of(flood)[-1]) == (21, "and more")


def test_a_mark_of_the_byte_order_before_utf_8_does_not_count() -> None:
    text = json.dumps({"flavor": FLAVOR})
    assert request.from_json(text.encode("utf-8-sig")) == request.from_json(text)


def test_blanks_in_words_of_a_command_line_count_as_in_a_file() -> None:
    read = request.from_words(vcpus=2, memory_mb=2048, extra_specs=[" a = b "], properties=["c=d "])
    assert (dict(read.flavor.extra_specs), dict(read.image.properties)) == ({" a ": " b "}, {"c": "d "})


def test_a_flood_of_faults_is_cut() -> None:
    faults = faults_of({"flavor": {**FLAVOR, **{f"x{n}": 1 for n in range(1000)}}})
    assert (len(faults), faults[-1]) == (21, "and more")


def test_words_of_a_command_line_make_the_same_request_as_a_file() -> None:
    given: dict[str, Any] = {
        "flavor": {**FLAVOR, "extra_specs": {"hw:cpu_policy": "dedicated", "b": "x=y"}},
        "image": {"properties": {"hw_numa_nodes": "2"}},
        "ports": [{"vnic_type": "direct"}],
        "group": {"id": "g"},
    }
    assert request.from_words(
        vcpus=2,
        memory_mb=2048,
        extra_specs=["hw:cpu_policy=dedicated", "b=x=y"],
        properties=["hw_numa_nodes=2"],
        ports=['{"vnic_type": "direct"}'],
        group='{"id": "g"}',
    ) == request.from_plain(given)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ({"extra_specs": ["hw:cpu_policy"]}, "--extra-spec hw:cpu_policy: it must be KEY=VALUE"),
        ({"properties": ["=x"]}, "--image-property =x: it must be KEY=VALUE"),
        ({"extra_specs": ["a=1", "a=2"]}, "--extra-spec a=2: a is given twice"),
        ({"ports": ["{}", "{"]}, "--port 2 is not JSON: Input data was truncated"),
        ({"group": "[1]"}, "group: an object is expected, not a list"),
        ({"ports": ["[]"]}, "ports[0]: an object is expected, not a list"),
    ],
)
def test_words_that_are_no_request_are_refused_by_option(words: dict[str, Any], fault: str) -> None:
    with pytest.raises(FaultyInput) as caught:
        request.from_words(vcpus=1, memory_mb=1, **words)
    assert caught.value.faults == (fault,)


def test_every_field_of_a_request_survives_the_codec_and_the_door() -> None:
    port = Port(
        id="p", vnic_type="macvtap", physical_network="n", numa_affinity_policy="legacy", hardware_offload=True,
        trusted=False, parent_ifname="ens1",
    )  # fmt: skip
    spec = RequestSpec(
        instance=Instance(uuid=UUID, name="n"),
        flavor=Flavor(vcpus=1, memory_mb=2, name="f", root_gb=3, ephemeral_gb=4, swap_mb=5),
        ports=(port,),
        group=Group(id="g", policy="soft-affinity", max_server_per_host=2, members=(UUID,)),
    )
    assert {name for name in Port.__struct_fields__ if getattr(port, name) == getattr(Port(id="p"), name)} == {"id"}
    assert request.from_json(wire.to_json(spec)) == spec
