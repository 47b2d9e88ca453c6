"""Every method that is served, one dict in and one envelope out; and the same methods as paths of the local API.

A method never raises for a refusal. What it reads is of one picture of the host.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from agent.core.claim.values import Moment
from agent.core.dry_run import try_fit
from agent.core.flavor import Faults
from agent.core.report import Report
from agent.core.snapshot import Snapshot
from agent.core.words import brief, field, plain
from agent.errors import FaultyInput
from agent.formats.claim_forms import Nothing
from agent.formats.envelope import (
    INVALID,
    VERSION,
    ApiRequest,
    ApiResponse,
    Envelope,
    Refusal,
    contradictory,
    invalid,
    refused,
    respond,
    success,
)
from agent.formats.fit_answer import digested, fit_document
from agent.formats.fit_form import fit_form
from agent.formats.route import Found, Route
from agent.formats.validate import decoded, shown, validated
from agent.handlers.claims import ClaimCalls, ClaimsAtWork
from agent.handlers.reads import LatestHostFacts, Reads
from agent.handlers.routes import CLAIMS, PROBES, TABLE
from agent.handlers.statuses import NOT_READY, UNSUPPORTED, retry_of, status_of

LOG = logging.getLogger(__name__)

EPOCH_HEADER, GENERATION_HEADER = "X-Compute-Agent-Epoch", "X-Compute-Agent-Generation"
"""Of which start and picture a probe's answer is, whose body has no place for it."""

_OF_CLAIMS = frozenset(route.call for route in CLAIMS)


class Handlers:
    """snapshot: the current picture. clock: monotonic seconds. now: wall time, RFC 3339; wall_s: the same in seconds
    since 1970. interval_s: of the passes, which says how old a source may be. alive: None, or why passes no longer
    end. claims: None where nothing is promised. why_not_stored: why nothing can be stored now, None: it can."""

    def __init__(
        self,
        *,
        snapshot: Callable[[], Snapshot],
        clock: Callable[[], float],
        now: Callable[[], str],
        interval_s: Callable[[], float],
        alive: Callable[[], str | None],
        claims: ClaimsAtWork | None = None,
        wall_s: Callable[[], float] = time.time,
        why_not_stored: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._snapshot, self._clock, self._now, self._wall_s = snapshot, clock, now, wall_s
        self._alive, self._why_not_stored = alive, why_not_stored
        self._reads = Reads(clock=clock, interval_s=interval_s, why_closed=self._why_closed)
        self._facts = LatestHostFacts()
        self._claims: ClaimCalls | None = None
        if claims is not None:
            self._claims = ClaimCalls(claims, snapshot=snapshot, moment=self._moment)

    def report(self) -> Report:
        """Everything of the current snapshot."""
        return self._reads.report(self._snapshot())

    def call(self, method: str, request: object = MappingProxyType({})) -> Envelope:
        """The answer of a method, whatever carried the request: plain dicts and lists (docs/api.md).

        Refused by name are methods that are not known, other versions than ours, and requests for another agent.
        """
        try:
            return self._called(method, self._opened(request))
        except FaultyInput as error:
            return self._refuse(self._snapshot(), invalid(error.faults))

    def fit(self, request: object) -> Envelope:
        """Whether a guest fits now, of one picture: `FitAnswer`. request: plain dicts and lists (docs/fit.md).

        Refused with AgentNotReady until the host is known, and with InvalidRequest and a reason for each fault.
        """
        return self.call("fit", request)

    def refuse(self, code: str, message: str, status: int) -> ApiResponse:
        """The local API's answer to a request that is not served: by a handler, or by the server before any saw it."""
        return respond(self._refuse(self._snapshot(), _unseen(code, message, status)), status)

    def answer(self, request: ApiRequest) -> ApiResponse:
        """The local API: the rows of TABLE, and the three probes by GET and HEAD. A change leaves a line in the log."""
        parts = request.parts if request.parts is not None else tuple(request.path.split("/"))
        found = TABLE.find(request.method, parts)
        if found is None:
            return self._unrouted(request, parts)
        asked: dict[str, Any] = {}
        fault = _fault(found.route, request)
        if fault is None:
            try:
                asked = _request(found, request)
                told = self.call(found.route.call, asked)
            except FaultyInput as error:
                told = self._refuse(self._snapshot(), invalid(error.faults))
            answer = respond(told, HTTPStatus.OK if told.refusal is None else status_of(told.refusal.code))
            code = "ok" if told.refusal is None else told.refusal.code
        else:
            answer, code = self.refuse(INVALID, fault[1], fault[0]), INVALID
        if found.route.work == "change":
            _log(request, asked, code)
        return answer

    # --- methods -----------------------------------------------------------------------------

    def _called(self, method: str, request: dict[str, Any] | Refusal) -> Envelope:
        if isinstance(request, Refusal):
            return self._refuse(self._snapshot(), request)
        if method in self._reads.methods:
            return self._read(method, request)
        if method == "fit":
            return self._fit(request)
        if method in _OF_CLAIMS:
            answer = _no_claims() if self._claims is None else self._claims.methods[method](request)
            snapshot = self._snapshot()
            if isinstance(answer, Refusal):
                return self._refuse(snapshot, answer)
            return success(snapshot.identity, snapshot.generation, self._now(), answer)
        message = f"there is no method {method!r}; known are {', '.join(sorted({r.call for r in TABLE.routes}))}"
        return self._refuse(self._snapshot(), Refusal(code=INVALID, message=message))

    def _opened(self, request: object) -> dict[str, Any] | Refusal:
        """The request without what is of its envelope."""
        if not isinstance(request, Mapping):
            validated(request, Nothing)  # which says what was found instead of an object
        inner = dict(request) if isinstance(request, Mapping) else {}
        version, wanted = inner.pop("v", VERSION), inner.pop("expected_agent_id", None)
        own = self._snapshot().identity.agent_id if wanted is not None else None
        if type(version) is not int or version != VERSION:
            message = f"v: {shown(version)} is not known here; {VERSION} is"
            return Refusal(code=UNSUPPORTED, message=message)
        if wanted != own:
            message = f"expected_agent_id: this is agent {own}, not {shown(wanted)}"
            return Refusal(code=INVALID, message=message)
        return inner

    def _read(self, method: str, request: dict[str, Any]) -> Envelope:
        validated(request, Nothing)
        snapshot = self._snapshot()
        if method == "get_snapshot" and not snapshot.complete:
            return self._refuse(snapshot, self._refusal_of(snapshot))
        return success(snapshot.identity, snapshot.generation, self._now(), self._reads.methods[method](snapshot))

    def _fit(self, request: dict[str, Any]) -> Envelope:
        snapshot = self._snapshot()
        refusal = self._not_ready(snapshot)
        if refusal is None and self._claims is not None:
            refusal = self._claims.not_ready(snapshot)
        if refusal is not None:
            return self._refuse(snapshot, refusal)
        spec = fit_form(request)
        answer = try_fit(spec, snapshot, self._facts.of(snapshot), kind=spec.kind, replaces=spec.replaces)
        if isinstance(answer, Faults):
            return self._refuse(snapshot, contradictory(answer.faults))
        document = fit_document(digested(answer, spec, spec.kind))
        return success(snapshot.identity, snapshot.generation, self._now(), document)

    # --- paths -------------------------------------------------------------------------------

    def _unrouted(self, request: ApiRequest, parts: tuple[str, ...]) -> ApiResponse:
        is_probe = request.path in PROBES
        if is_probe and request.method in ("GET", "HEAD"):
            return self._probe(request.path)
        methods = ("GET", "HEAD") if is_probe else TABLE.methods(parts)
        if methods:
            message = f"{request.method} {request.path}: only {' and '.join(methods)}"
            return self._refused(message, HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": ", ".join(methods)})
        known = dict.fromkeys(route.path for route in TABLE.routes)
        message = f"there is no {request.path!r}; known are {', '.join([*known, *PROBES])}"
        return self._refused(message, HTTPStatus.NOT_FOUND, {})

    def _refused(self, message: str, status: int, headers: Mapping[str, str]) -> ApiResponse:
        return respond(self._refuse(self._snapshot(), Refusal(code=INVALID, message=message)), status, headers)

    def _probe(self, path: str) -> ApiResponse:
        snapshot = self._snapshot()
        reasons = self._reasons(path, snapshot)
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        text = "\n".join(plain(reason) for reason in reasons) if reasons else "ok"
        return ApiResponse(
            body=f"{text}\n".encode(),
            status=status,
            content_type="text/plain; charset=utf-8",
            headers=MappingProxyType(
                {EPOCH_HEADER: str(snapshot.identity.epoch), GENERATION_HEADER: str(snapshot.generation)}
            ),
        )

    def _reasons(self, path: str, snapshot: Snapshot) -> tuple[str, ...]:
        stuck = self._alive()
        if path == "/livez" or stuck is not None:
            return () if stuck is None else (stuck,)
        found = self._reads.health(snapshot)
        if path == "/readyz":
            return () if found.ready else (found.reasons or ("the first complete look at the host is not done yet",))
        return found.reasons if found.status == "down" else ()

    # --- refusals ----------------------------------------------------------------------------

    def _not_ready(self, snapshot: Snapshot) -> Refusal | None:
        return None if self._reads.is_known(snapshot) else self._refusal_of(snapshot)

    def _why_closed(self, snapshot: Snapshot) -> str | None:
        refusal = None if self._claims is None else self._claims.not_ready(snapshot)
        return self._why_not_stored() or (None if refusal is None else refusal.message)

    def _refusal_of(self, snapshot: Snapshot) -> Refusal:
        message = "The host is not known well enough to answer yet; ask again soon."
        return Refusal(code=NOT_READY, message=message, retry="later", reasons=self._reasons("/readyz", snapshot))

    def _refuse(self, snapshot: Snapshot, refusal: Refusal) -> Envelope:
        return refused(snapshot.identity, snapshot.generation, self._now(), refusal)

    def _moment(self, snapshot: Snapshot) -> Moment:
        return Moment(
            boot_id=snapshot.identity.boot_id, monotonic_s=self._clock(), wall_s=self._wall_s(), wall=self._now()
        )


def _no_claims() -> Refusal:
    return Refusal(code=NOT_READY, message="This agent only looks at its host and promises nothing.", retry="elsewhere")


def _unseen(code: str, message: str, status: int) -> Refusal:
    retry = "later" if status == HTTPStatus.REQUEST_TIMEOUT else retry_of(code)
    return Refusal(code=code, message=message, retry=retry)


def _fault(route: Route, request: ApiRequest) -> tuple[HTTPStatus, str] | None:
    """What is wrong with how it was sent, before its content is looked at."""
    if route.work == "change" and not request.writable:
        message = f"{request.method} {request.path}: this socket only reads; agent.sock in the same folder takes it"
        return HTTPStatus.METHOD_NOT_ALLOWED, message
    if route.asks is None and (request.query or request.body):
        return HTTPStatus.BAD_REQUEST, f"{request.path} takes no query and no body"
    if request.query:
        return HTTPStatus.BAD_REQUEST, f"{request.path} takes no query"
    if len(request.body) > route.longest_body:
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body is longer than {route.longest_body} bytes."
    if request.body and not _is_json(route, request.content_type):
        message = "The body must be JSON, and said to be so: Content-Type: application/json (curl has --json for it)."
        return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message
    return None


def _is_json(route: Route, content_type: str | None) -> bool:
    """What changes nothing may also come as curl sends it when nothing is said."""
    kind, _, parameters = (content_type or "").partition(";")
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if kind.strip().lower() == "application/json":
        return charset in {"", "utf-8"}
    return route.work == "question" and kind.strip().lower() in {"", "application/x-www-form-urlencoded"}


def _request(found: Found, request: ApiRequest) -> dict[str, Any]:
    """The body, with the parameters of the path among its fields. Raises FaultyInput."""
    if found.route.asks is None or (not request.body.strip() and not found.route.needs_body):
        return dict(found.parameters)
    data = decoded(request.body, "The request")
    if not isinstance(data, dict):
        validated(data, Nothing)
    inner: dict[str, Any] = dict(data) if isinstance(data, dict) else {}
    for name, value in found.parameters.items():
        if inner.setdefault(name, value) != value:
            raise FaultyInput(f"{name}: another than in the path, which has {brief(value, 80)}; leave it out")
    return inner


def _log(request: ApiRequest, asked: Mapping[str, Any], code: str) -> None:
    named, peer = asked.get("claim_id"), request.peer
    claim_id = field(brief(named, 80)) if isinstance(named, str) else "-"
    LOG.info(
        "change method=%s path=%s claim=%s code=%s pid=%d uid=%d gid=%d",
        request.method, field(brief(request.path, 200)), claim_id, code, peer.pid, peer.uid, peer.gid,
    )  # fmt: skip
