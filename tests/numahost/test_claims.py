"""A guest of two cells in huge pages, started with the parts of its place: by the kernel it has what was promised."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agent.core.ledger import Holds
from agent.formats import wire
from tests.functional.lab import wait_until
from tests.numahost.machine import BOUND_S, Agent, Machine

CELLS = (1, 2)
PAGES, ASKED = 24, 16
"""Of 2 MiB: in each of the cells, and by each cell of the guest."""

AGENTCTL = "PYTHONPATH=/cargo:/cargo/site-packages python3 -m agent.cli.main"
POOL = "/sys/devices/system/node/node{}/hugepages/hugepages-2048kB"
REST = """\
<domain type="qemu">
  <name>placed</name>
  <os><type arch="x86_64" machine="q35">hvm</type></os>
  <devices><controller type="usb" model="none"/><memballoon model="none"/></devices>
</domain>
"""
RESTART = """
mkdir -p /dev/hugepages && mount -t hugetlbfs hugetlbfs /dev/hugepages
pid=$(cat /run/libvirtd.pid)
kill "$pid"
while test -d "/proc/$pid"; do sleep 0.1; done
libvirtd --daemon
"""
"""libvirt looks for huge pages when it starts."""

THREADS = """
for task in /proc/$(cat /run/libvirt/qemu/placed.pid)/task/*; do
    name=$(cat $task/comm)
    case $name in CPU*) echo "$name: $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' $task/status)";; esac
done
"""


def agentctl(machine: Machine, arguments: str) -> str:
    return machine.shell(f"{AGENTCTL} {arguments} --socket /tmp/sock/agent-ro.sock")


def set_pages(machine: Machine, count: int) -> None:
    for cell in CELLS:
        machine.shell(f"echo {count} > {POOL.format(cell)}/nr_hugepages")


def free_pages(machine: Machine) -> list[int]:
    """By the kernel."""
    return [int(machine.run("cat", f"{POOL.format(cell)}/free_hugepages")) for cell in CELLS]


def offered_pages(agent: Agent) -> list[int]:
    """By the agent's books."""
    usage = agent.get("/v1/usage", dict[str, Any])
    rows = {row["id"]: row["pages"] for row in usage["cells"]}
    return [pool["free"] for cell in CELLS for pool in rows[cell] if pool["size_kib"] == 2048]


@pytest.fixture
def with_pages(machine: Machine, agent: Agent) -> Iterator[None]:
    """Huge pages in both cells, which libvirt and the agent know of."""
    set_pages(machine, PAGES)
    machine.shell(RESTART)
    agent.tells(lambda: offered_pages(agent), [PAGES, PAGES])
    yield
    machine.shell("virsh -q destroy placed; virsh -q undefine placed; true")
    set_pages(machine, 0)


@pytest.mark.usefixtures("with_pages")
def test_a_guest_of_two_cells_in_huge_pages_has_by_the_kernel_what_it_was_promised(
    machine: Machine, agent: Agent
) -> None:
    spec = "hw:cpu_policy=dedicated hw:numa_nodes=2 hw:mem_page_size=2048"
    words = "--claim-id c1 --name placed --vcpus 2 --memory-mb 64 " + " ".join(
        f"--extra-spec {s}" for s in spec.split()
    )
    claim = json.loads(agentctl(machine, f"claim build {words} -f json"))
    placed = {cell["host_cell"]: cell for cell in claim["placement"]["cells"]}
    assert tuple(sorted(placed)) == CELLS
    assert offered_pages(agent) == [PAGES - ASKED] * 2

    machine.shell('printf %s "$1" > /tmp/rest.xml', REST)
    agentctl(machine, "claim show c1 --into /tmp/rest.xml > /tmp/placed.xml")
    machine.shell("virsh -q define /tmp/placed.xml && virsh -q start placed")

    pins = {int(vcpu): cpu for cell in placed.values() for vcpu, cpu in cell["pins"].items()}
    told = sorted(machine.shell(THREADS).splitlines())
    assert told == [f"CPU {vcpu}/TCG: {pins[vcpu]}" for vcpu in sorted(pins)]
    assert free_pages(machine) == [PAGES - ASKED] * 2

    def seen() -> Holds | None:
        rows = agent.get("/v1/domains", dict[str, Any])["domains"]
        held = [row["holds"] for row in rows if row["sighting"]["uuid"] == claim["instance"]["uuid"]]
        return wire.from_builtins(held[0], Holds) if held and held[0]["cpus"] else None

    wait_until(lambda: seen() is not None, "the agent to see the guest", BOUND_S)
    assert seen() == wire.from_builtins(claim["holds"], Holds)
    agent.tells(lambda: offered_pages(agent), [PAGES - ASKED] * 2)
    agentctl(machine, "claim confirm c1")
    assert json.loads(agentctl(machine, "claim show c1 -f json"))["state"] == "resident"
    machine.shell("virsh -q destroy placed && virsh -q undefine placed")
    agentctl(machine, "claim release c1")
    agent.tells(lambda: offered_pages(agent), [PAGES, PAGES])
