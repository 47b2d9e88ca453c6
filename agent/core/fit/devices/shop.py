"""What the requests of one guest may have from where it is, at what price."""

from __future__ import annotations

from typing import NamedTuple

from agent.core.fit.devices.market import Card, Stock

Prices = tuple[int, ...]
"""What a device costs each need; NOT_ALLOWED where it may not have it."""


class Shelf(NamedTuple):
    """Stocks of equal prices that exclude nothing that somebody may have."""

    prices: Prices
    many: int
    stocks: tuple[tuple[Stock, ...], ...]


class Kind(NamedTuple):
    """Cards of equal prices that are alike but for how much of them is free, smallest first. prices: of the whole, then
    of each part. rest[part][n]: free devices of that part in all cards but the first n."""

    prices: tuple[Prices, ...]
    cards: tuple[Card, ...]
    rest: tuple[tuple[int, ...], ...]


class Shop(NamedTuple):
    """What the needs may have, at what price."""

    shelves: tuple[Shelf, ...]
    kinds: tuple[Kind, ...]
