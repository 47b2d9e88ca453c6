"""Which CPUs pinned vCPUs get: nova's thread policies, in an order that is always the same."""

from __future__ import annotations

from agent.core.cpuset import CpuMask, CpuSet
from agent.core.fit.host import CellFacts, Core
from agent.core.fit.pins import Pins, has_emulator_cpu, pin, placeable


def cell(*cores: str, shared: str = "", caches: tuple[str, ...] = ()) -> CellFacts:
    """Cores as "0,4"; CPUs of `shared` in them are not for pinned guests."""
    floating = CpuSet.parse(shared)
    made = tuple(
        Core(members=members.mask, dedicated=(members - floating).mask) for members in map(CpuSet.parse, cores)
    )
    return CellFacts(
        id=0,
        dedicated=CpuMask(sum(core.dedicated for core in made)),
        shared=floating.mask,
        cores=tuple(core for core in made if core.dedicated),
        threads=max(core.members.bit_count() for core in made),
        caches=tuple(CpuSet.parse(text).mask for text in caches),
    )


def mask(text: str) -> CpuMask:
    """CPUs as a mask."""
    return CpuSet.parse(text).mask


HT4 = cell("0,4", "1,5", "2,6", "3,7")


def test_prefer_fills_whole_cores_first_siblings_together() -> None:
    assert pin(HT4, mask("0-7"), "prefer", 5) == Pins((0, 4, 1, 5, 2))


def test_prefer_takes_single_threads_where_whole_cores_are_too_few() -> None:
    assert pin(HT4, mask("0-2,5-6"), "prefer", 4) == Pins((1, 5, 2, 6))
    assert pin(HT4, mask("0-2,5-6"), None, 5) == Pins((0, 1, 5, 2, 6))


def test_prefer_refuses_more_vcpus_than_free_cpus() -> None:
    assert pin(HT4, mask("0-2"), None, 4) is None


def test_require_never_takes_a_thread_whose_sibling_is_taken() -> None:
    assert pin(HT4, mask("0-2,4,6"), "require", 3) == Pins((0, 4, 2))
    assert pin(HT4, mask("0-3"), "require", 1) is None
    assert placeable(HT4, mask("0-2,4,6"), "require") == 4


def test_isolate_takes_one_thread_of_each_free_core_and_keeps_the_sibling_idle() -> None:
    assert pin(HT4, mask("0-2,4-6"), "isolate", 2) == Pins((0, 1), idle=mask("4,5"))
    assert placeable(HT4, mask("1-3,5-7"), "isolate") == 3


def test_isolate_works_where_floating_guests_have_cores_of_their_own() -> None:
    split = cell("0,4", "1,5", "2,6", "3,7", shared="0,4")
    assert pin(split, mask("1-3,5-7"), "isolate", 3) == Pins((1, 2, 3), idle=mask("5-7"))


def test_isolate_leaves_out_a_core_that_floating_guests_run_on_too() -> None:
    halves = cell("0,4", "1,5", shared="4")
    assert pin(halves, mask("0-1,5"), "isolate", 2) is None
    assert pin(halves, mask("0-1,5"), "isolate", 1) == Pins((1,), idle=mask("5"))


def test_isolate_needs_no_sibling_on_cores_of_one_thread() -> None:
    assert pin(cell("2", "3", "4"), mask("2-4"), "isolate", 3) == Pins((2, 3, 4))


def test_the_emulator_gets_a_cpu_that_is_left_over() -> None:
    assert pin(HT4, mask("0-1,4-5"), None, 3, with_emulator=True) == Pins((0, 4, 1), emulator_cpu=5)
    assert pin(HT4, mask("0-1,4"), None, 3, with_emulator=True) is None


def test_the_emulator_of_an_isolated_guest_gets_a_core_without_a_vcpu() -> None:
    assert pin(HT4, mask("0-1,4-5"), "isolate", 2, with_emulator=True) is None
    assert pin(HT4, mask("0-2,4-5"), "isolate", 2, with_emulator=True) == Pins((0, 1), idle=mask("4,5"), emulator_cpu=2)
    assert not has_emulator_cpu(HT4, mask("0-1,4-5"), "isolate", 2)
    assert has_emulator_cpu(HT4, mask("0-2,4-5"), "isolate", 2)


def test_a_guest_stays_under_one_l3_where_one_is_enough() -> None:
    ccx = cell("0", "1", "2", "3", "4", "5", caches=("0-2", "3-5"))
    assert pin(ccx, mask("0-5"), None, 3) == Pins((0, 1, 2))
    assert pin(ccx, mask("1-5"), None, 2) == Pins((1, 2))
    assert pin(ccx, mask("0,3-5"), None, 2) == Pins((3, 4))


def test_a_guest_that_is_too_large_for_one_l3_takes_few_of_them() -> None:
    ccx = cell(*map(str, range(9)), caches=("0-2", "3-5", "6-8"))
    assert pin(ccx, mask("0-1,3,6-8"), None, 4) == Pins((0, 6, 7, 8))
