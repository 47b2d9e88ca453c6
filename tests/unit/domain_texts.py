"""Domain XML for tests: captured from guests that ran, or a small one around a body."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.core.cpuset import CpuSet
from agent.core.guest import ObservedDomain

DOMAINS = Path(__file__).parent.parent / "data" / "domains"
UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"


def captured(name: str) -> str:
    """The XML of a guest as `virsh dumpxml` printed it."""
    return (DOMAINS / f"{name}.xml").read_text(encoding="utf-8")


def guest(body: str = "", *, attributes: str = "type='kvm'") -> str:
    """A small domain with `body` in it."""
    return f"<domain {attributes}><name>g</name><uuid>{UUID}</uuid>{body}</domain>"


def observed(**fields: Any) -> ObservedDomain:
    """What `guest()` is read as, with other `fields`."""
    plain: dict[str, Any] = {
        "uuid": UUID,
        "name": "g",
        "maker": "libvirt",
        "vcpus": 1,
        "vcpus_online": CpuSet((0,)),
        "memory_kib": 0,
    }
    return ObservedDomain(**(plain | fields))
