"""What outlives the daemon: who this agent is, how often it started, since when each conflict stands (sqlite)."""

from agent.adapters.journal.files import FILE, LAST_GOOD_FILE, SCHEMA_VERSION, STARTS_TO_SKIP
from agent.adapters.journal.lock import LOCK_FILE, StateLock
from agent.adapters.journal.store import Store
from agent.adapters.journal.writer import HANGS, HANGS_AFTER_S, Journal

__all__ = [
    "FILE",
    "HANGS",
    "HANGS_AFTER_S",
    "LAST_GOOD_FILE",
    "LOCK_FILE",
    "SCHEMA_VERSION",
    "STARTS_TO_SKIP",
    "Journal",
    "StateLock",
    "Store",
]
