"""Which properties are known, and what is said about the others."""

from __future__ import annotations

import pytest

from tests.unit.flavor_requests import requested


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
        "hw_cpu_policy stands in the flavor, whose properties begin with hw: instead.",
        "hw:cpu_policy stands in the image, whose properties begin with hw_ instead.",
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
