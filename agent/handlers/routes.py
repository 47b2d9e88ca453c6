"""What is served: one row for each path of the local API, and with it each method of RPC."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from agent.core.conflicts import Conflict
from agent.core.dry_run import FitAnswer
from agent.core.report import Health, Report
from agent.core.topology import HostTopology
from agent.core.values import Value
from agent.formats import claim_forms as forms
from agent.formats import claim_view as view
from agent.formats.claim_request import ClaimForm
from agent.formats.fit_form import FitForm
from agent.formats.request import LONGEST_REQUEST
from agent.formats.route import Route, Table
from agent.formats.snapshot_file import FullSnapshot
from agent.handlers.reads import Domains, UsageAnswer

SHORT = 16 * 1024
"""Bytes of a request that holds but a few words."""

LONGEST_CLAIM = LONGEST_REQUEST
LONGEST_GROUP = 512 * 1024
"""Bytes; the most members and hosts that are taken, with names of the longest."""

READS = (
    Route("GET", "/v1/topology", "get_inventory", "read", "What the host has", HostTopology),
    Route("GET", "/v1/domains", "get_domains", "read", "All domains and what each holds", Domains),
    Route("GET", "/v1/usage", "get_usage", "read", "What is had, used, promised and free", UsageAnswer),
    Route("GET", "/v1/conflicts", "get_conflicts", "read", "What contradicts itself", tuple[Conflict, ...]),
    Route("GET", "/v1/health", "get_health", "read", "How far the answers can be relied on", Health),
    Route("GET", "/v1/report", "get_report", "read", "Everything of one picture", Report),
    Route("GET", "/v1/snapshot", "get_snapshot", "read", "All that answers follow from", FullSnapshot,
          refuses=("AgentNotReady",)),
)  # fmt: skip
"""Of the current picture alone."""

_ADMITS = (
    "ComputeResourcesUnavailable", "GroupAffinityViolation", "PciRequestError", "HostInMaintenance",
    "AgentNotReady", "JournalUnavailable",
)  # fmt: skip
_OF_CLAIM = ("ClaimNotFound", "ClaimEnded", "IllegalTransition", "AgentNotReady", "JournalUnavailable")
_CHANGES = ("AgentNotReady", "JournalUnavailable")


def _of_claim(verb: str, call: str, summary: str, asks: type[Value], *codes: str, longest: int = SHORT) -> Route:
    refuses = (*_OF_CLAIM, *(code for code in codes if code not in _OF_CLAIM))
    path = f"/v1/claims/{{claim_id}}/{verb}"
    return Route("POST", path, call, "change", summary, view.ClaimAnswer, asks, refuses=refuses, longest_body=longest)


CLAIMS = (
    Route("GET", "/v1/claims", "list_claims", "read", "All claims that hold", view.ClaimList),
    Route("POST", "/v1/claims", "claim", "change", "May this guest come, or change here: and hold its place",
          view.ClaimAnswer, ClaimForm, needs_body=True, longest_body=LONGEST_CLAIM,
          refuses=("ClaimConflict", "ClaimEnded", "ClaimNotFound", "IllegalTransition", "InstanceBusy", *_ADMITS)),
    Route("GET", "/v1/claims/{claim_id}", "get_claim", "read", "What became of a claim", view.ClaimAnswer,
          refuses=("ClaimNotFound",)),
    _of_claim("recheck", "recheck_claim", "Right before the move: does it still agree with its group", forms.Recheck,
              *_ADMITS, longest=LONGEST_GROUP),
    _of_claim("confirm", "confirm_claim", "The guest is here, or runs as changed", forms.OfClaim),
    _of_claim("renew", "renew_claim", "More time until the guest has to be here", forms.Renewal),
    _of_claim("abort", "abort_claim", "The guest does not come", forms.End),
    _of_claim("release", "release_claim", "The guest is not to be here any more", forms.End),
    _of_claim("accept-observed", "accept_observed", "What is seen of the guest counts, not what was promised",
              forms.OfClaim),
    Route("GET", "/v1/moves/{move_id}", "get_move", "read", "What became of a move", view.MoveView,
          refuses=("ClaimNotFound",)),
    Route("POST", "/v1/moves/{move_id}/hold", "hold_for_move", "change", "The guest is about to leave this host",
          view.ClaimAnswer, forms.Hold, needs_body=True, longest_body=SHORT,
          refuses=("ClaimConflict", "InstanceBusy", *_OF_CLAIM)),
    Route("POST", "/v1/moves/{move_id}/finish", "finish_move", "change", "How the move ended", view.MoveView,
          forms.Finish, needs_body=True, longest_body=SHORT, refuses=_OF_CLAIM),
    Route("GET", "/v1/groups/{id}", "get_group", "read", "What is known of a server group here", view.GroupInfo,
          refuses=("ClaimNotFound",)),
    Route("PUT", "/v1/groups/{id}", "set_group", "change", "Who is in a server group, and its policy", view.GroupInfo,
          forms.GroupForm, needs_body=True, longest_body=LONGEST_GROUP, refuses=_CHANGES),
    Route("GET", "/v1/maintenance", "get_maintenance", "read", "Whether new guests are refused",
          view.MaintenanceView),
    Route("PUT", "/v1/maintenance", "set_maintenance", "change", "Refuse new guests, or take them again",
          view.MaintenanceView, forms.MaintenanceForm, needs_body=True, longest_body=SHORT, refuses=_CHANGES),
    Route("POST", "/v1/instances/{uuid}/forget", "forget_instance", "change", "The instance lives elsewhere now",
          view.DepartureView, forms.Forget, longest_body=SHORT,
          refuses=("ClaimNotFound", "IllegalTransition", *_CHANGES)),
    Route("POST", "/v1/devices/{address}/offer-again", "offer_again", "change", "A device for one use is clean again",
          view.OfferedView, forms.OfDevice, longest_body=SHORT, refuses=("IllegalTransition", *_CHANGES)),
    Route("POST", "/v1/journal/accept", "accept_journal", "change", "Go on with what is left of a damaged journal",
          view.Accepted, forms.Nothing, longest_body=SHORT, refuses=_CHANGES),
)  # fmt: skip
"""Of what was promised."""

FIT = Route(
    "POST",
    "/v1/fit",
    "fit",
    "question",
    "Whether a guest fits now, and where or why not",
    FitAnswer,
    FitForm,
    needs_body=True,
    refuses=("AgentNotReady",),
    longest_body=LONGEST_REQUEST,
)

TABLE = Table((*READS, FIT, *CLAIMS))

PATHS: Mapping[str, str] = MappingProxyType({route.path: route.call for route in READS})
"""Which method answers a GET of the picture."""

PROBES = ("/healthz", "/livez", "/readyz")
