"""What the other values are made of: the frozen Struct, the read-only map, a problem of a source."""

from __future__ import annotations

from types import MappingProxyType

import msgspec

ReadOnlyMap = MappingProxyType
"""A read-only mapping; the codec writes it as an object and reads it back (agent.formats.wire)."""


class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all values. Subclasses repeat frozen=True, since mypy does not see it inherited."""


class Problem(Value, frozen=True, kw_only=True):
    """Something a source said that contradicts another, or could not say.

    source: where it was read (a path below the sysfs root, "libvirt capabilities", a guest's uuid).
    what: one sentence for the operator. values: what each side said, by source name. is_transient: it is of this moment
    alone (a file stayed busy, a device went away while it was read), so looking again may find what is left out.
    """

    source: str
    what: str
    values: ReadOnlyMap[str, str] = MappingProxyType({})
    is_transient: bool = False
