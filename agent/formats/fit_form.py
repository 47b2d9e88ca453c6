"""What POST /v1/fit takes: a guest as somebody orders it, and the kind of claim that is thought of."""

from __future__ import annotations

from agent.core.claim.values import ClaimKind
from agent.core.instance import RequestSpec
from agent.errors import FaultyInput
from agent.formats import request
from agent.formats.claim_forms import text_faults


class FitForm(RequestSpec, frozen=True, kw_only=True):
    """A guest, and by which way it would come. replaces: as of `ClaimContext`."""

    kind: ClaimKind = "build"
    replaces: str | None = None


def fit_form(data: object) -> FitForm:
    """Of plain dicts and lists. Raises FaultyInput as `request.from_plain`."""
    form = request.read(data, FitForm)
    if form.replaces is not None and (faults := tuple(text_faults(form.replaces, "replaces"))):
        raise FaultyInput(*faults)
    return form
