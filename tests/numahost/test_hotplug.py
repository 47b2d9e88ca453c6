"""What is switched, plugged or pulled in a running machine is seen as soon as the kernel and udev have told of it."""

from __future__ import annotations

from agent.core.cpuset import CpuSet
from tests.functional.lab import wait_until
from tests.numahost.conftest import Guest
from tests.numahost.machine import BOUND_S, Agent, Machine

CARD = "0000:61:00.0"
"""Behind slot2, whose bus is the first below the bridge of cell 2."""
MORE_MIB = 128
"""One memory block."""


def switch(machine: Machine, cpu: int, *, online: bool) -> None:
    machine.shell('echo "$2" > "/sys/devices/system/cpu/cpu$1/online"', str(cpu), str(int(online)))


def test_udevd_runs_and_its_events_are_taken(machine: Machine, agent: Agent) -> None:
    machine.run("test", "-S", "/run/udev/control")
    assert "hardware events are not seen" not in agent.log()


def test_a_guest_is_in_conflict_while_the_cpu_it_is_pinned_to_is_offline(
    machine: Machine, agent: Agent, guest: Guest
) -> None:
    wanted = f"pinned-to-offline:cpu:{guest.cpu}"
    agent.tells(agent.conflicts, {})
    begin = len(agent.log())
    switch(machine, guest.cpu, online=False)
    try:
        agent.tells(lambda: list(agent.conflicts()), [wanted])
        assert agent.heard(f"subsystem=cpu action=offline device=cpu{guest.cpu}", begin)
        assert [owner.name for owner in agent.conflicts()[wanted].owners] == [guest.name]
        assert CpuSet((guest.cpu,)) == agent.topology().offline & CpuSet.parse("0-5")
    finally:
        switch(machine, guest.cpu, online=True)
    agent.tells(agent.conflicts, {})
    assert agent.heard(f"subsystem=cpu action=online device=cpu{guest.cpu}", begin)


def test_a_cpu_that_is_plugged_is_there_and_counts_once_it_is_online(machine: Machine, agent: Agent) -> None:
    """It stays: QEMU 7.2 without KVM crashes some seconds after a CPU was pulled."""

    def seen() -> list[tuple[bool | None, int | None, int | None]]:
        return [(cpu.online, cpu.cell, cpu.socket) for cpu in agent.topology().cpus if cpu.id == 6]

    assert seen() == []
    begin = len(agent.log())
    machine.monitor("device_add max-x86_64-cpu,id=cpu6,socket-id=1,die-id=0,core-id=1,thread-id=0")
    agent.tells(seen, [(False, 2, None)])
    assert agent.heard("subsystem=cpu action=add device=cpu6", begin)
    switch(machine, 6, online=True)
    agent.tells(seen, [(True, 2, 1)])
    assert agent.topology().cells[2].cpus == CpuSet.parse("4-6")


def test_memory_that_is_plugged_and_pulled_is_followed(machine: Machine, agent: Agent) -> None:
    before = [cell.memory_kib for cell in agent.topology().cells]
    more = before[:3] + [before[3] + MORE_MIB * 1024]
    begin = len(agent.log())
    machine.monitor(f"object_add memory-backend-ram,id=more,size={MORE_MIB}M")
    machine.monitor("device_add pc-dimm,id=dimm,memdev=more,node=3")
    offline = "grep -lx offline /sys/devices/system/memory/memory*/state || true"
    state = wait_until(lambda: machine.shell(offline).strip(), "the kernel to find the memory", BOUND_S)
    machine.shell('echo online_movable > "$1"', state)
    agent.tells(lambda: [cell.memory_kib for cell in agent.topology().cells], more)
    assert agent.heard(f"subsystem=memory action=online device={state.split('/')[-2]}", begin)
    machine.monitor("device_del dimm")
    agent.tells(lambda: [cell.memory_kib for cell in agent.topology().cells], before)


def test_a_card_that_is_plugged_and_pulled_is_followed(machine: Machine, agent: Agent) -> None:
    def seen() -> list[tuple[int | None, str | None, tuple[str, ...]]]:
        cards = (device for device in agent.topology().pci if str(device.address) == CARD)
        return [(card.cell, card.driver, tuple(net.name for net in card.netdevs)) for card in cards]

    assert seen() == []
    begin = len(agent.log())
    machine.monitor("device_add virtio-net-pci,id=card2,bus=slot2")
    find = f"ls /sys/bus/pci/devices/{CARD}/virtio*/net 2> /dev/null | grep -v eth || true"
    name = wait_until(lambda: machine.shell(find).strip(), "udevd to name the interface", BOUND_S)
    agent.tells(seen, [(2, "virtio-pci", (name,))])
    assert agent.heard(f"subsystem=pci action=add device={CARD}", begin)
    begin = len(agent.log())
    machine.monitor("device_del card2")
    agent.tells(seen, [])
    assert agent.heard(f"subsystem=net action=remove device={name}", begin)


def test_an_interface_that_gets_another_name_is_followed(machine: Machine, agent: Agent) -> None:
    def names() -> list[str]:
        return [net.name for device in agent.topology().pci for net in device.netdevs]

    (old,) = names()
    begin = len(agent.log())
    machine.run("ip", "link", "set", old, "name", "uplink0")
    try:
        agent.tells(names, ["uplink0"])
        assert agent.heard("subsystem=net action=move device=uplink0", begin)
    finally:
        # udevd keeps the name that it gave as another one of the interface
        machine.run("ip", "link", "property", "del", "dev", "uplink0", "altname", old)
        machine.run("ip", "link", "set", "uplink0", "name", old)
    agent.tells(names, [old])
