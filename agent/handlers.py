"""The methods that are served: one dict of a request in, one envelope out, whatever carried it.

A handler never raises for a refusal, and reads one snapshot for its whole answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from types import MappingProxyType

from agent.core.dry_run import try_fit
from agent.core.fit.host import HostFacts, host_facts
from agent.core.flavor import Faults
from agent.core.host_config import HostConfig
from agent.core.report import Health, Report, guests, health, inventory, report
from agent.core.snapshot import Snapshot
from agent.core.topology import HostTopology
from agent.core.words import plain
from agent.errors import FaultyInput
from agent.formats import request as request_format
from agent.formats import wire
from agent.formats.envelope import (
    INVALID,
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
from agent.formats.snapshot_file import saved
from agent.formats.validate import decoded

PATHS: Mapping[str, str] = MappingProxyType(
    {
        "/v1/topology": "get_inventory",
        "/v1/domains": "get_domains",
        "/v1/usage": "get_usage",
        "/v1/conflicts": "get_conflicts",
        "/v1/health": "get_health",
        "/v1/report": "get_report",
        "/v1/snapshot": "get_snapshot",
    }
)
"""Which method answers a GET of the local API."""

QUESTIONS: Mapping[str, str] = MappingProxyType({"/v1/fit": "fit"})
"""Which method answers a POST that changes nothing."""

STATUS_OF: Mapping[str, int] = MappingProxyType({"AgentNotReady": HTTPStatus.SERVICE_UNAVAILABLE})
"""By the code of a refusal; 400 for all others."""

PROBES = ("/healthz", "/livez", "/readyz")

EPOCH_HEADER, GENERATION_HEADER = "X-Compute-Agent-Epoch", "X-Compute-Agent-Generation"
"""Of which start and picture a probe's answer is, whose body has no place for it."""


class Handlers:
    """snapshot: the current picture. clock: monotonic seconds. now: wall time, RFC 3339. interval_s: of the passes,
    which says how old a source may be. alive: None, or why passes no longer end."""

    def __init__(
        self,
        *,
        snapshot: Callable[[], Snapshot],
        clock: Callable[[], float],
        now: Callable[[], str],
        interval_s: Callable[[], float],
        alive: Callable[[], str | None],
    ) -> None:
        self._snapshot, self._clock, self._now = snapshot, clock, now
        self._interval_s, self._alive = interval_s, alive
        self._methods: dict[str, Callable[[Snapshot], object]] = {
            "get_inventory": inventory,
            "get_domains": lambda snapshot: {"domains": guests(snapshot, now_s=self._clock())},
            "get_usage": _usage_document,
            "get_conflicts": lambda snapshot: snapshot.conflicts,
            "get_health": self._health,
            "get_report": self._report,
            "get_snapshot": saved,
        }
        self._questions: dict[str, Callable[[object], Envelope]] = {"fit": self.fit}
        self._facts = LatestHostFacts()

    def report(self) -> Report:
        """Everything of the current snapshot."""
        return self._report(self._snapshot())

    def call(self, method: str) -> Envelope:
        """The answer of a reading method; unknown ones are refused by name, as is a picture that has not been taken."""
        snapshot = self._snapshot()
        answer = self._methods.get(method)
        if method == "get_snapshot" and not snapshot.complete:
            return self._refuse(snapshot, self._not_ready(snapshot))
        if answer is None:
            message = f"there is no method {method!r}; known are {', '.join(sorted(self._methods))}"
            return self._refuse(snapshot, Refusal(code=INVALID, message=message))
        return success(snapshot.identity, snapshot.generation, self._now(), answer(snapshot))

    def fit(self, request: object) -> Envelope:
        """Whether a guest fits now, of one picture: `FitAnswer`. request: plain dicts and lists (docs/fit.md).

        Refused with AgentNotReady until the host is known, and with InvalidRequest and a reason for each fault.
        """
        snapshot = self._snapshot()
        if not self._health(snapshot).ready:
            return self._refuse(snapshot, self._not_ready(snapshot))
        try:
            spec = request_format.from_plain(request)
        except FaultyInput as error:
            return self._refuse(snapshot, invalid(error.faults))
        answer = try_fit(spec, snapshot, self._facts.of(snapshot))
        if isinstance(answer, Faults):
            return self._refuse(snapshot, contradictory(answer.faults))
        document = fit_document(digested(answer, spec))
        return success(snapshot.identity, snapshot.generation, self._now(), document)

    def refuse(self, code: str, message: str, status: int) -> ApiResponse:
        """The local API's answer to a request that is not served: by a handler, or by the server before any saw it."""
        return respond(self._refuse(self._snapshot(), Refusal(code=code, message=message)), status)

    def answer(self, request: ApiRequest) -> ApiResponse:
        """The local API: paths of PATHS and the three probes by GET and HEAD, those of QUESTIONS by POST."""
        if request.path in QUESTIONS:
            return self._question(request)
        if request.method not in ("GET", "HEAD"):
            message = f"{request.method} {request.path}: only GET and HEAD"
            return self.refuse(INVALID, message, HTTPStatus.METHOD_NOT_ALLOWED)
        if request.path in PROBES:
            return self._probe(request.path)
        if request.path not in PATHS:
            message = f"there is no {request.path!r}; known are {', '.join([*PATHS, *QUESTIONS, *PROBES])}"
            return self.refuse(INVALID, message, HTTPStatus.NOT_FOUND)
        if request.query or request.body:
            message = f"{request.path} takes no query and no body"
            return self.refuse(INVALID, message, HTTPStatus.BAD_REQUEST)
        return _responded(self.call(PATHS[request.path]))

    def _question(self, request: ApiRequest) -> ApiResponse:
        if request.method != "POST":
            message = f"{request.method} {request.path}: only POST"
            return self.refuse(INVALID, message, HTTPStatus.METHOD_NOT_ALLOWED)
        if request.query:
            return self.refuse(INVALID, f"{request.path} takes no query", HTTPStatus.BAD_REQUEST)
        if len(request.body) > request_format.LONGEST_REQUEST:
            message = f"The body is longer than {request_format.LONGEST_REQUEST} bytes."
            return self.refuse(INVALID, message, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        try:
            asked = decoded(request.body, "The request")
        except FaultyInput as error:
            return self.refuse(INVALID, str(error), HTTPStatus.BAD_REQUEST)
        return _responded(self._questions[QUESTIONS[request.path]](asked))

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
        found = self._health(snapshot)
        if path == "/readyz":
            return () if found.ready else (found.reasons or ("the first complete look at the host is not done yet",))
        return found.reasons if found.status == "down" else ()

    def _health(self, snapshot: Snapshot) -> Health:
        return health(snapshot, now_s=self._clock(), interval_s=self._interval_s())

    def _report(self, snapshot: Snapshot) -> Report:
        return report(snapshot, now_s=self._clock(), interval_s=self._interval_s())

    def _not_ready(self, snapshot: Snapshot) -> Refusal:
        message = "The host is not known well enough to answer yet; ask again soon."
        return Refusal(code="AgentNotReady", message=message, retry="later", reasons=self._reasons("/readyz", snapshot))

    def _refuse(self, snapshot: Snapshot, refusal: Refusal) -> Envelope:
        return refused(snapshot.identity, snapshot.generation, self._now(), refusal)


class LatestHostFacts:
    """The facts of the latest host that was asked about: they hold as long as topology and configuration are the very
    same objects."""

    def __init__(self) -> None:
        self._known: tuple[HostTopology, HostConfig, HostFacts] | None = None

    def of(self, snapshot: Snapshot) -> HostFacts:
        """The facts of this snapshot; from any thread."""
        known = self._known
        if known is None or known[0] is not snapshot.topology or known[1] is not snapshot.config:
            facts = host_facts(snapshot.topology, snapshot.config)
            self._known = known = (snapshot.topology, snapshot.config, facts)
        return known[2]


def _responded(envelope: Envelope) -> ApiResponse:
    refusal = envelope.refusal
    return respond(envelope, HTTPStatus.OK if refusal is None else STATUS_OF.get(refusal.code, HTTPStatus.BAD_REQUEST))


def _usage_document(snapshot: Snapshot) -> dict[str, object]:
    usage: dict[str, object] = wire.to_builtins(snapshot.usage)
    return {"epoch": snapshot.identity.epoch, "generation": snapshot.generation, **usage}
