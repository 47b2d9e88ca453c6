"""Sets of requests that have to be looked at together, since they may want the same devices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TypeVar

MOST_TOGETHER = 4
"""Members of which every set is looked at; of more only each alone and all together."""

T = TypeVar("T")


def together(members: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """Small sets first; none of no members."""
    sizes = range(1, len(members) + 1) if len(members) <= MOST_TOGETHER else (1, len(members))
    return itertools.chain.from_iterable(itertools.combinations(members, size) for size in sizes)
