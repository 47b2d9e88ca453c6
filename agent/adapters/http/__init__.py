"""The local API: HTTP on two UNIX sockets, one that may change things and one that only reads."""

from agent.adapters.http.server import Handler, Limits, LocalApi, Refuse
from agent.core.places import FULL_SOCKET, READ_ONLY_SOCKET

__all__ = ["FULL_SOCKET", "READ_ONLY_SOCKET", "Handler", "Limits", "LocalApi", "Refuse"]
