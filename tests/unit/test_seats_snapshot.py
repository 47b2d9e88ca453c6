"""Server groups in the picture of a host: rows come and go with its book, and a dry run asks by the same seats."""

from __future__ import annotations

import msgspec

from agent.core.admission import question_of, why_not
from agent.core.conflicts import Owner
from agent.core.dry_run import CountAnswer, FitAnswer, try_count, try_fit
from agent.core.fit.host import host_facts
from agent.core.guest import Sighting
from agent.core.host_config import AcceptRule
from agent.core.instance import Flavor, Group, GroupPolicy, Instance, InstanceRequest, RequestSpec
from agent.core.reasons import GroupViolated
from agent.core.relax.values import GuestsLeave
from agent.core.snapshot import Identity, Snapshot, configured, first, with_book
from tests.builders import configured as host_configured
from tests.builders import guest, h8, ledger_of, uuid_of
from tests.seating import Desk

A, B, ME = uuid_of("a"), uuid_of("b"), uuid_of("me")


def picture(*guests: Sighting, desk: Desk | None = None, accept: tuple[AcceptRule, ...] = ()) -> Snapshot:
    """H8, named h1, with these guests and the desk's book."""
    where = host_configured(h8(), host="h1", accept=accept)
    empty = first(Identity(agent_id="a", boot_id="b", epoch=1), where.config, book=(desk or Desk()).book)
    seen = msgspec.structs.replace(empty, topology=where.topology, ledger=ledger_of(*guests))
    return configured(seen, where.config)


def kept(*members: str, policy: GroupPolicy = "anti-affinity", most: int = 1, at: int | None = None) -> Group:
    """A group."""
    return Group(id="g", policy=policy, members=members, max_server_per_host=most, generation=at)


def spec(group: Group) -> RequestSpec:
    """A small guest of the group."""
    return RequestSpec(instance=Instance(uuid=ME, name="me"), flavor=Flavor(vcpus=1, memory_mb=64), group=group)


def fitted(snapshot: Snapshot, group: Group) -> FitAnswer:
    """The answer of a dry run."""
    answer = try_fit(spec(group), snapshot, host_facts(snapshot.topology, snapshot.config))
    assert isinstance(answer, FitAnswer)
    return answer


def test_a_row_comes_and_goes_with_the_book_though_no_guest_changes() -> None:
    desk = Desk()
    before = picture(guest("a"), guest("b"), desk=desk)
    desk.set_group(kept(A, B))
    after = with_book(before, desk.book, desk.changes[-1].touched)
    assert [row.id for row in after.conflicts] == ["group-violated:group:g"]
    desk.set_group(kept(A, B, most=2))
    assert desk.changes[-1].touched == frozenset()
    assert with_book(after, desk.book, desk.changes[-1].touched).conflicts == ()


def test_a_row_is_accepted_where_the_configuration_says_so() -> None:
    desk = Desk()
    desk.set_group(kept(A, B))
    rules = (AcceptRule(kind="group-violated", guest="a"),)
    assert [row.accepted for row in picture(guest("a"), guest("b"), desk=desk, accept=rules).conflicts] == [True]


def test_a_dry_run_counts_members_that_only_the_book_knows() -> None:
    desk = Desk()
    desk.come(A, kept())
    desk.set_group(kept(A, B))
    answer = fitted(picture(guest("b"), desk=desk), kept())
    told = Owner(type="claim", uuid=A, name=A)
    assert answer.reasons == (
        GroupViolated(
            group="g",
            instance=ME,
            policy="anti-affinity",
            members=(told, Owner(type="domain", uuid=B, name="b", maker="libvirt")),
            limit=1,
        ),
    )


def test_a_member_that_leaves_takes_its_claim_with_it_when_that_is_thought_of() -> None:
    desk = Desk()
    desk.come(A, kept())
    answer = fitted(picture(guest("a"), desk=desk), kept())
    (leave,) = answer.relaxations
    assert isinstance(leave, GuestsLeave)
    assert [one.uuid for one in leave.guests] == [A]


def test_guests_alike_count_each_other_even_where_a_newer_list_does_not_know_them() -> None:
    desk = Desk()
    desk.set_group(kept(at=9, most=3))
    snapshot = picture(desk=desk)
    facts = host_facts(snapshot.topology, snapshot.config)
    answer = try_count(spec(kept(at=5)), snapshot, facts, 8)
    assert isinstance(answer, CountAnswer)
    assert len(answer.placements) == 3
    assert [type(reason) for reason in answer.last.reasons] == [GroupViolated]


def test_affinity_is_asked_by_the_name_of_the_host() -> None:
    apart = msgspec.structs.replace(kept(policy="affinity"), hosts=("h2",))
    snapshot = picture()
    facts = host_facts(snapshot.topology, snapshot.config)
    request = InstanceRequest(vcpus=1, memory_kib=1024)
    instance = Instance(uuid=ME)
    assert why_not(question_of(request, snapshot, facts, instance, apart)) == (
        GroupViolated(group="g", instance=ME, policy="affinity", host="h1", hosts=("h2",)),
    )
    near = msgspec.structs.replace(apart, hosts=("h2", "h1"))
    assert why_not(question_of(request, snapshot, facts, instance, near)) == ()


def test_a_wish_is_a_note_of_the_answer() -> None:
    answer = fitted(picture(guest("a")), kept(A, policy="soft-anti-affinity"))
    assert (answer.fits, answer.notes) == (
        True,
        ("Server group g would rather have its members on different hosts (policy soft-anti-affinity): a is here",),
    )
