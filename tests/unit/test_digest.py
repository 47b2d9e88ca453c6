"""The digest stands for what a claim asks for, and for nothing else."""

from __future__ import annotations

import hashlib
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from agent.core.cpuset import CpuSet
from agent.core.instance import CellRequest, Group, GuestCpuTopology, InstanceRequest
from agent.core.pci_request import PciRequest, PciSpec
from agent.core.values import Value
from agent.formats.digest import agrees, digest_of
from agent.formats.wire import from_json, to_json

UUID = "6a2a1f2e-8f7d-4a0e-9d55-0d7c0b8a4c11"
SPEC = PciSpec(
    vendor_id="8086",
    device_type="type-VF",
    tags=MappingProxyType({"trusted": "true", "physical_network": None}),
    traits=("CUSTOM_A",),
)
CELL = CellRequest(id=0, vcpus=CpuSet.parse("0-3"), memory_kib=4 << 20, pinned=CpuSet.parse("1-3"))
FULL = InstanceRequest(
    vcpus=4,
    memory_kib=4 << 20,
    cells=(CELL,),
    cpu_policy="mixed",
    thread_policy="isolate",
    emulator_policy="isolate",
    realtime=CpuSet({3}),
    page_size=2048,
    memory_locked=True,
    cpu_topology=GuestCpuTopology(sockets=1, cores=2, threads=2),
    devices=(PciRequest(id="p", specs=(SPEC,), count=2, numa_policy="socket", policy_source="port"),),
)
GROUP = Group(id="g", policy="anti-affinity", members=("a",))


PLAIN_TEXT = f'{{"binding":{{"memory_kib":4194304,"vcpus":4}},"instance":"{UUID}","kind":"build"}}'
FULL_TEXT = (
    '{"binding":{"cells":[{"id":0,"memory_kib":4194304,"pinned":"1-3","vcpus":"0-3"}],"cpu_policy":"mixed",'
    '"cpu_topology":{"cores":2,"sockets":1,"threads":2},"devices":[{"count":2,"id":"p","numa_policy":"socket",'
    '"policy_source":"port","specs":[{"device_type":"type-VF","tags":{"physical_network":null,"trusted":"true"},'
    '"traits":["CUSTOM_A"],"vendor_id":"8086"}]}],"emulator_policy":"isolate","memory_kib":4194304,'
    '"memory_locked":true,"page_size":2048,"realtime":"3","thread_policy":"isolate","vcpus":4},'
    f'"group":{{"id":"g","policy":"anti-affinity"}},"instance":"{UUID}","kind":"build"}}'
)


def test_it_is_made_of_this_text_in_every_release() -> None:
    plain = InstanceRequest(vcpus=4, memory_kib=4 << 20)
    assert digest_of("build", UUID, plain) == hashlib.sha256(PLAIN_TEXT.encode()).hexdigest()
    assert digest_of("build", UUID, FULL, GROUP) == hashlib.sha256(FULL_TEXT.encode()).hexdigest()


def test_a_request_that_has_travelled_has_the_same_digest() -> None:
    assert agrees(
        digest_of("build", UUID, FULL, GROUP), "build", UUID, from_json(to_json(FULL), InstanceRequest), GROUP
    )


def test_kind_instance_group_and_policy_are_part_of_it() -> None:
    made = {
        digest_of("build", UUID, FULL),
        digest_of("evacuate", UUID, FULL),
        digest_of("build", UUID[::-1], FULL),
        digest_of("build", UUID, FULL, Group(id="g")),
        digest_of("build", UUID, FULL, GROUP),
        digest_of("build", UUID, FULL, Group(id="h", policy="anti-affinity")),
    }
    assert len(made) == 6


def test_the_members_of_the_group_are_not() -> None:
    other = Group(
        id="g", policy="anti-affinity", members=("a", "b"), max_server_per_host=2, hosts=("h1",), generation=7
    )
    assert digest_of("build", UUID, FULL, GROUP) == digest_of("build", UUID, FULL, other)


def test_the_order_in_which_tags_were_written_is_not() -> None:
    turned = MappingProxyType(dict(sorted(SPEC.tags.items())))
    assert list(turned) != list(SPEC.tags)
    assert _with_spec(tags=turned) == _with_spec()


def _with_spec(**changed: Any) -> str:
    request = msgspec.structs.replace(FULL.devices[0], specs=(msgspec.structs.replace(SPEC, **changed),))
    return digest_of("build", UUID, msgspec.structs.replace(FULL, devices=(request,)))


def _with_device(**changed: Any) -> str:
    request = msgspec.structs.replace(FULL.devices[0], **changed)
    return digest_of("build", UUID, msgspec.structs.replace(FULL, devices=(request,)))


def _with_cell(**changed: Any) -> str:
    return digest_of("build", UUID, msgspec.structs.replace(FULL, cells=(msgspec.structs.replace(CELL, **changed),)))


def _with_topology(**changed: Any) -> str:
    topology = msgspec.structs.replace(GuestCpuTopology(sockets=1, cores=2, threads=2), **changed)
    return digest_of("build", UUID, msgspec.structs.replace(FULL, cpu_topology=topology))


def _with(**changed: Any) -> str:
    return digest_of("build", UUID, msgspec.structs.replace(FULL, **changed))


OTHER: dict[str, Any] = {
    "vcpus": CpuSet({0}),
    "tags": MappingProxyType({"trusted": "true"}),
    "traits": ("CUSTOM_B",),
    "pinned": CpuSet({1}),
    "realtime": CpuSet(),
    "cells": (),
    "devices": (),
    "specs": (PciSpec(),),
    "cpu_topology": None,
    "cpu_policy": "dedicated",
    "thread_policy": None,
    "emulator_policy": None,
    "page_size": "2048",
    "memory_locked": False,
    "numa_policy": "legacy",
    "policy_source": "flavor",
    "live_migratable": False,
    "device_type": None,
}


@pytest.mark.parametrize(
    ("value", "make"),
    [
        (FULL, _with),
        (CELL, _with_cell),
        (FULL.devices[0], _with_device),
        (SPEC, _with_spec),
        (GuestCpuTopology(sockets=1, cores=2, threads=2), _with_topology),
    ],
    ids=lambda one: type(one).__name__,
)
def test_every_field_at_every_depth_is_part_of_it(value: Value, make: Any) -> None:
    for field in msgspec.structs.fields(value):
        old = getattr(value, field.name)
        new = 77 if isinstance(old, int) and not isinstance(old, bool) else OTHER.get(field.name, "another")
        assert make(**{field.name: new}) != make(), field.name


def test_a_field_that_a_later_release_adds_changes_nothing_at_its_default() -> None:
    class Later(InstanceRequest, frozen=True, kw_only=True):
        shares: int | None = None

    later = Later(**{field: getattr(FULL, field) for field in FULL.__struct_fields__})
    assert digest_of("build", UUID, later) == digest_of("build", UUID, FULL)
    assert digest_of("build", UUID, msgspec.structs.replace(later, shares=3)) != digest_of("build", UUID, FULL)
