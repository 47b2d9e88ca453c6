"""Three real guests by claims, through many turns of power, reboots and deaths of libvirtd and the agent."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.functional.claimed import PINNED, Claimed
from tests.functional.conftest import lab, libvirtd
from tests.functional.lab import Libvirtd

__all__ = ["lab", "libvirtd"]

SEED = int(os.environ.get("RACE_SEED", "1000"))
TURNS = 12


def deaths(here: Claimed) -> dict[str, tuple[Callable[[], None], Callable[[], None]]]:
    """What dies, and how it comes back."""
    libvirtd = here.libvirtd

    def kill_both() -> None:
        libvirtd.kill()
        here.kill_agent()

    def start_both() -> None:
        here.start_agent()
        libvirtd.start()

    def kill_both_otherwise() -> None:
        here.kill_agent()
        libvirtd.kill()

    def start_both_otherwise() -> None:
        libvirtd.start()
        here.start_agent()

    def nothing() -> None:
        """Nobody dies."""

    return {
        "nobody": (nothing, nothing),
        "libvirtd": (libvirtd.kill, libvirtd.start),
        "agent": (here.kill_agent, here.start_agent),
        "both": (kill_both, start_both),
        "both, the other way": (kill_both_otherwise, start_both_otherwise),
    }


def turn(here: Claimed, rng: random.Random, name: str, is_on: dict[str, bool]) -> str:
    """One thing happens to a guest, while something else is dead for a part of it."""
    what = rng.choice(["power", "reboot", "nothing"])
    who = rng.choice(list(deaths(here)))
    kill, start = deaths(here)[who]
    before, during = rng.random() < 0.5, rng.random() < 0.5
    is_dead_libvirtd = who not in {"nobody", "agent"}
    if before:
        kill()
        start()
    if what == "power":
        (here.power_off if is_on[name] else here.start)(name)
        is_on[name] = not is_on[name]
    elif what == "reboot":
        if is_on[name]:
            here.power_off(name)
        here.libvirtd.virsh("undefine", name)
        if during:
            kill()
            start()
        else:
            here.wait_for(name, "away", domain="absent")
            here.check()
            here.refuses_another()
        here.redefine(name)
        is_on[name] = True
    if not before:
        kill()
        if not is_dead_libvirtd and who == "nobody":
            here.refuses_another()
        start()
    return f"{what} of {name}, {who} dead {'before' if before else 'after'}{' and in it' if during else ''}"


def settled(here: Claimed, is_on: dict[str, bool]) -> Iterator[str]:
    for name, on in is_on.items():
        yield here.wait_for(name, "resident", domain="running" if on else "shut-off").state


@pytest.mark.parametrize("seed", range(SEED, SEED + 3))
def test_books_are_libvirt_and_kernel_after_each_turn(libvirtd: Libvirtd, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with Claimed(libvirtd, tmp_path) as here:
        for name, extra_specs in (("a", PINNED), ("b", PINNED), ("c", ())):
            here.claim(name, *extra_specs)
            here.define(name)
            here.start(name)
        is_on = dict.fromkeys("abc", True)
        assert list(settled(here, is_on)) == ["resident"] * 3
        turns = []
        for _ in range(TURNS):
            turns.append(turn(here, rng, rng.choice("abc"), is_on))
            assert list(settled(here, is_on)) == ["resident"] * 3, turns
            here.check()
            here.refuses_another()
