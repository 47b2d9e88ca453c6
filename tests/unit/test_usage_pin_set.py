"""One CPU set for pinned and floating guests, as nova's vcpu_pin_set makes it."""

from __future__ import annotations

from agent.core.cpuset import CpuSet
from agent.core.usage import fold
from tests.builders import configured, guest, h8

PIN_SET = CpuSet.parse("2-7")
HOST = configured(h8(), dedicated=PIN_SET, shared=PIN_SET)


def test_floating_guests_and_emulators_on_the_one_set_are_no_conflict() -> None:
    guests = [guest("pinned", {0: 2}, emu="2-7"), guest("floating", cpuset="2-7", emu="2-7", vcpus=4)]
    made = fold(HOST.topology, HOST.config, guests)
    assert (made.conflicts, made.usage.remarks) == ((), ())
    assert (made.usage.host.dedicated.total, made.usage.host.shared_cpus) == (PIN_SET, PIN_SET)


def test_a_pin_outside_of_the_one_set_is_a_conflict() -> None:
    made = fold(HOST.topology, HOST.config, [guest("stray", {0: 0})])
    assert [row.kind for row in made.conflicts] == ["pinned-outside-dedicated"]
