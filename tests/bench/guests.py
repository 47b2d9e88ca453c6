"""Definitions of guests as large and as detailed as those that nova writes."""

from __future__ import annotations

import uuid
from collections.abc import Sequence


def uuid_of(number: int) -> str:
    """The uuid of guest `number`."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"guest-{number}"))


def guest_xml(number: int, cpus: Sequence[int], *, cell: int, driver: str) -> str:
    """Guest `number` with a vCPU on each of `cpus` and its memory on `cell`. driver: "test" or "qemu"."""
    pins = "".join(f"<vcpupin vcpu='{vcpu}' cpuset='{cpu}'/>" for vcpu, cpu in enumerate(cpus))
    disk = "<devices/>" if driver == "test" else _devices(number)
    return f"""
<domain type='{driver}'>
  <name>instance-{number:08x}</name>
  <uuid>{uuid_of(number)}</uuid>
  <metadata>{_metadata(number, len(cpus))}</metadata>
  <memory unit='MiB'>2048</memory>
  <vcpu placement='static'>{len(cpus)}</vcpu>
  <cputune>
    <shares>{1024 * len(cpus)}</shares>
    {pins}
    <emulatorpin cpuset='{",".join(map(str, cpus))}'/>
  </cputune>
  <numatune><memory mode='strict' nodeset='{cell}'/></numatune>
  <os><type>hvm</type></os>
  <features><acpi/><apic/></features>
  <cpu><numa><cell id='0' cpus='0-{len(cpus) - 1}' memory='2048' unit='MiB'/></numa></cpu>
  {disk}
</domain>"""


def _metadata(number: int, vcpus: int) -> str:
    return f"""
    <nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
      <nova:package version="34.0.0"/>
      <nova:name>server-{number}</nova:name>
      <nova:creationTime>2026-01-15 08:30:00</nova:creationTime>
      <nova:flavor name="pinned" id="{uuid_of(0)}">
        <nova:memory>2048</nova:memory><nova:disk>20</nova:disk><nova:swap>0</nova:swap>
        <nova:ephemeral>0</nova:ephemeral><nova:vcpus>{vcpus}</nova:vcpus>
        <nova:extraSpecs>
          <nova:extraSpec name="hw:cpu_policy">dedicated</nova:extraSpec>
          <nova:extraSpec name="hw:numa_nodes">1</nova:extraSpec>
        </nova:extraSpecs>
      </nova:flavor>
      <nova:owner>
        <nova:user uuid="6d2e1c6a4e9b4d0f8f5f3c2b1a0e9d8c">operator</nova:user>
        <nova:project uuid="a1b2c3d4e5f60718293a4b5c6d7e8f90">billing</nova:project>
      </nova:owner>
      <nova:root type="image" uuid="{uuid_of(1)}"/>
      <nova:ports>
        <nova:port uuid="{uuid_of(number)}"><nova:ip type="fixed" address="10.0.0.8" ipVersion="4"/></nova:port>
      </nova:ports>
    </nova:instance>"""


def _devices(number: int) -> str:
    return f"""
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/><source file='/var/lib/libvirt/images/{number}.img'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <interface type='bridge'>
      <mac address='52:54:00:00:{number // 256:02x}:{number % 256:02x}'/><source bridge='br0'/><model type='virtio'/>
    </interface>
    <serial type='pty'/><input type='tablet' bus='usb'/><memballoon model='virtio'><stats period='10'/></memballoon>
  </devices>"""
