"""Texts of nova.conf and what nova-compute 34 makes of each on a host with CPUs 0-15 (recorded by running it)."""

from __future__ import annotations

from typing import Any, NamedTuple

ONLINE = "0-15"

DEVICES: tuple[dict[str, Any], ...] = (
    {"vendor_id": "8086", "product_id": "10fb", "address": "0000:3b:00.0"},
    {"vendor_id": "8086", "product_id": "10ed", "address": "0000:3b:10.0", "parent_addr": "0000:3b:00.0"},
    {"vendor_id": "8086", "product_id": "10ed", "address": "0000:3b:10.2", "parent_addr": "0000:3b:00.0"},
    {"vendor_id": "15b3", "product_id": "101e", "address": "0000:af:00.2"},
    {"vendor_id": "10de", "product_id": "1eb8", "address": "0001:af:00.0"},
)
"""A physical function with two virtual ones, and two plain functions, as nova's driver describes them."""

PHYSICAL_FUNCTIONS = ("0000:3b:00.0",)


class Answer(NamedTuple):
    """What is in force. CPU sets as cpulist text. pages: (cell, size in KiB, count). devices: indices into DEVICES."""

    dedicated: str = ONLINE
    shared: str = ONLINE
    memory_mb: int = 512
    pages: tuple[tuple[int, int, int], ...] = ()
    cpu_ratio: float = 4.0
    ram_ratio: float = 1.0
    devices: tuple[int, ...] = ()


REFUSED = None
"""nova-compute does not start."""

CASES: dict[str, tuple[str, Answer | None]] = {
    "nothing set": ("", Answer()),
    "both sets": (
        "[compute]\ncpu_dedicated_set=2-7,^4\ncpu_shared_set = 0, 1",
        Answer(dedicated="2-3,5-7", shared="0-1"),
    ),
    "only dedicated": ("[compute]\ncpu_dedicated_set=2-7", Answer(dedicated="2-7", shared="")),
    "only shared": ("[compute]\ncpu_shared_set=0-3", Answer(dedicated="", shared="0-3")),
    "blanks in a set": ("[compute]\ncpu_dedicated_set = 2 - 4 ,, ^ 3 , 9", Answer(dedicated="2,4,9", shared="")),
    "a range taken away": ("[compute]\ncpu_dedicated_set = 0-15,^4-7", Answer(dedicated="0-3,8-15", shared="")),
    "taken away before it is given": ("[compute]\ncpu_dedicated_set = ^4,2-5", Answer(dedicated="2-3,5", shared="")),
    "an empty option": ("[compute]\ncpu_dedicated_set =", Answer()),
    "nothing left of a set": ("[compute]\ncpu_dedicated_set = 4,^4", REFUSED),
    "a range backwards": ("[compute]\ncpu_dedicated_set = 7-2", REFUSED),
    "no number": ("[compute]\ncpu_shared_set = 0-x", REFUSED),
    "sets that overlap": ("[compute]\ncpu_dedicated_set=2-7\ncpu_shared_set=0-2", REFUSED),
    "reserved CPUs beside a set": ("[DEFAULT]\nreserved_host_cpus=1\n[compute]\ncpu_shared_set=0-2", REFUSED),
    "reserved CPUs alone": ("[DEFAULT]\nreserved_host_cpus=1", Answer()),
    "the old pin set": ("[DEFAULT]\nvcpu_pin_set=4-15,^5", Answer(dedicated="4,6-15", shared="4,6-15")),
    "the old pin set beside shared": (
        "[DEFAULT]\nvcpu_pin_set=4-15\n[compute]\ncpu_shared_set=0-3",
        Answer(dedicated="4-15", shared="4-15"),
    ),
    "the old pin set beside dedicated": ("[DEFAULT]\nvcpu_pin_set=4-15\n[compute]\ncpu_dedicated_set=0-3", REFUSED),
    "the old pin set beside reserved CPUs": (
        "[DEFAULT]\nvcpu_pin_set=4-15\nreserved_host_cpus=2",
        Answer(dedicated="4-15", shared="4-15"),
    ),
    "memory": ("[DEFAULT]\nreserved_host_memory_mb = 4096", Answer(memory_mb=4096)),
    "memory below nothing": ("[DEFAULT]\nreserved_host_memory_mb = -1", REFUSED),
    "pages": (
        "[DEFAULT]\nreserved_huge_pages = node:0,size:2048,count:64\nreserved_huge_pages = node:1,size:1GB,count:1",
        Answer(pages=((0, 2048, 64), (1, 1048576, 1))),
    ),
    "pages of one cell and size twice": (
        "[DEFAULT]\nreserved_huge_pages = node:0,size:2048,count:64\nreserved_huge_pages = node:0,size:2MB,count:8",
        Answer(pages=((0, 2048, 8),)),
    ),
    "pages without a count": ("[DEFAULT]\nreserved_huge_pages = node:0,size:2048", REFUSED),
    "pages of no size": ("[DEFAULT]\nreserved_huge_pages = node:0,size:big,count:1", REFUSED),
    "ratios": ("[DEFAULT]\ncpu_allocation_ratio=16\nram_allocation_ratio = 1.5", Answer(cpu_ratio=16.0, ram_ratio=1.5)),
    "first ratios": ("[DEFAULT]\ninitial_cpu_allocation_ratio=8", Answer(cpu_ratio=8.0)),
    "a ratio of 0 is not set": (
        "[DEFAULT]\ncpu_allocation_ratio=0.0\ninitial_cpu_allocation_ratio=2",
        Answer(cpu_ratio=2.0),
    ),
    "a ratio below 0": ("[DEFAULT]\ncpu_allocation_ratio=-1", REFUSED),
    "devices by ids": ('[pci]\ndevice_spec = {"vendor_id": "8086", "product_id": "10ED"}', Answer(devices=(1, 2))),
    "devices by vendor": ('[pci]\ndevice_spec = {"vendor_id": "15b3", "product_id": "*"}', Answer(devices=(3,))),
    "any device": ("[pci]\ndevice_spec = {}", Answer(devices=(0, 1, 2, 3, 4))),
    "a list of devices": (
        '[pci]\ndevice_spec = [{"vendor_id": "15b3"}, {"vendor_id": "10de"}]',
        Answer(devices=(3, 4)),
    ),
    "two options of devices": (
        '[pci]\ndevice_spec = {"vendor_id": "15b3"}\ndevice_spec = {"vendor_id": "10de"}',
        Answer(devices=(3, 4)),
    ),
    "a physical function by its address": (
        '[pci]\ndevice_spec = {"address": "0000:3b:00.0"}',
        Answer(devices=(0, 1, 2)),
    ),
    "a physical function by a short address": ('[pci]\ndevice_spec = {"address": "3b:00.0"}', Answer(devices=(0,))),
    "an address with a star": ('[pci]\ndevice_spec = {"address": "*:3b:00.*"}', Answer(devices=(0,))),
    "an address without its front": ('[pci]\ndevice_spec = {"address": ":10.2"}', Answer(devices=(2,))),
    "an address without its function": ('[pci]\ndevice_spec = {"address": "af:00"}', Answer(devices=(3, 4))),
    "an address without leading zeros": ('[pci]\ndevice_spec = {"address": "1:af:0.0"}', Answer(devices=(4,))),
    "an address of expressions": (
        '[pci]\ndevice_spec = {"address": {"domain": ".*", "bus": "3b", "slot": "1.", "function": "[0-1]"}}',
        Answer(devices=(1,)),
    ),
    "expressions that leave nothing open": (
        '[pci]\ndevice_spec = {"address": {"domain": "0000", "bus": "3b", "slot": "00", "function": "0"}}',
        Answer(devices=(0, 1, 2)),
    ),
    "expressions match from the start of a part": (
        '[pci]\ndevice_spec = {"address": {"bus": "a", "slot": "0"}}',
        Answer(devices=(3, 4)),
    ),
    "tags": (
        '[pci]\ndevice_spec = {"vendor_id": "15b3", "physical_network": null, "trusted": "true", "color": "red"}',
        Answer(devices=(3,)),
    ),
    "the name before": ('[pci]\npassthrough_whitelist = {"vendor_id": "10de"}', Answer(devices=(4,))),
    "the name before that": ('[DEFAULT]\npci_passthrough_whitelist = {"vendor_id": "10de"}', Answer(devices=(4,))),
    "both names": (
        '[pci]\ndevice_spec = {"vendor_id": "15b3"}\npassthrough_whitelist = {"vendor_id": "10de"}',
        Answer(devices=(3, 4)),
    ),
    "a device that is no JSON": ("[pci]\ndevice_spec = {vendor_id: 8086}", REFUSED),
    "a device that is text": ('[pci]\ndevice_spec = "8086"', REFUSED),
    "an id that is no number": ('[pci]\ndevice_spec = {"vendor_id": "intel"}', REFUSED),
    "an id that is too large": ('[pci]\ndevice_spec = {"product_id": "18086"}', REFUSED),
    "an address of four parts": ('[pci]\ndevice_spec = {"address": "0:0:3b:00.0"}', REFUSED),
    "an address with half a star": ('[pci]\ndevice_spec = {"address": "*:3*:00.0"}', REFUSED),
    "an address and a name": ('[pci]\ndevice_spec = {"address": "3b:00.0", "devname": "eth0"}', REFUSED),
    "an expression that is none": ('[pci]\ndevice_spec = {"address": {"bus": "["}}', REFUSED),
    "a value taken from another option": (
        "[DEFAULT]\nmy_ip = $nothing\n[compute]\ncpu_shared_set = 0-1\ncpu_dedicated_set = 2-3",
        Answer(dedicated="2-3", shared="0-1"),
    ),
    "an option that says what another says": (
        "[compute]\ncpu_shared_set = 0-1\ncpu_dedicated_set = ${compute.cpu_shared_set},^0",
        REFUSED,
    ),
    "a group in capitals": ("[COMPUTE]\ncpu_shared_set = 0-1", Answer(dedicated="", shared="0-1")),
    "an option twice": ("[compute]\ncpu_shared_set = 0-1\ncpu_shared_set = 2-3", Answer(dedicated="", shared="2-3")),
    "quotes": ('[compute]\ncpu_shared_set = "0-1"', Answer(dedicated="", shared="0-1")),
    "a colon": ("[compute]\ncpu_shared_set : 0-1", Answer(dedicated="", shared="0-1")),
    "a continued line": ("[compute]\ncpu_shared_set = 0-1,\n  2-3", Answer(dedicated="", shared="0-3")),
}
