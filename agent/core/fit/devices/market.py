"""The free devices that the requests of one guest compete for, put together as far as none of them can tell them apart.

It holds for every set of host cells that a search may try: only prices differ between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.core.fit.devices.facts import DeviceFacts

Members = tuple[int, ...]
"""Numbers of the requests that a device will do for, ascending."""


class Wanted(NamedTuple):
    """Who would take a device, and the cell that the kernel names for it: all that decides on its prices."""

    cell: int | None
    members: Members


class Stock(NamedTuple):
    """What is free of one pool, as bits and counted. hurt: how many free virtual functions are lost with one of it."""

    free: int
    many: int
    hurt: int


class Lot(NamedTuple):
    """Stocks for the same requests on one cell, of which none excludes what somebody else could take."""

    wanted: Wanted
    many: int
    stocks: tuple[Stock, ...]


class Card(NamedTuple):
    """A physical function and its virtual ones, which exclude each other and both of which somebody could take."""

    whole: Stock
    parts: tuple[Stock, ...]

    @property
    def size(self) -> int:
        """Free functions that are lost when it is taken as a whole."""
        return sum(part.many for part in self.parts)


class Deck(NamedTuple):
    """Cards for the same requests on the same cells. parts: of each card, in order."""

    whole: Wanted
    parts: tuple[Wanted, ...]
    cards: tuple[Card, ...]


class Market(NamedTuple):
    """Everything that is for sale."""

    lots: tuple[Lot, ...] = ()
    decks: tuple[Deck, ...] = ()


def market(pools: Sequence[Sequence[int]], devices: DeviceFacts, free: int) -> Market:
    """For requests for each of which these pools will do. free: bit n for device n."""
    members: dict[int, list[int]] = {}
    for number, some in enumerate(pools):
        for pool in some:
            if devices.pools[pool].devices & free:
                members.setdefault(pool, []).append(number)
    wanted = {pool: Wanted(devices.pools[pool].first.cell, tuple(some)) for pool, some in sorted(members.items())}
    cards = _cards(wanted, devices, free)
    bound = {pool for whole, parts in cards.items() for pool in (whole, *parts)}
    alike: dict[Wanted, list[Stock]] = {}
    for pool, one in wanted.items():
        if pool not in bound:
            alike.setdefault(one, []).append(_stock(pool, devices, free))
    return Market(
        lots=tuple(Lot(one, sum(stock.many for stock in some), tuple(some)) for one, some in alike.items()),
        decks=_decks(cards, wanted, devices, free),
    )


def _cards(wanted: Mapping[int, Wanted], devices: DeviceFacts, free: int) -> dict[int, list[int]]:
    """By pool of a physical function that somebody could take, those of its virtual ones that somebody could."""
    families = {devices.pools[pool].family: pool for pool in wanted if devices.pools[pool].is_whole}
    cards: dict[int, list[int]] = {}
    for pool in wanted:
        one = devices.pools[pool]
        if one.family in families and not one.is_whole and one.devices & free:
            cards.setdefault(families[one.family], []).append(pool)
    return cards


def _decks(
    cards: Mapping[int, list[int]], wanted: Mapping[int, Wanted], devices: DeviceFacts, free: int
) -> tuple[Deck, ...]:
    decks: dict[tuple[Wanted, ...], list[Card]] = {}
    for whole, parts in sorted(cards.items()):
        # sorted by who wants them, so that cards with the same parts in another order are alike too
        parts.sort(key=lambda pool: (wanted[pool].members, wanted[pool].cell is None, wanted[pool].cell, pool))
        stocks = tuple(_stock(pool, devices, free) for pool in parts)
        named = (wanted[whole], *(wanted[pool] for pool in parts))
        decks.setdefault(named, []).append(Card(_stock(whole, devices, free), stocks))
    return tuple(Deck(named[0], named[1:], tuple(some)) for named, some in decks.items())


def _stock(pool: int, devices: DeviceFacts, free: int) -> Stock:
    one = devices.pools[pool]
    mask = one.devices & free
    lost = devices.relatives[one.family] if one.is_whole and one.family is not None else 0
    return Stock(mask, mask.bit_count(), (lost & free).bit_count())
