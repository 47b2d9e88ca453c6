"""Fixtures for tests against a real private libvirtd with real QEMU guests (TCG). They need root.

`libvirtd`: a running daemon of the tests' own, without guests (tests.functional.lab.Libvirtd: .uri, .ro_uri, .dir,
.pid_dir, .pid(), .owns(pid), .kill(), .stop(), .start(), .pause(), .resume(), .virsh(...)). A test may do anything to
it: afterwards it is started, resumed and emptied again for the next one.
`guest(name, **options)`: starts a tiny guest on it and returns its name, uuid and QEMU's pid; start=False defines it
only; options as of tests/lab/guest: guest("a", vcpus=2, pin={0: "0", 1: "1"}, emulatorpin="0").

QEMU processes of other libvirtds on the machine are visible too: only those of `libvirtd` have a pid file in .pid_dir.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.functional.lab import Guest, Libvirtd


@pytest.fixture(scope="session")
def lab() -> Iterator[Libvirtd]:
    """The daemon of this test run; use `libvirtd`, which is cleaned between tests."""
    # pytest's tmp_path is too long for the path of a UNIX socket
    daemon = Libvirtd(Path(tempfile.mkdtemp(prefix="lv-", dir="/tmp")))
    try:
        daemon.up()
        yield daemon
    finally:
        daemon.down()


@pytest.fixture
def libvirtd(lab: Libvirtd) -> Iterator[Libvirtd]:
    """A running libvirtd without guests, which the test may stop, kill or freeze."""
    yield lab
    lab.make_good()


@pytest.fixture
def guest(libvirtd: Libvirtd) -> Callable[..., Guest]:
    """Starts guests on `libvirtd`; they are gone after the test."""
    return libvirtd.guest
