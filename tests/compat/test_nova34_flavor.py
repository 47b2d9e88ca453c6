"""Flavor, image and ports become the same request here and in nova 34, or both refuse them for the same reason, but for
what is listed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import pytest

from agent.core.cpuset import CpuSet
from agent.core.flavor import Requested, request_of
from agent.core.host_config import HostConfig
from agent.core.instance import Flavor, Image, Instance, Port, RequestSpec
from agent.core.pci_request import Alias, PciRequest, PciSpec
from agent.formats.wire import from_builtins
from tests.compat.flavor_cases import (
    BOTH,
    DIFFERENCES,
    FLAVOR,
    HAND_MADE,
    IMAGE,
    REFUSALS,
    Difference,
    case,
    port,
    random_cases,
)
from tests.compat.nova_process import nova_process

SEED = 20261130
NUMBER = 6000
PER_CALL = 500

Nova = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


def ours(one: dict[str, Any]) -> dict[str, Any]:
    """In the form of nova_flavor_answers; all kinds of faults where it is refused."""
    spec = RequestSpec(
        instance=Instance(uuid="u"),
        flavor=Flavor(
            vcpus=one["vcpus"], memory_mb=one["memory_mb"], extra_specs=MappingProxyType(dict(one["extra_specs"]))
        ),
        image=Image(properties=MappingProxyType(dict(one["properties"]))),
        ports=tuple(from_builtins(said, Port) for said in one["ports"]),
    )
    made = request_of(spec, HostConfig(dedicated=CpuSet({1}), shared=CpuSet({0}), alias=_aliases(one["alias"])))
    return _plain(made) if isinstance(made, Requested) else {"refused": {fault.kind for fault in made.faults}}


def _aliases(entries: list[dict[str, str]]) -> tuple[Alias, ...]:
    names = dict.fromkeys(entry["name"] for entry in entries)
    return tuple(_alias(name, [entry for entry in entries if entry["name"] == name]) for name in names)


def _alias(name: str, entries: list[dict[str, str]]) -> Alias:
    keys = ("vendor_id", "product_id", "device_type")
    first: Any = entries[0]
    return Alias(
        name=name,
        specs=tuple(from_builtins({key: entry[key] for key in keys if key in entry}, PciSpec) for entry in entries),
        numa_policy=first.get("numa_policy"),
        live_migratable=True if "live_migratable" in first else None,
    )


def _plain(made: Requested) -> dict[str, Any]:
    request = made.request
    shape = request.cpu_topology
    return {
        "cells": [
            {
                "id": cell.id,
                "vcpus": list(cell.vcpus),
                "pinned": list(cell.pinned),
                "memory_mb": cell.memory_kib // 1024,
                "page_size": request.page_size,
                "cpu_policy": request.cpu_policy,
                "thread_policy": request.thread_policy,
            }
            for cell in request.cells
        ],
        "emulator": request.emulator_policy,
        "realtime": list(request.realtime),
        "locked": request.memory_locked,
        "shape": [request.vcpus, 1, 1] if shape is None else [shape.sockets, shape.cores, shape.threads],
        "requests": [_plain_request(one) for one in request.devices],
    }


def _plain_request(request: PciRequest) -> dict[str, Any]:
    return {
        "port": request.id if request.alias is None else None,
        "alias": request.alias,
        "count": request.count,
        "policy": request.numa_policy,
        "specs": [_plain_spec(request, spec) for spec in request.specs],
    }


def _plain_spec(request: PciRequest, spec: PciSpec) -> dict[str, str | None]:
    """As nova keeps it, but in small letters: their case counts for nothing."""
    said: dict[str, str | None] = {
        key: value
        for key, value in (
            ("vendor_id", spec.vendor_id),
            ("product_id", spec.product_id),
            ("dev_type", spec.device_type),
            ("live_migratable", {None: None, True: "true", False: "false"}[request.live_migratable]),
        )
        if value is not None
    }
    return said | dict(spec.tags)


def _same_form(said: dict[str, Any]) -> dict[str, Any]:
    """As `ours`: without what no request here has, and its booleans' texts in small letters."""
    for request in said.get("requests", ()):
        for spec in request["specs"]:
            spec.update({key: spec[key].lower() for key in ("remote_managed", "trusted") if key in spec})
    return {key: value for key, value in said.items() if key != "encrypted"}


@pytest.fixture(scope="module")
def nova() -> Iterator[Nova]:
    with nova_process("tests.compat.nova_flavor_answers") as ask:

        def answers(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
            groups = (cases[start : start + PER_CALL] for start in range(0, len(cases), PER_CALL))
            return [_same_form(said) for group in groups for said in ask(group)]

        yield answers


def agree(nova: dict[str, Any], here: dict[str, Any]) -> bool:
    """The same request, or a refusal on both sides, nova's reason being among those told here."""
    if "refused" in nova and "refused" in here:
        return not REFUSALS[nova["refused"]].isdisjoint(here["refused"])
    return nova == here


def one_by_one() -> list[dict[str, Any]]:
    """Each word of each property alone, beside each CPU policy, and each of the image's beside each of the flavor's."""
    flavor = {f"hw:{key}": words for key, words in BOTH.items()} | dict(FLAVOR)
    image = {f"hw_{key}": words for key, words in BOTH.items()} | dict(IMAGE)
    policies: list[dict[str, str]] = [{}, *({"hw:cpu_policy": word} for word in ("dedicated", "shared"))]
    policies.append({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-1"})
    made = [case({**policy, key: word}) for policy in policies for key in flavor for word in flavor[key]]
    made += [case(policy, {key: word}) for policy in policies for key in image for word in image[key]]
    for key, words in BOTH.items():
        made += [case({f"hw:{key}": one}, {f"hw_{key}": other}) for one in words for other in words]
    return made


KINDS = ("normal", "direct", "direct-physical", "macvtap", "vdpa", "remote-managed", "virtio-forwarder", "baremetal")


def ports_of_each_kind() -> list[dict[str, Any]]:
    specs: list[dict[str, str]] = [{}, {"hw:pci_numa_affinity_policy": "required"}]
    return [
        case(said, ports=(port(1, kind, net, own, trusted=trust),))
        for kind in KINDS
        for net in (None, "physnet0")
        for said in specs
        for own in (None, "socket")
        for trust in (None, True, False)
    ]


def _differ(cases: list[dict[str, Any]], nova: Nova) -> tuple[list[Any], int]:
    """Cases with another answer that no listed difference explains, and how many are accepted by both."""
    accepted, unexplained = 0, []
    for one, said in zip(cases, nova(cases), strict=True):
        here = ours(one)
        accepted += "refused" not in here and "refused" not in said
        if not agree(said, here) and not any(difference.applies(one) for difference in DIFFERENCES):
            unexplained.append((one, {"nova": said, "here": here}))
    return unexplained, accepted


def test_each_property_and_each_pair_of_flavor_and_image_is_answered_as_by_nova(nova: Nova) -> None:
    unexplained, accepted = _differ(one_by_one(), nova)
    assert unexplained[:3] == []
    assert accepted > 1000


def test_hand_made_flavors_are_answered_as_by_nova(nova: Nova) -> None:
    unexplained, accepted = _differ(list(HAND_MADE), nova)
    assert unexplained == []
    assert accepted > 12


def test_every_refusal_of_nova_was_met(nova: Nova) -> None:
    met = {said.get("refused") for said in nova([*one_by_one(), *HAND_MADE, *random_cases(NUMBER // 6, SEED)])}
    assert set(REFUSALS) - met == set()


def test_ports_become_the_requests_that_nova_makes_of_them(nova: Nova) -> None:
    unexplained, accepted = _differ(ports_of_each_kind(), nova)
    assert unexplained[:3] == []
    assert accepted == len(ports_of_each_kind())


def test_random_flavors_images_and_ports_are_answered_as_by_nova(nova: Nova) -> None:
    unexplained, accepted = _differ(random_cases(NUMBER, SEED), nova)
    assert unexplained[:3] == []
    assert accepted > NUMBER // 5


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda one: one.why[:60])
def test_what_is_listed_as_different_is_still_so(difference: Difference, nova: Nova) -> None:
    assert difference.applies(difference.example)
    assert not agree(nova([difference.example])[0], ours(difference.example))
