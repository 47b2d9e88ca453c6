"""Run by the Python that has nova. Each line in is {"ask": ..., "case": ...}, each line out the answer to it.

Each question is answered from new objects, so that none finds what another left behind.

fit: what nova says as it stands: {fits, cells, accounts, devices}. each: the same question by nova's own rules
for one cell and for devices, over every order of host cells, with nothing kept from one order to the next: {fresh,
truly}.
check: may nova put into its books what somebody else decided: {accounts, rows, devices}.
"""

from __future__ import annotations

import importlib
import itertools
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

from tests.compat import nova_objects
from tests.compat.nova_objects import CONF, Plain, hardware, objects

exception: Any = importlib.import_module("nova.exception")


def fit(case: Plain) -> Plain:
    """As the claim on a compute node does it: NUMA with devices, then devices alone, then both are taken."""
    CONF.set_override("packing_host_numa_cells_allocation_strategy", case["host"]["pack"], group="compute")
    host, guest = nova_objects.host_of(case), nova_objects.guest_of(case)
    pools, requests = nova_objects.pools_of(case, host), nova_objects.requests_of(case).requests
    fitted = None
    if guest is not None:
        fitted = hardware.numa_fit_instance_to_host(
            host, guest, None, nova_objects.limits_of(case), pci_requests=requests, pci_stats=pools
        )
    fits = (guest is None or fitted is not None) and pools.support_requests(requests, None)
    if not fits:
        return {"fits": False}
    cells = [] if fitted is None else fitted.cells
    return {
        "fits": True,
        "cells": [_told(cell) for cell in cells],
        "accounts": _accounts(host, fitted),
        "devices": _taken(pools, requests, cells),
    }


def _told(cell: Any) -> Plain:
    return {
        "id": cell.id,
        "pins": sorted(map(list, (cell.cpu_pinning or {}).items())),
        "page_kib": cell.pagesize,
        "reserved": sorted(cell.cpuset_reserved or ()),
    }


def _accounts(host: Any, fitted: Any) -> str | None:
    """The name of what nova's bookkeeping raises; None when it takes the guest in."""
    try:
        hardware.numa_usage_from_instance_numa(host, fitted)
    except (exception.CPUPinningInvalid, exception.CPUPinningUnknown) as error:
        return type(error).__name__
    return None


def _taken(pools: Any, requests: list[Any], cells: list[Any]) -> list[list[str]] | None:
    """Addresses by request; None when the real claim raises."""
    try:
        taken = pools.consume_requests(requests, cells or None)
    except (exception.PciDeviceRequestFailed, exception.PciDevicePoolEmpty, IndexError, ValueError):
        # the last two: it took a physical function and goes on with the virtual ones that are gone now
        return None
    by_request: dict[str, list[str]] = {request.request_id: [] for request in requests}
    for device in taken:
        by_request[device.request_id].append(device.address)
    return [sorted(by_request[request.request_id]) for request in requests]


def each(case: Plain) -> Plain:
    """fresh: some order of host cells passes nova's rules for each pair and its dry run of the requests. truly: some
    order of host cells and of requests passes its books and its real claim too."""
    host = nova_objects.host_of(case)
    requests = nova_objects.requests_of(case).requests
    orders = list(_fitted(case, host))
    return {
        "fresh": any(nova_objects.pools_of(case, host).support_requests(requests, None, cells) for cells in orders),
        "truly": any(_passes(case, host, cells) for cells in orders),
    }


def _fitted(case: Plain, host: Any) -> Iterator[list[Any]]:
    guest, limits = case["guest"], nova_objects.limits_of(case)
    if not guest["cells"]:
        yield []
        return
    for order in itertools.permutations(host.cells, len(guest["cells"])):
        cells = []
        for number, (host_cell, asked) in enumerate(zip(order, guest["cells"], strict=True)):
            own = int(guest["emulator"] == "isolate" and number == 0)
            cells.append(fit_cell(host_cell, nova_objects.guest_cell(asked, guest), limits, own))
        if all(cell is not None for cell in cells):
            yield cells


def fit_cell(host_cell: Any, cell: Any, limits: Any, own: int) -> Any:
    """What nova's rule for one guest cell on one host cell gives: the cell, or None."""
    try:
        return hardware._numa_fit_instance_cell(host_cell, cell, limits, own)
    except exception.MemoryPageSizeNotSupported:
        return None


def _passes(case: Plain, host: Any, cells: list[Any]) -> bool:
    if cells and _accounts(host, objects.InstanceNUMATopology(cells=cells)) is not None:
        return False
    orders = itertools.permutations(nova_objects.requests_of(case).requests)
    return any(_taken(nova_objects.pools_of(case, host), list(order), cells) is not None for order in orders)


def check(case: Plain) -> Plain:
    """case["given"]: {cells: [{id, pins, page_kib, reserved}], devices: [[address]]}, decided by somebody else."""
    host, given, guest = nova_objects.host_of(case), case["given"], case["guest"]
    cells = []
    rows: list[bool] = []
    by_id = {cell.id: cell for cell in host.cells}
    for number, (asked, placed) in enumerate(zip(guest["cells"], given["cells"], strict=True)):
        own = int(guest["emulator"] == "isolate" and number == 0)
        alone = fit_cell(by_id[placed["id"]], nova_objects.guest_cell(asked, guest), nova_objects.limits_of(case), own)
        rows.append(alone is not None)
        cells.append(_given_cell(asked, placed, guest))
    return {
        "accounts": _accounts(host, objects.InstanceNUMATopology(cells=cells)) if cells else None,
        "rows": rows,
        "devices": [
            _taken(nova_objects.pools_of(case, host, only=addresses), [nova_objects.request_of(request)], cells)
            for request, addresses in zip(case["requests"], given["devices"], strict=True)
        ],
    }


def _given_cell(asked: Plain, placed: Plain, guest: Plain) -> Any:
    cell = nova_objects.guest_cell(asked, guest)
    cell.id = placed["id"]
    cell.pagesize = placed["page_kib"]
    cell.cpu_pinning = dict(map(tuple, placed["pins"]))
    cell.cpuset_reserved = set(placed["reserved"]) or None
    return cell


QUESTIONS = {"fit": fit, "each": each, "check": check}


def main() -> None:
    """Answer until the caller has no more."""
    logging.disable()
    nova_objects.register()
    CONF([], project="nova", default_config_files=[], default_config_dirs=[], use_env=False)
    for line in sys.stdin:
        told = json.loads(line)
        sys.stdout.write(json.dumps(QUESTIONS[told["ask"]](told["case"])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
