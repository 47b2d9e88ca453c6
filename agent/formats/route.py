"""The shape of a row in the table of what is served, and how a request finds its row.

The table itself is in `agent.handlers.routes`: the server asks it how a request is to be carried, the handlers who
answers it, and the OpenAPI document is made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from agent.core.values import Value

Method = Literal["GET", "POST", "PUT"]

Work = Literal["read", "question", "change"]
"""What answering is: looking at the current picture; working something out that changes nothing; a change, which waits
for the disk. Each has threads of its own, and only a change needs the socket that may change things."""


class Route(NamedTuple):
    """path: fixed parts and {names} of parameters, which become fields of the request. call: the method that answers,
    over RPC too. asks: the form of the body, None: it has none. needs_body: False where all of it may be left out.
    gives: the type of the result. refuses: the codes that it may be refused with, beside those that any may.
    longest_body: in bytes."""

    method: Method
    path: str
    call: str
    work: Work
    summary: str
    gives: Any
    asks: type[Value] | None = None
    needs_body: bool = False
    refuses: tuple[str, ...] = ()
    longest_body: int = 0

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parts of the path that are not fixed, in order."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))


class Found(NamedTuple):
    """A row, and what the path of a request has in the place of its parameters."""

    route: Route
    parameters: Mapping[str, str]


class Table:
    """Rows by method and path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._by_shape: dict[tuple[str, int], list[tuple[tuple[str, ...], Route]]] = {}
        for route in self.routes:
            parts = tuple(route.path.split("/"))
            self._by_shape.setdefault((route.method, len(parts)), []).append((parts, route))

    def find(self, method: str, parts: Sequence[str]) -> Found | None:
        """The row of a request, HEAD as GET; parts: of its path, each decoded, so that a "/" within one parts nothing.

        An empty part is no parameter.
        """
        for pattern, route in self._by_shape.get(("GET" if method == "HEAD" else method, len(parts)), ()):
            named = _matched(pattern, parts)
            if named is not None:
                return Found(route, MappingProxyType(named))
        return None

    def methods(self, parts: Sequence[str]) -> tuple[str, ...]:
        """What may be asked of this path; empty: there is none."""
        found = tuple(method for method in ("GET", "POST", "PUT") if self.find(method, parts) is not None)
        return ("GET", "HEAD", *found[1:]) if found[:1] == ("GET",) else found


def _matched(pattern: Sequence[str], parts: Sequence[str]) -> dict[str, str] | None:
    named: dict[str, str] = {}
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted.startswith("{"):
            if not part:
                return None
            named[wanted[1:-1]] = part
        elif wanted != part:
            return None
    return named
