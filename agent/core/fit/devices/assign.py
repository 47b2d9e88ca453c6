"""Which free devices serve several requests together, at the least total distance.

Exact. Devices that no request can tell apart, and that cost each request the same, form one shelf; what of which shelf
serves which request is a min-cost flow (`flow`), so neither the order of requests nor what is given first matters.

A physical function and its virtual ones exclude each other, which no flow can say. It matters only for cards of which
one request could take the whole and one (the same or another) a part. Such cards of equal cost are alike but for how
much of them is free, and of these whoever takes cards as a whole best takes those with the least: so all that is open
is how many of a kind are taken as a whole. That number is branched on: a flow in which each card may serve both ways is
a bound from below; where it uses more than there is, one branch allows fewer whole cards and the other takes their
parts away. The cheapest node without such a double use is the answer. Nodes where the least loss of the cards that must
be taken as a whole leaves any set of requests short (`losses`) are not looked at.

To give some cards as a whole so that enough is left of several products is a knapsack, so the number of nodes has no
good bound; guests that ask for a few cards take a handful. After MOST_COMPARED nodes the first answer is taken instead
of the nearest. Whether there is an answer stays exact.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agent.core.fit.devices.flow import Shares, cheapest
from agent.core.fit.devices.losses import Losses
from agent.core.fit.devices.market import Card, Deck, Market, Stock, Wanted
from agent.core.fit.devices.nearness import NOT_ALLOWED, Nearness
from agent.core.fit.devices.needs import Need, in_one_market
from agent.core.fit.devices.shop import Kind, Prices, Shelf, Shop
from agent.core.fit.host import Offer

MOST_COMPARED = 64
"""Nodes from which on an answer is worth more than the nearest one."""


class Plan(NamedTuple):
    """Shares of each need, by number: of the shelves, then of each kind the whole and its parts. least, most: how many
    cards of each kind may be taken as a whole."""

    shares: Shares
    least: tuple[int, ...]
    most: tuple[int, ...]


def assign(needs: Sequence[Need], offer: Offer, nearness: Nearness) -> list[int] | None:
    """Bit n of result[i]: device n serves need i. None when they cannot all be served."""
    market, places = in_one_market(needs, offer)
    shop = _shop(market, _Prices(needs, places, nearness))
    plan = _best([need.request.count for need in needs], shop)
    return None if plan is None else _taken(len(needs), shop, plan)


class _Prices:
    def __init__(self, needs: Sequence[Need], places: Sequence[int], nearness: Nearness) -> None:
        self._takers = tuple(zip(places, (need.request.numa_policy for need in needs), strict=True))
        self._nearness = nearness
        self._none = (NOT_ALLOWED,) * len(needs)
        self._known: dict[Wanted, Prices] = {}

    def of(self, wanted: Wanted) -> Prices | None:
        """None when nobody may have it."""
        paid = self._known.get(wanted)
        if paid is None:
            cell, members = wanted
            price = self._nearness.price
            paid = tuple([price(policy, cell) if one in members else NOT_ALLOWED for one, policy in self._takers])
            self._known[wanted] = paid
        return None if paid == self._none else paid


def _shop(market: Market, prices: _Prices) -> Shop:
    shelves: dict[Prices, list[tuple[Stock, ...]]] = {}
    for lot in market.lots:
        if (paid := prices.of(lot.wanted)) is not None:
            shelves.setdefault(paid, []).append(lot.stocks)
    cards: dict[tuple[object, ...], tuple[tuple[Prices, ...], list[Card]]] = {}
    for deck in market.decks:
        whole = prices.of(deck.whole)
        parts = [(n, paid) for n, one in enumerate(deck.parts) if (paid := prices.of(one)) is not None]
        if whole is None or not parts:
            _put_on_shelves(deck, whole, parts, shelves)
            continue
        columns = (whole, *(paid for _, paid in parts))
        for card in deck.cards:
            stocks = tuple(card.parts[n] for n, _ in parts)
            sizes = tuple(stock.many for stock in stocks) if len(parts) > 1 else None
            cards.setdefault((columns, sizes), (columns, []))[1].append(Card(card.whole, stocks))
    return Shop(
        shelves=tuple(
            Shelf(paid, sum(stock.many for some in lots for stock in some), tuple(lots))
            for paid, lots in shelves.items()
        ),
        kinds=tuple(_kind(columns, some) for columns, some in cards.values()),
    )


def _put_on_shelves(
    deck: Deck,
    whole: Prices | None,
    parts: Sequence[tuple[int, Prices]],
    shelves: dict[Prices, list[tuple[Stock, ...]]],
) -> None:
    """Cards of which nobody may have the whole, or nobody a part."""
    if whole is not None:
        shelves.setdefault(whole, []).append(tuple(card.whole for card in deck.cards))
    for n, paid in parts:
        shelves.setdefault(paid, []).append(tuple(card.parts[n] for card in deck.cards))


def _kind(prices: tuple[Prices, ...], cards: list[Card]) -> Kind:
    cards.sort(key=lambda card: card.size)
    return Kind(
        prices=prices,
        cards=tuple(cards),
        rest=tuple(
            tuple(sum(card.parts[part].many for card in cards[n:]) for n in range(len(cards) + 1))
            for part in range(len(prices) - 1)
        ),
    )


def _best(amounts: Sequence[int], shop: Shop) -> Plan | None:
    columns = [shelf.prices for shelf in shop.shelves] + [paid for kind in shop.kinds for paid in kind.prices]
    costs = [
        {n: paid[taker] for n, paid in enumerate(columns) if paid[taker] != NOT_ALLOWED}
        for taker in range(len(amounts))
    ]
    on_shelves = [shelf.many for shelf in shop.shelves]
    losses = Losses(amounts, shop)
    # of equal nodes the last comes first, so that an answer is not looked for on all levels at once
    order = itertools.count(0, -1)
    nodes: list[tuple[int, int, Plan]] = []

    def look(least: tuple[int, ...], most: tuple[int, ...]) -> None:
        if not losses.are_bearable(least, most):
            return
        stocks = [*on_shelves]
        for kind, low, high in zip(shop.kinds, least, most, strict=True):
            stocks += [high, *(rest[low] for rest in kind.rest)]
        if (found := cheapest(amounts, stocks, costs)) is not None:
            nodes.append((found[0], next(order), Plan(found[1], least, most)))

    look((0,) * len(shop.kinds), tuple(len(kind.cards) for kind in shop.kinds))
    for compared in itertools.count():
        if not nodes:
            return None
        if compared <= MOST_COMPARED:
            nodes.sort(reverse=True)
        plan = nodes.pop()[2]
        double = _used_twice(shop, plan)
        if double is None:
            return plan
        number, whole = double
        look(plan.least, _with(plan.most, number, whole - 1))
        look(_with(plan.least, number, whole), plan.most)
    return None


def _with(numbers: tuple[int, ...], place: int, number: int) -> tuple[int, ...]:
    return (*numbers[:place], number, *numbers[place + 1 :])


def _used_twice(shop: Shop, plan: Plan) -> tuple[int, int] | None:
    """(number of the kind, its cards taken as a whole) where more of the parts is used than the other cards have."""
    place = len(shop.shelves)
    for number, kind in enumerate(shop.kinds):
        whole, *parts = (sum(share[n] for share in plan.shares) for n in range(place, place + len(kind.prices)))
        if any(used > rest[whole] for used, rest in zip(parts, kind.rest, strict=True)):
            return number, whole
        place += len(kind.prices)
    return None


def _taken(takers: int, shop: Shop, plan: Plan) -> list[int]:
    masks = [0] * takers

    def hand_out(place: int, stocks: Iterable[Stock]) -> None:
        shares = [share[place] for share in plan.shares]
        if not any(shares):
            return
        heap = [(-stock.many, stock.hurt, stock.free & -stock.free, stock.free) for stock in stocks]
        heapq.heapify(heap)
        for taker, share in enumerate(shares):
            for _ in range(share):
                left, hurt, lowest, free = heap[0]
                masks[taker] |= lowest
                free ^= lowest
                heapq.heapreplace(heap, (left + 1, hurt, free & -free, free))

    for place, shelf in enumerate(shop.shelves):
        hand_out(place, itertools.chain.from_iterable(shelf.stocks))
    place = len(shop.shelves)
    for kind in shop.kinds:
        whole = sum(share[place] for share in plan.shares)
        hand_out(place, (card.whole for card in kind.cards[:whole]))
        for part in range(len(kind.prices) - 1):
            hand_out(place + 1 + part, (card.parts[part] for card in kind.cards[whole:]))
        place += len(kind.prices)
    return masks
