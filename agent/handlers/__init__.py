"""What is served: the methods, the paths of the local API, and the codes of their refusals."""

from agent.handlers.answer import EPOCH_HEADER, GENERATION_HEADER, Handlers
from agent.handlers.claims import ClaimsAtWork
from agent.handlers.reads import LatestHostFacts
from agent.handlers.routes import PATHS, PROBES, TABLE
from agent.handlers.statuses import STATUS_OF

__all__ = [
    "EPOCH_HEADER",
    "GENERATION_HEADER",
    "PATHS",
    "PROBES",
    "STATUS_OF",
    "TABLE",
    "ClaimsAtWork",
    "Handlers",
    "LatestHostFacts",
]
