"""The books stay right whatever happens to host, libvirt and agent, in whatever order, thousands of times."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.race.machine import HostMachine

TestHost = HostMachine.TestCase
TestHost.settings = settings(
    max_examples=int(os.environ.get("RACE_EXAMPLES", "1500")),
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
