"""A real libvirtd, shown the recorded machines, contradicts their sysfs in exactly these rows, each of them true."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest

from agent.adapters.sysfs import discover
from agent.core.topology import HostTopology
from agent.core.values import Problem
from agent.formats.host_xml import (
    Capabilities,
    complete_devices,
    device_disagreements,
    disagreements,
    read_capabilities,
    read_node_device,
)
from tests.recorded_hosts import NAMES, recorded_host

DATA = Path(__file__).parent.parent / "data"
NODE_DEVICES = DATA / "nodedevs"


def row(what: str, sysfs: str, libvirt: str) -> Problem:
    return Problem(
        source="libvirt capabilities",
        what=what,
        values=MappingProxyType({"sysfs": sysfs, "libvirt": libvirt}),
    )


def no_cell(cells: str) -> Problem:
    return row("libvirt names no cell, so it knows neither CPUs nor memory of this host", f"cells {cells}", "-")


ROWS = {
    # The kernel of 2008 wrote thread_siblings only as a mask; libvirt reads thread_siblings_list and, without it, takes
    # each thread for a core. The four CPUs are offline by their own files, and the cell's map still holds them.
    "16em64t-4s2c2t-offlines": (
        row("libvirt goes on listing CPUs 2,5,13-14, which are offline", "online 0-1,3-4,6-12,15", "listed 0-15"),
        row(
            "libvirt gives CPUs 0-1,3-4,7-9,11-12,15 other siblings",
            "0,8; 1,9; 3,11; 4,12; 7,15",
            "0; 1; 3; 4; 7; 8; 9; 11; 12; 15",
        ),
    ),
    "16em64t-4s2c2t": (
        row(
            "libvirt gives CPUs 0-15 other siblings",
            "0,8; 1,9; 2,10; 3,11; 4,12; 5,13; 6,14; 7,15",
            "0; 1; 2; 3; 4; 5; 6; 7; 8; 9; 10; 11; 12; 13; 14; 15",
        ),
    ),
    # Only the mask here too.
    "64fake-4n2s2ca2c2t": (
        row(
            "libvirt gives CPUs 0-63 other siblings",
            "0,4; 1,5; 2,6; 3,7; 8,12; 9,13; 10,14; 11,15; 16,20; 17,21; 18,22; 19,23; 24,28; 25,29; 26,30; 27,31; "
            "16 more",
            "0; 1; 2; 3; 4; 5; 6; 7; 8; 9; 10; 11; 12; 13; 14; 15; 48 more",
        ),
    ),
    # AMD family 15h: the kernel calls the two cores of a module siblings, with core ids of their own. Discovery shows
    # them as cores (and names the contradiction within sysfs); libvirt follows thread_siblings_list.
    "64amd64-4s2n4ca2co": (
        row(
            "libvirt gives CPUs 0-63 other siblings",
            "0; 1; 2; 3; 4; 5; 6; 7; 8; 9; 10; 11; 12; 13; 14; 15; 48 more",
            "0-1; 2-3; 4-5; 6-7; 8-9; 10-11; 12-13; 14-15; 16-17; 18-19; 20-21; 22-23; 24-25; 26-27; 28-29; 30-31; "
            "16 more",
        ),
    ),
    # The masks of these trees are wider than what the running kernel knows, and libvirt then drops every cell.
    "256ppc-8n8s4t": (no_cell("0-1,4-5,8-9,12-13"),),
    "8em64t-2s2ca2c": (no_cell("0"),),
    "8em64t-2s4c-asymcaches": (no_cell("0"),),
    # No node folder at all.
    "2i386-2t-hugepagesizecount": (no_cell("0"),),
    # Firmware that lies: each of the eight nodes says that all eight CPUs are its own.
    "8em64t-2s2ca2c-buggynuma": (
        row(
            "libvirt lists CPUs 0-7 in other cells",
            "cell 0: CPUs 0-7",
            "cell 0-7: CPUs 0-7",
        ),
    ),
}
"""Of the hosts that are not here libvirt says what sysfs says."""


def capabilities(name: str) -> Capabilities:
    return read_capabilities((DATA / "capabilities" / f"{name}.caps.xml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def topology(name: str) -> HostTopology:
    with recorded_host(name) as root:
        return discover(root)


def test_each_difference_is_a_row_and_agreement_is_none(name: str, topology: HostTopology) -> None:
    assert disagreements(topology, capabilities(name)) == ROWS.get(name, ())


def test_memory_of_every_cell_that_both_name_is_equal_to_the_kib(name: str, topology: HostTopology) -> None:
    said = {cell.id: cell.memory_kib for cell in capabilities(name).cells}
    shown = {cell.id: cell.memory_kib for cell in topology.cells}
    both = said.keys() & shown.keys()
    assert {cell: said[cell] for cell in both} == {cell: shown[cell] for cell in both}


def test_the_expected_rows_are_of_recorded_hosts() -> None:
    assert ROWS.keys() <= set(NAMES)


def test_node_devices_of_a_machine_with_virtual_functions_agree_with_its_sysfs() -> None:
    with recorded_host("emulated-16cpu-4n-sriov") as root:
        emulated = discover(root)
    said = tuple(read_node_device(path.read_text(encoding="utf-8")) for path in NODE_DEVICES.glob("pci_*.xml"))
    assert device_disagreements(emulated, said) == ()
    assert complete_devices(emulated, said) == emulated
    assert {device.address for device in said} == {device.address for device in emulated.pci}
