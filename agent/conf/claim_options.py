"""Options of [claims], and what claims need of them."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from oslo_config import cfg

from agent.core.claim.values import ClaimKind, ClaimRules

DEFAULTS = ClaimRules()

DAY_S = 86400

_TTL_OF: dict[str, tuple[ClaimKind, ...]] = {
    "build_ttl": ("build", "unshelve", "evacuate"),
    "resize_ttl": ("resize", "cold_migration", "rebuild"),
    "live_migration_ttl": ("live_migration",),
}


def _ttl(name: str, what: str) -> cfg.IntOpt:
    return cfg.IntOpt(
        name,
        default=int(DEFAULTS.ttl_s[_TTL_OF[name][0]]),
        min=int(DEFAULTS.least_ttl_s),
        max=int(DEFAULTS.most_ttl_s),
        help=f"Seconds that {what}, where whoever claims names no other time. Then the claim is overdue, and ends "
        "overdue_grace seconds later if the guest is proven not to be here.",
    )


OPTIONS = [
    _ttl("build_ttl", "the place of a guest that is built, unshelved or evacuated here is kept until it runs"),
    _ttl("resize_ttl", "the place of a guest that is resized or moved here switched off is kept until it runs"),
    _ttl("live_migration_ttl", "the place of a guest that moves here while it runs is kept without being renewed"),
    cfg.IntOpt(
        "overdue_grace",
        default=int(DEFAULTS.overdue_grace_s),
        min=0,
        max=DAY_S,
        help="Seconds that an overdue claim is kept at least.",
    ),
    cfg.IntOpt(
        "settle",
        default=int(DEFAULTS.settle_s),
        min=0,
        max=3600,
        help="Seconds that a guest has to run before it has arrived for good.",
    ),
    cfg.IntOpt(
        "away_grace",
        default=int(DEFAULTS.away_grace_s),
        min=0,
        max=7 * DAY_S,
        help="Seconds that the place of a guest is kept which is gone without having left: a hard reboot takes its "
        "domain away and makes it anew.",
    ),
    cfg.IntOpt(
        "restart_grace",
        default=int(DEFAULTS.restart_grace_s),
        min=0,
        max=DAY_S,
        help="Seconds that are left at least of each claim's time when the agent starts, or has been stopped for a "
        "while, since nobody could renew it meanwhile.",
    ),
    cfg.IntOpt(
        "keep_days",
        default=int(DEFAULTS.keep_s) // DAY_S,
        min=1,
        max=365,
        help="Days that claims which ended, refusals and moves are remembered: a late or repeated call gets the answer "
        "of then.",
    ),
    cfg.IntOpt(
        "failure_window",
        default=int(DEFAULTS.failure_window_s),
        min=60,
        max=7 * DAY_S,
        help="Seconds that a guest which was admitted and never came to run counts as a failed build.",
    ),
]


def rules_of(value_of: Callable[[str], int], interval_s: float) -> ClaimRules:
    """What is in force. value_of: an option of [claims] by its name. interval_s: between two passes."""
    ttl_s = {kind: float(value_of(name)) for name, kinds in _TTL_OF.items() for kind in kinds}
    return ClaimRules(
        ttl_s=MappingProxyType(ttl_s),
        overdue_grace_s=float(value_of("overdue_grace")),
        settle_s=float(value_of("settle")),
        away_grace_s=float(value_of("away_grace")),
        restart_grace_s=float(value_of("restart_grace")),
        # passes that are as far apart as they shall be are no stall: each would give every claim more time, for ever
        stall_s=max(DEFAULTS.stall_s, 2.0 * interval_s),
        keep_s=float(value_of("keep_days") * DAY_S),
        failure_window_s=float(value_of("failure_window")),
    )
