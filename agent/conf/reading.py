"""Reads options from files one at a time, so that each wrong one gives its own sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from oslo_config import cfg

from agent.conf import paths
from agent.conf.options import DEFAULT_GROUP
from agent.errors import ConfigError

T = TypeVar("T")

COMMAND_LINE = "command line"

LONGEST_TEXT = 200
"""Characters of a value that a sentence shows."""

Sections = Mapping[str, Mapping[str, Sequence[str]]]
"""Of one file: group -> option -> the texts given, in order."""


class Found(NamedTuple):
    """One option. where: file or "command line"; None: nobody set it and `value` is the default."""

    name: str
    value: Any
    where: str | None
    text: str

    def __str__(self) -> str:
        """For a sentence: "[compute] cpu_shared_set=0-x in /etc/nova/nova.conf"."""
        text = shortened(self.text)
        if self.where is None:
            return f"{self.name}={text} (the default)"
        return f"{self.name}={text} {'on the' if self.where == COMMAND_LINE else 'in'} {self.where}"


class Source:
    """The options of one program (ours or nova's) as its files and command line give them. Collects `faults`."""

    def __init__(
        self,
        groups: Iterable[tuple[str, Iterable[cfg.Opt]]],
        files: Sequence[str],
        overrides: Mapping[tuple[str, str], object] | None = None,
    ) -> None:
        """Parse `files`, the later one wins. overrides: (group, option) -> value from the command line.

        Raises ConfigError for every file that cannot be read or parsed.
        """
        self.files = tuple(files)
        self.faults: list[str] = []
        self._options = {(group, option.dest): option for group, options in groups for option in options}
        self._overrides = dict(overrides or {})
        self._sections = _parse_all(self.files)
        self.conf = cfg.ConfigOpts()
        """oslo.config's own view of it, for oslo libraries."""
        for (group, _), option in self._options.items():
            self.conf.register_opt(option, group=None if group == DEFAULT_GROUP else group)
        self._read_for_oslo()
        for (group, dest), value in self._overrides.items():
            self.conf.set_override(dest, value, group=None if group == DEFAULT_GROUP else group)

    def _read_for_oslo(self) -> None:
        files = list(self.files)
        try:
            self.conf([], prog="compute-agent", default_config_files=files, default_config_dirs=[], use_env=False)
        except (cfg.Error, OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{', '.join(files)} changed while it was read: {error}. Try again.") from error

    def get(self, group: str, dest: str) -> Found:
        """One option; a text that it cannot be is a fault, and its default is the value."""
        option = self._options[group, dest]
        where, text = self._origin(group, option)
        found = Found(f"[{group}] {dest}", option.default, where, text)
        try:
            value = self.conf[dest] if group == DEFAULT_GROUP else self.conf[group][dest]
        except cfg.NoSuchOptError as error:
            self.fault(found, f"it refers to ${error.opt_name}, which is not read", "Write the value itself.")
            return found
        except RecursionError:
            self.fault(found, "it refers to itself", "Write the value itself.")
            return found
        except (cfg.Error, ValueError) as error:
            reason = str(error).rpartition(" is not valid: ")[2]
            self.fault(found, reason[:1].lower() + reason[1:])
            return found
        return found._replace(value=value)

    def parsed(self, found: Found, parse: Callable[[Any], T]) -> tuple[T, ...]:
        """What `parse` makes of each value of an option; what it refuses (ValueError) is a fault and left out."""
        results = []
        for value in found.value if isinstance(found.value, list) else [found.value] if found.value else []:
            try:
                results.append(parse(value))
            except RecursionError:
                self.fault(found._replace(text=_text(value)), "it is nested too deeply")
            except (ValueError, OverflowError) as error:
                self.fault(found._replace(text=_text(value)), shortened(str(error), 2 * LONGEST_TEXT))
        return tuple(results)

    def fault(self, found: Found, reason: str, remedy: str = "Correct it.") -> None:
        """Keep one sentence about an option."""
        self.faults.append(f"{found}: {reason.rstrip('.')}. {remedy}")

    def unknown(self) -> list[tuple[str, str, str]]:
        """(file, group, option) of what stands in the files and is none of these options."""
        known = {(group, name) for group, option in self._names() for name in option}
        return [
            (file, group, name)
            for file, sections in zip(self.files, self._sections, strict=True)
            for group, options in sections.items()
            for name in options
            if (_group_name(group), name) not in known
        ]

    def _names(self) -> list[tuple[str, set[str]]]:
        return [
            (group, {dest, option.name, *(old.name for old in option.deprecated_opts if old.name)})
            for (group, dest), option in self._options.items()
        ]

    def _origin(self, group: str, option: cfg.Opt) -> tuple[str | None, str]:
        if (group, option.dest) in self._overrides:
            return COMMAND_LINE, _text(self._overrides[group, option.dest])
        names = {(group, option.dest), (group, option.name)}
        given = {
            file: texts
            for file, sections in zip(self.files, self._sections, strict=True)
            for section, options in sections.items()
            for name, texts in options.items()
            if (_group_name(section), name) in names
        }
        if not given:
            return None, _text(option.default)
        if option.multi:
            return " and ".join(given), ", ".join(text for texts in given.values() for text in texts)
        last = list(given)[-1]
        return last, given[last][-1]


def _parse_all(files: Sequence[str]) -> list[Sections]:
    parsed: list[Sections] = []
    faults = []
    for file in files:
        sections: dict[str, dict[str, Any]] = {}
        parsed.append(sections)
        if (fault := paths.unreadable(file)) is not None:
            faults.append(fault)
            continue
        try:
            cfg.ConfigParser(file, sections).parse()
        except OSError as error:
            faults.append(f"{file} cannot be read: {error.strerror}. Let the daemon's user read it.")
        except (cfg.ParseError, UnicodeDecodeError) as error:
            faults.append(f"{file} is no configuration file: {error}. Correct that line.")
    if faults:
        raise ConfigError(*faults)
    return parsed


def _group_name(name: str) -> str:
    # oslo.config finds a group in any case, and DEFAULT only in capitals
    return name if name == DEFAULT_GROUP else name.lower()


def shortened(text: str, longest: int = LONGEST_TEXT) -> str:
    """As much of it as a sentence may show."""
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text)} characters)"


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}:{part}" for key, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return "" if value is None else str(value)
