"""Exceptions that cross modules.

AgentError
├── ConfigError        an option is wrong: the daemon does not start, a reload is not taken
├── HostReadError      a file or call of the host gave nothing usable
├── FormatError        outside text that is not what it should be (domain XML, capabilities)
├── FaultyInput        what somebody wrote for us (a request, a snapshot) is wrong; one sentence for each fault
├── WireError          a payload of the API or the journal that does not parse
├── LibvirtError       libvirt is out of reach, or refused
│   ├── LibvirtUnavailable   no connection: stopped, no socket, no permission
│   ├── LibvirtTimeout       a call did not come back in its time
│   └── DomainGone           the domain is not there (any more)
├── JournalError       the journal cannot be read or written
│   └── JournalTooNew        a newer release wrote it
├── TwinRunning        another agent uses the same state folder
├── ApiUnavailable     this agent cannot serve its local API
├── DaemonUnavailable  the agent's socket is missing, refused, or not ours
└── RequestRefused     the agent answered no
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


class AgentError(Exception):
    """Root of all; its text says what, where, found, and what to do."""


class ConfigError(AgentError):
    """One or more options are wrong; `faults` has one sentence for each."""

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class HostReadError(AgentError):
    """A file or call of the host gave nothing usable."""


class FormatError(AgentError):
    """Outside text that is not what it should be."""


class FaultyInput(AgentError):
    """What somebody wrote for us is wrong; `faults` has one sentence for each, with the path of its field."""

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class WireError(AgentError):
    """A payload that does not parse; names the field."""


class LibvirtError(AgentError):
    """libvirt is out of reach, or refused."""


class LibvirtUnavailable(LibvirtError):
    """No connection to libvirt."""


class LibvirtTimeout(LibvirtError):
    """A call did not come back in its time."""


class DomainGone(LibvirtError):
    """The domain is not there (any more)."""


class JournalError(AgentError):
    """The journal cannot be read or written."""


class JournalTooNew(JournalError):
    """A newer release wrote the journal, so this one must not touch it."""


class TwinRunning(AgentError):
    """Another agent uses the same state folder."""


class ApiUnavailable(AgentError):
    """This agent cannot serve its local API: descriptors or threads ran out."""


class DaemonUnavailable(AgentError):
    """The agent's socket is missing, refused, or not an agent's."""


class RequestRefused(AgentError):
    """The agent answered no; `code`, `retry`, `reasons` and `claim_id` are those of the refusal, `document` is all of
    it as plain data."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        retry: str,
        reasons: tuple[str, ...] = (),
        claim_id: str | None = None,
        document: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retry = retry
        self.reasons = reasons
        self.claim_id = claim_id
        self.document = document
