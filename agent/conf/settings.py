"""Everything that can be configured, checked together, as one frozen value."""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from agent.conf import claim_options, log_options, nova, options, paths
from agent.conf.host import HostReader
from agent.conf.reading import Source
from agent.core.claim.values import ClaimKind, ClaimRules
from agent.core.host_config import HostConfig
from agent.core.pci_request import PciSpec
from agent.core.places import READ_ONLY_SOCKET, SYSTEM_LIBVIRT
from agent.core.values import Value
from agent.errors import ConfigError

DEFAULT_FILE = "/etc/compute-agent/compute-agent.conf"
LONGEST_SOCKET_PATH = 107
"""Bytes that the kernel takes for the path of a UNIX socket."""

FIXED = (
    "host",
    "state_path",
    "socket_dir",
    "socket_group",
    "sysfs_root",
    "connection_uri",
    "call_timeout_s",
    "libvirt_workers",
    "keepalive_interval_s",
    "keepalive_count",
)
"""Fields that a running daemon has built things from; a reload leaves them as they are."""


class Settings(Value, frozen=True, kw_only=True):
    """All that the operator configured.

    nova_conf: nova's files that were read. connection_uri: never empty. sysfs_root: "/" on a live host. config_files:
    own files that were read. chosen: "name=value in FILE" of each option about the host that somebody set and that is
    in force. notes: what an operator may want to know, one line each (for INFO). warnings: what looks wrong and does
    not stop us (for WARNING).
    """

    host: str
    state_path: str
    socket_dir: str
    socket_group: str
    sysfs_root: str
    nova_conf: tuple[str, ...]
    connection_uri: str
    call_timeout_s: int
    libvirt_workers: int
    keepalive_interval_s: int
    keepalive_count: int
    interval_s: int
    deep_interval_s: int
    debug: bool
    check_config: bool
    host_config: HostConfig
    claim_rules: ClaimRules = ClaimRules()
    config_files: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Configured(NamedTuple):
    """What was read at one time. own: our own options, of which `setup_logging` takes what oslo.log wants."""

    settings: Settings
    own: Source


def load(argv: Sequence[str] | None, default_config_files: Sequence[str] | None = None) -> Settings:
    """The settings alone of `read`, for those who do not log."""
    return read(argv, default_config_files).settings


def read(argv: Sequence[str] | None, default_config_files: Sequence[str] | None = None) -> Configured:
    """Read command line (without the program name; None: sys.argv), own files and nova's, and check all of it together.

    default_config_files: read when argv names none; None: /etc/compute-agent/compute-agent.conf if it is there.
    Raises ConfigError with one sentence for each fault. --help and --version print and raise SystemExit(0), an unknown
    argument SystemExit(2).
    """
    arguments = options.command_line().parse_args(argv)
    own = _own_source(arguments, default_config_files)
    nova_files = own.get("agent", "nova_conf").value
    try:
        nova_source = nova.read(nova_files)
    except ConfigError as error:
        own.faults += [f"[agent] nova_conf: {fault}" for fault in error.faults]
        nova_source = nova.read(())
    host = HostReader(own, nova_source)
    settings = _settings(arguments, own, host)
    _check_paths(own, settings)
    _check_intervals(own, settings)
    _check_read_only(own)
    log_options.check(own)
    faults = own.faults + nova_source.faults
    if faults:
        raise ConfigError(*dict.fromkeys(faults))
    return Configured(settings, own)


def reload(
    settings: Settings, argv: Sequence[str] | None, default_config_files: Sequence[str] | None = None
) -> Configured:
    """Read everything again. What cannot change in a running daemon keeps its value and gets a warning that says so.

    Raises ConfigError; the old settings then stay in force.
    """
    new, own = read(argv, default_config_files)
    changed = [name for name in FIXED if getattr(new, name) != getattr(settings, name)]
    waiting = tuple(
        f"{name} stays {getattr(settings, name)} until compute-agent is restarted; configured is {getattr(new, name)}"
        for name in changed
    )
    kept = {name: getattr(settings, name) for name in changed}
    kept["host_config"] = msgspec.structs.replace(new.host_config, host=settings.host)
    return Configured(msgspec.structs.replace(new, warnings=new.warnings + waiting, **kept), own)


def _own_source(arguments: argparse.Namespace, default_config_files: Sequence[str] | None) -> Source:
    """Our own files and command line. Raises ConfigError when a file cannot be read or parsed."""
    overrides: dict[tuple[str, str], object] = {
        ("agent", name): os.path.abspath(value)  # noqa: PTH100 - Path.absolute() keeps ".."
        for name in options.COMMAND_LINE_OPTIONS
        if (value := getattr(arguments, name)) is not None
    }
    if arguments.connection_uri is not None:
        overrides["libvirt", "connection_uri"] = arguments.connection_uri
    if arguments.debug:
        overrides[options.DEFAULT_GROUP, "debug"] = True
    return Source(options.list_opts(), _own_files(arguments, default_config_files), overrides)


def describe(settings: Settings) -> tuple[str, ...]:
    """What is in force, one line per fact, for --check-config."""
    config, claims = settings.host_config, settings.claim_rules
    sets = (
        ("neither CPU set is configured: every usable CPU serves pinned and floating guests",)
        if config.is_legacy
        else (f"dedicated CPUs: {_given(config.dedicated)}", f"shared CPUs: {_given(config.shared)}")
    )
    devices = f"those of {len(config.device_spec)} device_spec" if config.device_spec else "none, no device_spec is set"
    return (
        f"files read: {', '.join(settings.config_files + settings.nova_conf) or 'none, all defaults'}",
        f"host: {settings.host}",
        f"libvirt: {settings.connection_uri}, read-only",
        f"sysfs: below {settings.sysfs_root}",
        f"state: {settings.state_path}",
        f"sockets: {settings.socket_dir}, agent.sock for group {settings.socket_group}",
        f"a pass every {settings.interval_s} s, every guest's XML read again within {settings.deep_interval_s} s",
        f"claims wait: {_waits(claims)}",
        *sets,
        f"reserved memory: {config.reserved_memory_mb} MiB",
        *(f"reserved pages: {one.count} of {one.size_kib} KiB on cell {one.cell}" for one in config.reserved_pages),
        f"ratios: {config.cpu_allocation_ratio} vCPUs per CPU, {config.ram_allocation_ratio} of memory",
        f"devices that guests may have: {devices}",
        *(f"alias {one.name}: {' or '.join(map(_kind, one.specs))}" for one in config.alias),
        f"host cells for guests: first those with the {'least' if config.pack_cells else 'most'} that is free",
        *(("several cells of a guest may go to one host cell",) if config.share_cells else ()),
        *(f"intended: {rule.kind} with {rule.guest}" for rule in config.accept),
        *(f"set: {line}" for line in settings.chosen),
    )


def _waits(rules: ClaimRules) -> str:
    told: dict[str, ClaimKind] = {"built": "build", "resized": "resize", "moved live, unless renewed": "live_migration"}
    waits = ", ".join(f"{rules.ttl_s[kind]:.0f} s for a guest that is {word}" for word, kind in told.items())
    return f"{waits}; {rules.overdue_grace_s:.0f} s more when overdue"


def _own_files(arguments: argparse.Namespace, defaults: Sequence[str] | None) -> list[str]:
    files = arguments.config_file
    if files is None:
        standard = [DEFAULT_FILE] if os.path.lexists(DEFAULT_FILE) else []
        files = standard if defaults is None else list(defaults)
    for folder in arguments.config_dir or ():
        if not paths.is_folder(folder):
            raise ConfigError(f"--config-dir {folder} is no folder. Name one that is there.")
        files = files + sorted(str(path) for path in Path(folder).glob("*.conf"))
    return list(files)


def _settings(arguments: argparse.Namespace, own: Source, host: HostReader) -> Settings:
    uri = host.choose("libvirt", "connection_uri")[1].value
    host_config = host.read()
    return Settings(
        host=own.get("agent", "host").value,
        state_path=own.get("agent", "state_path").value,
        socket_dir=own.get("agent", "socket_dir").value,
        socket_group=own.get("http", "group").value,
        sysfs_root=own.get("agent", "sysfs_root").value,
        nova_conf=tuple(own.get("agent", "nova_conf").value),
        connection_uri=uri or SYSTEM_LIBVIRT,
        call_timeout_s=own.get("libvirt", "call_timeout").value,
        libvirt_workers=own.get("libvirt", "workers").value,
        keepalive_interval_s=own.get("libvirt", "keepalive_interval").value,
        keepalive_count=own.get("libvirt", "keepalive_count").value,
        interval_s=own.get("tracker", "interval").value,
        deep_interval_s=own.get("tracker", "deep_interval").value,
        debug=own.get(options.DEFAULT_GROUP, "debug").value,
        check_config=arguments.check_config,
        host_config=host_config,
        claim_rules=claim_options.rules_of(
            lambda name: int(own.get("claims", name).value), own.get("tracker", "interval").value
        ),
        config_files=own.files,
        chosen=tuple(map(str, host.used)),
        notes=tuple(host.notes),
        warnings=tuple(_unknown_options(own)),
    )


def _check_paths(own: Source, settings: Settings) -> None:
    for name in ("state_path", "socket_dir", "sysfs_root"):
        if not Path(getattr(settings, name)).is_absolute():
            own.fault(own.get("agent", name), "the path does not begin with /")
        elif "\0" in getattr(settings, name):
            own.fault(own.get("agent", name), "it holds a NUL, which no path has")
    longest = len(os.fsencode(f"{settings.socket_dir}/{READ_ONLY_SOCKET}"))
    if longest > LONGEST_SOCKET_PATH:
        own.fault(
            own.get("agent", "socket_dir"),
            f"the path of a socket in it has {longest} bytes and the kernel takes {LONGEST_SOCKET_PATH}",
            "Use a shorter path.",
        )
    if not paths.is_folder(Path(settings.sysfs_root) / "sys"):
        own.fault(own.get("agent", "sysfs_root"), "there is no folder sys in it", "Name the folder that holds sys/.")
    if not settings.host.strip():
        own.fault(own.get("agent", "host"), "a host needs a name")


def _check_intervals(own: Source, settings: Settings) -> None:
    if settings.deep_interval_s < settings.interval_s:
        own.fault(
            own.get("tracker", "deep_interval"), f"it is shorter than [tracker] interval={settings.interval_s} seconds"
        )


def _check_read_only(own: Source) -> None:
    found = own.get("agent", "read_only")
    if not found.value:
        own.fault(found, "there is nothing yet that writes to libvirt", "Remove the option.")


def _unknown_options(own: Source) -> list[str]:
    known = {f"[{group}] {option.dest}" for group, some in options.GROUPS for option in some}
    return [
        f"[{group}] {name} in {file} is no option of compute-agent and has no effect"
        + (f"; is {near[0]} meant?" if (near := difflib.get_close_matches(f"[{group}] {name}", known, 1, 0.8)) else "")
        for file, group, name in own.unknown()
    ]


def _kind(spec: PciSpec) -> str:
    """One kind of device in a word or two."""
    words = (spec.device_type, spec.vendor_id and f"{spec.vendor_id}:{spec.product_id}", spec.resource_class)
    return " ".join(word for word in (*words, *spec.traits) if word)


def _given(cpus: object) -> str:
    return "none" if cpus is None else str(cpus)
