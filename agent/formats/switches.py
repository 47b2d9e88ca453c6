"""Yes or no, in any of the words that nova takes for it."""

from __future__ import annotations

YES = frozenset({"1", "t", "true", "on", "y", "yes"})
NO = frozenset({"0", "f", "false", "off", "n", "no"})


def switch(name: str, value: str | bool) -> bool:
    """True or False; raises ValueError that names the key and the value."""
    word = str(value).strip().lower()
    if word not in YES | NO:
        raise ValueError(f"{name} {value!r} is neither yes nor no (true, false, 1, 0, on, off)")
    return word in YES
