"""What the numbers were taken on."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from agent.adapters.libvirt.binding import load_libvirt


def described() -> str:
    """One line: processor, memory, kernel, Python, libvirt, and how busy the machine was."""
    found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    processor = found[1] if found else platform.machine()
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    number = load_libvirt().getVersion()
    libvirt = f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"
    return (
        f"{os.cpu_count()} CPUs ({processor}), {memory_gib:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}, libvirt {libvirt}, load {os.getloadavg()[0]:.1f}"
    )
