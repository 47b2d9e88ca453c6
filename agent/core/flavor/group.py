"""What a request says of a server group and means nothing."""

from __future__ import annotations

import uuid

from agent.core.flavor.reading import Reading
from agent.core.instance import Group
from agent.core.words import brief, some

_UNLESS_TOLD = Group(id="").max_server_per_host


def note_group(reading: Reading, group: Group | None) -> None:
    """Note what has no effect."""
    if group is None:
        return
    name, most = brief(group.id, 80), group.max_server_per_host
    if most != _UNLESS_TOLD and group.policy != "anti-affinity":
        reading.note(f"max_server_per_host={most} of group {name} has no effect: it is for policy anti-affinity alone.")
    if group.hosts and group.policy not in {"affinity", "soft-affinity"}:
        reading.note(f"hosts of group {name} have no effect: they are for policies affinity and soft-affinity alone.")
    nobody = [brief(member, 80) for member in group.members if not _is_uuid(member)]
    if nobody:
        reading.note(f"Members of group {name} that are no uuids are no guests: {some(nobody)}.")


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
