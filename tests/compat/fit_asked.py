"""A case put to both sides."""

from __future__ import annotations

from agent.core.placement import Placement
from agent.formats.wire import to_builtins
from tests.compat.fit_cases import Case
from tests.compat.fit_differences import Seen
from tests.compat.fit_ours import in_novas_terms, ours
from tests.compat.nova_process import Ask

NOVA = "tests.compat.nova_fit"


def see(case: Case, ask: Ask) -> Seen:
    """What nova says, what we say, and what nova says of that."""
    plain = to_builtins(case)
    answer = ours(case)
    given = in_novas_terms(case, answer) if isinstance(answer, Placement) else None
    return Seen(
        case=case,
        nova=ask({"ask": "fit", "case": plain}),
        each=ask({"ask": "each", "case": plain}),
        check=None if given is None else ask({"ask": "check", "case": {**plain, "given": given}}),
        given=given,
    )
