"""Run by the Python that has nova: {name: text of nova.conf} as JSON in, {name: answer, null if refused} out.

nova's modules are loaded by name, since the environment that checks types has no nova.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import types
from typing import Any

from oslo_config import cfg

CONF: Any = importlib.import_module("nova.conf").CONF
exception: Any = importlib.import_module("nova.exception")
whitelist: Any = importlib.import_module("nova.pci.whitelist")
virt_driver: Any = importlib.import_module("nova.virt.driver")
hardware: Any = importlib.import_module("nova.virt.hardware")
driver: Any = importlib.import_module("nova.virt.libvirt.driver")

DEVICES: list[dict[str, Any]] = json.loads(sys.argv[1])
ONLINE = set(range(16))


def answer(text: str) -> dict[str, Any] | None:
    """What nova makes of one file, by its own functions and in the order of its start."""
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(text)
        file.flush()
        CONF([], project="nova", default_config_files=[file.name], default_config_dirs=[], use_env=False)
    try:
        return _in_force()
    except (exception.NovaException, cfg.Error, ValueError, AttributeError):
        return None


def _in_force() -> dict[str, Any]:
    host: Any = types.SimpleNamespace(_host=types.SimpleNamespace(get_online_cpus=lambda: ONLINE))
    host._get_vcpu_available = lambda: driver.LibvirtDriver._get_vcpu_available(host)
    host._get_pcpu_available = lambda: driver.LibvirtDriver._get_pcpu_available(host)
    driver.LibvirtDriver._check_cpu_set_configuration(host)
    shared, dedicated = host._get_vcpu_available(), host._get_pcpu_available()
    # the rule inside _get_host_numa_topology, which needs a whole driver
    if not dedicated and not (CONF.compute.cpu_shared_set and not CONF.vcpu_pin_set):
        dedicated = shared
    pages = hardware.numa_get_reserved_huge_pages()
    ratios = virt_driver.ComputeDriver._get_allocation_ratios({})
    offered = whitelist.Whitelist(CONF.pci.device_spec)
    return {
        "dedicated": sorted(dedicated),
        "shared": sorted(shared),
        "memory_mb": CONF.reserved_host_memory_mb,
        "pages": sorted([cell, int(size), count] for cell, sizes in pages.items() for size, count in sizes.items()),
        "cpu_ratio": ratios["VCPU"],
        "ram_ratio": ratios["MEMORY_MB"],
        "devices": [n for n, device in enumerate(DEVICES) if offered.device_assignable(device)],
    }


if __name__ == "__main__":
    json.dump({name: answer(text) for name, text in json.load(sys.stdin).items()}, sys.stdout)
