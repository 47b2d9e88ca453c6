"""What is kept of a promise: the claim, how it ended, who is in which group, which moves are open."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

from agent.core.claim.refusal import ClaimRefusal
from agent.core.guest import RunIdentity
from agent.core.instance import Group, GroupPolicy, Instance, InstanceRequest
from agent.core.ledger import Holds
from agent.core.pci import PciAddress
from agent.core.placement import Placement
from agent.core.values import ReadOnlyMap, Value

ClaimKind = Literal["build", "rebuild", "evacuate", "unshelve", "resize", "cold_migration", "live_migration"]

BRINGS_A_GUEST: frozenset[ClaimKind] = frozenset({"build", "evacuate", "unshelve"})
"""Kinds whose guest is nowhere else while it comes, so that the claim is the owner's from the start."""

MOVES: frozenset[ClaimKind] = frozenset({"resize", "cold_migration", "live_migration"})
"""Kinds that have another half on the host that the guest comes from."""

Role = Literal["owner", "incoming", "in_place"]
"""Why a guest is here; a guest on its way here; a rebuild or resize of a guest that is here and stays."""

State = Literal[
    "pending", "reserved", "overdue", "arriving", "resident", "away", "leaving", "parked", "doubtful", "ended"
]

Ending = Literal["aborted", "released", "expired", "gone", "left", "reverted", "replaced", "failed"]
"""How a claim ended. "failed": the journal did not take it, so nobody was told yes."""

Outcome = Literal["confirmed", "reverted", "failed"]
"""How a move ended, for `finish_move`."""


class Deadline(Value, frozen=True, kw_only=True):
    """A moment of the monotonic clock, which counts only within one boot of the host. is_put_off: because of a stall,
    which is done once; whoever renews, and whatever brings the claim into another state, makes another deadline."""

    boot_id: str
    at_s: float
    is_put_off: bool = False


class ClaimContext(Value, frozen=True, kw_only=True):
    """What may differ between two calls of one claim. ttl_s: None: the kind's own. replaces: id of a claim of the same
    instance that this one takes the place of. peer: the other host of a move. not_after: RFC 3339 by the agent's clock,
    after which the answer is of no use to the caller. source_facts: what the source said of the guest."""

    ttl_s: float | None = None
    replaces: str | None = None
    move_id: str | None = None
    peer: str | None = None
    not_after: str | None = None
    source_facts: ReadOnlyMap[str, str] = MappingProxyType({})


class ClaimRequest(Value, frozen=True, kw_only=True):
    """May this guest come, or change here. digest: `formats/digest` of kind, instance, binding and group."""

    claim_id: str
    kind: ClaimKind
    instance: Instance
    binding: InstanceRequest
    digest: str
    group: Group | None = None
    context: ClaimContext = ClaimContext()


class Claim(Value, frozen=True, kw_only=True):
    """One promise that has not ended.

    binding, placement: what was asked and given; None for the owner claim of a guest that no claim made, which holds
    `observed`: what was seen of it when the claim was made, or accepted instead of the placement (accept-observed).
    sequence: the journal's number of the step that admitted it; what came before has the older right to a seat.
    made_at, state_since: RFC 3339. changed_at_s: monotonic; a reading begun before proves nothing about this state.
    run: the run of the domain when the claim was made (reserved), then the run that has come for it.
    running_since_s: monotonic, since when it is seen to run with no job bringing it in (arriving).
    ending: what it ends as once its domain is gone, where it could not end at once. reason: why it is in this state,
    one sentence, where the state alone does not say. is_cold: leaving switched off, as `hold_for_move` asked.
    """

    claim_id: str
    kind: ClaimKind
    role: Role
    state: State
    instance: Instance
    digest: str
    ttl_s: float
    sequence: int
    made_at: str
    state_since: str
    changed_at_s: float
    binding: InstanceRequest | None = None
    placement: Placement | None = None
    observed: Holds | None = None
    group: Group | None = None
    move_id: str | None = None
    peer: str | None = None
    deadline: Deadline | None = None
    run: RunIdentity | None = None
    running_since_s: float | None = None
    ending: Ending | None = None
    reason: str | None = None
    is_cold: bool = False

    @property
    def label(self) -> str:
        """The guest in a sentence: its name, or its uuid where it has none."""
        return self.instance.name if self.instance.name.strip() else self.instance.uuid


class Tombstone(Value, frozen=True, kw_only=True):
    """What is remembered of a claim id that is no more.

    claim: the claim as it ended, None for a refusal and for the abort of an id that was never seen. digest: of the
    request, empty for such an abort. ended_at: RFC 3339; at_s: seconds since 1970, for its removal. sequence: of the
    step that ended it. refusal: the answer that a refused claim got.
    """

    claim_id: str
    ending: Ending | Literal["refused"]
    ended_at: str
    at_s: float
    sequence: int
    digest: str = ""
    instance: str = ""
    claim: Claim | None = None
    refusal: ClaimRefusal | None = None


class Membership(Value, frozen=True, kw_only=True):
    """An instance is in a server group. generation: of the group when that was said, None: not told. last_here_at_s:
    seconds since 1970, when it last had a claim or a domain here, to the hour. is_ended: it counts only for as long as
    its domain is active here."""

    group: str
    instance: str
    generation: int | None
    last_here_at_s: float
    is_ended: bool = False


class GroupRule(Value, frozen=True, kw_only=True):
    """The newest that was said of a group. policy None: no rule. generation: as of `Membership`. listed: of the newest
    list of all members (`set_group`) that had one. told_at_s: seconds since 1970, when it was last spoken of, to the
    hour."""

    id: str
    policy: GroupPolicy | None
    max_server_per_host: int = 1
    generation: int | None = None
    listed: int | None = None
    told_at_s: float = 0.0


class Move(Value, frozen=True, kw_only=True):
    """One half of a move, or a change in place. source, destination: ids of the claims here, None where that half is on
    the other host. outcome: None while it is open. opened_at, finished_at: RFC 3339; at_s: seconds since 1970 of the
    last change."""

    move_id: str
    kind: ClaimKind
    instance: str
    source: str | None = None
    destination: str | None = None
    peer: str | None = None
    outcome: Outcome | None = None
    opened_at: str
    finished_at: str | None = None
    at_s: float


class Maintenance(Value, frozen=True, kw_only=True):
    """New guests are refused. reason: whoever set it says why. since: RFC 3339."""

    reason: str
    since: str


class Departure(Value, frozen=True, kw_only=True):
    """An instance has left this host, so that what is still defined of it here has no seat. moved_to: the host where
    it lives now, when that was said (`forget_instance`). at: RFC 3339; at_s: monotonic, None: in another boot. run: of
    its domain, where that was seen active when it left; without it, a run that began before `at_s` was here then.

    Cleared by a claim by which the instance is here again, or when another run of its domain is seen: with `moved_to`
    by one that came by a migration alone, since whatever else starts here may be a second copy of the guest.
    """

    instance: str
    at: str
    moved_to: str | None = None
    run: RunIdentity | None = None
    at_s: float | None = None


class BuildFailure(Value, frozen=True, kw_only=True):
    """A guest that was admitted and did not come to be; a refusal is none. at_s: seconds since 1970."""

    claim_id: str
    instance: str
    at: str
    at_s: float
    reason: str


class SpentDevice(Value, frozen=True, kw_only=True):
    """A device that may be used once (device_spec's one_time_use) and has been: it is offered again only when an
    operator says so. instance, name: of the guest that had it first. at: RFC 3339."""

    address: PciAddress
    instance: str
    name: str
    at: str


class Boot(Value, frozen=True, kw_only=True):
    """The boot of the host that the journal was last written in. since: RFC 3339, of the first start in it."""

    boot_id: str
    since: str


class Horizon(Value, frozen=True, kw_only=True):
    """How far promises reach. longest_ttl_s: the longest time that any claim was ever given. lost: what the journal
    may have lost to damage, one sentence; None: nothing. sure_at: when all of that has run out."""

    longest_ttl_s: float
    lost: str | None = None
    sure_at: Deadline | None = None


class Step(Value, frozen=True, kw_only=True):
    """One row of the journal's history, in the order in which things became so. event: of `core/claim/table`, or
    "refused", "group-set", "maintenance", "forgotten", "departed". before, after: states of the claim, None where there
    is none. note: for people. groups: group ids in which the instance has, or would have had, its seat; seats: how many
    others had one in each of them at that instant. as_of: the step after which a refusal was true, where it was
    worked out on an earlier picture than the last."""

    sequence: int
    at: str
    event: str
    claim_id: str | None = None
    instance: str | None = None
    kind: ClaimKind | None = None
    before: State | None = None
    after: State | None = None
    ending: str | None = None
    move_id: str | None = None
    groups: tuple[str, ...] = ()
    seats: ReadOnlyMap[str, int] = MappingProxyType({})
    as_of: int | None = None
    note: str | None = None


RecordValue = (
    Claim
    | Tombstone
    | Membership
    | GroupRule
    | Move
    | Maintenance
    | Departure
    | BuildFailure
    | Boot
    | SpentDevice
    | Horizon
)


class Record(Value, frozen=True, kw_only=True):
    """One row that the journal shall have, or (value None) no longer have. kind: the row's type by name, see RECORDS.
    key: unique in its kind."""

    kind: str
    key: str
    value: RecordValue | None


RECORDS: ReadOnlyMap[str, type[Value]] = MappingProxyType(
    {
        "claim": Claim,
        "tombstone": Tombstone,
        "membership": Membership,
        "group": GroupRule,
        "move": Move,
        "maintenance": Maintenance,
        "departure": Departure,
        "build_failure": BuildFailure,
        "boot": Boot,
        "spent_device": SpentDevice,
        "horizon": Horizon,
    }
)
"""What the value of each kind of row is."""


class ClaimRules(Value, frozen=True, kw_only=True):
    """The operator's times, in seconds ([claims] options).

    ttl_s: by kind, how long a claim waits for its domain. overdue_grace_s: and how long past that, before absence ends
    it. settle_s: how long a domain runs before it has arrived. away_grace_s: how long one is waited for that is gone
    without having left. restart_grace_s: the least that is left of a deadline after a restart or a stall. stall_s:
    passes that are further apart than this were a stall, in which nobody could renew or arrive. keep_s: how long what
    ended is remembered; most_tombstones: and how many at most. failure_window_s: how long a failed build counts.
    """

    ttl_s: ReadOnlyMap[ClaimKind, float] = MappingProxyType(
        {
            "build": 900.0,
            "unshelve": 900.0,
            "evacuate": 900.0,
            "live_migration": 120.0,
            "resize": 900.0,
            "cold_migration": 900.0,
            "rebuild": 900.0,
        }
    )
    least_ttl_s: float = 10.0
    most_ttl_s: float = 86400.0
    overdue_grace_s: float = 60.0
    settle_s: float = 10.0
    away_grace_s: float = 900.0
    restart_grace_s: float = 120.0
    stall_s: float = 30.0
    keep_s: float = 7 * 86400.0
    most_tombstones: int = 100_000
    failure_window_s: float = 3600.0


class Moment(Value, frozen=True, kw_only=True):
    """Now, by every clock that counts. boot_id: of the host. monotonic_s: CLOCK_MONOTONIC, as readings bear it.
    wall_s: seconds since 1970; wall: the same as RFC 3339."""

    boot_id: str
    monotonic_s: float
    wall_s: float
    wall: str
