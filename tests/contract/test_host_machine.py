"""The books stay right whatever happens to host, libvirt and agent; `tox -e race` has minutes of it."""

from __future__ import annotations

from hypothesis import Phase, settings

from tests.race.machine import HostMachine

TestHost = HostMachine.TestCase
TestHost.settings = settings(max_examples=15, stateful_step_count=30, deadline=None, phases=(Phase.generate,))
