"""A fit is a claim that promises nothing: what would refuse the claim, refuses the fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from agent.adapters.journal import FILE
from agent.core.dry_run import CountAnswer, FitAnswer, try_count, try_fit
from agent.core.fit.host import host_facts
from agent.core.instance import Flavor, Instance, RequestSpec
from agent.core.reasons import ClaimForbidden, CpusShort, InMaintenance
from agent.core.relax.values import MaintenanceEnds
from agent.core.snapshot import Snapshot
from agent.formats import snapshot_file, wire
from tests.at_work import AtWork, asked, build, pinned
from tests.builders import guest, uuid_of


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AtWork]:
    with AtWork(tmp_path / "state") as made:
        made.look()
        yield made


def _fit(agent: AtWork, vcpus: int = 2, name: str = "web", **more: Any) -> dict[str, Any]:
    spec = build(name=name, vcpus=vcpus)
    told = agent.result("POST", "/v1/fit", {**spec["spec"], "instance": spec["instance"], **more})
    assert isinstance(told, dict)
    return told


def _types(told: dict[str, Any]) -> list[str]:
    return [reason["type"] for reason in told["reasons"]]


def _spec(vcpus: int) -> RequestSpec:
    words = MappingProxyType({"hw:cpu_policy": "dedicated"})
    return RequestSpec(
        instance=Instance(uuid=uuid_of("web"), name="web"), flavor=Flavor(vcpus=vcpus, memory_mb=64, extra_specs=words)
    )


def _tried(vcpus: int, snapshot: Snapshot) -> FitAnswer:
    found = try_fit(_spec(vcpus), snapshot, host_facts(snapshot.topology, snapshot.config))
    assert isinstance(found, FitAnswer)
    return found


def test_a_host_in_maintenance_says_no_and_what_would_be_left_without(agent: AtWork) -> None:
    agent.result("PUT", "/v1/maintenance", {"reason": "new memory"})
    small, large = _fit(agent, 2), _fit(agent, 9)
    assert (small["fits"], _types(small)) == (False, ["in-maintenance"])
    assert small["relaxations"] == [{"type": "maintenance-ends"}]
    assert (_types(large)[0], "cpus-short" in _types(large), large["relaxations"]) == ("in-maintenance", True, [])
    agent.result("PUT", "/v1/maintenance", {"reason": None})
    assert _fit(agent, 2)["fits"]


def test_a_saved_snapshot_of_a_host_in_maintenance_says_no_too(agent: AtWork) -> None:
    agent.claims.set_maintenance("new memory")
    saved = wire.to_json(snapshot_file.saved(agent.tracker.snapshot))
    read = snapshot_file.from_json(saved)
    found = _tried(2, read)
    (reason,) = found.reasons
    assert isinstance(reason, InMaintenance)
    assert (reason.reason, found.relaxations) == ("new memory", (MaintenanceEnds(),))
    counted = try_count(_spec(2), read, host_facts(read.topology, read.config), 3)
    assert isinstance(counted, CountAnswer)
    assert (counted.placements, counted.last.reasons) == ((), (reason,))


def test_a_guest_that_has_a_claim_here_is_told_so_unless_that_is_to_be_replaced(agent: AtWork) -> None:
    agent.granted(asked("c1", "web", pinned(6)))
    told = _fit(agent, 6)
    (reason,) = told["reasons"]
    assert (told["fits"], reason["type"], reason["code"], reason["claim_id"]) == (
        False, "claim-forbidden", "InstanceBusy", "c1"
    )  # fmt: skip
    assert told["relaxations"] == []
    assert _fit(agent, 6, replaces="c1")["fits"]
    assert _types(_fit(agent, 6, name="other")) == ["cpus-short"]


def test_a_resize_here_has_what_the_guest_holds_to_itself(agent: AtWork) -> None:
    agent.look(guest("web", {0: 2, 1: 3, 2: 4, 3: 5}))
    assert _types(_fit(agent, 6)) == ["claim-forbidden"]
    assert _fit(agent, 6, kind="resize")["fits"]
    larger = _fit(agent, 7, kind="resize")
    assert (larger["fits"], _types(larger)) == (False, ["cpus-short"])
    assert {"type": "fewer-vcpus", "vcpus": 6} in larger["relaxations"]


def test_a_kind_that_is_none_is_refused_by_name(agent: AtWork) -> None:
    status, told = agent.ask("POST", "/v1/fit", {**build()["spec"], "kind": "wish"})
    assert told.refusal is not None
    assert (status, told.refusal.code) == (400, "InvalidRequest")
    assert any(fault.startswith("kind: ") for fault in told.refusal.reasons)


def test_after_a_damaged_journal_nobody_fits_yet(agent: AtWork) -> None:
    agent.stop()
    (agent.state_path / FILE).write_bytes(b"no journal" * 1000)
    agent.start()
    agent.look()
    status, told = agent.ask("POST", "/v1/fit", build()["spec"])
    assert told.refusal is not None
    assert (status, told.refusal.code, told.refusal.retry) == (503, "AgentNotReady", "later")
    assert told.refusal.message.startswith("journal-damaged: ")


def test_what_is_only_about_room_is_answered_with_what_would_help(agent: AtWork) -> None:
    found = _tried(9, agent.tracker.snapshot)
    assert [type(reason) for reason in found.reasons] == [CpusShort]
    assert found.relaxations
    assert not any(isinstance(reason, ClaimForbidden) for reason in found.reasons)
