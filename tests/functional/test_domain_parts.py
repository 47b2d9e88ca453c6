"""Real guests that are defined with the parts of a place: libvirt takes them, and what runs holds exactly the place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.core.arrival import arrived
from agent.core.dry_run import FitAnswer, try_fit
from agent.core.fit.host import host_facts
from agent.core.guest import Sighting
from agent.core.holds import hold, host_sets
from agent.core.instance import Instance, InstanceRequest
from agent.core.placement import Placement
from agent.core.snapshot import Snapshot
from agent.formats import request
from agent.formats.domain_xml import read_domain
from agent.formats.xml_text import parse_xml
from agent.look import one_snapshot
from agent.render.domain_parts import domain_parts, merged, xml_text
from tests.functional.lab import Libvirtd

WEB = Instance(uuid="6b0e7d9c-6d55-4bd4-9d3c-6f6c3f9b9d31", name="web")
REST = """\
<domain type="qemu">
  <name>web</name>
  <uuid>6b0e7d9c-6d55-4bd4-9d3c-6f6c3f9b9d31</uuid>
  <memory unit="GiB">1000</memory>
  <vcpu cpuset="0">9</vcpu>
  <cputune><vcpupin vcpu="8" cpuset="0"/><emulatorpin cpuset="0"/></cputune>
  <os><type arch="x86_64" machine="q35">hvm</type></os>
  <features><acpi/></features>
  <devices><controller type="usb" model="none"/><memballoon model="none"/></devices>
</domain>
"""
"""What whoever starts the guest has of it; its own place is another's."""

SPLIT = "[compute]\ncpu_dedicated_set = 1\ncpu_shared_set = 0\n"
SHARED = "[compute]\ncpu_shared_set = 0-1\n"
REQUESTS = {
    "pinned": ("", 1, ("hw:cpu_policy=dedicated",)),
    "pinned in two threads": ("", 2, ("hw:cpu_policy=dedicated", "hw:cpu_threads=1")),
    "emulator on a CPU of its own": (
        "", 1, ("hw:cpu_policy=dedicated", "hw:emulator_threads_policy=isolate"),
    ),
    "idle siblings": ("", 1, ("hw:cpu_policy=dedicated", "hw:cpu_thread_policy=isolate")),
    "mixed": (SPLIT, 2, ("hw:cpu_policy=mixed", "hw:cpu_dedicated_mask=1")),
    "floating in a cell": (SHARED, 2, ("hw:numa_nodes=1",)),
    "floating": (SHARED, 2, ()),
}  # fmt: skip
"""Configuration, vCPUs and extra specs of guests that two CPUs in one cell have room for."""


def place(snapshot: Snapshot, vcpus: int, extra_specs: Sequence[str]) -> tuple[InstanceRequest, Placement]:
    spec = request.from_words(vcpus=vcpus, memory_mb=16, extra_specs=extra_specs)
    answer = try_fit(spec, snapshot, host_facts(snapshot.topology, snapshot.config))
    assert isinstance(answer, FitAnswer)
    assert answer.placement is not None, answer.reasons
    assert answer.binding is not None
    return answer.binding, answer.placement


@pytest.mark.parametrize("case", REQUESTS)
def test_a_running_guest_holds_exactly_what_its_place_does(libvirtd: Libvirtd, tmp_path: Path, case: str) -> None:
    options, vcpus, extra_specs = REQUESTS[case]
    config = tmp_path / "agent.conf"
    config.write_text(options)

    def look() -> Snapshot:
        return one_snapshot(connection_uri=libvirtd.ro_uri, config_files=[str(config)])

    before = look()
    binding, placement = place(before, vcpus, extra_specs)
    domain = merged(parse_xml(REST, "the domain"), domain_parts(WEB, placement, binding))
    file = tmp_path / "web.xml"
    file.write_text(xml_text(domain))
    libvirtd.virsh("define", str(file))
    libvirtd.virsh("start", "web")

    promised = hold(arrived(WEB, placement), host_sets(before.topology, before.config))
    read = read_domain(libvirtd.virsh("dumpxml", "web"))
    assert (read.problems, read.domain.maker) == ((), "libvirt")
    assert look().holds[WEB.uuid] == promised


@pytest.mark.parametrize(
    "extra_specs",
    [
        ("hw:cpu_threads=2", "hw:locked_memory=true", "hw:mem_page_size=small"),
        ("hw:cpu_realtime=yes", "hw:cpu_realtime_mask=^0"),
    ],
)
def test_libvirt_takes_the_parts_and_nothing_else_but_a_type_and_an_os(
    libvirtd: Libvirtd, tmp_path: Path, extra_specs: tuple[str, ...]
) -> None:
    # defined only: to lock memory, or to run in real time, a container may have no right
    before = one_snapshot(connection_uri=libvirtd.ro_uri, config_files=())
    binding, placement = place(before, 2, ("hw:cpu_policy=dedicated", *extra_specs))
    parts = domain_parts(WEB, placement, binding)
    parts.set("type", "qemu")
    parts.append(parse_xml("<os><type arch='x86_64' machine='q35'>hvm</type></os>", "the os"))
    file = tmp_path / "web.xml"
    file.write_text(xml_text(parts))
    libvirtd.virsh("define", str(file), "--validate")
    defined = libvirtd.virsh("dumpxml", "web", "--inactive")
    promised = hold(arrived(WEB, placement), host_sets(before.topology, before.config))
    domain = read_domain(defined).domain
    running = Sighting(uuid=domain.uuid, name=domain.name, state="running", begun_at=1.0, domain=domain)
    assert hold(running, host_sets(before.topology, before.config)) == promised
    assert "<locked/>" in defined
