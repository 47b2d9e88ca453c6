"""What is asked of a daemon while it is killed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.crash.play import Call, Scenario, Step
from tests.crash.stage import Agent

_UUID = "00000000-0000-4000-8000-0000000000{:02x}"


def uuid_of(name: str) -> str:
    """Of a guest with a name of one letter."""
    return _UUID.format(ord(name))


def spec(name: str, *, vcpus: int = 1, **extra_specs: str) -> dict[str, Any]:
    """Of a pinned guest. extra_specs: with "__" for the colon."""
    more = {key.replace("__", ":"): value for key, value in extra_specs.items()}
    flavor = {"vcpus": vcpus, "memory_mb": 64, "extra_specs": {"hw:cpu_policy": "dedicated"} | more}
    return {"instance": {"uuid": uuid_of(name), "name": name}, "flavor": flavor}


def paged(name: str, *, vcpus: int = 1) -> dict[str, Any]:
    """Of a pinned guest in huge pages."""
    return spec(name, vcpus=vcpus, hw__mem_page_size="2048")


def claim(claim_id: str, ordered: Mapping[str, Any], kind: str = "build", **context: Any) -> Call:
    """POST /v1/claims."""
    touches = [f"/v1/claims/{claim_id}"]
    if "replaces" in context:
        touches.append(f"/v1/claims/{context['replaces']}")
    if "move_id" in context:
        touches.append(f"/v1/moves/{context['move_id']}")
    if "group" in context:
        touches.append(f"/v1/groups/{context['group']['id']}")
    body = {"claim_id": claim_id, "kind": kind, "spec": ordered, "context": context}
    return Call("POST", "/v1/claims", body, tuple(touches))


def end(claim_id: str, what: str, *touches: str, **body: Any) -> Call:
    """POST /v1/claims/ID/abort and the like."""
    path = f"/v1/claims/{claim_id}"
    return Call("POST", f"{path}/{what}", body, (path, *touches))


def move(move_id: str, what: str, body: Mapping[str, Any], *claims: str) -> Call:
    """POST /v1/moves/ID/hold and finish."""
    path = f"/v1/moves/{move_id}"
    return Call("POST", f"{path}/{what}", body, (path, *(f"/v1/claims/{one}" for one in claims)))


def group(members: str, generation: int) -> dict[str, Any]:
    """An anti-affinity group of guests by their letters."""
    uuids = [uuid_of(name) for name in members]
    return {"id": "g", "policy": "anti-affinity", "members": uuids, "generation": generation}


def boots(name: str, claim_id: str) -> Step:
    """The guest is started as its claim says, and becomes resident by itself."""

    def act(agent: Agent) -> None:
        if not agent.stage.has(uuid_of(name)):
            told = agent.ask("GET", f"/v1/claims/{claim_id}")
            if told is not None and told.ok:
                result: Any = told.result
                agent.stage.boot(uuid_of(name), result["claim"]["placement"])

    return Step(act=act, until=(f"/v1/claims/{claim_id}", "resident"))


def goes_off(name: str, claim_id: str) -> Step:
    """The guest is switched off for its move."""
    return Step(act=lambda agent: agent.stage.switch_off(uuid_of(name)), until=(f"/v1/claims/{claim_id}", "parked"))


def goes(name: str) -> Step:
    """The guest is stopped and undefined."""
    return Step(act=lambda agent: agent.stage.remove(uuid_of(name)))


def one(*calls: Call) -> Step:
    """Calls at once."""
    return Step(calls=calls)


def _watched(*names: str) -> tuple[str, ...]:
    return tuple(f"/v1/{name}" for name in names)


CLAIMS = Scenario(
    "claims",
    (
        one(
            claim("a", paged("a")),
            claim("b", paged("b", vcpus=2)),
            claim("c", spec("c", pci_passthrough__alias="vf:1")),
            claim("d", spec("d", pci_passthrough__alias="vf:1")),
        ),
        one(claim("e", spec("e"), group=group("e", 1))),
        one(claim("f", spec("f"), group=group("ef", 2))),
        one(claim("too-large", spec("g", vcpus=13))),
        one(end("a", "abort", reason="not needed")),
        one(end("never-seen", "abort")),
        one(claim("never-seen", spec("h"))),
        one(claim("h", paged("h", vcpus=2)), end("b", "renew", ttl_s=300)),
        one(claim("b-again", paged("b", vcpus=3), replaces="b")),
        one(end("e", "abort", "/v1/groups/g"), claim("i", spec("i"))),
        one(claim("f-again", spec("f"), group=group("ef", 3))),
    ),
    _watched(*(f"claims/{one}" for one in "abcdefhi"), "claims/too-large", "claims/never-seen", "claims/b-again",
             "claims/f-again", "groups/g"),
)  # fmt: skip
"""Places without guests: several at once, in a group, refused, aborted, renewed, replaced."""

GUESTS = Scenario(
    "guests",
    (
        one(claim("a", spec("a")), claim("b", spec("b"))),
        boots("a", "a"),
        one(end("a", "confirm")),
        one(claim("a-large", spec("a", vcpus=2), "resize", move_id="m1")),
        one(end("a-large", "confirm", "/v1/claims/a")),
        one(move("m1", "finish", {"outcome": "confirmed"}, "a", "a-large")),
        boots("b", "b"),
        one(move("m2", "hold", {"kind": "live_migration", "instance": spec("b")["instance"], "peer": "other"}, "b")),
        one(move("m2", "finish", {"outcome": "reverted"}, "b")),
        one(move("m3", "hold", {"kind": "cold_migration", "instance": spec("b")["instance"], "peer": "other"}, "b")),
        goes_off("b", "b"),
        one(move("m3", "finish", {"outcome": "confirmed"}, "b")),
        one(end("a-large", "release")),
        goes("a"),
    ),
    _watched("claims/a", "claims/a-large", "claims/b", "moves/m1", "moves/m2", "moves/m3"),
    kinds=frozenset({"claim-drift", "guest-elsewhere", "arrived-without-claim"}),
)
"""Guests that come, change in place, leave and are released."""

HOST = Scenario(
    "host",
    (
        one(Call("PUT", "/v1/groups/g", group("ab", 1), ("/v1/groups/g",))),
        one(claim("a", spec("a"), group=group("ab", 1))),
        one(claim("b", spec("b"), group=group("ab", 1))),
        one(Call("PUT", "/v1/groups/g", group("b", 2), ("/v1/groups/g",))),
        one(Call("PUT", "/v1/maintenance", {"reason": "new memory"}, ("/v1/maintenance",))),
        one(claim("c", spec("c"))),
        one(Call("PUT", "/v1/maintenance", {"reason": None}, ("/v1/maintenance",))),
        one(claim("c", spec("c")), claim("c-again", spec("c"))),
        one(
            Call(
                "POST",
                f"/v1/instances/{uuid_of('a')}/forget",
                {"moved_to": "other"},
                ("/v1/claims/a", "/v1/groups/g"),
            )
        ),
        one(claim("b-again", spec("b"), group=group("b", 3))),
        one(claim("incoming", spec("d"), "live_migration", move_id="m1", peer="other")),
        one(end("incoming", "renew"), claim("cold", spec("e"), "cold_migration", move_id="m2", peer="other")),
        one(move("m2", "finish", {"outcome": "failed"}, "cold")),
    ),
    _watched("claims/a", "claims/b", "claims/b-again", "claims/c", "claims/c-again", "claims/incoming", "claims/cold",
             "groups/g", "maintenance", "moves/m1", "moves/m2"),
)  # fmt: skip
"""What belongs to the host: groups, maintenance, guests that live elsewhere, moves from other hosts."""

_CROWD = "abcdefghijkl"

CROWD = Scenario(
    "crowd",
    (
        one(*(claim(name, spec(name)) for name in _CROWD)),
        one(*(end(name, "abort") for name in _CROWD[::2])),
        one(*(claim(f"{name}-again", spec(name)) for name in _CROWD[::2])),
    ),
    _watched(*(f"claims/{name}" for name in _CROWD), *(f"claims/{name}-again" for name in _CROWD[::2])),
)
"""As many at once as there are CPUs, which share their writes."""

LATE = Scenario(
    "late",
    (
        one(claim("a", spec("a"), ttl_s=10)),
        Step(until=("/v1/claims/a", "expired")),
        one(claim("b", spec("b", vcpus=3))),
    ),
    _watched("claims/a", "claims/b"),
    kinds=frozenset({"claim-overdue"}),
    is_timed=True,
)
"""A guest that does not come in time."""

SCENARIOS = {scenario.name: scenario for scenario in (CLAIMS, GUESTS, HOST, CROWD, LATE)}
