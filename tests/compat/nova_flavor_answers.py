"""Run by the Python that has nova: lists of cases (of `flavor_cases`) as lines of JSON in, what nova makes of
each out.

nova's modules are loaded by name, since the environment that checks types has no nova.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

CONF: Any = importlib.import_module("nova.conf").CONF
context: Any = importlib.import_module("nova.context")
exception: Any = importlib.import_module("nova.exception")
neutron: Any = importlib.import_module("nova.network.neutron")
objects: Any = importlib.import_module("nova.objects")
pci_request: Any = importlib.import_module("nova.pci.request")
hardware: Any = importlib.import_module("nova.virt.hardware")

PAGES = {hardware.MEMPAGES_SMALL: "small", hardware.MEMPAGES_LARGE: "large", hardware.MEMPAGES_ANY: "any"}
OVERLAY = "overlay"
IMAGE = "11111111-1111-4111-8111-111111111111"


class Ports(neutron.API):  # type: ignore[misc]  # nova has no types here
    """nova's own way from ports to requests, with the ports of a case in place of neutron's answers."""

    def __init__(self, ports: list[dict[str, Any]]) -> None:
        super().__init__()
        self.ports = {port["id"]: port for port in ports}

    def has_extended_resource_request_extension(self, *_: object, **__: object) -> bool:
        return False

    def _show_port(self, _context: object, port_id: str, **_: object) -> dict[str, Any]:
        port = self.ports[port_id]
        profile = {} if port["trusted"] is None else {"trusted": port["trusted"]}
        return {
            "binding:vnic_type": port["vnic_type"],
            "binding:profile": profile,
            "network_id": port["physical_network"] or OVERLAY,
            "numa_affinity_policy": port["numa_affinity_policy"],
        }

    def _get_physnet_tunneled_info(self, _context: object, _client: object, net: str) -> tuple[str | None, bool]:
        return (None, True) if net == OVERLAY else (net, False)


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """What nova decides before it looks at a host, or the name of the exception that it refuses with."""
    CONF.set_override("alias", [json.dumps(alias) for alias in case["alias"]], group="pci")
    pci_request.get_alias_from_config.cache_clear()
    try:
        flavor = objects.Flavor(
            name="f", vcpus=case["vcpus"], memory_mb=case["memory_mb"], extra_specs=dict(case["extra_specs"])
        )
        image = objects.ImageMeta(
            id=IMAGE, name="i", properties=objects.ImageMetaProps.from_dict(dict(case["properties"]))
        )
        return _decided(flavor, image, case["ports"])
    except (exception.NovaException, ValueError, TypeError) as error:
        return {"refused": type(error).__name__}


def _decided(flavor: Any, image: Any, ports: list[dict[str, Any]]) -> dict[str, Any]:
    topology = hardware.numa_get_constraints(flavor, image)
    encryption = hardware.get_mem_encryption_constraint(flavor, image)
    shape = hardware.get_best_cpu_topology(flavor, image)
    policy = hardware.get_pci_numa_policy_constraint(flavor, image)
    realtime = hardware.get_realtime_cpu_constraint(flavor, image)
    requests = pci_request.get_pci_requests_from_flavor(flavor, affinity_policy=policy)
    networks = objects.NetworkRequestList(objects=[objects.NetworkRequest(port_id=port["id"]) for port in ports])
    Ports(ports).create_resource_requests(context.get_admin_context(), networks, requests, affinity_policy=policy)
    return {
        "cells": [] if topology is None else [_cell(cell) for cell in topology.cells],
        "emulator": hardware.get_emulator_thread_policy_constraint(flavor),
        "realtime": sorted(realtime or ()),
        "locked": bool(hardware.get_locked_memory_constraint(flavor, image) or realtime),
        "encrypted": None if encryption is None else encryption.model,
        "shape": [shape.sockets, shape.cores, shape.threads],
        "requests": [_request(one) for one in requests.requests],
    }


def _cell(cell: Any) -> dict[str, Any]:
    return {
        "id": cell.id,
        "vcpus": sorted(cell.cpuset | cell.pcpuset),
        "pinned": sorted(cell.pcpuset),
        "memory_mb": cell.memory,
        "page_size": PAGES.get(cell.pagesize, cell.pagesize),
        "cpu_policy": cell.cpu_policy,
        "thread_policy": cell.cpu_thread_policy,
    }


def _request(request: Any) -> dict[str, Any]:
    return {
        "port": request.requester_id if request.obj_attr_is_set("requester_id") else None,
        "alias": request.alias_name if request.obj_attr_is_set("alias_name") else None,
        "count": request.count,
        "policy": (request.numa_policy if request.obj_attr_is_set("numa_policy") else None) or "legacy",
        "specs": request.spec,
    }


if __name__ == "__main__":
    CONF([], project="nova", default_config_files=[], default_config_dirs=[], use_env=False)
    # a client of neutron is made, and never speaks: the ports of the case answer instead
    CONF.set_override("auth_type", "none", group="neutron")
    CONF.set_override("endpoint_override", "http://127.0.0.1:9", group="neutron")
    objects.register_all()
    for line in sys.stdin:
        sys.stdout.write(f"{json.dumps([answer(case) for case in json.loads(line)])}\n")
        sys.stdout.flush()
