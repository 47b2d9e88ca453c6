"""Whatever somebody writes is read or refused in printable sentences; nothing else comes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.instance import RequestSpec
from agent.errors import FaultyInput
from agent.formats import request, snapshot_file
from agent.formats.request_spelling import FLAVOR_NAMES, PORT_NAMES
from agent.formats.short_form import ShortCell, ShortDevice, ShortPool, ShortSnapshot
from agent.formats.short_spelling import COMMENT, PIN_SET, RATIOS, TOP_NAMES

LEAVES = st.sampled_from(
    [None, True, 0, 1, -1, 4, 2048, 2.0, 0.5, 1e300, 10**40, "", "0", "0-3", "2M", "PF", "0x8086", "true", "x", "\0",
     "{", '{"vendor_id": "8086"}', "node:0,size:2048,count:1", "3b:00.0", "switchdev"]
)  # fmt: skip
KINDS = (ShortCell, ShortDevice, ShortPool, ShortSnapshot)
HOST_NAMES = sorted(
    {field.encode_name for kind in KINDS for field in msgspec.structs.fields(kind)}
    | {*TOP_NAMES, *RATIOS, PIN_SET, COMMENT, "0", "2M", "4", "size", "used", "count", "node", "numa_node", "ratios"}
)
REQUEST_NAMES = sorted(
    {field.name for field in msgspec.structs.fields(RequestSpec)}
    | {*FLAVOR_NAMES, *PORT_NAMES, "rules", "max_server_per_host", "members", "tags", "capabilities", "trusted", "uuid"}
    | {"extra_specs", "properties", "vnic_type", "hardware_offload", "switchdev"}
)


def anything(names: list[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        LEAVES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(names), inner, max_size=4),
        max_leaves=12,
    )


def parts(names: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), anything(names), max_size=3)


def faults_of(read: Callable[[object], object], data: object) -> tuple[str, ...]:
    """Of what is refused; none when it is read."""
    try:
        read(data)
    except FaultyInput as error:
        return error.faults or ("",)
    return ()


def assert_read_or_refused(read: Callable[[object], object], data: object) -> None:
    faults = faults_of(read, data)
    assert [fault for fault in faults if not (fault.isprintable() and 0 < len(fault) < 1000)] == []


@settings(max_examples=200)
@given(top=parts(HOST_NAMES), cell=parts(HOST_NAMES), device=parts(HOST_NAMES))
def test_any_host_is_read_or_refused(top: dict[str, Any], cell: dict[str, Any], device: dict[str, Any]) -> None:
    first = {"id": 0, "cpus": "0-3", "memory_mb": 4096, **cell}
    function = {"address": "3b:00.0", "vendor_id": "8086", "product_id": "1572", **device}
    plain = {"cells": [first], "pci": [function], **top, "format": "short"}
    assert_read_or_refused(snapshot_file.from_plain, plain)


@settings(max_examples=200)
@given(top=parts(REQUEST_NAMES), flavor=parts(REQUEST_NAMES), port=parts(REQUEST_NAMES), group=parts(REQUEST_NAMES))
def test_any_request_is_read_or_refused(
    top: dict[str, Any], flavor: dict[str, Any], port: dict[str, Any], group: dict[str, Any]
) -> None:
    plain = {"flavor": {"vcpus": 1, "memory_mb": 1, **flavor}, "ports": [port], "group": {"id": "g", **group}, **top}
    assert_read_or_refused(request.from_plain, plain)
