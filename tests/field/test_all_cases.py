"""Every field case is a test that is named after it, or says here what it waits for."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

CASES = [
    "pin-two-domains-one-cpu",
    "pin-conflict-log-once",
    "pin-emulator-cpus-count",
    "cpu-offline-under-guest",
    "cpu-count-not-cached",
    "sysfs-busy-and-missing-attributes",
    "dedicated-set-shrunk-with-guests",
    "host-smaller-after-reboot",
    "smt-isolate-without-smt",
    "smt-odd-vcpus",
    "numa-node-without-memory",
    "numa-sparse-node-ids",
    "numa-none-at-all",
    "ids-beyond-63",
    "ids-with-gaps-above-count",
    "pages-pool-changed-after-start",
    "pages-node-memory-drifts-on-reboot",
    "memory-pages-aware-overcommit",
    "memory-restored-claim-counted-twice",
    "memory-guest-without-numa-keeps-sums",
    "negative-free-is-reported",
    "pci-device-gone-between-list-and-read",
    "pci-freed-device-not-in-filter",
    "pci-vfs-recreated",
    "pci-domain-above-ffff",
    "pci-numa-node-unknown",
    "pci-pf-blocked-by-vf",
    "pci-two-requests-one-device",
    "policy-survives-store-and-wire",
    "policy-in-live-migration-claim",
    "mdev-gone-after-host-reboot",
    "mdev-hostdev-without-alias",
    "xml-current-vcpu-attribute-missing",
    "xml-one-unreadable-of-twenty",
    "domain-vanishes-during-pass",
    "domain-made-by-others",
    "domain-late-stop-event",
    "libvirt-restart-events-again",
    "libvirt-down-is-not-empty",
    "libvirt-event-loop-late-or-idle",
    "udev-enobufs",
    "scale-3000-node-devices",
    "scale-500-domains-slow-calls",
    "group-two-live-migrations-one-target",
    "group-unshelve-against-cold-migration",
    "group-refusal-is-not-a-host-fault",
    "group-deleted-meanwhile",
    "group-left-member-frees-at-once",
    "group-missing-is-not-stopped",
    "audit-claim-not-yet-stored",
    "audit-end-of-evacuation",
    "leak-failed-build",
    "leak-unshelve-fails-at-network",
    "destination-restarts-between-claim-and-arrival",
    "destination-devices-not-ready-after-start",
    "journal-disk-full",
    "journal-empty-after-power-loss",
    "enospc-that-is-not-a-full-disk",
    "clock-steps-back",
    "clock-host-frozen",
    "alive-first-figures-are-not-real",
    "resize-revert-meets-audit",
    "resize-same-host-counts-the-larger",
    "abort-frees-destination",
    "abort-old-migration-record",
    "abort-cold-move-leaves-pins",
    "postcopy-source-not-polled",
    "rpc-claim-delivered-twice",
    "repin-zero-pinned-cell",
]
"""Each of their lines is an assert."""

PARTLY = {
    "rpc-reply-cannot-be-delivered": "a reply over a broker; that the claim is found by its id holds on any way in",
    "identity-host-renamed": "the remark that the name has changed, in what is told to a conductor",
    "identity-two-hosts-one-uuid": "the check before a live migration that both hosts have another libvirt uuid",
    "alive-forced-up-after-fencing": "the silence and the comparison, which are a conductor's",
    "sriov-failed-preparation-touches-nothing": "what prepares a migration; here it is only called off",
    "abort-suspended-is-not-success": "what drives a migration and finds that its job is gone",
    "postcopy-failed-is-nobodys-free-memory": "what the source finds out when its job is gone",
    "source-restarts-in-mid-migration": "the job that is watched again",
    "source-or-destination-after-restart": "the direction from libvirt's job where the journal is empty",
}
"""What is still missing in the tests of these."""

WAITING = {
    "sriov-port-type-changed-while-bound": "migration: the agent looks at no port before it moves one",
    "repin-two-definitions": "migration: definitions are rewritten for a destination",
    "repin-older-guest-lacks-element": "migration: definitions are rewritten for a destination",
    "report-refused-by-version": "Placement: no central store is reported to",
    "alive-heartbeat-blocked-by-lost-reply": "RPC: the heartbeat goes over a broker",
    "broker-away-ten-minutes": "RPC: there is no broker",
    "broker-half-open-socket": "RPC: there is no broker",
}
"""What these wait for."""

OF_ALL = 85


def test_each_case_is_one_test_or_waits() -> None:
    modules = (ast.parse(path.read_text(encoding="utf-8")) for path in Path(__file__).parent.glob("test_*.py"))
    found = Counter(node.name for module in modules for node in module.body if isinstance(node, ast.FunctionDef))
    tried, waiting = [*CASES, *PARTLY], list(WAITING)
    assert {case: found[_name(case)] for case in tried} == dict.fromkeys(tried, 1)
    assert {case: found[_name(case)] for case in waiting} == dict.fromkeys(waiting, 0)
    assert len({*tried, *waiting}) == len(tried) + len(waiting) == OF_ALL


def _name(case: str) -> str:
    return f"test_{case.replace('-', '_')}"
