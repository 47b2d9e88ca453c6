"""Short ways to say what a guest asks for, and to read the answer."""

from __future__ import annotations

from types import MappingProxyType

from agent.core.cpuset import CpuSet
from agent.core.flavor import Faults, Requested, request_of
from agent.core.host_config import HostConfig
from agent.core.instance import Flavor, Image, Instance, InstanceRequest, Port, RequestSpec
from agent.core.pci_request import Alias, PciSpec

Words = dict[str, str]

GPU = Alias(name="gpu", specs=(PciSpec(vendor_id="10de", product_id="1eb8"),), numa_policy="preferred")
NIC = Alias(name="nic", specs=(PciSpec(vendor_id="8086", product_id="10fb", device_type="type-PF"),))
CONFIG = HostConfig(dedicated=CpuSet.parse("2-7"), shared=CpuSet.parse("0-1"), alias=(GPU, NIC))


def answer(
    extra_specs: Words | None = None,
    properties: Words | None = None,
    *,
    vcpus: int = 4,
    memory_mb: int = 4096,
    ports: tuple[Port, ...] = (),
    config: HostConfig = CONFIG,
) -> Requested | Faults:
    spec = RequestSpec(
        instance=Instance(uuid="6a2a1f2e-8f7d-4a0e-9d55-0d7c0b8a4c11"),
        flavor=Flavor(vcpus=vcpus, memory_mb=memory_mb, extra_specs=MappingProxyType(extra_specs or {})),
        image=Image(properties=MappingProxyType(properties or {})),
        ports=ports,
    )
    return request_of(spec, config)


def requested(
    extra_specs: Words | None = None,
    properties: Words | None = None,
    *,
    vcpus: int = 4,
    memory_mb: int = 4096,
    ports: tuple[Port, ...] = (),
    config: HostConfig = CONFIG,
) -> Requested:
    made = answer(extra_specs, properties, vcpus=vcpus, memory_mb=memory_mb, ports=ports, config=config)
    assert isinstance(made, Requested), made
    return made


def asked(extra_specs: Words | None = None, properties: Words | None = None, *, vcpus: int = 4) -> InstanceRequest:
    return requested(extra_specs, properties, vcpus=vcpus).request


def kinds(made: Requested | Faults) -> list[str]:
    """In the order in which they were told; none when it is a request."""
    return [fault.kind for fault in made.faults] if isinstance(made, Faults) else []
