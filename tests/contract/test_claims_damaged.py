"""After a damaged journal nobody is admitted until all that it may have lost has run out, and then everybody is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.adapters.journal import FILE, LAST_GOOD_FILE
from agent.claims import Granted
from agent.core.claim.values import ClaimContext
from tests.at_work import AtWork, asked, pinned

DAY_S = 86400.0


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AtWork]:
    with AtWork(tmp_path / "state") as made:
        made.look()
        yield made


def _damage(agent: AtWork, *, with_copy: bool = True) -> None:
    """The agent ends in order; what it finds at its next start is no journal any more."""
    agent.stop()
    file = agent.state_path / FILE
    file.write_bytes(b"no journal" * 1000)
    if not with_copy:
        (agent.state_path / LAST_GOOD_FILE).unlink()
    agent.start()
    agent.look()


def _is_admitted(agent: AtWork, claim_id: str) -> bool:
    status, told = agent.ask("POST", "/v1/claims/none/abort")
    assert (status, told.refusal) == (200, None), "what frees is taken all the time"
    answer = agent.claims.claim(asked(claim_id, claim_id, pinned(1)))
    if isinstance(answer, Granted):
        return True
    assert (answer.code, answer.retry) == ("AgentNotReady", "later")
    assert answer.message.startswith("journal-damaged: ")
    return False


def test_nobody_is_admitted_until_the_default_times_are_over(agent: AtWork) -> None:
    _damage(agent)
    assert not _is_admitted(agent, "c1")
    agent.look(after_s=880.0)
    assert not _is_admitted(agent, "c2")
    agent.look(after_s=20.0)
    assert _is_admitted(agent, "c3")


def test_the_longest_time_that_a_caller_ever_asked_for_counts_though_that_claim_is_long_over(agent: AtWork) -> None:
    agent.granted(asked("long", "a", pinned(1), context=ClaimContext(ttl_s=5000.0)))
    agent.claims.abort("long")
    agent.restart()
    _damage(agent)
    agent.look(after_s=4900.0)
    assert not _is_admitted(agent, "c1")
    agent.look(after_s=100.0)
    assert _is_admitted(agent, "c2")


def test_a_renewal_for_longer_counts_too(agent: AtWork) -> None:
    agent.granted(asked("long", "a", pinned(1)))
    agent.claims.renew("long", 5000.0)
    _damage(agent)
    agent.look(after_s=4900.0)
    assert not _is_admitted(agent, "c1")


def test_a_journal_of_which_nothing_is_left_is_waited_for_as_long_as_a_caller_may_ask(agent: AtWork) -> None:
    _damage(agent, with_copy=False)
    agent.look(after_s=DAY_S - 60.0)
    assert not _is_admitted(agent, "c1")
    agent.look(after_s=60.0)
    assert _is_admitted(agent, "c2")


def test_a_restart_meanwhile_does_not_begin_the_time_anew_and_one_afterwards_finds_no_damage(agent: AtWork) -> None:
    _damage(agent)
    agent.look(after_s=800.0)
    agent.restart()
    agent.look()
    assert not _is_admitted(agent, "c1")
    agent.look(after_s=100.0)
    agent.look()
    assert _is_admitted(agent, "c2")
    agent.restart()
    agent.look()
    assert (agent.claims.damaged, _is_admitted(agent, "c3")) == (None, True)


def test_a_reboot_meanwhile_begins_the_time_anew(agent: AtWork) -> None:
    _damage(agent)
    agent.look(after_s=800.0)
    agent.boot_id = "next"
    agent.restart()
    agent.look(after_s=800.0)
    assert not _is_admitted(agent, "c1")


def test_damage_after_that_of_before_was_accepted_has_a_time_of_its_own(agent: AtWork) -> None:
    _damage(agent)
    agent.look(after_s=500.0)
    assert agent.claims.accept_journal() is None
    assert _is_admitted(agent, "c1")
    _damage(agent)
    agent.look(after_s=800.0)
    assert not _is_admitted(agent, "c2")


def test_whoever_is_refused_is_told_how_long_that_lasts_and_what_ends_it(agent: AtWork) -> None:
    _damage(agent)
    message = agent.refused(asked("c1", "a", pinned(1))).message
    assert "`agentctl journal accept`" in message
    assert message.endswith("Else all that may be lost has run out in 15 minutes.")
