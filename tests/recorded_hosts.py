"""Recorded machines: unpacks their trees, one folder that holds sys/ and, where recorded, proc/."""

from __future__ import annotations

import lzma
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ARCHIVES = Path(__file__).parent / "data" / "hosts"
_MEMORY = Path("/dev/shm")

NAMES = tuple(sorted(path.name.removesuffix(".tar.xz") for path in _ARCHIVES.glob("*.tar.xz")))
"""All recorded hosts; tests/data/hosts/README.md says where they come from."""


@contextmanager
def recorded_host(name: str) -> Iterator[Path]:
    """The root of a recorded host's tree, unpacked into memory where that is possible, removed at the end.

    All hosts together are 40 000 small files: a minute on a disk, five seconds in memory.
    """
    with tempfile.TemporaryDirectory(prefix="host-", dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        unpack(name, Path(folder))
        yield Path(folder)


def unpack(name: str, root: Path) -> None:
    """Write a recorded host's sys/ and proc/ into an existing folder."""
    with lzma.open(_ARCHIVES / f"{name}.tar.xz") as packed:
        archive = packed.read()
    inside = [] if archive.startswith(b"./") else ["--strip-components=1"]
    subprocess.run(["tar", "-x", "-C", str(root), *inside], input=archive, check=True)
