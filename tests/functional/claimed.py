"""Guests of a real libvirtd that came by claims of a real daemon, and what books, libvirt and kernel say of them."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from agent.client import LocalClient
from agent.core.cpuset import CpuSet
from agent.core.report import GuestReport, Report
from agent.core.usage import Usage
from agent.errors import DaemonUnavailable, RequestRefused
from agent.formats import request, wire
from agent.formats.claim_view import ClaimAnswer, ClaimView
from agent.handlers.reads import UsageAnswer
from tests.functional.daemon import START_S, Daemon
from tests.functional.lab import Libvirtd, wait_until

CONFIG = "[tracker]\ninterval = 1\n[claims]\nsettle = 1\noverdue_grace = 1\nrestart_grace = 5\naway_grace = 600\n"
PINNED = ("hw:cpu_policy=dedicated",)
ALL = CpuSet(os.sched_getaffinity(0))
"""CPUs of this machine."""

REST = """\
<domain type="qemu">
  <name>{name}</name>
  <os><type arch="x86_64" machine="q35">hvm</type></os>
  <features><acpi/></features>
  <devices><controller type="usb" model="none"/><memballoon model="none"/></devices>
</domain>
"""
WAIT_S = 120.0
"""Far more than anything takes here; a loaded machine may be slow."""


class Claimed:
    """A daemon on a libvirtd, and guests that are started exactly as it has promised.

    While it is open, each report of the daemon is held against what it has promised: no CPU of a claim in it, or of a
    guest, may be called free in it, and (is_exact) all others have to be. promised: by claim id.
    """

    def __init__(self, libvirtd: Libvirtd, folder: Path, *, config: str = CONFIG) -> None:
        self.libvirtd, self.folder = libvirtd, folder
        self.daemon = Daemon(libvirtd.ro_uri, config=config)
        self.promised: dict[str, CpuSet] = {}
        self.is_exact = True
        self.reports = 0
        self._faults: list[str] = []
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        self.daemon.start()
        wait_until(lambda: self.daemon.health().ready, "the daemon to be ready", START_S)
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._watcher.join(WAIT_S)
        self.daemon.clean()
        if kind is None:
            assert self.reports > 0
            assert self._faults == []

    def client(self) -> LocalClient:
        """Of the socket that may change things."""
        return LocalClient(self.daemon.dir / "sock/agent.sock", START_S)

    # --- promises ----------------------------------------------------------------------------------

    def claim(self, name: str, *extra_specs: str, vcpus: int = 1, ttl_s: float | None = None) -> ClaimView:
        """A place for a guest, under its name as claim id. Raises RequestRefused."""
        spec = request.from_words(vcpus=vcpus, memory_mb=16, extra_specs=extra_specs)
        asked = wire.to_builtins(spec)
        document = {
            "claim_id": name,
            "kind": "build",
            "instance": {"uuid": str(uuid.uuid4()), "name": name},
            "spec": {key: asked[key] for key in ("flavor",)},
            "context": {} if ttl_s is None else {"ttl_s": ttl_s},
        }
        made = self.client().claim(document).claim
        assert made.holds is not None
        self.promised[name] = made.holds.cpus
        return made

    def of(self, name: str) -> ClaimView:
        """The claim as it is now."""
        return self.told(name).claim

    def told(self, name: str) -> ClaimAnswer:
        """What is answered of it now."""
        return self.client().get_claim(name)

    def refuses_another(self) -> None:
        """Nobody else is given a CPU now, and what is told of that is no fault."""
        with pytest.raises(RequestRefused) as caught:
            self.claim(f"other-{next(self._numbers)}", *PINNED)
        assert caught.value.code in {"ComputeResourcesUnavailable", "AgentNotReady"}, caught.value

    def wait_for(self, name: str, *states: str, domain: str | None = None) -> ClaimView:
        """Until its claim is in one of these states, and its domain is seen so."""

        def is_so() -> ClaimView | None:
            with contextlib.suppress(DaemonUnavailable):
                view = self.of(name)
                how = view.ended.how if view.ended is not None else view.state
                if how in states and (domain is None or self._seen(name) == domain):
                    return view
            return None

        try:
            found = wait_until(is_so, f"claim {name} to be {' or '.join(states)} ({domain})", WAIT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self._as_told(name)}") from error
        assert found is not None
        return found

    def _as_told(self, name: str) -> str:
        report = self.daemon.report()
        listed = self.libvirtd.virsh("list", "--all").split("\n")
        return f"{self.of(name)}; {self.guest(report, name)}; {report.health}; {listed}; log:\n{self.daemon.log()}"

    def _seen(self, name: str) -> str:
        found = self.guest(self.daemon.report(), name)
        return "absent" if found is None else found.sighting.state

    @staticmethod
    def guest(report: Report, name: str) -> GuestReport | None:
        """What is reported of a guest."""
        return next((one for one in report.guests if one.sighting.name == name), None)

    # --- guests --------------------------------------------------------------------------------------

    def define(self, name: str, change: Callable[[str], str] = lambda text: text) -> None:
        """Define the guest with exactly the place that it was promised, unless that is changed."""
        rest, placed = self.folder / f"{name}.rest.xml", self.folder / f"{name}.xml"
        rest.write_text(REST.format(name=name))
        placed.write_text(change(self.daemon.agentctl("claim", "show", name, "--into", str(rest))))
        self.libvirtd.virsh("define", str(placed))

    def start(self, name: str) -> None:
        """Start it."""
        self.libvirtd.virsh("start", name)

    def power_off(self, name: str) -> None:
        """Cut it off; it stays defined."""
        self.libvirtd.virsh("destroy", name)

    def undefine(self, name: str) -> None:
        """Nothing is left of it, as between the halves of nova's hard reboot."""
        self.libvirtd.virsh("destroy", name)
        self.libvirtd.virsh("undefine", name)

    def redefine(self, name: str) -> None:
        """Of the definition that it had, and start it."""
        self.libvirtd.virsh("define", str(self.folder / f"{name}.xml"))
        self.start(name)

    # --- what dies -----------------------------------------------------------------------------------

    def kill_agent(self) -> None:
        """SIGKILL."""
        self.daemon.process.kill()
        self.daemon.process.wait(START_S)

    def start_agent(self) -> None:
        """Start it anew, until it answers."""
        self.daemon.start()

    # --- books = libvirt + kernel ----------------------------------------------------------------------

    def check(self) -> None:
        """What the books say is what libvirt and the kernel say; all adds up, and nobody has anything twice."""
        report, claims = self.daemon.report(), self.client().list_claims().claims
        assert report.conflicts == (), [row.cause for row in report.conflicts]
        held = {view.claim_id: view.holds.cpus for view in claims if view.holds is not None}
        assert sum(map(len, held.values())) == len(_union(held.values()))
        running = set(self.libvirtd.virsh("list", "--name").split())
        pins = {name: self.pins(name) for name in running}
        for name in running & set(held):
            for cpus in self.kernel_cpus(name) if held[name] else ():
                assert cpus <= held[name], name
            assert pins[name] <= held[name], name
            seen = self.guest(report, name)
            assert seen is not None
            assert seen.holds.cpus == pins[name]
        self._adds_up(report.usage, _union(pins.values()), _union(held.values()))

    def pins(self, name: str) -> CpuSet:
        """The CPUs that `virsh vcpupin` shows vCPUs to be pinned to, one each."""
        affinities = [CpuSet.parse(line.split()[1]) for line in self.libvirtd.virsh("vcpupin", name).splitlines()]
        return _union(cpus for cpus in affinities if len(cpus) == 1)

    def kernel_cpus(self, name: str) -> Iterator[CpuSet]:
        """Where the kernel lets each vCPU thread of its QEMU run."""
        threads = list(Path(f"/proc/{self.libvirtd.pid_of(name)}/task").iterdir())
        vcpus = [thread for thread in threads if (thread / "comm").read_text().startswith("CPU ")]
        assert vcpus, f"{name} has no vCPU thread"
        for thread in vcpus:
            found = re.search(r"^Cpus_allowed_list:\t(.*)$", (thread / "status").read_text(), re.MULTILINE)
            assert found
            yield CpuSet.parse(found[1])

    def free(self) -> CpuSet:
        """The dedicated CPUs that a claim would find free."""
        return self.client().value("/v1/usage", UsageAnswer).host.dedicated.free

    def _adds_up(self, usage: Usage, pinned: CpuSet, held: CpuSet) -> None:
        for row in (usage.host.dedicated, *(cell.dedicated for cell in usage.cells)):
            assert row.used | row.promised | row.free == row.total
            assert len(row.used) + len(row.promised) + len(row.free) == len(row.total)
        for amount in (usage.host.memory_kib, *(cell.memory_kib for cell in usage.cells)):
            assert amount.used + amount.promised + amount.free == amount.limit
        host = usage.host.dedicated
        assert (host.used, host.used | host.promised) == (pinned, pinned | held)
        assert all(len(row.owners) == 1 for row in usage.host.holders)

    def _watch(self) -> None:
        client = LocalClient(self.daemon.dir / "sock/agent-ro.sock", START_S)
        while not self._is_over.wait(0.02):
            with contextlib.suppress(DaemonUnavailable):
                report = client.value("/v1/report", Report)
                self.reports += 1
                fault = self._fault_of(report)
                if fault is not None:
                    self._faults.append(f"epoch {report.epoch}, generation {report.generation}: {fault}")

    def _fault_of(self, report: Report) -> str | None:
        promised, row = dict(self.promised), report.usage.host.dedicated
        listed = {claim.claim_id for claim in report.claims}
        if listed - set(promised) or not row.total:
            return None  # made a moment ago, or nothing was looked at yet
        taken = _union([*(promised[name] for name in listed), *(one.holds.cpus for one in report.guests)])
        if row.free & taken:
            return f"CPUs {row.free & taken} are called free, and are promised or held"
        left = row.total - row.free - taken
        return f"CPUs {left} are kept for nobody" if left and self.is_exact else None


def _union(sets: Iterable[CpuSet]) -> CpuSet:
    return CpuSet(cpu for one in sets for cpu in one)
