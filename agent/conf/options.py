"""Every option of the daemon, with unit, range, default and what it is for; and the command line."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Sequence

from oslo_config import cfg, types
from oslo_log import _options as oslo_log_options  # its declared oslo.config.opts entry point

from agent.conf import claim_options
from agent.core.host_config import HostConfig
from agent.core.places import FULL_SOCKET, READ_ONLY_SOCKET, SOCKET_DIR, SYSTEM_LIBVIRT
from agent.release import DISTRIBUTION, version

DEFAULT_GROUP = "DEFAULT"
DEFAULTS = HostConfig()
"""What counts where neither we nor nova's files say anything; nova has the same."""

EXIT_CODES = """\
exit codes:
  0  a clean stop; --check-config: nothing is wrong
  1  the local API cannot be served
  2  the configuration or an argument is wrong (agentctl ends with 3 then)
  3  another agent uses the state folder or the sockets
  4  the journal cannot be used"""

LOG_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s"

AGENT = [
    cfg.StrOpt(
        "host",
        default=socket.gethostname(),
        sample_default="<name of this machine>",
        help="Name under which this host is reported. Beside nova-compute: the same as its [DEFAULT] host.",
    ),
    cfg.StrOpt(
        "state_path",
        default="/var/lib/compute-agent",
        help="Folder of the journal: who this agent is, how often it started, since when each conflict stands. One "
        "agent at a time. Takes effect at a restart.",
    ),
    cfg.StrOpt(
        "socket_dir",
        default=SOCKET_DIR,
        help=f"Folder of the local API's sockets {FULL_SOCKET} and {READ_ONLY_SOCKET}. Takes effect at a restart.",
    ),
    cfg.StrOpt(
        "sysfs_root",
        default="/",
        help="Folder that holds sys/ and, mostly, proc/ of the host to look at. With another than /, a recording, "
        "libvirt and udev are not asked. Takes effect at a restart.",
    ),
    cfg.BoolOpt(
        "read_only",
        default=True,
        help="libvirt's read-only socket is used, so that libvirt itself refuses any change. There is nothing yet that "
        "writes to libvirt, so false is refused.",
    ),
    cfg.MultiStrOpt(
        "nova_conf",
        default=[],
        sample_default=["/etc/nova/nova.conf"],
        help="An existing configuration file of nova-compute, from which these options are read and nothing else: "
        "[DEFAULT] reserved_host_memory_mb, reserved_host_cpus, reserved_huge_pages, vcpu_pin_set, "
        "cpu_allocation_ratio, ram_allocation_ratio, initial_cpu_allocation_ratio, initial_ram_allocation_ratio; "
        "[compute] cpu_dedicated_set, cpu_shared_set, packing_host_numa_cells_allocation_strategy; [pci] device_spec, "
        "alias; [libvirt] connection_uri; and the older names passthrough_whitelist, pci_passthrough_whitelist and "
        "pci_alias. May be given more than once, as nova-compute's --config-file: the later file wins. What is set "
        "here wins over nova's.",
    ),
]

TRACKER = [
    cfg.IntOpt(
        "interval",
        default=10,
        min=1,
        max=3600,
        help="Seconds between two passes over the host; events start one at once.",
    ),
    cfg.IntOpt(
        "deep_interval",
        default=300,
        min=10,
        max=86400,
        help="Seconds after which every guest's XML has been read again even if libvirt told of no change (some "
        "changes it never tells of). At least [tracker] interval.",
    ),
]

HOST = [
    cfg.IntOpt(
        "reserved_host_memory_mb",
        default=DEFAULTS.reserved_memory_mb,
        min=0,
        help="MiB of the host's memory that guests may not have. As in nova.",
    ),
    cfg.MultiOpt(
        "reserved_huge_pages",
        item_type=types.Dict(),
        sample_default="node:0,size:2048,count:64",
        help="Pages of one cell and size that guests may not have; size in KiB or with a unit (1GB), of huge pages or "
        "of the small ones: size:4,count:262144 keeps 1 GiB of a cell's memory back. May be given more than once. As "
        "in nova.",
    ),
    cfg.FloatOpt(
        "cpu_allocation_ratio",
        min=0.0,
        sample_default=str(DEFAULTS.cpu_allocation_ratio),
        help="Floating vCPUs per shared CPU. Not set, or 0: nova's if it has one, else "
        f"{DEFAULTS.cpu_allocation_ratio}.",
    ),
    cfg.FloatOpt(
        "ram_allocation_ratio",
        min=0.0,
        sample_default=str(DEFAULTS.ram_allocation_ratio),
        help="Guest memory per host memory, small pages only. Not set, or 0: nova's if it has one, else "
        f"{DEFAULTS.ram_allocation_ratio}.",
    ),
]

COMPUTE = [
    cfg.StrOpt(
        "cpu_dedicated_set",
        sample_default="2-7,10-15",
        help="Host CPUs for pinned vCPUs, such as 2-7,^4. Neither this nor cpu_shared_set: all CPUs serve both. CPUs "
        "that are not there now are reported and left out. As in nova.",
    ),
    cfg.StrOpt(
        "cpu_shared_set",
        sample_default="0-1,8-9",
        help="Host CPUs for floating vCPUs and emulator threads; none of them may be in cpu_dedicated_set. As in nova.",
    ),
    cfg.BoolOpt(
        "packing_host_numa_cells_allocation_strategy",
        default=DEFAULTS.pack_cells,
        help="Guests with NUMA cells go first to the host cells with the least that is free, so that large guests find "
        "room later; false: to those with the most. As in nova.",
    ),
    cfg.BoolOpt(
        "share_host_cells",
        default=DEFAULTS.share_cells,
        help="Several NUMA cells of one guest may go to one host cell where it does not fit otherwise. nova never does "
        "that, so a guest placed in this way cannot be placed by nova. false: each has a host cell of its own.",
    ),
]

PCI = [
    cfg.MultiStrOpt(
        "device_spec",
        default=[],
        sample_default=['{"vendor_id": "8086", "product_id": "154c", "address": "*:3b:*.*"}'],
        help="Devices that guests may have: a JSON object, or a list of them, of vendor_id, product_id and either "
        "address (text with * for any part, or an object of regular expressions) or devname; the first entry that fits "
        "a device counts. What the device is good for: physical_network (null: overlay networks), trusted, "
        "remote_managed (virtual functions of a card with a serial number), live_migratable, managed and one_time_use "
        "(yes or no; one_time_use not for virtual functions), resource_class, traits (names with commas between), and "
        "tags of your own. As in nova. May be given more than once. Nothing given: every device is shown, none is "
        "given to a guest.",
    ),
    cfg.MultiStrOpt(
        "alias",
        default=[],
        sample_default=['{"name": "qat", "vendor_id": "8086", "product_id": "0443", "device_type": "type-PCI"}'],
        help="A name by which flavors ask for devices (pci_passthrough:alias): a JSON object of name, vendor_id and "
        "product_id (or resource_class), device_type (type-PCI, type-PF or type-VF), numa_policy (required, socket, "
        "preferred or legacy, which is the default), resource_class, traits (all of them, commas between) and "
        "live_migratable (yes or no). May be given more than once; entries of one name are alternatives and agree in "
        "numa_policy and device_type. As in nova.",
    ),
]

LIBVIRT = [
    cfg.StrOpt(
        "connection_uri",
        default="",
        sample_default=SYSTEM_LIBVIRT,
        help=f"libvirt to watch. Empty: nova's if it has one, else {SYSTEM_LIBVIRT}. Takes effect at a restart.",
    ),
    cfg.IntOpt(
        "call_timeout",
        default=10,
        min=1,
        max=60,
        help="Seconds after which a call to libvirt is given up; the guest or source it was for is then shown as last "
        "known. A pass that takes longer than four such calls and two intervals counts as stuck: the watchdog is then "
        "no longer fed.",
    ),
    cfg.IntOpt(
        "workers",
        default=8,
        min=2,
        max=32,
        help="Threads that wait for libvirt. A call that hangs costs one until libvirt lets go of it.",
    ),
    cfg.IntOpt(
        "keepalive_interval",
        default=5,
        min=1,
        max=60,
        help="Seconds after which libvirt is asked, again and again, whether it is still there.",
    ),
    cfg.IntOpt(
        "keepalive_count",
        default=3,
        min=1,
        max=20,
        help="So many intervals without an answer end the connection; a new one is tried at once.",
    ),
]

HTTP = [
    cfg.StrOpt(
        "group",
        default="compute-agent",
        help="Group that may use agent.sock. Where it does not exist, the group of the daemon's process.",
    ),
]

CONFLICTS = [
    cfg.MultiStrOpt(
        "accept",
        default=[],
        sample_default=["cpu-pinned-twice:db-standby"],
        help="KIND:GUEST. The part of this guest (name, uuid, or * for all) in conflicts of this kind is intended. A "
        "conflict is accepted, that is shown and counted apart, when this is said of every guest in it. Where guests "
        "are in each other's way (device-twice, pf-and-vf, cpu-pinned-twice, sibling-of-isolated, group-violated) one "
        "may be left out, as it shares only with those that may. One rule a line, as many lines as needed; a guest "
        "whose name has a colon or a comma is given by its uuid.",
    ),
]

GROUPS: tuple[tuple[str, Sequence[cfg.Opt]], ...] = (
    (DEFAULT_GROUP, HOST),
    ("agent", AGENT),
    ("tracker", TRACKER),
    ("compute", COMPUTE),
    ("pci", PCI),
    ("libvirt", LIBVIRT),
    ("http", HTTP),
    ("conflicts", CONFLICTS),
    ("claims", claim_options.OPTIONS),
)

COMMAND_LINE_OPTIONS = ("state_path", "socket_dir", "sysfs_root")
"""Of [agent]: a path on the command line is taken from the current folder."""


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """(group, options), for oslo-config-generator."""
    return [(group, [*some, *log_opts()] if group == DEFAULT_GROUP else list(some)) for group, some in GROUPS]


def log_opts() -> list[cfg.Opt]:
    """oslo.log's options, all of [DEFAULT], with defaults for a daemon that has no requests to name in each line."""
    own = [option for _, some in oslo_log_options.list_opts() for option in some]
    cfg.set_defaults(
        own,
        use_stderr=True,
        logging_default_format_string=LOG_FORMAT,
        logging_exception_prefix="%(asctime)s.%(msecs)03d ERROR %(name)s |",
    )
    return own


def command_line() -> argparse.ArgumentParser:
    """Parser of the daemon's arguments; what is not given stays None."""
    parser = argparse.ArgumentParser(
        prog="compute-agent",
        description="Watches this libvirt host and reports what it has, who uses it and what conflicts.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--version", action="version", version=f"{DISTRIBUTION} {version()}")
    add("--config-file", action="append", metavar="FILE", help="own file, may be repeated; the later one wins")
    add("--config-dir", action="append", metavar="DIR", help="folder of *.conf, read after the files")
    add("--check-config", action="store_true", help="say what is in force or what is wrong with it, and end")
    add("--state-path", metavar="DIR", help="see [agent] state_path")
    add("--socket-dir", metavar="DIR", help="see [agent] socket_dir")
    add("--sysfs-root", metavar="DIR", help="see [agent] sysfs_root")
    add("--connection-uri", metavar="URI", help="see [libvirt] connection_uri")
    add("--debug", action="store_true", default=None, help="log details too")
    return parser
