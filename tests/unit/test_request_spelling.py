"""However a request is written, it is the same guest, or it is refused by the name that was written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.core.instance import Instance, RequestSpec
from agent.errors import FaultyInput
from agent.formats import request
from agent.formats.request_spelling import spelled

UUID = "6b0e7d9c-6d55-4bd4-9d3c-6f6c3f9b9d31"
FLAVOR: dict[str, Any] = {"vcpus": 2, "memory_mb": 2048}
PORT: dict[str, Any] = {"id": "p", "vnic_type": "direct", "physical_network": "net"}
GROUP: dict[str, Any] = {"id": "g", "policy": "anti-affinity", "members": [UUID]}


def read(*, port: dict[str, Any] | None = None, **parts: Any) -> RequestSpec:
    ports = {} if port is None else {"ports": [port]}
    return request.from_json(json.dumps({"flavor": FLAVOR, **ports, **parts}))


def faults_of(**parts: Any) -> tuple[str, ...]:
    with pytest.raises(FaultyInput) as caught:
        read(**parts)
    return caught.value.faults


PORTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"id": None, "vnic_type": None}, {"id": "port0", "vnic_type": "normal"}),
    ({"numa_affinity_policy": None, "trusted": None, "binding:profile": None, "tags": None}, {}),
    ({"network_id": "x"}, {}),
    ({"trusted": "true"}, {"trusted": True}),
    ({"trusted": "No"}, {"trusted": False}),
    ({"tags": ["switchdev"]}, {"hardware_offload": True}),
    ({"tags": ["hardware-offload"]}, {"hardware_offload": True}),
    ({"tags": {"hardware_offload": True}}, {"hardware_offload": True}),
    ({"tags": {"hardware offload": False}}, {"hardware_offload": False}),
    ({"tags": {}}, {}),
    ({"binding:profile": {}}, {}),
    ({"binding:profile": {"capabilities": ["switchdev"]}}, {"hardware_offload": True}),
    ({"binding:profile": {"trusted": "true"}}, {"trusted": True}),
    ({"binding_profile": {"capabilities": []}}, {}),
    ({"binding:profile": {"physical_network": "net"}}, {}),
    ({"physical_network": None, "binding:profile": {"physical_network": "net"}}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("written", "meant"), PORTS, ids=[json.dumps(written) for written, _ in PORTS])
def test_a_port_is_the_same_however_it_is_written(written: dict[str, Any], meant: dict[str, Any]) -> None:
    assert read(port={**PORT, **written}) == read(port={**PORT, **meant})


def test_a_port_has_its_kind_under_neutrons_name_too() -> None:
    assert read(port={"id": "p", "binding:vnic_type": "direct", "physical_network": "net"}) == read(port=PORT)


PARTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"instance": None, "image": None, "ports": None, "group": None}, {}),
    ({"image": {"properties": None}, "flavor": {**FLAVOR, "extra_specs": None, "name": None}}, {}),
    ({"image": {"id": "x", "name": "y"}}, {}),
    ({"instance": {"name": "n"}}, {"instance": {"name": "n", "uuid": request.NOBODY}}),
    ({"instance": {"uuid": UUID.upper()}}, {"instance": {"uuid": UUID}}),
    ({"flavor": {"vcpus": 2.0, "ram": 2048}}, {}),
    ({"flavor": {**FLAVOR, "swap": 3, "disk": 4}}, {"flavor": {**FLAVOR, "swap_mb": 3, "root_gb": 4}}),
    ({"flavor": {**FLAVOR, "swap": ""}}, {}),
    (
        {"flavor": {**FLAVOR, "extra_specs": {"hw:locked_memory": True}}, "image": {"properties": {"hw_x": False}}},
        {"flavor": {**FLAVOR, "extra_specs": {"hw:locked_memory": "true"}}, "image": {"properties": {"hw_x": "false"}}},
    ),
    ({"group": {**GROUP, "rules": {"max_server_per_host": 2}}}, {"group": {**GROUP, "max_server_per_host": 2}}),
    ({"group": {**GROUP, "rules": {"max_server_per_host": "2"}}}, {"group": {**GROUP, "max_server_per_host": 2}}),
    ({"group": {**GROUP, "rules": {}, "name": "n"}}, {"group": GROUP}),
    ({"group": {**GROUP, "generation": "5"}}, {"group": {**GROUP, "generation": 5}}),
    ({"group": {**GROUP, "rules": None, "generation": None}}, {"group": GROUP}),
    ({"group": {**GROUP, "members": [UUID.upper()]}}, {"group": GROUP}),
]


@pytest.mark.parametrize(("written", "meant"), PARTS, ids=[json.dumps(written) for written, _ in PARTS])
def test_a_request_is_the_same_however_it_is_written(written: dict[str, Any], meant: dict[str, Any]) -> None:
    assert read(**written) == read(**meant)


def test_a_guest_without_uuid_is_only_thought_of() -> None:
    assert read(instance={"name": "n"}).instance == Instance(uuid=request.NOBODY, name="n")


@pytest.mark.parametrize(
    ("parts", "fault"),
    [
        ({"flavor": {**FLAVOR, "ram": 1}}, "flavor.memory_mb: ram says the same thing; give one of them"),
        ({"flavor": {**FLAVOR, "disk_gb": 1}}, "flavor.disk_gb: unknown. Known are "),
        ({"flavor": {**FLAVOR, "extra_specs": {"a": None}}}, 'flavor.extra_specs["a"]: a text is expected, not null'),
        ({"flavor": {**FLAVOR, "swap": "1"}}, 'flavor.swap_mb: a whole number is expected, not "1"'),
        ({"image": {"size": 1}}, "image.size: unknown. "),
        (
            {"port": {**PORT, "binding:vnic_type": "direct"}},
            "ports[0].vnic_type: binding:vnic_type says the same thing; give one of them",
        ),
        ({"port": {"tags": ["swichdev"]}}, "ports[0].tags.swichdev: unknown. Known are switchdev, hardware_offload"),
        ({"port": {"tags": "switchdev"}}, "ports[0].tags: unknown. "),
        (
            {"port": {"binding:profile": {"trustd": True}}},
            "ports[0].binding:profile.trustd: unknown. Known are capabilities, trusted, physical_network",
        ),
        (
            {"port": {"binding:profile": {"capabilities": ["x"]}}},
            "ports[0].binding:profile.capabilities.x: unknown. Known are switchdev, hardware_offload",
        ),
        (
            {"port": {"trusted": True, "binding:profile": {"trusted": True}}},
            "ports[0].binding:profile.trusted: trusted says the same thing; give one of them",
        ),
        (
            {"port": {**PORT, "binding:profile": {"physical_network": "other"}}},
            "ports[0].binding:profile.physical_network: physical_network says the same thing; give one of them",
        ),
        (
            {"port": {"hardware_offload": False, "tags": ["switchdev"]}},
            'ports[0].tags["switchdev"]: hardware_offload says the same thing; give one of them',
        ),
        ({"port": {"trusted": "perhaps"}}, 'ports[0].trusted: true or false is expected, not "perhaps"'),
        ({"group": {**GROUP, "rules": {"x": 1}}}, "group.rules.x: unknown. Known are max_server_per_host"),
        (
            {"group": {**GROUP, "max_server_per_host": 2, "rules": {"max_server_per_host": 2}}},
            "group.rules.max_server_per_host: max_server_per_host says the same thing; give one of them",
        ),
        ({"group": {**GROUP, "policies": []}}, "group.policies: unknown. Is policy meant?"),
        ({"comment": "x"}, "comment: unknown. "),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_what_is_said_twice_or_means_nothing_is_refused_by_its_name(parts: dict[str, Any], fault: str) -> None:
    assert faults_of(**parts)[0].startswith(fault)


@pytest.mark.parametrize("data", [None, [], 7, {"flavor": 5}, {"ports": {"a": 1}}, {"ports": [5]}, {"group": "g"}])
def test_what_is_not_understood_is_left_as_it_is(data: object) -> None:
    assert spelled(data) == data
