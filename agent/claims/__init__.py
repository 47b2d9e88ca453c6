"""Claims at work: each call is one change of the books under the tracker's lock, and is told once the disk has it."""

from agent.claims.answers import Granted, GroupView
from agent.claims.work import Claims

__all__ = ["Claims", "Granted", "GroupView"]
