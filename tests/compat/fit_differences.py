"""Where nova 34 and we answer differently, and why; whatever is not here is a fault of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.compat.fit_cases import Case, CaseCell, CaseDevice, CaseRequest

UNREQUESTED = {"type-PF", "vdpa"}
"""Types that nova gives only to a request that names them."""


class Seen(NamedTuple):
    """nova, each: what nova said to "fit" and "each". check: what nova says of our placement; None when we say no.
    given: that placement in nova's terms."""

    case: Case
    nova: dict[str, Any]
    each: dict[str, Any]
    check: dict[str, Any] | None
    given: dict[str, Any] | None

    @property
    def is_approved(self) -> bool:
        """Every part of our placement passes nova's rules and books."""
        if self.check is None or self.given is None:
            return False
        return (
            self.check["accounts"] is None
            and all(self.check["rows"])
            and self.check["devices"] == [[devices] for devices in self.given["devices"]]
        )


def symptoms(seen: Seen) -> Iterator[str]:
    """How the two answers do not go together, and where nova's does not go together with itself."""
    nova, check = seen.nova, seen.check
    if nova["fits"] and check is None:
        yield "only nova says yes"
    if check is not None and not nova["fits"]:
        yield "only we say yes"
    if nova["fits"]:
        yield from _novas_own(seen)
    if check is not None and seen.given is not None:
        if not all(check["rows"]):
            yield "our cell is refused"
        if check["accounts"] is not None:
            yield "our pins are refused"
        if check["devices"] != [[devices] for devices in seen.given["devices"]]:
            yield "our devices are refused"
        if _exclude_one_another(seen):
            yield "our devices exclude one another"


def _exclude_one_another(seen: Seen) -> bool:
    given = [address for devices in (seen.given or {}).get("devices", ()) for address in devices]
    parents = [device.parent for device in seen.case.devices if device.address in given]
    return len(set(given)) < len(given) or bool(set(parents) & set(given))


def _novas_own(seen: Seen) -> Iterator[str]:
    cpus = {cell.id: set(cell.cpus) for cell in seen.case.host.cells}
    placed = seen.nova["cells"]
    if any(cpu not in cpus[cell["id"]] for cell in placed for _, cpu in cell["pins"]):
        yield "nova's pins lie in another cell"
    if seen.nova["accounts"] is not None:
        yield "nova's books refuse its pins"
    if seen.nova["devices"] is None:
        yield "nova's claim refuses its devices"


class Difference(NamedTuple):
    """symptoms: those that it explains. holds: whether a case is of this kind."""

    name: str
    symptoms: frozenset[str]
    holds: Callable[[Seen], bool]


def _keeps_pairs(seen: Seen) -> bool:
    """Nova remembers by a guest cell's id whether it fits, and fitting changes that id (since 2022). So it takes the
    pins of one host cell for another, or refuses what fits."""
    return (len(seen.case.guest.cells) > 1 and seen.each["fresh"] != seen.nova["fits"]) or _mislabels(seen)


def _mislabels(seen: Seen) -> bool:
    return seen.nova["fits"] and "nova's pins lie in another cell" in _novas_own(seen)


def _keeps_page_word(seen: Seen) -> bool:
    """The first host cell that has the pages turns "large" or "any" into a size for all cells that come after."""
    word = seen.case.guest.page in {"large", "any"}
    return word and len(seen.case.host.cells) > 1 and bool(seen.each["fresh"]) and not seen.nova["fits"]


def _serves_in_order(seen: Seen) -> bool:
    """Nova serves requests one after another, each without a look at the next."""
    return len(seen.case.requests) > 1 and seen.is_approved and not seen.each["fresh"]


def _forgets_relatives(seen: Seen) -> bool:
    """In its dry run nova gives away a physical function beside its virtual ones."""
    parents = {device.parent for device in seen.case.devices} - {None}
    asked = any(spec.get("dev_type") == "type-PF" for request in seen.case.requests for spec in request.specs)
    return bool(parents) and asked and seen.nova["fits"] and seen.nova["devices"] is None


def _looks_near_first(seen: Seen) -> bool:
    """Nova counts near devices before it leaves out those that nobody named: physical functions, vDPA, managed from
    elsewhere. Enough of these near by, and it looks no further."""
    return seen.is_approved and any(_has_decoy(request, seen.case) for request in seen.case.requests)


def _has_decoy(request: CaseRequest, case: Case) -> bool:
    named = {spec.get("dev_type") for spec in request.specs}
    return any(
        (device.type in UNREQUESTED - named or _is_managed_elsewhere(device, case))
        and any(_matches(device, dict(spec)) for spec in request.specs)
        for device in case.devices
    )


def _is_managed_elsewhere(device: CaseDevice, case: Case) -> bool:
    offered = [dict(spec) for spec in case.offered if _matches(device, dict(spec))]
    return bool(offered) and offered[0].get("remote_managed") == "true"


def _matches(device: CaseDevice, spec: dict[str, str | None]) -> bool:
    known = {"vendor_id": device.vendor_id, "product_id": device.product_id}
    return all(spec.get(name, value) == value for name, value in known.items())


def _is_one_cell(seen: Seen) -> bool:
    """Where one cell has all CPUs nothing is far; nova finds a device far that has no cell."""
    cells = [cell for cell in seen.case.host.cells if seen.case.usable & set(cell.cpus)]
    asked = any(request.policy in {"required", "socket"} for request in seen.case.requests)
    given = {address for devices in (seen.given or {}).get("devices", ()) for address in devices}
    cells_given = {device.cell for device in seen.case.devices if device.address in given}
    return len(cells) == 1 and asked and None in cells_given and cells_given <= {None, cells[0].id}


def _isolates_on_split_cores(seen: Seen) -> bool:
    """Nova has no isolated threads on hosts with sets for pinned and floating guests (bug 1889633)."""
    return seen.case.guest.threads == "isolate" and seen.case.has_split and seen.case.threads_per_core > 1


def _isolates_on_smaller_cores(seen: Seen) -> bool:
    """Nova isolates only on cores with as many threads as the largest, though a thread alone has no sibling."""
    sizes = {len(set(group) & seen.case.usable) for group in seen.case.host.siblings} - {0}
    return seen.case.guest.threads == "isolate" and not seen.case.has_split and len(sizes) > 1


def _has_no_pin_to_place(seen: Seen) -> bool:
    """A cell whose vCPUs all float is to nova one whose isolated or paired pins were not found; and where it is the
    guest's first, one without a CPU for the emulator."""
    guest = seen.case.guest
    floats = [not cell.pinned for cell in guest.cells]
    return (guest.threads in {"isolate", "require"} and any(floats)) or (guest.emulator == "isolate" and floats[0])


def _isolates_the_emulator_too(seen: Seen) -> bool:
    """With isolated threads nova's books take the whole core of the emulator's CPU; its fit does not ask for it."""
    return seen.case.guest.threads == seen.case.guest.emulator == "isolate"


def _overcommits_small_pages(seen: Seen) -> bool:
    """The ratio of nova is of all memory, that in huge pages too; floating guests cannot have that."""
    if not seen.nova["fits"] or seen.case.guest.page is not None:
        return False
    asked = {placed["id"]: cell for placed, cell in zip(seen.nova["cells"], seen.case.guest.cells, strict=True)}
    return any(
        _small_mib_used(seen.case, cell.id) + asked[cell.id].memory_mib > _small_mib(cell) * seen.case.host.ram_ratio
        for cell in seen.case.host.cells
        if cell.id in asked
    )


def _small_mib(cell: CaseCell) -> float:
    return cell.memory_mib - sum(page.size_kib * page.total for page in cell.pages) / 1024


def _small_mib_used(case: Case, cell: int) -> int:
    return sum(used.memory_mib for used in case.used if used.cell == cell and used.page_kib is None)


DIFFERENCES = (
    Difference(
        "pairs kept between orders",
        frozenset(
            {
                "only we say yes",
                "only nova says yes",
                "nova's pins lie in another cell",
                "nova's books refuse its pins",
            }
        ),
        _keeps_pairs,
    ),
    Difference("page word kept between cells", frozenset({"only we say yes"}), _keeps_page_word),
    Difference("requests one after another", frozenset({"only we say yes"}), _serves_in_order),
    Difference(
        "relatives in the dry run",
        frozenset({"only nova says yes", "nova's claim refuses its devices"}),
        _forgets_relatives,
    ),
    Difference("near before kind", frozenset({"only we say yes"}), _looks_near_first),
    Difference(
        "no cell on a host of one cell", frozenset({"only we say yes", "our devices are refused"}), _is_one_cell
    ),
    Difference(
        "isolate beside shared CPUs", frozenset({"only we say yes", "our cell is refused"}), _isolates_on_split_cores
    ),
    Difference(
        "isolate on smaller cores", frozenset({"only we say yes", "our cell is refused"}), _isolates_on_smaller_cores
    ),
    Difference("cell without a pin", frozenset({"only we say yes", "our cell is refused"}), _has_no_pin_to_place),
    Difference(
        "isolate with an isolated emulator",
        frozenset({"only nova says yes", "our pins are refused", "nova's books refuse its pins"}),
        _isolates_the_emulator_too,
    ),
    Difference("ratio of huge pages", frozenset({"only nova says yes"}), _overcommits_small_pages),
)


def unexplained(seen: Seen) -> list[str]:
    """Symptoms that no difference accounts for; empty is as it should be."""
    return [symptom for symptom in symptoms(seen) if not explained_by(seen, symptom)]


def explained_by(seen: Seen, symptom: str) -> list[str]:
    """Names of the differences that account for it."""
    return [one.name for one in DIFFERENCES if symptom in one.symptoms and one.holds(seen)]
