"""What outlives the daemon: who this agent is, what was promised, since when each conflict stands (sqlite)."""

from agent.adapters.journal.files import FILE, LAST_GOOD_FILE, STARTS_TO_SKIP
from agent.adapters.journal.history import read_steps
from agent.adapters.journal.lock import LOCK_FILE, StateLock
from agent.adapters.journal.mark import MARK_FILE
from agent.adapters.journal.schema import SCHEMA_VERSION
from agent.adapters.journal.store import Store, Stored
from agent.adapters.journal.writer import ENDED, HANGS, HANGS_AFTER_S, LAZY_S, RETRY_S, Journal

__all__ = [
    "ENDED",
    "FILE",
    "HANGS",
    "HANGS_AFTER_S",
    "LAST_GOOD_FILE",
    "LAZY_S",
    "LOCK_FILE",
    "MARK_FILE",
    "RETRY_S",
    "SCHEMA_VERSION",
    "STARTS_TO_SKIP",
    "Journal",
    "StateLock",
    "Store",
    "Stored",
    "read_steps",
]
