"""Each way in which flavor, image, ports and configuration contradict each other has a fault of its own."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.cpuset import CpuSet
from agent.core.flavor import FaultKind, Faults, Property, Requested, request_of
from agent.core.host_config import HostConfig
from agent.core.instance import Flavor, Image, Instance, Port, RequestSpec
from agent.core.words import brief
from agent.formats.wire import from_json, to_json
from tests.unit.flavor_requests import CONFIG, answer, kinds

MIXED = {"hw:cpu_policy": "mixed"}
DEDICATED = {"hw:cpu_policy": "dedicated"}
REALTIME = {**DEDICATED, "hw:cpu_realtime": "true"}
ENCRYPTED = {"hw:mem_encryption": "true"}
UEFI = {"hw_firmware_type": "uefi"}
SNP = {**ENCRYPTED, "hw:mem_encryption_model": "amd-sev-snp"}
TDX = {**ENCRYPTED, "hw:mem_encryption_model": "intel-tdx"}
HAND = {"hw:numa_nodes": "2", "hw:numa_cpus.0": "0-1", "hw:numa_mem.0": "1024", "hw:numa_mem.1": "3072"}
HAND_IMAGE = {"hw_numa_cpus.0": "0-3", "hw_numa_mem.0": "4096"}
PORT = Port(id="p", vnic_type="direct")

Example = dict[str, Any]


def said(extra_specs: dict[str, str] | None = None, properties: dict[str, str] | None = None, **more: Any) -> Example:
    return {"extra_specs": extra_specs, "properties": properties, **more}


EXAMPLES: dict[FaultKind, Example] = {
    "vcpus-range": said(vcpus=0),
    "memory-range": said(memory_mb=2**31),
    "cpu-policy-unknown": said({"hw:cpu_policy": "pinned"}),
    "cpu-policy-conflict": said({"hw:cpu_policy": "shared"}, {"hw_cpu_policy": "mixed"}),
    "resources-number": said({"resources:VCPU": "4.0"}),
    "resources-beside-policy": said({**DEDICATED, "resources:PCPU": "4"}),
    "resources-both": said({"resources:VCPU": "2", "resources:PCPU": "2"}),
    "pcpu-count": said({"resources:PCPU": "4", "hw:emulator_threads_policy": "isolate"}),
    "thread-policy-unknown": said(DEDICATED, {"hw_cpu_thread_policy": "never"}),
    "thread-policy-conflict": said(
        {**DEDICATED, "hw:cpu_thread_policy": "require"}, {"hw_cpu_thread_policy": "isolate"}
    ),
    "thread-policy-unpinned": said({"hw:cpu_thread_policy": "prefer"}),
    "hyperthreading-unknown": said({"trait:HW_CPU_HYPERTHREADING": "maybe"}),
    "hyperthreading-conflict": said(
        {**DEDICATED, "trait:HW_CPU_HYPERTHREADING": "forbidden"}, {"trait:HW_CPU_HYPERTHREADING": "required"}
    ),
    "hyperthreading-beside-policy": said(
        {**DEDICATED, "trait:HW_CPU_HYPERTHREADING": "forbidden", "hw:cpu_thread_policy": "isolate"}
    ),
    "hyperthreading-unpinned": said({"trait:HW_CPU_HYPERTHREADING": "required"}),
    "emulator-policy-unknown": said({**DEDICATED, "hw:emulator_threads_policy": "apart"}),
    "emulator-policy-unpinned": said({"hw:emulator_threads_policy": "isolate"}),
    "dedicated-mask-list": said({**MIXED, "hw:cpu_dedicated_mask": "first"}),
    "dedicated-mask-range": said({**MIXED, "hw:cpu_dedicated_mask": "0-4"}),
    "dedicated-mask-empty": said({**MIXED, "hw:cpu_dedicated_mask": "^0-3"}),
    "dedicated-mask-whole": said({**MIXED, "hw:cpu_dedicated_mask": "0-3"}),
    "dedicated-mask-policy": said({**DEDICATED, "hw:cpu_dedicated_mask": "0-1"}),
    "mixed-no-mask": said(MIXED),
    "mixed-two-masks": said(
        {**MIXED, "hw:cpu_dedicated_mask": "0-1", "hw:cpu_realtime": "true", "hw:cpu_realtime_mask": "^0"}
    ),
    "realtime-unclear": said({**DEDICATED, "hw:cpu_realtime": "ture"}),
    "realtime-list": said({**REALTIME, "hw:cpu_realtime_mask": "0;1"}),
    "realtime-range": said({**REALTIME, "hw:cpu_realtime_mask": "3-4"}),
    "realtime-empty": said({**REALTIME, "hw:cpu_realtime_mask": "^0-3"}),
    "realtime-whole": said(REALTIME),
    "realtime-unpinned": said({"hw:cpu_realtime": "true", "hw:cpu_realtime_mask": "^0"}),
    "realtime-share-set": said({**REALTIME, "hw:emulator_threads_policy": "share"}, config=HostConfig()),
    "page-size-unknown": said({"hw:mem_page_size": "2048kB"}),
    "page-size-image-alone": said(None, {"hw_mem_page_size": "large"}),
    "page-size-conflict": said({"hw:mem_page_size": "2048"}, {"hw_mem_page_size": "2048"}),
    "locked-memory-unclear": said({"hw:mem_page_size": "any", "hw:locked_memory": "2"}),
    "locked-memory-conflict": said(
        {"hw:mem_page_size": "any", "hw:locked_memory": "true"}, {"hw_locked_memory": "false"}
    ),
    "locked-memory-pages": said({"hw:locked_memory": "true"}),
    "encryption-unclear": said({"hw:mem_encryption": "si"}),
    "encryption-conflict": said(ENCRYPTED, {"hw_mem_encryption": "false", **UEFI}),
    "encryption-model-unknown": said({"hw:mem_encryption_model": "rot13"}),
    "encryption-model-conflict": said(SNP, {"hw_mem_encryption_model": "amd-sev", **UEFI}),
    "encryption-firmware": said(ENCRYPTED),
    "encryption-machine": said(ENCRYPTED, {"hw_machine_type": "pc", **UEFI}),
    "encryption-stateless": said(SNP, UEFI),
    "encryption-video": said(TDX, {"hw_firmware_stateless": "true", "hw_video_model": "vga", **UEFI}),
    "cells-number": said({"hw:numa_nodes": "0"}),
    "cells-twice": said({"hw:numa_nodes": "2"}, {"hw_numa_nodes": "2"}),
    "cells-uneven": said({"hw:numa_nodes": "3"}),
    "cells-incomplete": said(HAND),
    "cell-cpus-twice": said({**DEDICATED, "hw:numa_cpus.0": "0-3"}, HAND_IMAGE),
    "cell-cpus-list": said({**HAND, "hw:numa_cpus.1": "2to3"}),
    "cell-cpus-empty": said({**HAND, "hw:numa_cpus.1": "2,^2"}),
    "cell-cpu-range": said({**HAND, "hw:numa_cpus.1": "2-4"}),
    "cell-cpu-shared": said({**HAND, "hw:numa_cpus.1": "1-3"}),
    "cell-cpu-unassigned": said({**HAND, "hw:numa_cpus.1": "3"}),
    "cell-memory-twice": said({**DEDICATED, "hw:numa_mem.0": "4096"}, HAND_IMAGE),
    "cell-memory-number": said({**HAND, "hw:numa_cpus.1": "2-3", "hw:numa_mem.1": "-1"}),
    "cell-memory-sum": said({**HAND, "hw:numa_cpus.1": "2-3", "hw:numa_mem.1": "1024"}),
    "topology-number": said({"hw:cpu_threads": "two"}),
    "topology-maximum": said({"hw:cpu_max_sockets": "2"}, {"hw_cpu_max_sockets": "4"}),
    "topology-beyond-maximum": said({"hw:cpu_max_sockets": "2"}, {"hw_cpu_sockets": "4"}),
    "topology-impossible": said({"hw:cpu_max_sockets": "1", "hw:cpu_max_cores": "1", "hw:cpu_max_threads": "2"}),
    "pci-policy-unknown": said({"hw:pci_numa_affinity_policy": "near"}),
    "pci-policy-conflict": said({"hw:pci_numa_affinity_policy": "required"}, {"hw_pci_numa_affinity_policy": "socket"}),
    "alias-form": said({"pci_passthrough:alias": "gpu:none"}),
    "alias-unknown": said({"pci_passthrough:alias": "fpga:1"}),
    "port-twice": said(ports=(PORT, PORT)),
}


@pytest.mark.parametrize("kind", get_args(FaultKind))
def test_each_contradiction_is_told_by_its_own_word_and_nothing_else_is(kind: FaultKind) -> None:
    assert kinds(answer(**EXAMPLES[kind])) == [kind]


@pytest.mark.parametrize("kind", get_args(FaultKind))
def test_a_fault_names_its_properties_and_their_values_and_what_to_change(kind: FaultKind) -> None:
    made = answer(**EXAMPLES[kind])
    assert isinstance(made, Faults)
    fault = made.faults[0]
    assert fault.properties
    for one in fault.properties:
        assert one.name in fault.found
        assert one.value is None or brief(one.value) in fault.found
    assert fault.found.endswith(".")
    assert fault.change.endswith(".")
    assert any(one.name in fault.change for one in fault.properties), fault.change


def test_independent_faults_are_all_told_at_once() -> None:
    made = answer(
        {
            "hw:cpu_policy": "shared",
            "hw:cpu_thread_policy": "isolate",
            "hw:emulator_threads_policy": "isolate",
            "hw:mem_page_size": "huge",
            "hw:numa_nodes": "3",
            "hw:cpu_sockets": "x",
            "pci_passthrough:alias": "fpga:1,gpu",
        },
        {"hw_pci_numa_affinity_policy": "near"},
    )
    assert sorted(kinds(made)) == [
        "alias-form",
        "alias-unknown",
        "cells-uneven",
        "emulator-policy-unpinned",
        "page-size-unknown",
        "pci-policy-unknown",
        "thread-policy-unpinned",
        "topology-number",
    ]


@pytest.mark.parametrize(
    ("vcpus", "memory_mb", "found"),
    [
        (1, 1, []),
        (4096, 2**31 - 1, []),
        (0, 0, ["vcpus-range", "memory-range"]),
        (-1, -1, ["vcpus-range", "memory-range"]),
        (4097, 2**31, ["vcpus-range", "memory-range"]),
    ],
)
def test_sizes_beyond_any_host_are_faults(vcpus: int, memory_mb: int, found: list[str]) -> None:
    assert kinds(answer(vcpus=vcpus, memory_mb=memory_mb)) == found


def test_a_size_of_thousands_of_digits_is_told_in_few() -> None:
    made = answer(vcpus=2**70000, memory_mb=-(2**64))
    assert isinstance(made, Faults)
    assert [fault.found for fault in made.faults] == [
        "vcpus='2**70000' of the flavor is not between 1 and 4096.",
        "memory_mb='-2**64' of the flavor is not between 1 and 2147483647 MiB.",
    ]
    assert kinds(answer(vcpus=2**63)) == ["vcpus-range"]


def test_no_fault_follows_from_another() -> None:
    """With a policy that is no word, nobody knows whether the rest needs pins."""
    specs = {
        "hw:cpu_policy": "dedicatd",
        "hw:cpu_thread_policy": "isolate",
        "hw:emulator_threads_policy": "isolate",
        "hw:cpu_realtime": "true",
        "hw:cpu_dedicated_mask": "0-1",
    }
    assert kinds(answer(specs)) == ["cpu-policy-unknown"]
    assert kinds(answer({**specs, "hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "9"}, vcpus=0)) == ["vcpus-range"]


def test_one_fault_names_all_aliases_that_the_host_lacks_and_those_that_it_has() -> None:
    made = answer({"pci_passthrough:alias": "fpga:1,gpu:1,tpu:2,x,y"})
    assert isinstance(made, Faults)
    assert made.faults[1].properties[1] == Property(name="[pci] alias", value="gpu, nic", where="config")
    text = "pci_passthrough:alias=fpga:1,gpu:1,tpu:2,x,y of the flavor"
    assert [fault.found for fault in made.faults] == [
        f"{text} has 'x', 'y', which is not NAME:COUNT.",
        f"{text} asks for 'fpga', 'tpu', but of [pci] alias this host has gpu, nic.",
    ]


WORDS = st.sampled_from(
    (
        *("dedicated", "shared", "mixed", "isolate", "require", "true", "large", "any", "2048", "1GB", "9" * 40, "-1"),
        *("0-1", "^0", "2-3", "0-3", "1", "2", "4", "4096", "gpu:1", "gpu:1,nic:70000", "amd-sev", "required", ""),
    )
) | st.text(max_size=8)
NAMES = st.sampled_from(
    (
        *("cpu_policy", "cpu_thread_policy", "cpu_realtime", "cpu_realtime_mask", "cpu_dedicated_mask", "numa_nodes"),
        *("numa_cpus.0", "numa_cpus.1", "numa_mem.0", "numa_mem.1", "mem_page_size", "locked_memory", "pmem"),
        *("emulator_threads_policy", "mem_encryption", "mem_encryption_model", "pci_numa_affinity_policy"),
        *("cpu_sockets", "cpu_cores", "cpu_threads", "cpu_max_sockets", "cpu_max_cores", "cpu_max_threads"),
    )
) | st.text(max_size=4)
FLAVOR_KEYS = NAMES.map("hw:{}".format) | st.sampled_from(
    ("resources:PCPU", "resources:VCPU", "resources7:PCPU", "trait:HW_CPU_HYPERTHREADING", "pci_passthrough:alias")
)
PORTS = st.builds(
    Port,
    id=st.text(max_size=2),
    vnic_type=st.sampled_from(("normal", "direct", "direct-physical", "vdpa", "remote-managed", "smart-nic")),
    physical_network=st.none() | st.text(max_size=3),
    numa_affinity_policy=st.sampled_from((None, "required", "socket")),
    trusted=st.sampled_from((None, True, False)),
)
SPECS = st.builds(
    lambda vcpus, memory_mb, specs, properties, ports: RequestSpec(
        instance=Instance(uuid="u"),
        flavor=Flavor(vcpus=vcpus, memory_mb=memory_mb, extra_specs=MappingProxyType(specs)),
        image=Image(properties=MappingProxyType(properties)),
        ports=tuple(ports),
    ),
    st.sampled_from((1, 2, 4, 4, 4, 4096)) | st.integers(),
    st.sampled_from((1024, 4096)) | st.integers(),
    st.dictionaries(FLAVOR_KEYS, WORDS, max_size=8),
    st.dictionaries(NAMES.map("hw_{}".format), WORDS, max_size=4),
    st.lists(PORTS, max_size=3),
)


@given(SPECS)
def test_whatever_is_said_becomes_a_request_that_holds_together_or_faults(spec: RequestSpec) -> None:
    made = request_of(spec, CONFIG)
    if isinstance(made, Faults):
        assert made.faults
        return
    request = made.request
    assert (request.vcpus, request.memory_kib) == (spec.flavor.vcpus, spec.flavor.memory_mb * 1024)
    if request.cells:
        assert sum(cell.memory_kib for cell in request.cells) == request.memory_kib
        together = CpuSet(cpu for cell in request.cells for cpu in cell.vcpus)
        assert together == CpuSet(range(request.vcpus))
        assert sum(len(cell.vcpus) for cell in request.cells) == request.vcpus
        assert all(cell.vcpus and cell.memory_kib > 0 and cell.pinned <= cell.vcpus for cell in request.cells)
        assert [cell.id for cell in request.cells] == list(range(len(request.cells)))
    pins = request.cpu_policy in {"dedicated", "mixed"}
    assert bool(request.pinned) == pins
    assert request.realtime <= request.pinned or request.cpu_policy == "dedicated"
    assert not request.thread_policy or pins
    shape = request.cpu_topology
    assert shape is None or shape.sockets * shape.cores * shape.threads == request.vcpus
    assert len({device.id for device in request.devices}) == len(request.devices)


@given(SPECS)
def test_every_answer_survives_the_wire_and_is_safe_to_show(spec: RequestSpec) -> None:
    made = request_of(spec, CONFIG)
    assert from_json(to_json(made), Requested | Faults) == made  # type: ignore[arg-type]  # a union is no class
    if isinstance(made, Faults):
        for fault in made.faults:
            assert (fault.found + fault.change).isprintable()
            assert all(one.name.isprintable() and (one.value or "").isprintable() for one in fault.properties)
    else:
        assert "".join((*made.notes, *made.unknown)).isprintable()
