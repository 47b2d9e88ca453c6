"""The daemon as a process beside a real libvirtd with 200 guests: start, memory, and what it costs when idle."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.adapters.libvirt.binding import load_libvirt
from agent.core.report import Report
from agent.errors import DaemonUnavailable
from tests.bench.guests import guest_xml
from tests.bench.rows import Beside, Row, at_most, median_row
from tests.compat.nova_python import nova_python
from tests.functional.daemon import Daemon
from tests.functional.lab import Libvirtd, wait_until

GUESTS, RUNNING = 200, 8
STARTS = 7
IDLE_S, WARM_S = 90.0, 25.0
CONFIG = "[tracker]\ninterval = 10\ndeep_interval = 300\n"
"""The defaults, which the configuration of functional tests is not."""

NOVA_IMPORTS = """
import nova.compute.manager, nova.virt.libvirt.driver
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS")))
"""


def measure() -> Iterator[Row]:
    """Wall time of starts; memory and CPU time as the kernel counts them."""
    with tempfile.TemporaryDirectory(prefix="bench-pyc-") as bytecode, _libvirtd() as libvirtd:
        environ = _environment(bytecode)
        _start(libvirtd, environ)  # compiles the modules
        starts = [_start(libvirtd, environ) for _ in range(STARTS)]
        yield median_row(f"start to the first complete report, {GUESTS} guests", starts, "s", budget=at_most(2.0))
        daemon = Daemon(libvirtd.ro_uri, config=CONFIG, environ=environ)
        try:
            daemon.start()
            time.sleep(WARM_S)
            used_s = _cpu_s(daemon)
            begun = time.monotonic()
            time.sleep(IDLE_S)
            share = (_cpu_s(daemon) - used_s) / (time.monotonic() - begun) * 100
            for _ in range(3):
                daemon.report()
            memory = _rss_mib(daemon)
        finally:
            daemon.clean()
    what = f"memory (RSS) of the daemon with {GUESTS} guests, after its passes and some reports"
    yield Row(what=what, value=memory, unit="MiB", samples=1, beside=_nova_imports(), budget=at_most(75))
    what = f"CPU of the idle daemon over {IDLE_S:.0f} s, {RUNNING} of {GUESTS} guests running"
    yield Row(what=what, value=share, unit="% of a CPU", samples=1, budget=at_most(0.5))


def _environment(bytecode: str) -> dict[str, str]:
    """Modules compiled before, as they are where pip has installed them."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": bytecode}


@contextmanager
def _libvirtd() -> Iterator[Libvirtd]:
    # the path of its socket must be short
    libvirtd = Libvirtd(Path(tempfile.mkdtemp(prefix="lv-", dir="/tmp")))
    try:
        libvirtd.up()
        raw = load_libvirt().open(libvirtd.uri)
        for number in range(GUESTS - RUNNING):
            raw.defineXML(guest_xml(number, (2 * number % 256, (2 * number + 1) % 256), cell=0, driver="qemu"))
        raw.close()
        for number in range(RUNNING):
            libvirtd.guest(f"running-{number}")
        yield libvirtd
    finally:
        libvirtd.down()


def _start(libvirtd: Libvirtd, environ: dict[str, str]) -> float:
    """Seconds from the exec of a daemon without state to its first report with all guests in it."""
    daemon = Daemon(libvirtd.ro_uri, config=CONFIG, environ=environ)
    begun = time.monotonic()
    try:
        daemon.start(wait=False)
        wait_until(lambda: _is_complete(daemon), "the first complete report", 60.0)
        return time.monotonic() - begun
    finally:
        daemon.clean()


def _is_complete(daemon: Daemon) -> bool:
    if not (daemon.dir / "sock/agent-ro.sock").exists():
        return False
    try:
        told: Report = daemon.report()
    except DaemonUnavailable:
        return False
    return told.health.ready and len(told.guests) == GUESTS


def _cpu_s(daemon: Daemon) -> float:
    fields = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mib(daemon: Daemon) -> float:
    lines = Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS"))) / 1024


def _nova_imports() -> Beside:
    done = subprocess.run(
        [str(nova_python()), "-W", "ignore", "-c", NOVA_IMPORTS], check=True, stdout=subprocess.PIPE, text=True
    )
    return Beside(what="nova-compute's imports", value=int(done.stdout.split()[-1]) / 1024)
