"""Codes of refusals: what each means over HTTP, and whether asking again can help."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType

from agent.formats.envelope import INVALID, Retry

UNSUPPORTED = "UnsupportedVersion"
NOT_READY = "AgentNotReady"
NO_JOURNAL = "JournalUnavailable"
INTERNAL = "InternalError"

STATUS_OF: Mapping[str, int] = MappingProxyType(
    {
        INVALID: HTTPStatus.BAD_REQUEST,
        UNSUPPORTED: HTTPStatus.BAD_REQUEST,
        "ClaimNotFound": HTTPStatus.NOT_FOUND,
        "ClaimConflict": HTTPStatus.CONFLICT,
        "InstanceBusy": HTTPStatus.CONFLICT,
        "IllegalTransition": HTTPStatus.CONFLICT,
        "ComputeResourcesUnavailable": HTTPStatus.CONFLICT,
        "GroupAffinityViolation": HTTPStatus.CONFLICT,
        "PciRequestError": HTTPStatus.CONFLICT,
        "ClaimEnded": HTTPStatus.GONE,
        INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
        NOT_READY: HTTPStatus.SERVICE_UNAVAILABLE,
        NO_JOURNAL: HTTPStatus.SERVICE_UNAVAILABLE,
        "HostInMaintenance": HTTPStatus.SERVICE_UNAVAILABLE,
    }
)
"""By code. What is refused for the way in which it was sent (path, method, size, type) has a status of its own."""

_LATER = frozenset({NOT_READY, NO_JOURNAL})


def status_of(code: str) -> int:
    """The status of a refusal."""
    return STATUS_OF.get(code, HTTPStatus.BAD_REQUEST)


def retry_of(code: str) -> Retry:
    """Of a request that no method has seen."""
    return "later" if code in _LATER else "never"
