"""Options, checked together, become one frozen `Settings`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.core.host_config import HostConfig
from agent.core.values import Value


class Settings(Value, frozen=True, kw_only=True):
    """All that the operator configured.

    nova_conf: nova's files that were read. connection_uri: never empty. sysfs_root: "/" on a live host. config_files: own
    files that were read. notes: what an operator may want to know, one line each (logged at INFO). warnings: what looks
    wrong and does not stop us (logged at WARNING).
    """

    host: str
    state_path: str
    socket_dir: str
    socket_group: str
    sysfs_root: str
    read_only: bool
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
    config_files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def list_opts() -> list[tuple[str | None, list[Any]]]:
    """(group, options), for oslo-config-generator."""
    raise NotImplementedError


def load(argv: Sequence[str] | None, default_config_files: Sequence[str] | None = None) -> Settings:
    """Read command line (without the program name; None: sys.argv), own files and nova's, and check all of it together.

    default_config_files: read when argv names none; None: /etc/compute-agent/compute-agent.conf if it is there.
    Raises ConfigError with one sentence for each fault. --help and --version print and raise SystemExit(0), an unknown
    argument SystemExit(2).
    """
    raise NotImplementedError


def reload(settings: Settings, argv: Sequence[str] | None, default_config_files: Sequence[str] | None = None) -> Settings:
    """Read everything again. What cannot change in a running daemon keeps its value and gets a warning that says so.

    Raises ConfigError; the old settings then stay in force.
    """
    raise NotImplementedError


def setup_logging(argv: Sequence[str] | None, default_config_files: Sequence[str] | None = None) -> None:
    """Set up logging as oslo.log's options say ([DEFAULT] debug, log_file, ...); after a reload again."""
    raise NotImplementedError


def describe(settings: Settings) -> tuple[str, ...]:
    """What is in force, one "name = value" line per option, for --check-config."""
    raise NotImplementedError
