"""The options that are taken over from nova-compute's own files, under the names and rules that nova has for them."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg, types

from agent.conf.options import DEFAULT_GROUP, DEFAULTS
from agent.conf.reading import Source

OPTIONS: tuple[tuple[str, list[cfg.Opt]], ...] = (
    (
        DEFAULT_GROUP,
        [
            cfg.StrOpt("vcpu_pin_set"),
            cfg.IntOpt("reserved_host_cpus", default=0, min=0),
            cfg.IntOpt("reserved_host_memory_mb", default=DEFAULTS.reserved_memory_mb, min=0),
            cfg.MultiOpt("reserved_huge_pages", item_type=types.Dict()),
            cfg.FloatOpt("cpu_allocation_ratio", min=0.0),
            cfg.FloatOpt("ram_allocation_ratio", min=0.0),
            cfg.FloatOpt("initial_cpu_allocation_ratio", default=DEFAULTS.cpu_allocation_ratio, min=0.0),
            cfg.FloatOpt("initial_ram_allocation_ratio", default=DEFAULTS.ram_allocation_ratio, min=0.0),
            cfg.MultiStrOpt("pci_passthrough_whitelist", default=[]),
            cfg.MultiStrOpt("pci_alias", default=[]),
        ],
    ),
    (
        "compute",
        [
            cfg.StrOpt("cpu_dedicated_set"),
            cfg.StrOpt("cpu_shared_set"),
            cfg.BoolOpt("packing_host_numa_cells_allocation_strategy", default=DEFAULTS.pack_cells),
        ],
    ),
    (
        "pci",
        [
            cfg.MultiStrOpt("device_spec", default=[]),
            cfg.MultiStrOpt("passthrough_whitelist", default=[]),
            cfg.MultiStrOpt("alias", default=[]),
        ],
    ),
    ("libvirt", [cfg.StrOpt("connection_uri", default="")]),
)

DEVICE_SPEC_NAMES = (
    ("pci", "device_spec"),
    ("pci", "passthrough_whitelist"),
    (DEFAULT_GROUP, "pci_passthrough_whitelist"),
)
"""One option under its name of today and the two it had; nova takes together what stands under all of them."""

ALIAS_NAMES = (("pci", "alias"), (DEFAULT_GROUP, "pci_alias"))
"""The same of its other option that may be given many times."""


def read(files: Sequence[str]) -> Source:
    """What these files of nova's say, later ones winning. ConfigError when one cannot be read or parsed."""
    return Source(OPTIONS, files)
