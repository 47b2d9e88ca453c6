"""What a flavor, an image and ports become, or each contradiction that keeps them from it."""

from __future__ import annotations

import re
from typing import Literal

from agent.core.instance import InstanceRequest
from agent.core.values import Value
from agent.core.words import brief

FaultKind = Literal[
    "vcpus-range",
    "memory-range",
    "cpu-policy-unknown",
    "cpu-policy-conflict",
    "resources-number",
    "resources-beside-policy",
    "resources-both",
    "pcpu-count",
    "thread-policy-unknown",
    "thread-policy-conflict",
    "thread-policy-unpinned",
    "hyperthreading-unknown",
    "hyperthreading-conflict",
    "hyperthreading-beside-policy",
    "hyperthreading-unpinned",
    "emulator-policy-unknown",
    "emulator-policy-unpinned",
    "dedicated-mask-list",
    "dedicated-mask-range",
    "dedicated-mask-empty",
    "dedicated-mask-whole",
    "dedicated-mask-policy",
    "mixed-no-mask",
    "mixed-two-masks",
    "realtime-unclear",
    "realtime-list",
    "realtime-range",
    "realtime-empty",
    "realtime-whole",
    "realtime-unpinned",
    "realtime-share-set",
    "page-size-unknown",
    "page-size-image-alone",
    "page-size-conflict",
    "locked-memory-unclear",
    "locked-memory-conflict",
    "locked-memory-pages",
    "encryption-unclear",
    "encryption-conflict",
    "encryption-model-unknown",
    "encryption-model-conflict",
    "encryption-firmware",
    "encryption-machine",
    "encryption-stateless",
    "encryption-video",
    "cells-number",
    "cells-twice",
    "cells-uneven",
    "cells-incomplete",
    "cell-cpus-twice",
    "cell-cpus-list",
    "cell-cpus-empty",
    "cell-cpu-range",
    "cell-cpu-shared",
    "cell-cpu-unassigned",
    "cell-memory-twice",
    "cell-memory-number",
    "cell-memory-sum",
    "topology-number",
    "topology-maximum",
    "topology-beyond-maximum",
    "topology-impossible",
    "pci-policy-unknown",
    "pci-policy-conflict",
    "alias-form",
    "alias-unknown",
    "port-twice",
]
"""One word for each way in which flavor, image, ports and configuration can contradict themselves or each other."""

Where = Literal["flavor", "image", "port", "config"]

_PLAIN = re.compile(r"[\w.,:^-]+", re.ASCII)


class Property(Value, frozen=True, kw_only=True):
    """Something that was said. value None: it was not said, and that is what contradicts."""

    name: str
    value: str | None
    where: Where

    def __str__(self) -> str:
        """ "hw:cpu_policy=shared of the flavor", "no hw:cpu_policy of the flavor"."""
        place = "configuration" if self.where == "config" else self.where
        if self.value is None:
            return f"no {brief(self.name)} of the {place}"
        value = brief(self.value)
        return f"{brief(self.name)}={value if _PLAIN.fullmatch(value) else repr(value)} of the {place}"


class RequestFault(Value, frozen=True, kw_only=True):
    """Why a request cannot be meant as it stands. properties: what contradicts what. found, change: a sentence each."""

    kind: FaultKind
    properties: tuple[Property, ...]
    found: str
    change: str


def fault_text(fault: RequestFault) -> str:
    """What is found, and what to change."""
    return f"{fault.found} {fault.change}"


class Faults(Value, frozen=True, kw_only=True, tag="faults"):
    """No request: every fault that could be told from the others."""

    faults: tuple[RequestFault, ...]


class Requested(Value, frozen=True, kw_only=True, tag="requested"):
    """The request. unknown: names of properties that begin with hw: or hw_ and mean nothing here or in nova, safe
    to show. notes: a sentence each about what is said and has no effect, or is for others to decide."""

    request: InstanceRequest
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
