"""Aliases and ports become requests for devices, with the policy of whoever stands highest."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from agent.core.host_config import HostConfig
from agent.core.instance import Port
from agent.core.pci_request import Alias, PciRequest, PciSpec
from tests.unit.flavor_requests import GPU, NIC, Words, answer, kinds, requested

POLICY = "hw:pci_numa_affinity_policy"
IMAGE_POLICY = "hw_pci_numa_affinity_policy"


def port_request(spec: PciSpec, **more: Any) -> PciRequest:
    return PciRequest(id="p", specs=(spec,), **more)


def overlay(**tags: str) -> MappingProxyType[str, str | None]:
    return MappingProxyType({"physical_network": None, "remote_managed": "false", **tags})


def devices(
    specs: Words | None = None, properties: Words | None = None, *ports: Port, config: HostConfig | None = None
) -> tuple[PciRequest, ...]:
    made = requested(specs, properties, ports=ports) if config is None else requested(specs, properties, config=config)
    return made.request.devices


def test_an_alias_brings_its_kinds_of_device_and_its_policy() -> None:
    assert devices({"pci_passthrough:alias": " gpu : 2, nic:1"}) == (
        PciRequest(
            id="alias:gpu", specs=GPU.specs, count=2, numa_policy="preferred", policy_source="alias", alias="gpu"
        ),
        PciRequest(id="alias:nic", specs=NIC.specs, count=1, alias="nic"),
    )


def test_an_alias_named_twice_counts_together() -> None:
    assert [(one.id, one.count) for one in devices({"pci_passthrough:alias": "gpu:1,nic:1,gpu:2"})] == [
        ("alias:gpu", 3),
        ("alias:nic", 1),
    ]


def test_alternatives_and_readiness_for_live_migration_come_from_the_alias() -> None:
    either = Alias(name="vf", specs=(PciSpec(product_id="10ed"), PciSpec(product_id="154c")), live_migratable=True)
    (made,) = devices({"pci_passthrough:alias": "vf:1"}, config=HostConfig(alias=(either,)))
    assert (made.specs, made.live_migratable) == (either.specs, True)


@pytest.mark.parametrize(
    "text", ["gpu", "gpu:", "gpu:0", "gpu:-1", "gpu:1:2", ":1", "gpu:1,", "gpu:one", "gpu:99999999999999999999"]
)
def test_an_alias_without_a_number_of_devices_is_a_fault(text: str) -> None:
    assert kinds(answer({"pci_passthrough:alias": text})) == ["alias-form"]


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("direct", PciSpec(tags=overlay())),
        ("macvtap", PciSpec(tags=overlay())),
        ("virtio-forwarder", PciSpec(tags=overlay())),
        ("direct-physical", PciSpec(device_type="type-PF", tags=overlay())),
        ("vdpa", PciSpec(device_type="vdpa", tags=overlay())),
        ("remote-managed", PciSpec(tags=overlay(remote_managed="true"))),
    ],
)
def test_each_kind_of_port_asks_for_its_kind_of_device(kind: Any, spec: PciSpec) -> None:
    assert devices(None, None, Port(id="p", vnic_type=kind)) == (port_request(spec),)


def test_a_port_asks_for_its_network_its_trust_and_its_physical_function() -> None:
    port = Port(id="p", vnic_type="direct", physical_network="physnet0", trusted=False, parent_ifname="ens1f0")
    spec = PciSpec(
        tags=MappingProxyType({"physical_network": "physnet0", "remote_managed": "false", "trusted": "false"})
    )
    assert devices(None, None, port) == (port_request(spec, parent_ifname="ens1f0"),)


def test_hardware_offload_asks_for_the_same_device() -> None:
    plain, offloaded = (Port(id="p", vnic_type="direct", hardware_offload=flag) for flag in (False, True))
    assert devices(None, None, plain) == devices(None, None, offloaded)


@pytest.mark.parametrize("kind", ["normal", "accelerator-direct", "baremetal", "smart-nic"])
def test_other_kinds_of_port_need_no_device_of_the_host(kind: Any) -> None:
    made = requested(ports=(Port(id="p", vnic_type=kind),))
    assert made.request.devices == ()
    assert len(made.notes) == (kind != "normal")


def test_what_a_normal_port_says_about_devices_is_noted() -> None:
    made = requested(ports=(Port(id="p", numa_affinity_policy="required", hardware_offload=True),))
    assert made.notes == (
        "Port p of kind normal needs no device: numa_affinity_policy, hardware_offload has no effect.",
    )


@pytest.mark.parametrize(
    ("specs", "properties", "own", "found"),
    [
        ({POLICY: "required"}, {}, "socket", ("socket", "port")),
        ({POLICY: "required"}, {}, None, ("required", "flavor")),
        ({POLICY: "required"}, {IMAGE_POLICY: "required"}, None, ("required", "flavor")),
        ({}, {IMAGE_POLICY: "preferred"}, None, ("preferred", "image")),
        ({}, {}, None, ("legacy", "default")),
        ({POLICY: "legacy"}, {}, None, ("legacy", "flavor")),
    ],
)
def test_a_ports_policy_stands_above_flavor_and_image(
    specs: Words, properties: Words, own: Any, found: tuple[str, str]
) -> None:
    (made,) = devices(specs, properties, Port(id="p", vnic_type="direct", numa_affinity_policy=own))
    assert (made.numa_policy, made.policy_source) == found


@pytest.mark.parametrize(
    ("specs", "properties", "found"),
    [
        ({POLICY: "required"}, {}, ("required", "flavor")),
        ({}, {IMAGE_POLICY: "socket"}, ("socket", "image")),
        ({}, {}, ("preferred", "alias")),
    ],
)
def test_flavor_and_image_stand_above_an_alias(specs: Words, properties: Words, found: tuple[str, str]) -> None:
    (made,) = devices(specs | {"pci_passthrough:alias": "gpu:1"}, properties)
    assert (made.numa_policy, made.policy_source) == found


def test_an_unknown_policy_does_not_contradict_a_known_one() -> None:
    assert kinds(answer({POLICY: "near"}, {IMAGE_POLICY: "socket"})) == ["pci-policy-unknown"]


def test_a_policy_for_no_device_is_noted() -> None:
    assert requested({POLICY: "required"}).notes == (
        "The policy required of the flavor for devices has no effect: it is for none.",
    )
    port = Port(id="p", vnic_type="direct", numa_affinity_policy="socket")
    assert len(requested({POLICY: "required"}, ports=(port,)).notes) == 1
    assert requested({POLICY: "required", "pci_passthrough:alias": "gpu:1"}).notes == ()
