"""What the policy of a server group says of one more member on this host.

Anti-affinity is a question about this host alone. Affinity is not: a host does not know where else members are, so it
is left to whoever knows all hosts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agent.core.guest import Sighting
from agent.core.holds import owner_of
from agent.core.instance import Group
from agent.core.reasons import GroupViolated


def group_reasons(group: Group | None, uuid: str, sightings: Mapping[str, Sighting]) -> Iterator[GroupViolated]:
    """Why the guest `uuid` may not come; itself it never counts, a member that is shut off here does."""
    if group is None or group.policy != "anti-affinity":
        return
    here = tuple(sorted(member for member in set(group.members) - {uuid} if member in sightings))
    if len(here) >= group.max_server_per_host:
        members = tuple(owner_of(sightings[uuid]) for uuid in here)
        yield GroupViolated(group=group.id, policy=group.policy, members=members, limit=group.max_server_per_host)


def unchecked(group: Group | None) -> str | None:
    """What of the group's policy was not looked at, one sentence; None when all was."""
    if group is None or group.policy in {None, "anti-affinity"}:
        return None
    if group.policy == "affinity":
        return f"policy affinity of group {group.id} is not checked: one host does not know where other members are"
    return f"policy {group.policy} of group {group.id} is a wish for the choice among hosts, and never refuses one"
