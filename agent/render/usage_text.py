"""Usage as rows, for a table and for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from agent.core.usage import Amount, CellUsage, CpuAmount, DeviceUsage, HostUsage, PageAmount, Usage
from agent.core.words import plain, plural
from agent.render import words
from agent.render.table import text_table, wrap

Quantity = int | str | None
"""A number, a CPU set as text, or nothing to say."""


PCI = "pci:"


class UsageRow(NamedTuple):
    """One resource of one cell. cell: "host" for the host as a whole, "" for devices without a cell.

    resource: "dedicated_cpus" (sets), "shared_vcpus", "memory_kib", "pages_<KiB>_kib", or "pci:VENDOR:PRODUCT:TYPE"; no
    blanks, which part the columns of value.
    """

    cell: int | str
    resource: str
    total: Quantity
    reserved: Quantity
    limit: Quantity
    used: Quantity
    promised: Quantity
    free: Quantity


def usage_rows(usage: Usage) -> tuple[UsageRow, ...]:
    """Every cell's rows, then the devices by cell and model, then the host's."""
    rows = [row for cell in usage.cells for row in _rows(cell.id, cell)]
    return (*rows, *_device_rows(usage.pci), *_rows("host", usage.host))


def usage_text(usage: Usage, *, width: int = 80) -> str:
    """The rows with units that people read, and what qualifies them. Ends with a newline."""
    header = ("CELL", "WHAT", "TOTAL", "USABLE", "USED", "PROMISED", "FREE")
    rows = [row for row in usage_rows(usage) if _is_worth_a_line(row, has_device_filter=usage.has_device_filter)]
    text = text_table(header, [_words(row) for row in rows], width)
    return text + "".join(wrap(note, width, rest="  ") for note in _notes(usage))


def _is_worth_a_line(row: UsageRow, *, has_device_filter: bool) -> bool:
    """People are spared sizes of pages that the host has none of, and its own devices."""
    if row.resource.startswith("pages_"):
        return bool(row.total or row.used or row.promised)
    is_taken = bool(row.used or row.promised)
    return not row.resource.startswith(PCI) or has_device_filter or is_taken or row.resource.endswith("VF")


def _rows(where: int | str, part: CellUsage | HostUsage) -> Iterator[UsageRow]:
    yield _cpus(where, part.dedicated)
    yield _amount(where, "shared_vcpus", part.shared)
    yield _amount(where, "memory_kib", part.memory_kib)
    for pages in part.pages:
        yield _pages(where, pages)


def _cpus(where: int | str, amount: CpuAmount) -> UsageRow:
    return UsageRow(
        where, "dedicated_cpus", str(amount.total), None, None, str(amount.used), str(amount.promised), str(amount.free)
    )


def _amount(where: int | str, what: str, amount: Amount) -> UsageRow:
    return UsageRow(where, what, amount.total, amount.reserved, amount.limit, amount.used, amount.promised, amount.free)


def _pages(where: int | str, pages: PageAmount) -> UsageRow:
    what, limit = f"pages_{pages.size_kib}_kib", pages.total - pages.reserved
    return UsageRow(where, what, pages.total, pages.reserved, limit, pages.used, pages.promised, pages.free)


def _device_rows(devices: Sequence[DeviceUsage]) -> Iterator[UsageRow]:
    """One row per cell and model of what guests can have or have."""
    pools: dict[tuple[int | str, str], list[DeviceUsage]] = {}
    for device in devices:
        if device.offered or device.owners:
            where = "" if device.cell is None else device.cell
            pools.setdefault((where, f"{PCI}{device.vendor_id}:{device.product_id}:{device.type}"), []).append(device)
    for (where, what), members in sorted(pools.items(), key=lambda item: (str(item[0][0]).rjust(9), item[0][1])):
        usable, promised = sum(d.offered for d in members), sum(is_promised(d) for d in members)
        used, free = sum(bool(d.owners) for d in members) - promised, sum(d.free for d in members)
        yield UsageRow(where, what, len(members), len(members) - usable, usable, used, promised, free)


def is_promised(device: DeviceUsage) -> bool:
    """No guest has it yet, and one may."""
    return bool(device.owners) and all(owner.type == "claim" for owner in device.owners)


def _words(row: UsageRow) -> tuple[str, ...]:
    kind, shown = _wording(row.resource)
    numbers = (row.total, row.limit, row.used, row.promised, row.free)
    where = words.NOTHING if row.cell == "" else str(row.cell)
    return (where, kind, *(words.NOTHING if number in (None, "") else shown(number) for number in numbers))


def _wording(resource: str) -> tuple[str, Callable[[Quantity], str]]:
    if resource == "memory_kib":
        return "memory", lambda number: words.size(int(number or 0))
    if resource.startswith("pages_"):
        return f"{words.size(int(resource.split('_')[1]))} pages", str
    if resource.startswith(PCI):
        return "pci {1}:{2} {3}".format(*resource.split(":")), str
    return {"dedicated_cpus": "dedicated CPUs", "shared_vcpus": "shared vCPUs"}.get(resource, resource), str


def _about_kernel(cell: int, pages: PageAmount, kernel_free: int) -> str:
    why = "others than guests use some" if kernel_free < pages.free else "guests have not touched all of theirs yet"
    return f"Of the {words.size(pages.size_kib)} pages of cell {cell} the kernel has {kernel_free} free: {why}."


def _notes(usage: Usage) -> Iterator[str]:
    if usage.is_legacy:
        yield "No CPU sets are configured, so each usable CPU counts as dedicated and as shared."
    elif usage.host.shared_cpus:
        yield f"Floating guests share {plural(usage.host.shared_cpus)}."
    for part in usage.cells:
        for pages in part.pages:
            if pages.kernel_free is not None and pages.kernel_free != pages.free:
                yield _about_kernel(part.id, pages, pages.kernel_free)
    if usage.free_is_uncertain:
        yield "Free CPUs are uncertain: the pins of a guest could not be read (see `agentctl domains`)."
    for device in usage.pci:
        if device.kept_back:
            yield f"Device {device.address}: {plain(device.remark or '')}"
    for remark in usage.remarks:
        yield f"{plain(remark.name)}: {plain(remark.text)}"
