"""Whether oslo.log's options are such that a log can be set up; nothing is opened for writing, nothing made."""

from __future__ import annotations

import configparser
import logging
import os
import sys
import syslog
from importlib.util import find_spec
from pathlib import Path

from oslo_config import cfg
from oslo_log import formatters

from agent.conf import paths
from agent.conf.options import DEFAULT_GROUP, log_opts
from agent.conf.reading import Found, Source

_FORMATS = ("logging_default_format_string", "logging_debug_format_suffix", "logging_exception_prefix")
_LEVELS = frozenset(logging.getLevelNamesMapping())


def check(own: Source) -> None:
    """Add a fault to our options for each that would keep the log from being set up, or a line from being written."""
    given = {option.dest: own.get(DEFAULT_GROUP, option.dest) for option in log_opts()}
    if own.faults:  # of which one may be such an option: the rest says nothing then
        return
    if given["log_config_append"].value:
        _check_config_file(own, given["log_config_append"])
        return
    _check_places(own, given)
    _check_facility(own, given)
    _check_levels(own, given)
    _check_rotation(own, given)
    _check_formats(own, given)


def _check_config_file(own: Source, found: Found) -> None:
    """Only what the file names is looked at: to read it is to run what it says."""
    unreadable = paths.unreadable(found.value)
    if unreadable is not None:
        reason, _, remedy = unreadable.partition(". ")
        own.fault(found, reason, remedy)
        return
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(Path(found.value).read_text(encoding="utf-8"), source=found.value)
        names = [
            f"{kind.removesuffix('s')}_{name.strip()}"
            for kind in ("loggers", "handlers", "formatters")
            for name in parser.get(kind, "keys").split(",")
            if name.strip()
        ]
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        own.fault(found, f"it cannot be used: {' '.join(str(error).split())}")
        return
    lost = next((name for name in names if not parser.has_section(name)), None)
    if lost is not None:
        own.fault(found, f"there is no section {lost} in it")


def _check_places(own: Source, given: dict[str, Found]) -> None:
    file, folder = given["log_file"], given["log_dir"]
    if not file.value and not folder.value:
        return
    path = Path(folder.value or "", file.value or ".")
    place, named = (path.parent, file) if file.value else (path, folder)
    if not paths.is_folder(place):
        own.fault(named, f"there is no folder {place}", "Make it, or name another.")
    elif (reason := _not_writable(path, place)) is not None:
        own.fault(named, reason, "Name a file that the daemon's user may write.")


def _not_writable(path: Path, place: Path) -> str | None:
    try:
        found = None if path == place else paths.kind(str(path))
        there, access = path, os.W_OK | (os.X_OK if path == place else 0)
    except FileNotFoundError:  # the usual: no log is there yet
        found, there, access = None, place, os.W_OK | os.X_OK
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}"
    if found not in {None, "a device"}:  # opening a FIFO waits for its reader
        return f"{path} is {found}"
    return None if os.access(there, access) else f"{there} may not be written"


def _check_facility(own: Source, given: dict[str, Found]) -> None:
    facility = given["syslog_log_facility"]
    name = f"LOG_{str(facility.value).upper().removeprefix('LOG_')}"
    known = {word for word in dir(syslog) if word in _FACILITIES}
    if (given["use_syslog"].value or given["use_journal"].value) and name not in known:
        own.fault(facility, f"it is none of {', '.join(sorted(known))}")
    elif given["use_journal"].value and find_spec("systemd") is None:
        own.fault(
            given["use_journal"],
            "the Python package systemd-python is not installed",
            "Install it, or remove the option: systemd keeps what is logged to standard error too.",
        )


_FACILITIES = {
    f"LOG_{name}"
    for name in (
        *("KERN", "USER", "MAIL", "DAEMON", "AUTH", "SYSLOG", "LPR", "NEWS", "UUCP", "CRON", "AUTHPRIV", "FTP"),
        *(f"LOCAL{number}" for number in range(8)),
    )
}


def _check_levels(own: Source, given: dict[str, Found]) -> None:
    for pair in given["default_log_levels"].value:
        level = pair.partition("=")[2]
        if level not in _LEVELS and not level.lstrip("-").isdecimal():
            own.fault(given["default_log_levels"], f"{pair!r} names no level, such as {', '.join(sorted(_LEVELS))}")


def _check_rotation(own: Source, given: dict[str, Found]) -> None:
    every, kind = given["log_rotate_interval"], given["log_rotate_interval_type"]
    if given["log_rotation_type"].value == "interval":
        if kind.value.lower() == "weekday" and not 0 <= every.value <= 6:
            own.fault(every, "a weekday is a number from 0 (Monday) to 6")
        elif every.value < 1 and kind.value.lower() not in {"weekday", "midnight"}:
            own.fault(every, "the log would be rotated for ever")


def _check_formats(own: Source, given: dict[str, Found]) -> None:
    """A line is written with each, the others being as nobody set them."""
    for name in _FORMATS:
        trial = cfg.ConfigOpts()
        trial.register_opts(log_opts())
        trial([], default_config_files=[], default_config_dirs=[], use_env=False)
        trial.set_override(name, given[name].value)
        _try_format(own, given[name], formatters.ContextFormatter(config=trial))
    if given["log_date_format"].where:
        _try_format(own, given["log_date_format"], logging.Formatter("%(asctime)s", given["log_date_format"].value))


def _try_format(own: Source, found: Found, formatter: logging.Formatter) -> None:
    try:
        raise RuntimeError("a trial")
    except RuntimeError:
        record = logging.LogRecord("trial", logging.DEBUG, __file__, 1, "a trial", None, sys.exc_info())
    try:
        formatter.format(record)
    except (ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        own.fault(found, f"no line can be written with it: {error}")
