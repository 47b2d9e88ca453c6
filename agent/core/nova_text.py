"""Small pieces of text as nova reads them, in its options as in flavors and images."""

from __future__ import annotations

import re

from agent.core.cpuset import CpuSet

_YES = frozenset({"1", "on", "t", "true", "y", "yes"})
_NO = frozenset({"0", "off", "f", "false", "n", "no"})
_AROUND_SIGNS = re.compile(r"(?<=[-^,])\s+|\s+(?=[-,])")


def yes_or_no(text: str) -> bool | None:
    """What the word means, in any case and with blanks around it; None where it is no such word."""
    word = text.strip().lower()
    return word in _YES if word in _YES | _NO else None


def cpu_list(text: str) -> CpuSet:
    """The numbers in "0 - 3, ^2": as `CpuSet.parse`, blanks around any sign allowed."""
    return CpuSet.parse(_AROUND_SIGNS.sub("", text))
