"""A real daemon beside a real guest says who fits, and its saved picture says the same without it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.client import LocalClient
from agent.core.dry_run import FitAnswer
from agent.core.reasons import CpusShort
from agent.formats import request
from tests.functional.daemon import START_S, Daemon, agentctl
from tests.functional.lab import Guest, Libvirtd

MakeGuest = Callable[..., Guest]
PINNED = ("--extra-spec", "hw:cpu_policy=dedicated", "-f", "json")
ALL = len(os.sched_getaffinity(0))
"""CPUs that guests of this machine can have."""


@pytest.fixture
def daemon(libvirtd: Libvirtd) -> Iterator[Daemon]:
    made = Daemon(libvirtd.ro_uri)
    yield made
    made.clean()


def ask(daemon: Daemon, vcpus: int) -> FitAnswer:
    spec = request.from_words(vcpus=vcpus, memory_mb=16, extra_specs=["hw:cpu_policy=dedicated"])
    client = LocalClient(daemon.dir / "sock/agent-ro.sock", timeout_s=START_S)
    answer = client.ask("/v1/fit", spec, FitAnswer)
    assert isinstance(answer, FitAnswer)
    return answer


def fit(vcpus: int, *where: str) -> tuple[int, Any]:
    done = agentctl(["fit", "--vcpus", str(vcpus), "--memory-mb", "16", *PINNED, *where])
    return done.returncode, json.loads(done.stdout)


def test_a_guest_fits_until_a_real_one_has_the_cpu_and_the_reason_names_it(daemon: Daemon, guest: MakeGuest) -> None:
    daemon.start()
    whole = ask(daemon, ALL)
    assert whole.fits
    assert whole.placement is not None

    web = guest("web", pin={0: "1"})
    daemon.wait_for(lambda told: any(1 in one.holds.cpus for one in told.guests), "the guest to hold CPU 1")

    left = ask(daemon, ALL - 1)
    assert left.placement is not None
    assert 1 not in [cpu for cell in left.placement.cells for cpu in cell.pins.values()]
    refused = ask(daemon, ALL)
    short = [reason for reason in refused.reasons if isinstance(reason, CpusShort)]
    assert not refused.fits
    assert (web.uuid, "web") in {
        (owner.uuid, owner.name) for reason in short for row in reason.holders for owner in row.owners
    }
    assert refused.generation > whole.generation

    text = daemon.agentctl("fit", "--vcpus", str(ALL), "--memory-mb", "16", *PINNED[:2], code=1)
    assert "held by web" in " ".join(text.split())


def test_a_snapshot_of_the_daemon_answers_like_it_when_all_is_gone(
    daemon: Daemon, guest: MakeGuest, libvirtd: Libvirtd
) -> None:
    guest("web", pin={0: "1"})
    daemon.configure("[tracker]\ninterval = 300\ndeep_interval = 3600\n")
    daemon.start()
    daemon.wait_for(lambda told: any(1 in one.holds.cpus for one in told.guests), "the guest to hold CPU 1")
    kept = daemon.dir / "host.json"

    daemon.agentctl("snapshot", "--output", str(kept))
    there = [fit(vcpus, "--socket", str(daemon.dir / "sock/agent-ro.sock")) for vcpus in (1, ALL)]
    assert daemon.stop() == 0

    here = [fit(vcpus, "--snapshot", str(kept)) for vcpus in (1, ALL)]
    for _, answer in (*here, *there):
        answer.pop("generation")  # passes go on
    assert here == there
    assert [code for code, _ in here] == [0, 1]


def test_without_a_daemon_the_host_is_looked_at(guest: MakeGuest, libvirtd: Libvirtd) -> None:
    guest("web", pin={0: "1"})
    code, told = fit(ALL, "--direct", "--connect", libvirtd.ro_uri)
    assert (code, told["fits"]) == (1, False)
    assert fit(ALL - 1, "--direct", "--connect", libvirtd.ro_uri)[0] == 0


def test_absurd_requests_cost_a_running_daemon_nothing(daemon: Daemon) -> None:
    daemon.start()
    request_file = daemon.dir / "request.json"
    flavor = {"vcpus": 1, "memory_mb": 1}
    for text in (
        "[" * 200_000,
        json.dumps({"flavor": {**flavor, "vcpus": 10**400}}),
        json.dumps({"flavor": {**flavor, "extra_specs": {"hw:numa_nodes": "9" * 4000}}}),
        json.dumps({"flavor": {**flavor, "extra_specs": {"hw:numa_cpus.0": "0-999999999"}}}),
        json.dumps({"flavor": {**flavor, "extra_specs": {"pci_passthrough:alias": "a:999999999"}}}),
        json.dumps({"flavor": flavor, "ports": [{"vnic_type": "direct"}] * 5000}),
        "\0" * 1000,
    ):
        request_file.write_text(text)
        daemon.agentctl("fit", "--request", str(request_file), code=2)
    assert daemon.health().ready
    assert "Traceback" not in daemon.log()


def test_a_body_of_ten_megabytes_is_refused_and_the_daemon_serves_on(daemon: Daemon) -> None:
    daemon.start()
    client = LocalClient(daemon.dir / "sock/agent-ro.sock", timeout_s=START_S)
    answer = client.post("/v1/fit", "x" * (10 * 1024 * 1024))
    assert answer.refusal is not None
    assert answer.refusal.message.startswith("The body is longer than")
    assert ask(daemon, 1).fits
