"""What each claim adds under the tracker's lock: the books of 500 guests with 64 promised ones, beside folding them."""

from __future__ import annotations

import time
from collections.abc import Iterator

from agent.core.claim.holding import Promise, promise_of
from agent.core.claim.rows import claim_conflicts
from agent.core.claim.values import Claim
from agent.core.guest import Sighting
from agent.core.holds import HostSets, host_sets
from agent.core.usage.promised import with_promises
from tests.bench.rows import Row, at_most, median_row, milliseconds
from tests.builders import Host, Node, function, guest, host
from tests.builders_claims import book_with, claim_of, place

CELLS, CPUS_OF_CELL, MIB_OF_CELL = 8, 64, 262144
GUESTS, PROMISED, FUNCTIONS_OF_CARD = 500, 64, 128
TIMES = 200
MOST_MS = 0.5


def measure() -> Iterator[Row]:
    """CPU time of one thread. Each promised guest has a CPU, a virtual function and 1 GiB in pages of 2 MiB."""
    machine, seen = _host(), _guests()
    sets, folded = host_sets(machine.topology, machine.config), machine.folded(*seen)
    coming = _claims()
    here = [claim_of(one.name, state="resident", observed=folded.holds[one.uuid]) for one in seen]
    promises = _promises(coming, here, seen, machine, sets)
    book, sightings = book_with(*coming, *here), {one.uuid: one for one in seen}

    def counted() -> object:
        return with_promises(folded, promises.values(), machine.topology, machine.config, sets, before=folded.usage)

    what = f"books of {GUESTS} guests, each with its claim, and {PROMISED} promised ones on {CELLS * CPUS_OF_CELL} CPUs"
    again = milliseconds(time.thread_time, lambda: machine.folded(*seen), 5)
    yield median_row(
        what,
        milliseconds(time.thread_time, counted, TIMES),
        "ms CPU",
        beside=("folding the guests anew", again),
        budget=at_most(MOST_MS),
    )
    rows = milliseconds(time.thread_time, lambda: list(claim_conflicts(book, promises, sightings, 0.0)), TIMES)
    yield median_row("what is to be told of these claims", rows, "ms CPU")
    made = milliseconds(time.thread_time, lambda: promise_of((coming[0],), None, None, sets), TIMES)
    yield median_row("what one claim holds", made, "ms CPU")


def _promises(
    coming: list[Claim], here: list[Claim], seen: list[Sighting], on: Host, sets: HostSets
) -> dict[str, Promise]:
    folded = on.folded(*seen)
    made = [promise_of((claim,), None, None, sets) for claim in coming]
    made += [promise_of((claim,), one, folded.holds[one.uuid], sets) for claim, one in zip(here, seen, strict=True)]
    return {promise.instance: promise for promise in made}


def _card(number: int) -> str:
    return f"0000:{0x10 + number:02x}"


def _function(number: int) -> str:
    card, place_in = divmod(number, FUNCTIONS_OF_CARD)
    return f"{_card(card)}:{place_in // 8 + 1:02x}.{place_in % 8}"


def _host() -> Host:
    """Two cards a cell, each of 128 virtual functions."""
    nodes = {
        cell: Node(f"{cell * CPUS_OF_CELL}-{(cell + 1) * CPUS_OF_CELL - 1}", MIB_OF_CELL, {2048: 65536})
        for cell in range(CELLS)
    }
    cards = [function(f"{_card(number)}:00.0", "type-PF", numa=number // 2) for number in range(2 * CELLS)]
    parts = [
        function(
            _function(number), "type-VF", numa=number // (2 * FUNCTIONS_OF_CARD), pf=f"{_card(number // 128)}:00.0"
        )
        for number in range(2 * CELLS * FUNCTIONS_OF_CARD)
    ]
    return host(nodes, dedicated="4-511", shared="0-3", pci=[*cards, *parts], pci_filter=("*:*:*.*",))


def _guests() -> list[Sighting]:
    """On the highest CPUs; those that find none left float."""
    free = CELLS * CPUS_OF_CELL - 4 - PROMISED
    return [
        guest(f"g{n}", {0: 511 - n} if n < free else {0: "0-3"}, node=(511 - n) // CPUS_OF_CELL, page=2048, mem=512)
        for n in range(GUESTS)
    ]


def _claims() -> list[Claim]:
    cpus = range(4, 4 + PROMISED)
    return [
        claim_of(f"p{n}", place(cpu, cell=cpu // CPUS_OF_CELL, mem=1024, page=2048, dev=(_function(n),)))
        for n, cpu in enumerate(cpus)
    ]
