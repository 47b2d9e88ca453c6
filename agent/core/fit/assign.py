"""Which free devices serve several requests together, at the least total distance.

Exact. Devices that no request can tell apart, and that cost each request the same, form one stock; what of which stock
serves which request is a min-cost flow (`flow`), so neither the order of requests nor what is given first matters.

A physical function and its virtual ones exclude each other, which no flow can say. It matters only for cards of which
one request could take the whole and one (the same or another) a part. Such cards of equal cost are alike but for how
much of them is free, and of these whoever takes cards as a whole best takes those with the least: so all that is open
is how many of a kind are taken as a whole. That number is branched on: a flow in which each card may serve both ways is
a bound from below; where it uses more than there is, one branch allows fewer whole cards and the other takes their
parts away. The cheapest node without such a double use is the answer.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agent.core.fit.devices import Pool
from agent.core.fit.flow import Shares, cheapest
from agent.core.fit.host import Offer
from agent.core.fit.nearness import NOT_ALLOWED, Nearness
from agent.core.fit.needs import Need

Prices = tuple[int, ...]
"""What a device of a pool costs each need; NOT_ALLOWED where it will not do."""


class Stock(NamedTuple):
    """Free devices of a pool. hurt: how many free virtual functions are lost with one of them."""

    free: int
    hurt: int = 0


class Card(NamedTuple):
    """A physical function and its virtual ones, both of which somebody could take. parts: by prices."""

    whole: Stock
    parts: tuple[Stock, ...]

    @property
    def size(self) -> int:
        """Free functions that are lost when it is taken as a whole."""
        return sum(part.free.bit_count() for part in self.parts)


class Kind(NamedTuple):
    """Cards that are alike but for how much of them is free, smallest first. prices: of the whole, then of each part.
    rest[part][n]: free devices of that part in all cards but the first n."""

    prices: tuple[Prices, ...]
    cards: tuple[Card, ...]
    rest: tuple[tuple[int, ...], ...]


class Market(NamedTuple):
    """All that is for sale. plain: stocks of equal prices that exclude nothing that somebody could take."""

    plain: tuple[tuple[Prices, tuple[Stock, ...]], ...]
    kinds: tuple[Kind, ...]


class Plan(NamedTuple):
    """Shares of each need, by number: of the plain stocks, then of each kind the whole and its parts. least, most: how
    many cards of each kind may be taken as a whole."""

    shares: Shares
    least: tuple[int, ...]
    most: tuple[int, ...]


def assign(needs: Sequence[Need], offer: Offer, nearness: Nearness) -> list[int] | None:
    """Bit n of result[i]: device n serves need i. None when they cannot all be served."""
    market = _market(needs, offer, nearness)
    plan = _best([need.request.count for need in needs], market)
    return None if plan is None else _taken(len(needs), market, plan)


def _market(needs: Sequence[Need], offer: Offer, nearness: Nearness) -> Market:
    pools, relatives = offer.facts.devices.pools, offer.facts.devices.relatives
    prices = _prices(needs, pools, nearness)
    wholes = {pools[n].family: n for n in prices if pools[n].is_whole}
    split: dict[int, list[int]] = {}
    for number in prices:
        family = pools[number].family
        if family in wholes and not pools[number].is_whole:
            split.setdefault(wholes[family], []).append(number)
    bound = {number for whole, parts in split.items() for number in (whole, *parts)}

    def stock(number: int) -> Stock:
        pool = pools[number]
        lost = relatives[pool.family] if pool.is_whole and pool.family is not None else 0
        return Stock(offer.devices & pool.devices, (offer.devices & lost).bit_count())

    plain: dict[Prices, list[Stock]] = {}
    for number in sorted(prices.keys() - bound):
        plain.setdefault(tuple(prices[number]), []).append(stock(number))
    cards: dict[tuple[object, ...], list[tuple[tuple[Prices, ...], Card]]] = {}
    for whole, parts in sorted(split.items()):
        parts.sort(key=lambda number: (prices[number], number))
        paid = tuple(tuple(prices[number]) for number in (whole, *parts))
        card = Card(stock(whole), tuple(map(stock, parts)))
        sizes = tuple(part.free.bit_count() for part in card.parts)
        cards.setdefault((paid, sizes if len(sizes) > 1 else None), []).append((paid, card))
    return Market(
        plain=tuple((paid, tuple(stocks)) for paid, stocks in plain.items()),
        kinds=tuple(_kind(same[0][0], [card for _, card in same]) for same in cards.values()),
    )


def _prices(needs: Sequence[Need], pools: Sequence[Pool], nearness: Nearness) -> dict[int, list[int]]:
    """By pool, of those with something free that somebody may have."""
    prices: dict[int, list[int]] = {}
    for taker, need in enumerate(needs):
        of_cell: dict[int | None, int] = {}
        for number, free in zip(need.pools, need.free, strict=True):
            if not free:
                continue
            cell = pools[number].first.cell
            price = of_cell.get(cell)
            if price is None:
                price = of_cell[cell] = nearness.price(need.request.numa_policy, cell)
            if price != NOT_ALLOWED:
                prices.setdefault(number, [NOT_ALLOWED] * len(needs))[taker] = price
    return prices


def _kind(prices: tuple[Prices, ...], cards: list[Card]) -> Kind:
    cards.sort(key=lambda card: card.size)
    return Kind(
        prices=prices,
        cards=tuple(cards),
        rest=tuple(
            tuple(sum(card.parts[part].free.bit_count() for card in cards[n:]) for n in range(len(cards) + 1))
            for part in range(len(prices) - 1)
        ),
    )


def _best(amounts: Sequence[int], market: Market) -> Plan | None:
    columns = [paid for paid, _ in market.plain] + [paid for kind in market.kinds for paid in kind.prices]
    costs = [
        {n: paid[taker] for n, paid in enumerate(columns) if paid[taker] != NOT_ALLOWED}
        for taker in range(len(amounts))
    ]
    plain = [sum(stock.free.bit_count() for stock in stocks) for _, stocks in market.plain]
    order = itertools.count()
    open_nodes: list[tuple[int, int, Plan]] = []

    def look(least: tuple[int, ...], most: tuple[int, ...]) -> None:
        stocks = [*plain]
        for kind, low, high in zip(market.kinds, least, most, strict=True):
            stocks += [high, *(rest[low] for rest in kind.rest)]
        if (found := cheapest(amounts, stocks, costs)) is not None:
            heapq.heappush(open_nodes, (found[0], next(order), Plan(found[1], least, most)))

    look((0,) * len(market.kinds), tuple(len(kind.cards) for kind in market.kinds))
    while open_nodes:
        plan = heapq.heappop(open_nodes)[2]
        double = _used_twice(market, plan)
        if double is None:
            return plan
        number, whole = double
        look(plan.least, _with(plan.most, number, whole - 1))
        look(_with(plan.least, number, whole), plan.most)
    return None


def _with(numbers: tuple[int, ...], place: int, number: int) -> tuple[int, ...]:
    return (*numbers[:place], number, *numbers[place + 1 :])


def _used_twice(market: Market, plan: Plan) -> tuple[int, int] | None:
    """(number of the kind, its cards taken as a whole) where more of the parts is used than the other cards have."""
    place = len(market.plain)
    for number, kind in enumerate(market.kinds):
        whole, *parts = (sum(share[n] for share in plan.shares) for n in range(place, place + len(kind.prices)))
        if any(used > rest[whole] for used, rest in zip(parts, kind.rest, strict=True)):
            return number, whole
        place += len(kind.prices)
    return None


def _taken(takers: int, market: Market, plan: Plan) -> list[int]:
    masks = [0] * takers

    def hand_out(place: int, stocks: Iterable[Stock]) -> None:
        heap = [(-stock.free.bit_count(), stock.hurt, n, stock.free) for n, stock in enumerate(stocks)]
        heapq.heapify(heap)
        for taker, share in enumerate(plan.shares):
            for _ in range(share[place]):
                left, hurt, n, free = heap[0]
                lowest = free & -free
                masks[taker] |= lowest
                heapq.heapreplace(heap, (left + 1, hurt, n, free ^ lowest))

    for place, (_, stocks) in enumerate(market.plain):
        hand_out(place, stocks)
    place = len(market.plain)
    for kind in market.kinds:
        whole = sum(share[place] for share in plan.shares)
        hand_out(place, (card.whole for card in kind.cards[:whole]))
        for part in range(len(kind.prices) - 1):
            hand_out(place + 1 + part, (card.parts[part] for card in kind.cards[whole:]))
        place += len(kind.prices)
    return masks
