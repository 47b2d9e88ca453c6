"""Which properties are known, and what is said about the others."""

from __future__ import annotations

import msgspec
import pytest

from agent.core.flavor import Requested, request_of
from agent.core.host_config import HostConfig
from agent.core.instance import Flavor, Group, Instance, RequestSpec
from tests.unit.flavor_requests import requested

UUID = "6a2a1f2e-8f7d-4a0e-9d55-0d7c0b8a4c11"


def noted(group: Group) -> tuple[str, ...]:
    spec = RequestSpec(instance=Instance(uuid=UUID), flavor=Flavor(vcpus=1, memory_mb=1), group=group)
    made = request_of(spec, HostConfig())
    assert isinstance(made, Requested)
    return made.notes


def test_names_that_mean_nothing_are_reported_back() -> None:
    made = requested(
        {"hw:cpu_polcy": "dedicated", "hw:numa_cpus.x": "0", "hw:numa_cpus.01": "0", "quota:cpu_shares": "5"},
        {"hw_emulator_threads_policy": "isolate", "os_type": "linux"},
    )
    assert made.unknown == ("hw:cpu_polcy", "hw:numa_cpus.01", "hw:numa_cpus.x", "hw_emulator_threads_policy")


def test_names_in_the_wrong_place_are_reported_and_explained() -> None:
    made = requested({"hw_cpu_policy": "dedicated"}, {"hw:cpu_policy": "dedicated"})
    assert made.request.cpu_policy is None
    assert made.unknown == ("hw:cpu_policy", "hw_cpu_policy")
    assert made.notes == (
        "hw_cpu_policy stands in the flavor, whose properties begin with hw: instead. Is hw:cpu_policy meant?",
        "hw:cpu_policy stands in the image, whose properties begin with hw_ instead. Is hw_cpu_policy meant?",
    )


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("hw:cpu_polcy", "hw:cpu_policy"),
        ("hw:CPU_POLICY", "hw:cpu_policy"),
        ("hw:numa_cpu.01", "hw:numa_cpus.1"),
        ("cpu_policy", "hw:cpu_policy"),
        (" hw:cpu_policy", "hw:cpu_policy"),
        ("hw.cpu_policy", "hw:cpu_policy"),
        ("mem_pagesize", "hw:mem_page_size"),
    ],
)
def test_a_mistyped_name_is_told_what_may_be_meant(key: str, meant: str) -> None:
    assert requested({key: "1"}).notes == (f"{key} of the flavor means nothing here. Is {meant} meant?",)


def test_a_mistyped_name_in_an_image_is_told_what_may_be_meant() -> None:
    notes = requested({}, {"hw_cpu_polcy": "1", "numa_nodes": "2"}).notes
    assert notes == (
        "hw_cpu_polcy of the image means nothing here. Is hw_cpu_policy meant?",
        "numa_nodes of the image means nothing here. Is hw_numa_nodes meant?",
    )


@pytest.mark.parametrize("key", ["os_type", "ssd", "quota:cpu_shares", "aggregate_instance_extra_specs:cpu_policy"])
def test_a_name_that_is_like_none_is_somebodys_own(key: str) -> None:
    made = requested({key: "1"}, {"os_type": "linux"})
    assert [note for note in made.notes if "meant" in note] == []


@pytest.mark.parametrize("realtime", [{}, {"hw:cpu_realtime": "no"}])
def test_a_realtime_mask_without_realtime_is_noted(realtime: dict[str, str]) -> None:
    made = requested({"hw:cpu_policy": "dedicated", "hw:cpu_realtime_mask": "^0", **realtime}, {})
    assert made.notes == ("hw:cpu_realtime_mask has no effect without hw:cpu_realtime=true of the flavor.",)
    made = requested(realtime, {"hw_cpu_realtime_mask": "^0"})
    assert made.notes == ("hw_cpu_realtime_mask has no effect without hw:cpu_realtime=true of the flavor.",)


def test_what_has_no_effect_in_a_server_group_is_noted() -> None:
    group = Group(id="g", policy="affinity", max_server_per_host=3, members=(UUID, "db-1", "db-2"))
    assert noted(group) == (
        "max_server_per_host=3 of group g has no effect: it is for policy anti-affinity alone.",
        "Members of group g that are no uuids are no guests: db-1, db-2.",
    )
    apart = msgspec.structs.replace(group, policy="anti-affinity", members=(UUID,))
    assert noted(apart) == ()
    assert noted(msgspec.structs.replace(apart, hosts=("h1",))) == (
        "hosts of group g have no effect: they are for policies affinity and soft-affinity alone.",
    )


@pytest.mark.parametrize(
    "key", ["hw:boot_menu", "hw:tpm_model", "hw:hide_hypervisor_id", "hw_rng:allowed", "hw_video:ram_max_mb"]
)
def test_properties_that_only_shape_the_guest_are_known(key: str) -> None:
    made = requested({key: "1"})
    assert (made.unknown, made.notes) == ((), (f"They shape the guest and not where it fits: {key}.",))


def test_what_the_scheduler_decides_is_noted() -> None:
    keys = ("resources:VGPU", "trait:HW_NUMA_ROOT", "accel:device_profile", "resources_a:PCPU")
    assert requested(dict.fromkeys(keys, "1")).notes == (
        "Left to the scheduler: accel:device_profile, resources:VGPU, resources_a:PCPU, trait:HW_NUMA_ROOT.",
    )


def test_persistent_memory_is_noted() -> None:
    assert requested({"hw:pmem": "a"}).notes == (
        "hw:pmem gives the guest cells, but persistent memory is not given out here.",
    )


def test_an_empty_property_is_as_good_as_not_set_and_noted() -> None:
    made = requested({"hw:cpu_policy": " "}, {"hw_numa_nodes": ""})
    assert (made.request.cpu_policy, made.request.cells) == (None, ())
    assert made.notes == ("They are empty, so as good as not set: hw:cpu_policy, hw_numa_nodes.",)


def test_a_hostile_name_is_shown_safely() -> None:
    made = requested({"hw:\x1b[2J": "1", "hw:" + "x" * 1000: "1"})
    assert made.unknown == ("hw:" + "\\x1b[2J", "hw:" + "x" * 294 + "...")
