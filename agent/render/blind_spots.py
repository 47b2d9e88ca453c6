"""What a report could not see, so that nobody takes silence for good news."""

from __future__ import annotations

from agent.core.report import Report, SourceReport
from agent.core.words import plain, some
from agent.render import words

EYES = ("libvirt", "sysfs")
"""Without one of these "no conflicts" is a guess."""

LOOKED_AT = (*EYES, "domains", "processes")
MOST_NAMED = 3


def is_blind(report: Report) -> bool:
    """Guests or host cannot be seen now; what is shown is what was last known, or nothing."""
    lost = any(source.name in EYES and not source.ok for source in report.health.sources)
    return lost or report.health.status == "down"


def blind_spots(report: Report) -> tuple[str, ...]:
    """One sentence for each source that failed or is late, and one for the guests that cannot be read."""
    failed = [source for source in report.health.sources if source.name in LOOKED_AT and not source.ok]
    unread = [guest.sighting.name for guest in report.guests if guest.sighting.validity == "last-known"]
    sentences = [_sentence(source) for source in failed]
    sentences += [f"cannot be read now, last known is shown: {some(unread, MOST_NAMED)}"] if unread else []
    return tuple(plain(sentence) for sentence in sentences)


def _sentence(source: SourceReport) -> str:
    age = "never read" if source.age_s is None else f"last read {words.age(source.age_s)} ago"
    return f"{source.name}: {source.problem.rstrip('.')} ({age})" if source.problem else f"{source.name}: {age}"
