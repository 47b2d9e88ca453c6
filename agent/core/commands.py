"""Commands that are proposed to people, safe to paste into a shell: an id may be anything that somebody has sent."""

from __future__ import annotations

import shlex


def command(words: str, *arguments: str, options: tuple[str, ...] = ()) -> str:
    """`words` and each argument, quoted where a shell needs it; one that begins with a dash is taken for no option.

    options: words that stand behind the arguments, quoted already (`option`).
    """
    quoted = [shlex.quote(one) for one in arguments]
    if any(one.startswith("-") for one in arguments):
        return " ".join([words, *options, "--", *quoted])
    return " ".join([words, *quoted, *options])


def option(name: str, value: str) -> str:
    """An option with its value, as words of a command."""
    return f"{name}={shlex.quote(value)}" if value.startswith("-") else f"{name} {shlex.quote(value)}"
