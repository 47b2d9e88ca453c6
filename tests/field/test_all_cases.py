"""Every field case of the kinds that are tried here has exactly one test named after it."""

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
]
"""Kinds: pin-conflict, cpu-offline, dedicated-set-change, smt-siblings, numa-shape, big-ids, page-pools, memory,
negative-free, pci-lifecycle, pci-address-numa, pci-pf-vf, pci-policy, mdev, domain-xml, domain-lifecycle,
libvirt-outage, udev, scale, group-race, stale-group; one kind after the other."""


def test_each_case_is_one_test() -> None:
    modules = (ast.parse(path.read_text(encoding="utf-8")) for path in Path(__file__).parent.glob("test_*.py"))
    found = Counter(node.name for module in modules for node in module.body if isinstance(node, ast.FunctionDef))
    assert {case: found[f"test_{case.replace('-', '_')}"] for case in CASES} == dict.fromkeys(CASES, 1)
