"""The private libvirtd: nobody else notices it, and it leaves nothing behind, whatever ends it."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
LIBVIRTD = CHECKOUT / "tests/lab/libvirtd"
GUEST = CHECKOUT / "tests/lab/guest"


def lab(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LIBVIRTD, command, directory], check=False, capture_output=True, text=True, timeout=60)


@pytest.fixture
def directory() -> Iterator[Path]:
    """A folder with a short path: those of UNIX sockets are limited."""
    with tempfile.TemporaryDirectory(prefix="lab-", dir="/tmp") as folder:
        yield Path(folder) / "a"
        for name in ("a", "b"):
            lab("down", Path(folder) / name)


def started_guest(directory: Path, name: str) -> int:
    """The process id of the guest's QEMU."""
    subprocess.run([GUEST, "start", directory, name], check=True, timeout=60)
    return int((directory / f"run/libvirt/qemu/{name}.pid").read_text())


def cgroups(pid: int) -> set[str]:
    return {line.split(":", 2)[2] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if "qemu-" in line}


def is_running(pid: int) -> bool:
    """A zombie does not count: it waits for the machine's init and holds nothing."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_down_ends_guests_that_libvirt_has_lost_too_and_removes_all_files(directory: Path) -> None:
    assert lab("up", directory).returncode == 0
    qemu = started_guest(directory, "one")
    groups = [Path(line) for line in (directory / "cgroups").read_text().splitlines()]
    lab("kill", directory)
    for file in (directory / "run/libvirt/qemu").glob("one.*"):
        file.unlink()
    assert lab("down", directory).returncode == 0
    assert not is_running(qemu)
    assert not directory.exists()
    assert [group for group in groups if group.exists()] == []
    assert lab("down", directory).returncode == 0, "twice is fine"


def test_guests_of_one_name_on_two_private_libvirtds_do_not_share_a_cgroup(directory: Path) -> None:
    other = directory.with_name("b")
    for each in (directory, other):
        assert lab("up", each).returncode == 0
    first, second = started_guest(directory, "same"), started_guest(other, "same")
    assert cgroups(first).isdisjoint(cgroups(second))
    lab("down", directory)
    assert is_running(second), "the end of one is none of the other's business"


def test_a_guest_outlives_a_killed_libvirtd_and_is_known_again_after_its_start(directory: Path) -> None:
    lab("up", directory)
    qemu = started_guest(directory, "one")
    for command in ("kill", "start"):
        assert lab(command, directory).returncode == 0
    uri = lab("ro-uri", directory).stdout.strip()
    assert subprocess.check_output(["virsh", "-q", "-c", uri, "list", "--name"], text=True).split() == ["one"]
    assert is_running(qemu)


def test_a_folder_whose_socket_path_would_be_too_long_is_refused_with_its_length() -> None:
    folder = Path("/tmp") / ("x" * 100)
    done = lab("up", folder)
    assert done.returncode == 1
    assert "is 133 characters long; the path of a UNIX socket may have 107" in done.stderr
    assert not folder.exists()


def test_a_folder_that_is_no_lab_is_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    done = lab("down", tmp_path)
    assert done.returncode == 1
    assert "is no folder of a private libvirtd" in done.stderr
    assert (tmp_path / "precious").exists()
