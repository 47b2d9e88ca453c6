"""What is lost at least when so many cards must be taken as a whole, for every set of requests that live on parts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from agent.core.fit.devices.nearness import NOT_ALLOWED
from agent.core.fit.devices.shop import Prices, Shop

MOST_TOGETHER = 5
"""Requests of which every set is looked at; of more only each alone and all together."""


class _Set(NamedTuple):
    """Requests that share what they live on. spare: parts that they can lose; sizes: what each card of each kind has
    for them, the cards in the order in which they are taken."""

    spare: int
    sizes: tuple[tuple[int, ...], ...]


class Losses:
    """A necessary condition that no flow can see, since there a card serves both ways."""

    def __init__(self, amounts: Sequence[int], shop: Shop) -> None:
        wholes = [kind.prices[0] for kind in shop.kinds]
        takers = range(len(amounts))
        of_wholes = [n for n in takers if any(paid[n] != NOT_ALLOWED for paid in wholes)]
        of_parts = [n for n in takers if n not in of_wholes and amounts[n]]
        self._must = sum(amounts[n] for n in of_wholes) - _there(of_wholes, shop)
        self._sets = [_set(some, amounts, shop) for some in _subsets(of_parts)] if self._must > 0 else []

    def are_bearable(self, least: Sequence[int], most: Sequence[int]) -> bool:
        """False when nothing can come of so many cards of each kind."""
        more = max(self._must - sum(least), 0)
        for spare, sizes in self._sets:
            fixed = 0
            free: list[int] = []
            for of_kind, low, high in zip(sizes, least, most, strict=True):
                fixed += sum(of_kind[:low])
                free += of_kind[low:high]
            if len(free) < more or fixed + sum(sorted(free)[:more]) > spare:
                return False
        return True


def _subsets(takers: Sequence[int]) -> list[tuple[int, ...]]:
    sizes = range(1, len(takers) + 1) if len(takers) <= MOST_TOGETHER else (1, len(takers))
    return list(itertools.chain.from_iterable(itertools.combinations(takers, size) for size in sizes))


def _is_for(takers: Sequence[int], paid: Prices) -> bool:
    return any(paid[n] != NOT_ALLOWED for n in takers)


def _there(takers: Sequence[int], shop: Shop) -> int:
    """What these could have beside whole cards."""
    shelves = sum(shelf.many for shelf in shop.shelves if _is_for(takers, shelf.prices))
    return shelves + sum(
        rest[0]
        for kind in shop.kinds
        for rest, paid in zip(kind.rest, kind.prices[1:], strict=True)
        if _is_for(takers, paid)
    )


def _set(takers: Sequence[int], amounts: Sequence[int], shop: Shop) -> _Set:
    sizes = tuple(
        tuple(
            sum(part.many for part, paid in zip(card.parts, kind.prices[1:], strict=True) if _is_for(takers, paid))
            for card in kind.cards
        )
        for kind in shop.kinds
    )
    return _Set(_there(takers, shop) - sum(amounts[n] for n in takers), sizes)
