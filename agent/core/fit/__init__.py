"""Whether a guest fits a host, and where each of its cells, CPUs, pages and devices goes (docs/fit.md)."""

from __future__ import annotations

from agent.core.fit.decide import fit
from agent.core.fit.host import HostFacts, Offer, host_facts, offer_of
from agent.core.fit.rules import FitRules, NoFit
from agent.core.fit.take import PlacementBroken, take

__all__ = ["FitRules", "HostFacts", "NoFit", "Offer", "PlacementBroken", "fit", "host_facts", "offer_of", "take"]
