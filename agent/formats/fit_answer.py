"""The yes or no of a fit as JSON: only the keys that belong to it."""

from __future__ import annotations

from typing import Any

import msgspec

from agent.core.claim.values import ClaimKind
from agent.core.dry_run import CountAnswer, FitAnswer
from agent.core.instance import RequestSpec
from agent.formats import wire
from agent.formats.digest import digest_of

OF_YES = frozenset({"placement"})
OF_NO = frozenset({"reasons", "relaxations", "untried"})


def digested(answer: FitAnswer, spec: RequestSpec, kind: ClaimKind = "build") -> FitAnswer:
    """The answer with the digest of what was asked for, as a claim of this kind would carry it."""
    if answer.binding is None:
        return answer
    return msgspec.structs.replace(answer, digest=digest_of(kind, spec.instance.uuid, answer.binding, spec.group))


def fit_document(answer: FitAnswer) -> dict[str, Any]:
    """{"fits": true, "placement": {...}} or {"fits": false, "reasons": [...], "relaxations": [...]}, and what is said
    of both. `wire.from_builtins` reads it back."""
    left_out = OF_NO if answer.fits else OF_YES
    return {name: value for name, value in wire.to_builtins(answer).items() if name not in left_out}


def empty_fields(answer: FitAnswer | CountAnswer) -> dict[str, Any]:
    """What the other answer to the same question has, each as empty as it would be here."""
    of_one: dict[str, Any] = {} if isinstance(answer, CountAnswer) else {"placement": None}
    return {**of_one, "reasons": [], "relaxations": [], "untried": 0}


def count_document(answer: CountAnswer) -> dict[str, Any]:
    """{"fits": ..., "asked": N, "count": how many, "placements": [...]}; and why not one more when not all fit."""
    document = fit_document(answer.last)
    for of_one_guest in ("placement", "binding", "digest"):
        document.pop(of_one_guest, None)
    counted = {"fits": answer.fits, "asked": answer.asked, "count": len(answer.placements)}
    return {**counted, "placements": wire.to_builtins(answer.placements), **document, "fits": answer.fits}
