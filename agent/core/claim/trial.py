"""Steps that are tried one by one: a fault of ours in one leaves nothing half done, and costs the others nothing."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Concatenate, NamedTuple, ParamSpec

from agent.core.claim.book import Draft, IllegalStep
from agent.core.words import agrees, count, plain, some

OURS = (IllegalStep, LookupError, TypeError, ValueError, AttributeError, AssertionError)
"""What books that contradict themselves, or the table, can raise. Anything else is no fault of a single claim."""


Given = ParamSpec("Given")


class Untried(NamedTuple):
    """Something that stays as it was, since what is seen could not be applied to it. what: "claim c1 of web". why: the
    fault, for whoever has to find it."""

    what: str
    why: str


class Trials:
    """Of changes of one draft. faults: of those that came to nothing."""

    def __init__(self, draft: Draft) -> None:
        self._draft, self._next = draft, self._blank(draft)
        self.faults: list[Untried] = []

    def make(
        self, what: str, change: Callable[Concatenate[Draft, Given], None], *given: Given.args, **named: Given.kwargs
    ) -> None:
        """All that `change` does, or nothing of it. what: it is about, for `Untried`."""
        try:
            change(self._next, *given, **named)
        except OURS as error:
            self.faults.append(Untried(what, f"{type(error).__name__} in {_way(error.__traceback__)}: {error}"))
        else:
            if self._next.book is self._draft.book:
                return
            self._draft.adopt(self._next.done())
        self._next = self._blank(self._draft)

    @staticmethod
    def _blank(draft: Draft) -> Draft:
        return Draft(draft.book, draft.now, draft.rules)


def told(faults: tuple[Untried, ...]) -> str | None:
    """One sentence for the operator; None: there is nothing to tell."""
    if not faults:
        return None
    named = some([f"{one.what} ({one.why})" for one in faults], 2, between="; ")
    return plain(
        f"What is seen could not be applied to {count(len(faults), 'claim or guest', 'claims or guests')}, which"
        f" {agrees(faults, 'stays', 'stay')} as before: {named}. All others are as they should be. Please report this"
    )


def _way(where: TracebackType | None) -> str:
    """From the change that was tried to the function that failed."""
    names = []
    while where is not None:
        names.append(where.tb_frame.f_code.co_name)
        where = where.tb_next
    return " > ".join(names[1:])
