"""libvirt's capabilities, and one row for each cause by which they differ from sysfs."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.cpuset import CpuSet
from agent.core.topology import Cache, Cpu, HostCell, HostTopology, PagePool
from agent.core.values import Problem
from agent.errors import FormatError
from agent.formats.host_xml import (
    Capabilities,
    CapabilityCell,
    CapabilityCpu,
    disagreements,
    read_capabilities,
)

CAPABILITIES = Path(__file__).parent.parent / "data" / "capabilities"
RECORDED = sorted(path.name.removesuffix(".caps.xml") for path in CAPABILITIES.glob("*.caps.xml"))

SMALL = """<capabilities><host><uuid>92422380-bb86-44cd-86d1-167fc5122362</uuid>
  <cpu><arch>x86_64</arch><pages unit='KiB' size='4'/><pages unit='MiB' size='2'/></cpu><iommu support='yes'/>
  <topology><cells num='1'><cell id='3'><memory unit='GiB'>2</memory><pages unit='KiB' size='4'>1</pages>
    <pages unit='KiB' size='2048'>5</pages><distances><sibling id='3' value='10'/></distances>
    <cpus num='2'><cpu id='7' socket_id='1' die_id='2' cluster_id='-1' core_id='4' siblings='6-7'/><cpu id='9'/></cpus>
  </cell></cells></topology>
  <cache><bank id='0' level='3' type='both' size='16' unit='MiB' cpus='6-9'/>
  <bank id='1' level='2' type='code' size='512' unit='KiB' cpus='7'/></cache></host>
  <guest><arch name='i686'/></guest><guest/></capabilities>"""


def recorded(name: str) -> str:
    return (CAPABILITIES / f"{name}.caps.xml").read_text(encoding="utf-8")


def test_everything_that_libvirt_says_of_the_host_is_read() -> None:
    assert read_capabilities(SMALL) == Capabilities(
        host_uuid="92422380-bb86-44cd-86d1-167fc5122362",
        arch="x86_64",
        iommu=True,
        page_sizes_kib=(4, 2048),
        cells=(
            CapabilityCell(
                id=3,
                memory_kib=2 << 20,
                pages=MappingProxyType({4: 1, 2048: 5}),
                distances=MappingProxyType({3: 10}),
                cpus=(
                    CapabilityCpu(id=7, socket=1, die=2, core=4, siblings=CpuSet((6, 7))),
                    CapabilityCpu(id=9),
                ),
            ),
        ),
        caches=(
            Cache(level=2, type="instruction", size_kib=512, cpus=CpuSet((7,))),
            Cache(level=3, type="unified", size_kib=16384, cpus=CpuSet((6, 7, 8, 9))),
        ),
    )


@pytest.mark.parametrize("name", RECORDED)
def test_what_libvirt_said_of_recorded_machines_is_read_without_a_problem(name: str) -> None:
    assert read_capabilities(recorded(name)).problems == ()


@pytest.mark.parametrize("xml", ["", "<capabilities/>", "<domain><host/></domain>", "<!DOCTYPE a><capabilities/>"])
def test_a_text_that_is_no_capabilities_is_refused(xml: str) -> None:
    with pytest.raises(FormatError, match="libvirt's capabilities "):
        read_capabilities(xml)


def test_a_bad_field_costs_only_itself() -> None:
    xml = (
        SMALL.replace("id='9'", "id='nine'")
        .replace(">2</memory>", ">much</memory>")
        .replace("value='10'", "value='near'")
        .replace("siblings='6-7'", "siblings='7-6'")
        .replace("type='code'", "type='trace'")
        .replace("</cells>", "<cell id='3'/><cell/></cells>")
    )
    read = read_capabilities(xml)
    assert read == msgspec.structs.replace(
        read_capabilities(SMALL),
        cells=(
            CapabilityCell(
                id=3,
                pages=MappingProxyType({4: 1, 2048: 5}),
                cpus=(CapabilityCpu(id=7, socket=1, die=2, core=4),),
            ),
        ),
        caches=(Cache(level=3, type="unified", size_kib=16384, cpus=CpuSet((6, 7, 8, 9))),),
        problems=(
            "cell 3: memory is 'much' KiB, not a size".replace("KiB", "GiB"),
            "cell 3: distance value is 'near', not a number",
            "cpu 7: siblings is '7-6', not a list of numbers",
            "cell 3: cpu id is 'nine', not a number up to 1048576",
            "cell 3 is there twice; the first is taken",
            "cell id is '', not a number",
            "cache bank type is 'trace', none that is known",
        ),
    )


EDIT = st.tuples(st.integers(min_value=0), st.integers(min_value=0, max_value=30), st.text(max_size=15))


@given(st.lists(EDIT, min_size=1, max_size=4))
def test_any_edit_of_capabilities_is_read_or_refused(edits: list[tuple[int, int, str]]) -> None:
    text = SMALL
    for start, length, replacement in edits:
        position = start % len(text)
        text = text[:position] + replacement + text[position + length :]
    try:
        read = read_capabilities(text)
    except FormatError:
        return
    assert disagreements(host(), read) is not None


def host(**fields: Any) -> HostTopology:
    """Two cells of two cores with two threads each; CPU 7 is offline."""
    cpus = tuple(
        Cpu(
            id=number,
            online=True,
            cell=number // 4,
            socket=number // 4,
            die=0,
            core=number // 2 % 2,
            kernel_core_id=number // 2 % 2,
            siblings=CpuSet((number & ~1, number | 1)) - CpuSet((7,)),
        )
        for number in range(7)
    )
    plain: dict[str, Any] = {
        "cells": (cell(0, CpuSet(range(4)), {0: 10, 1: 21}), cell(1, CpuSet((4, 5, 6)), {0: 21, 1: 10})),
        "cpus": (*cpus, Cpu(id=7, online=False)),
        "caches": (Cache(level=3, type="unified", size_kib=8192, cpus=CpuSet(range(4))),),
    }
    return HostTopology(**(plain | fields))


def cell(number: int, cpus: CpuSet, distances: dict[int, int]) -> HostCell:
    pools = (PagePool(size_kib=2048, total=64, free=64), PagePool(size_kib=1 << 20, total=0, free=0))
    return HostCell(id=number, cpus=cpus, memory_kib=4 << 20, pages=pools, distances=MappingProxyType(distances))


def agreed(**changes: Any) -> Capabilities:
    """Capabilities that agree with `host()`, but for `changes`, by CPU field or cell field."""
    cells = tuple(
        CapabilityCell(
            id=number,
            memory_kib=changes.get("memory_kib", 4 << 20),
            pages=MappingProxyType({4: 1 << 20, 2048: changes.get("pages", 64)}),
            distances=MappingProxyType(changes.get("distances", {0: 10, 1: 21} if number == 0 else {0: 21, 1: 10})),
            cpus=tuple(
                CapabilityCpu(
                    id=cpu,
                    socket=changes.get("socket", number),
                    die=changes.get("die", 0),
                    core=changes.get("core", cpu // 2 % 2),
                    siblings=changes.get("siblings", CpuSet((cpu & ~1, cpu | 1))),
                )
                for cpu in range(4 * number, 4 * number + 4)
                if cpu != 7
            ),
        )
        for number in changes.get("cells", (0, 1))
    )
    caches = (Cache(level=3, type="unified", size_kib=changes.get("cache_kib", 8192), cpus=CpuSet(range(4))),)
    return Capabilities(cells=cells, caches=caches)


def row(what: str, sysfs: str, libvirt: str) -> Problem:
    return Problem(
        source="libvirt capabilities",
        what=what,
        values=MappingProxyType({"sysfs": sysfs, "libvirt": libvirt}),
    )


def test_a_host_on_which_both_agree_has_no_row() -> None:
    assert disagreements(host(), agreed()) == ()


def test_what_only_one_side_says_is_no_row() -> None:
    silent = agreed(socket=None, die=None, core=None, siblings=None, memory_kib=None, distances={})
    assert disagreements(host(caches=()), msgspec.structs.replace(silent, caches=())) == ()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"socket": 0},
            row("libvirt gives CPUs 4-6 another socket id", "socket 1: CPUs 4-6", "socket 0: CPUs 4-6"),
        ),
        ({"die": 3}, row("libvirt gives CPUs 0-6 another die id", "die 0: CPUs 0-6", "die 3: CPUs 0-6")),
        (
            {"core": 0},
            row("libvirt gives CPUs 2-3,6 another core id", "core 1: CPUs 2-3,6", "core 0: CPUs 2-3,6"),
        ),
        (
            {"siblings": CpuSet((0, 1))},
            row("libvirt gives CPUs 2-6 other siblings", "2-3; 4-5; 6", "0-1"),
        ),
        ({"cells": (0,)}, row("libvirt does not list cell 1, nor what is in it", "cells 0-1", "cell 0")),
        (
            {"pages": 60},
            row(
                "libvirt counts other numbers of huge pages of 2048 KiB",
                "cell 0: 64; cell 1: 64",
                "cell 0: 60; cell 1: 60",
            ),
        ),
        (
            {"distances": {0: 10, 1: 21}},
            row("libvirt gives cell 1 other distances", "cell 1: 0=21 1=10", "cell 1: 0=10 1=21"),
        ),
        (
            {"cache_kib": 4096},
            row("libvirt shows other caches", "L3 unified 8192 KiB: CPUs 0-3", "L3 unified 4096 KiB: CPUs 0-3"),
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_one_cause_gives_one_row_with_both_values(changes: dict[str, Any], problem: Problem) -> None:
    assert disagreements(host(), agreed(**changes)) == (problem,)


def test_other_memory_is_one_row_per_cell_and_a_small_move_of_it_none() -> None:
    assert disagreements(host(), agreed(memory_kib=2 << 20)) == (
        row("libvirt gives cell 0 another amount of memory", "4194304 KiB", "2097152 KiB"),
        row("libvirt gives cell 1 another amount of memory", "4194304 KiB", "2097152 KiB"),
    )
    assert disagreements(host(), agreed(memory_kib=(4 << 20) - 60_000)) == ()


def test_cells_and_cpus_that_only_libvirt_lists_are_named() -> None:
    strange = CapabilityCell(
        id=5, cpus=(CapabilityCpu(id=3), CapabilityCpu(id=7), CapabilityCpu(id=99), CapabilityCpu(id=100))
    )
    known = agreed()
    assert disagreements(host(), msgspec.structs.replace(known, cells=(*known.cells, strange))) == (
        row("libvirt lists cell 5, which the kernel does not show", "cells 0-1", "cells 0-1,5"),
        row("libvirt goes on listing CPU 7, which is offline", "online 0-6", "listed 0-7,99-100"),
        row("libvirt lists CPUs 99-100, which this host does not have", "present 0-7", "listed 0-7,99-100"),
        row("libvirt lists CPU 3 in another cell", "cell 0: CPU 3", "cell 0,5: CPU 3"),
    )


def test_an_online_cpu_that_libvirt_lists_nowhere_is_named() -> None:
    first, second = agreed().cells
    cells = (first, msgspec.structs.replace(second, cpus=second.cpus[1:]))
    assert disagreements(host(), msgspec.structs.replace(agreed(), cells=cells)) == (
        row("libvirt does not list CPU 4, which is online", "online 0-6", "listed 0-3,5-6"),
    )


def test_a_cpu_whose_state_is_unknown_is_in_no_row() -> None:
    unknown = tuple(msgspec.structs.replace(cpu, online=None) for cpu in host().cpus)
    assert disagreements(host(cpus=unknown, caches=()), msgspec.structs.replace(agreed(socket=9), caches=())) == ()


def test_a_libvirt_that_knows_no_cell_is_one_row() -> None:
    assert disagreements(host(), Capabilities()) == (
        row("libvirt names no cell, so it knows neither CPUs nor memory of this host", "cells 0-1", "-"),
    )


def test_a_field_that_could_not_be_read_is_a_row_of_its_own() -> None:
    read = msgspec.structs.replace(agreed(), problems=("cell id is '', not a number",))
    assert disagreements(host(), read) == (
        Problem(source="libvirt capabilities", what="could not be read: cell id is '', not a number"),
    )
