"""Yes or no, in any of the words that nova takes for it."""

from __future__ import annotations

from agent.core.nova_text import yes_or_no


def switch(name: str, value: str | bool) -> bool:
    """True or False; raises ValueError that names the key and the value."""
    meaning = yes_or_no(str(value))
    if meaning is None:
        raise ValueError(f"{name} {value!r} is neither yes nor no (true, false, 1, 0, on, off)")
    return meaning
