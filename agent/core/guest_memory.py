"""A guest's memory part by part, what binds it to host cells, and what of it lies elsewhere.

What lies elsewhere is told for guests whose small-page memory is all bound. Where huge pages lie no control group says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from agent.core.cpuset import CpuSet
from agent.core.guest import ObservedDomain
from agent.core.values import Value

BINDING_MODES = frozenset({None, "strict", "restrictive"})
"""numatune modes that keep memory on the nodes named ("preferred" and "interleave" do not); None: libvirt's strict."""

WITHOUT_RAM = frozenset({"nvdimm", "virtio-pmem", "sgx-epc"})
"""Memory modules that a file or the processor's own enclave backs."""

OWN_MEMORY_KIB = 64 * 1024
"""QEMU's own memory counts too and is not bound where only guest cells are: measured 13 to 20 MiB without devices."""

NOTICED_ONE_IN = 16
"""Less than this part of the guest's memory is no fault: a few pages are always where the kernel found room."""


class Part(NamedTuple):
    """Some memory of a guest. cells: host cells that it is bound to, empty: none. page_kib: None for small pages."""

    kib: int
    cells: CpuSet
    page_kib: int | None


class Binding(Value, frozen=True, kw_only=True):
    """Of a guest whose small-page memory is all bound: to which host cells, how much. is_one: all of it to the same."""

    cells: CpuSet
    memory_kib: int
    is_one: bool


def parts(domain: ObservedDomain, *, small_kib: int = 4, default_huge_kib: int = 2048) -> Iterator[Part]:
    """All memory of a guest: its cells, its modules, and what neither names.

    small_kib: the host's page size; default_huge_kib: huge pages for guests that name no size.
    """
    default_kib = _huge(domain.page_size_kib or (default_huge_kib if domain.default_huge_pages else None), small_kib)
    default_cells = _bound(domain.mode, domain.nodeset)
    by_guest_cell: dict[int | None, Part] = {}
    rest = domain.memory_kib
    for cell in domain.cells:
        cells = _bound(cell.mode, cell.nodeset) if cell.nodeset else default_cells
        page_kib = _huge(cell.page_size_kib, small_kib) if cell.page_size_kib else default_kib
        by_guest_cell[cell.id] = Part(max(cell.memory_kib, 0), cells, page_kib)
        yield by_guest_cell[cell.id]
        rest -= cell.memory_kib
    for module in domain.memory_devices:
        rest -= module.size_kib
        if module.model in WITHOUT_RAM or module.size_kib <= 0:
            continue
        _, cells, page_kib = by_guest_cell.get(module.guest_cell, Part(0, default_cells, default_kib))
        yield Part(module.size_kib, module.nodeset or cells, _huge(module.page_size_kib, small_kib) or page_kib)
    # What no guest cell names: all memory of a guest without cells, nothing or a rounding of libvirt's with them.
    if rest > 0:
        yield Part(rest, default_cells, default_kib)


def binding(domain: ObservedDomain) -> Binding | None:
    """What binds the guest's small-page memory; None when it has none, or some that may lie anywhere."""
    small = [part for part in parts(domain) if part.page_kib is None and part.kib > 0]
    if not small or not all(part.cells for part in small):
        return None
    cells = CpuSet(cell for part in small for cell in part.cells)
    return Binding(
        cells=cells, memory_kib=sum(part.kib for part in small), is_one=all(part.cells == cells for part in small)
    )


def elsewhere(bound: Binding, kib_by_cell: Mapping[int, int], before: CpuSet) -> CpuSet:
    """Host cells that the guest is not bound to and that hold more of it than a few pages; `before`: those last time.

    More: 1/16 of its memory and at least 64 MiB. A cell stays until it holds less than half of that, so that a number
    which moves about the limit makes no news.
    """
    limit_kib = max(OWN_MEMORY_KIB, bound.memory_kib // NOTICED_ONE_IN)
    return CpuSet(
        cell
        for cell, kib in kib_by_cell.items()
        if cell not in bound.cells and kib > (limit_kib // 2 if cell in before else limit_kib)
    )


def _bound(mode: str | None, nodeset: CpuSet) -> CpuSet:
    return nodeset if mode in BINDING_MODES else CpuSet()


def _huge(page_kib: int | None, small_kib: int) -> int | None:
    return None if page_kib is None or page_kib <= small_kib or page_kib <= 0 else page_kib
