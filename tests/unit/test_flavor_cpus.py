"""CPU, thread and emulator policies, masks and realtime, out of flavor and image."""

from __future__ import annotations

import pytest

from agent.core.cpuset import CpuSet
from agent.core.flavor import Faults
from agent.core.instance import CellRequest, InstanceRequest
from tests.unit.flavor_requests import Words, answer, asked, kinds, requested

DEDICATED = {"hw:cpu_policy": "dedicated"}
MIXED = {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0-1"}
KIB = 1024


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


def test_a_flavor_that_says_nothing_asks_for_floating_vcpus_and_no_cells() -> None:
    assert asked() == InstanceRequest(vcpus=4, memory_kib=4096 * KIB)


def test_a_shared_guest_gets_no_cells() -> None:
    assert asked({"hw:cpu_policy": "shared"}) == InstanceRequest(vcpus=4, memory_kib=4096 * KIB, cpu_policy="shared")


def test_a_dedicated_guest_is_pinned_whole_in_one_cell() -> None:
    cell = CellRequest(id=0, vcpus=cpus("0-3"), memory_kib=4096 * KIB, pinned=cpus("0-3"))
    assert asked(DEDICATED) == InstanceRequest(vcpus=4, memory_kib=4096 * KIB, cells=(cell,), cpu_policy="dedicated")


def test_a_mixed_guest_pins_what_its_mask_names() -> None:
    assert asked(MIXED).cells == (CellRequest(id=0, vcpus=cpus("0-3"), memory_kib=4096 * KIB, pinned=cpus("2-3")),)


@pytest.mark.parametrize(
    ("flavor", "image", "policy"),
    [
        (None, "dedicated", "dedicated"),
        (None, "shared", "shared"),
        ("dedicated", "shared", "dedicated"),
        ("dedicated", "mixed", "dedicated"),
        ("shared", "shared", "shared"),
    ],
)
def test_the_flavors_policy_stands_above_the_images(flavor: str | None, image: str, policy: str) -> None:
    specs = {"hw:cpu_policy": flavor} if flavor else {}
    assert asked(specs, {"hw_cpu_policy": image}).cpu_policy == policy


@pytest.mark.parametrize(("flavor", "image"), [("mixed", "dedicated"), ("shared", "dedicated"), ("shared", "mixed")])
def test_an_image_may_not_ask_for_more_than_the_flavor_gives(flavor: str, image: str) -> None:
    specs = {"hw:cpu_policy": flavor} | ({"hw:cpu_dedicated_mask": "0"} if flavor == "mixed" else {})
    assert kinds(answer(specs, {"hw_cpu_policy": image})) == ["cpu-policy-conflict"]


def test_an_image_that_is_overruled_is_noted() -> None:
    notes = requested(DEDICATED, {"hw_cpu_policy": "shared"}).notes
    assert notes == ("hw:cpu_policy=dedicated of the flavor stands above hw_cpu_policy=shared of the image.",)


@pytest.mark.parametrize(
    ("flavor", "image", "policy"),
    [
        (None, "isolate", "isolate"),
        ("prefer", "require", "require"),
        ("require", "require", "require"),
        ("isolate", None, "isolate"),
        (None, None, None),
    ],
)
def test_an_image_narrows_a_thread_policy_that_the_flavor_leaves_open(
    flavor: str | None, image: str | None, policy: str | None
) -> None:
    specs = DEDICATED | ({"hw:cpu_thread_policy": flavor} if flavor else {})
    assert asked(specs, {"hw_cpu_thread_policy": image} if image else None).thread_policy == policy


@pytest.mark.parametrize(("word", "policy"), [("required", "require"), ("forbidden", "isolate")])
def test_the_hyperthreading_trait_stands_for_a_thread_policy(word: str, policy: str) -> None:
    assert asked(DEDICATED | {"trait:HW_CPU_HYPERTHREADING": word}).thread_policy == policy
    assert asked(DEDICATED | {"trait2:HW_CPU_HYPERTHREADING": word}).thread_policy == policy


def test_an_image_can_require_hyperthreading_and_cannot_forbid_it() -> None:
    assert asked(DEDICATED, {"trait:HW_CPU_HYPERTHREADING": "required"}).thread_policy == "require"
    made = requested(DEDICATED, {"trait:HW_CPU_HYPERTHREADING": "forbidden"})
    assert made.request.thread_policy is None
    assert made.notes == ("trait:HW_CPU_HYPERTHREADING has no effect in an image unless it is required.",)


@pytest.mark.parametrize(
    "specs",
    [{"resources:PCPU": "4"}, {"resources1:PCPU": "1", "resources2:PCPU": "3"}, {"resources:PCPU": " 4 "}],
)
def test_placements_pcpus_make_a_dedicated_guest(specs: Words) -> None:
    assert asked(specs) == asked(DEDICATED)


def test_placements_pcpus_count_the_emulators_own_one() -> None:
    request = asked({"resources:PCPU": "5", "hw:emulator_threads_policy": "isolate"})
    assert (request.cpu_policy, request.emulator_policy, len(request.pinned)) == ("dedicated", "isolate", 4)


def test_placements_vcpus_make_a_shared_guest_whatever_their_number() -> None:
    made = requested({"resources:VCPU": "2"})
    assert made.request.cpu_policy == "shared"
    assert made.notes == ("resources:VCPU=2 of the flavor does not change how many vCPUs the guest has.",)
    assert requested({"resources:VCPU": "4"}).notes == ()


def test_placements_pcpus_are_not_counted_while_it_is_unclear_how_many_are_due() -> None:
    assert kinds(answer({"resources:PCPU": "9", "hw:emulator_threads_policy": "x"})) == ["emulator-policy-unknown"]
    assert kinds(answer({"resources:PCPU": "9"}, vcpus=0)) == ["vcpus-range"]


def test_the_realtime_vcpus_of_a_dedicated_guest_are_part_of_the_pinned_ones() -> None:
    request = asked(DEDICATED | {"hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "^0"})
    assert (request.realtime, request.pinned, request.memory_locked) == (cpus("1-3"), cpus("0-3"), True)


def test_the_realtime_vcpus_of_a_mixed_guest_are_the_pinned_ones() -> None:
    request = asked({"hw:cpu_policy": "mixed", "hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "2-3"})
    assert (request.realtime, request.pinned) == (cpus("2-3"), cpus("2-3"))


def test_the_images_realtime_mask_stands_above_the_flavors() -> None:
    specs = DEDICATED | {"hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "^0"}
    made = requested(specs, {"hw_cpu_realtime_mask": "3"})
    assert made.request.realtime == cpus("3")
    assert made.notes == ("hw_cpu_realtime_mask=3 of the image stands above hw:cpu_realtime_mask=^0 of the flavor.",)
    assert requested(specs, {"hw_cpu_realtime_mask": "^0"}).notes == ()
    del specs["hw:cpu_realtime_mask"]
    assert requested(specs, {"hw_cpu_realtime_mask": "3"}).notes == ()


@pytest.mark.parametrize("policy", ["share", "isolate"])
def test_all_vcpus_may_be_realtime_when_the_emulator_is_elsewhere(policy: str) -> None:
    specs = DEDICATED | {"hw:cpu_realtime": "true", "hw:emulator_threads_policy": policy}
    assert asked(specs).realtime == cpus("0-3")


@pytest.mark.parametrize("text", ["no", "false", "0", "OFF"])
def test_a_realtime_mask_without_realtime_has_no_effect(text: str) -> None:
    specs = DEDICATED | {"hw:cpu_realtime": text, "hw:cpu_realtime_mask": "^0-9"}
    assert asked(specs) == asked(DEDICATED)


@pytest.mark.parametrize("text", ["1 - 3", "^0", "1,2 ,3", "0-3,^0", "1-2, 3", "^ 0"])
def test_a_mask_is_read_with_blanks_and_with_what_it_takes_away(text: str) -> None:
    assert asked({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": text}).pinned == cpus("1-3")


@pytest.mark.parametrize("text", ["0-3:1/2", "a", "0--1", "0x1", "1.5", "٣", "999999999999", "-", "0,1\n,"])
def test_a_mask_that_is_no_list_of_vcpus_is_a_fault(text: str) -> None:
    made = kinds(answer({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": text}))
    assert made == (["dedicated-mask-list"] if text != "0,1\n," else [])


def test_a_mask_beyond_the_last_vcpu_says_which_the_last_is() -> None:
    made = answer({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0,4"})
    assert isinstance(made, Faults)
    assert (made.faults[0].found, made.faults[0].change) == (
        "hw:cpu_dedicated_mask=0,4 of the flavor names vCPUs beyond the last, 3, with vcpus=4 of the flavor.",
        "Name only vCPUs from 0 to 3 in hw:cpu_dedicated_mask, or change vcpus.",
    )


def test_two_masks_of_a_mixed_guest_are_both_named() -> None:
    realtime = {"hw:cpu_realtime": "true", "hw:cpu_realtime_mask": "^0"}
    made = answer(MIXED | realtime, {"hw_cpu_realtime_mask": "3"})
    assert isinstance(made, Faults)
    assert [str(one) for one in made.faults[0].properties] == [
        "hw:cpu_policy=mixed of the flavor",
        "hw:cpu_dedicated_mask=^0-1 of the flavor",
        "hw_cpu_realtime_mask=3 of the image",
    ]
