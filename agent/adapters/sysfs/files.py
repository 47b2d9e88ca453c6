"""Reads of small kernel files below one root: bounded retries, absence is normal, and a bad file costs only itself."""

from __future__ import annotations

import errno
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from types import MappingProxyType

import msgspec

from agent.core.cpuset import CpuSet
from agent.core.values import Problem

Read = Callable[[str], bytes]
"""All bytes of the file at an absolute path; raises OSError."""

RETRY_DELAYS_S = (0.02, 0.05, 0.1, 0.2)
PATIENCE_S = 1.5
"""The most that one look waits for busy files, however many there are."""

_BUSY = frozenset({errno.EBUSY, errno.EAGAIN, errno.EINTR})
_OF_THE_READER = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Not the file is at fault, so whichever comes next fails as well, be it there or not."""
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.EOPNOTSUPP})

_TOO_LARGE = 1 << 62
_QUOTED = 200
_CHUNK = 1 << 16
_LARGEST = 1 << 22
_NUMBER = re.compile(r"\d[0-9a-f,:.-]*")
_ROWS_ALIKE = 4


def read_file(path: str) -> bytes:
    """The content of a file, at most 4 MiB. A FIFO without a writer is empty, it never blocks."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        data = os.read(descriptor, _CHUNK)
        if len(data) < 2048:  # an attribute comes whole in one read; only lists of /proc come in pages
            return data
        while len(data) < _LARGEST and (more := os.read(descriptor, _CHUNK)):
            data += more
        return data
    finally:
        os.close(descriptor)


class Files:
    """Files below `root`, named by their path relative to it. One object serves one look.

    A missing file gives None and no problem. A file that stays busy, is refused or holds rubbish gives None and a
    problem. sleep: waits between tries, in seconds. read: how one file is read.
    """

    def __init__(self, root: Path, *, sleep: Callable[[float], object], read: Read = read_file) -> None:
        self._root = os.fspath(root).rstrip("/") + "/"
        self._sleep = sleep
        self._read = read
        self._patience_s = PATIENCE_S
        self._problems: list[Problem] = []
        self._unread: dict[str, str] = {}
        self._missed: dict[str, str] = {}
        self._sets: dict[tuple[bool, str], CpuSet] = {}

    @property
    def recorded(self) -> bool:
        """True for a tree that is not the machine this runs on, nor this machine's /sys seen elsewhere."""
        try:
            return self._root != "/" and not os.path.samefile(f"{self._root}sys", "/sys")  # noqa: PTH121 as below
        except OSError:
            return True

    def text(self, name: str) -> str | None:
        """Content without surrounding blanks; None when absent or unreadable."""
        try:
            data = self._read(self._root + name)
        except OSError as error:
            again = self._try_again(name, error)
            if again is None:
                return None
            data = again
        return data.decode(errors="replace").strip("\0 \t\r\n")

    def text_if_easy(self, name: str) -> str | None:
        """As `text`, for a fact that nobody misses: one try, no problem."""
        try:
            return self._read(self._root + name).decode(errors="replace").strip("\0 \t\r\n")
        except OSError as error:
            self._note(name, error)
            return None

    def failed(self, name: str) -> bool:
        """True when this file is there and could not be read."""
        return name in self._unread

    def require(self, *names: str) -> None:
        """Note those of these files that `failed`: what was found without them is not the host."""
        self._missed.update((name, self._unread[name]) for name in names if name in self._unread)

    @property
    def failure(self) -> str | None:
        """One sentence on the required files that could not be read and on all that the reader had no means to read."""
        if not self._missed:
            return None
        name, why = next(iter(self._missed.items()))
        others = len(self._missed) - 1
        return f"{self._root}{name} could not be read: {why}{f', and {others} more' if others else ''}"

    def number(self, name: str) -> int | None:
        """A decimal number, or a hexadecimal one behind 0x."""
        text = self.text(name)
        if text is None:
            return None
        try:
            number = int(text, 16 if text.lower().startswith("0x") else 10)
        except ValueError:
            number = _TOO_LARGE
        if abs(number) < _TOO_LARGE:
            return number
        self.problem(name, "holds no number, so this fact is left out", text=text[:_QUOTED])
        return None

    def cpulist(self, name: str) -> CpuSet | None:
        """A set written as "0-3,8"."""
        return self._set(name, hexadecimal=False)

    def twins(self, folder: str, mask_name: str, list_name: str) -> CpuSet | None:
        """A set that the kernel prints twice, as mask and as list; old kernels have the mask alone. The mask stands."""
        mask = self._set(f"{folder}/{mask_name}", hexadecimal=True)
        listed = self._set(f"{folder}/{list_name}", hexadecimal=False)
        if mask is not None and listed is not None and mask != listed:
            said = ((mask_name, mask), (list_name, listed))
            self.contradiction(f"{folder}/{list_name}", f"contradicts {mask_name}, which is taken", said)
        return listed if mask is None else mask

    def names(self, folder: str) -> frozenset[str]:
        """Entries of a folder; empty when it is absent or unreadable."""
        try:
            found = os.listdir(self._root + folder)  # noqa: PTH208 a Path for each of 10 000 entries is slow
            return frozenset(name for name in found if name.isascii() or self._is_text(folder, name))
        except OSError as error:
            if error.errno not in _ABSENT:
                self._give_up(folder, error)
            return frozenset()

    def exists(self, name: str) -> bool:
        """True when there is such an entry, be it a dangling link."""
        return os.path.lexists(self._root + name)

    def link(self, name: str) -> str | None:
        """Last part of a symlink's target, None when there is no such link."""
        try:
            target = os.readlink(self._root + name).rpartition("/")[2]  # noqa: PTH115 as above
            return target if self._is_text(name, target) else None
        except OSError as error:
            if error.errno not in _ABSENT and error.errno != errno.EINVAL:
                self._give_up(name, error)
            return None

    def real_path(self, name: str) -> str:
        """Where a link of the tree leads to, relative to the root."""
        return os.path.relpath(os.path.realpath(self._root + name), os.path.realpath(self._root))

    def open(self, name: str) -> int:
        """A descriptor for reading in parts, which the caller closes; raises OSError."""
        try:
            return os.open(self._root + name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self._note(name, error)
            raise

    def problem(self, source: str, what: str, **values: object) -> None:
        """Add a row to what this look reports."""
        self.contradiction(source, what, values.items())

    def contradiction(self, source: str, what: str, values: Iterable[tuple[str, object]]) -> None:
        """Add a row for values that contradict each other, named by the file that said them."""
        told = MappingProxyType({name: str(value) for name, value in values})
        self._problems.append(Problem(source=source, what=what, values=told))

    def transient_problem(self, source: str, what: str, **values: object) -> None:
        """Add a row for what the next look may find: see `Problem`."""
        self.problem(source, what, **values)
        self._problems[-1] = msgspec.structs.replace(self._problems[-1], is_transient=True)

    def problems(self) -> tuple[Problem, ...]:
        """All rows so far; of rows that differ by their numbers alone, the first few and one that counts the rest."""
        alike: defaultdict[tuple[str, str], list[Problem]] = defaultdict(list)
        for row in self._problems:
            alike[_NUMBER.sub("#", row.source), _NUMBER.sub("#", row.what)].append(row)
        return tuple(told for rows in alike.values() for told in _shortened(rows))

    def _set(self, name: str, *, hexadecimal: bool) -> CpuSet | None:
        text = self.text(name)
        if text is None:
            return None
        known = self._sets.get((hexadecimal, text))
        if known is not None:
            return known
        try:
            made = CpuSet.parse_hex(text) if hexadecimal else CpuSet.parse(text)
        except ValueError:
            self.problem(name, "holds no set of CPUs or cells, so this fact is left out", text=text[:_QUOTED])
            return None
        self._sets[hexadecimal, text] = made
        return made

    def _is_text(self, source: str, name: str) -> bool:
        """A kernel name may be any bytes; one that is no UTF-8 has no place in a report."""
        try:
            name.encode()
        except UnicodeEncodeError:
            self.problem(source, "has an entry whose name is no UTF-8, which is left out", name=ascii(name))
            return False
        return True

    def _try_again(self, name: str, error: OSError) -> bytes | None:
        for delay_s in RETRY_DELAYS_S:
            if error.errno not in _BUSY:
                break
            self._pause(delay_s)
            try:
                return self._read(self._root + name)
            except OSError as again:
                error = again
        if error.errno not in _ABSENT:
            self._give_up(name, error)
        return None

    def _pause(self, delay_s: float) -> None:
        delay_s = min(delay_s, self._patience_s)
        if delay_s > 0:
            self._patience_s -= delay_s
            self._sleep(delay_s)

    def _give_up(self, name: str, error: OSError) -> None:
        self._unread[name] = _why(error)
        self._note(name, error)
        add = self.transient_problem if error.errno in _BUSY | _OF_THE_READER else self.problem
        add(name, "could not be read, so this fact is left out", error=_why(error))

    def _note(self, name: str, error: OSError) -> None:
        if error.errno in _OF_THE_READER:
            self._missed[name] = _why(error)


def _why(error: OSError) -> str:
    number = error.errno or 0
    return f"{os.strerror(number)} ({errno.errorcode.get(number, number)})"


def _shortened(rows: list[Problem]) -> list[Problem]:
    if len(rows) <= _ROWS_ALIKE:
        return rows
    told, rest = rows[: _ROWS_ALIKE - 1], rows[_ROWS_ALIKE - 1 :]
    what = f"{len(rest)} more rows like the ones before, the last: {rest[-1].what}"
    # of these rows one may be busy and another refused for good: the next look may find the first
    is_transient = any(row.is_transient for row in rest)
    return [*told, msgspec.structs.replace(rest[-1], what=what, is_transient=is_transient)]
