"""Why libvirt cannot be reached, and what to do: one sentence for each cause."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

DEFAULT_SOCKETS = ("/run/libvirt/virtqemud-sock-ro", "/run/libvirt/libvirt-sock-ro")
"""Where libvirt's client looks, in its order; it takes the first that exists, dead or not."""

DAEMON_PATH = "/usr/sbin:/usr/local/sbin:/sbin:/usr/bin:/usr/local/bin:/bin"

DRIVERS = frozenset(
    (
        *("bhyve", "ch", "esx", "gsx", "hvf", "hyperv", "lxc", "openvz", "parallels", "qemu", "test", "vbox"),
        *("vmwarefusion", "vmwareplayer", "vmwarews", "vpx", "vz", "xen"),
    )
)
"""The schemes of libvirt's hypervisor drivers, without a transport ("+ssh")."""

QEMU_PATHS = frozenset(("/system", "/session", "/embed"))

_QUOTED_PATH = re.compile(r"'(/[^']+)'")


def find_daemon(name: str) -> str | None:
    """Path of an installed program, also when PATH of an ordinary user has no sbin."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{DAEMON_PATH}")


def socket_path(uri: str, message: str = "") -> str:
    """The socket that libvirt tried: what its message quotes, else the URI's own, else where it would look first."""
    quoted = _QUOTED_PATH.search(message)
    if quoted:
        return quoted[1].replace("/var/run/", "/run/", 1)
    given = parse_qs(urlsplit(uri).query).get("socket")
    if given:
        return given[0]
    return next((path for path in DEFAULT_SOCKETS if Path(path).exists()), DEFAULT_SOCKETS[-1])


def what_is_wrong(uri: str) -> str | None:
    """Why no daemon could ever open this URI; None where it may be right, an alias of libvirt.conf included."""
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        return f"it is no URI ({error})"
    driver = parts.scheme.partition("+")[0]
    if driver and driver not in DRIVERS:
        return f"{driver!r} is no driver of libvirt's"
    if driver == "qemu" and parts.path not in QEMU_PATHS:
        return f"the driver 'qemu' has /system and /session, not {parts.path!r}"
    return None


def explain(uri: str, error: Any, libvirt: Any, find: Callable[[str], str | None] = find_daemon) -> str:
    """One sentence for a libvirtError that an open ended with. find: path of an installed daemon by name, or None."""
    message = error.get_error_message() or str(error)
    code, number = error.get_error_code(), error.get_int1()
    wrong = what_is_wrong(uri)
    if wrong is not None:
        # libvirt's client leaves the URI to the daemon: with none running, it complains about the socket alone
        return f"libvirt cannot open the URI {uri}: {wrong}. On a KVM host it is qemu:///system"
    path = socket_path(uri, message)
    if code == libvirt.VIR_ERR_SYSTEM_ERROR and _QUOTED_PATH.search(message):
        if number in (errno.ENOENT, errno.ENOTDIR):
            return _no_socket(path, find)
        if number in (errno.EACCES, errno.EPERM):
            return _no_permission(path)
        if number == errno.ECONNREFUSED:
            return (
                f"nobody listens on {path}: the libvirt daemon that made this socket has ended. "
                f"{_how_to_start(path, find)}; if another libvirt daemon runs, remove {path}"
            )
    if code in _refusals(libvirt):
        return (
            f"libvirt refuses to let user {_user_name()} read ({message}). Allow the action org.libvirt.unix.monitor "
            f'in polkit, or set auth_unix_ro = "none" in libvirtd.conf'
        )
    if code in (libvirt.VIR_ERR_NO_CONNECT, libvirt.VIR_ERR_INVALID_ARG) or "URI" in message:
        return f"libvirt cannot open the URI {uri}: {message}. On a KVM host it is qemu:///system"
    return f"libvirt cannot be opened at {uri}: {message} (error {code}). See the log of libvirtd or virtqemud"


def frozen(uri: str, waited_s: float) -> str:
    """The daemon accepts a connection and then says nothing."""
    return (
        f"libvirt does not answer: opening {uri} has not come back in {waited_s:g} s. The daemon behind "
        f"{socket_path(uri)} is frozen or overloaded; it is used again as soon as it answers, "
        "else see its log and restart it (guests run on)"
    )


def silent(uri: str, silent_s: float) -> str:
    """An open connection over which the daemon says nothing any more."""
    return (
        f"the daemon behind {socket_path(uri)} did not answer the keepalive for {silent_s:g} s, so it is frozen or "
        "overloaded; a new connection is opened as soon as it answers, else see its log and restart it (guests run on)"
    )


def _refusals(libvirt: Any) -> set[int]:
    names = ("AUTH_FAILED", "AUTH_CANCELLED", "AUTH_UNAVAILABLE", "ACCESS_DENIED", "OPERATION_DENIED")
    return {getattr(libvirt, f"VIR_ERR_{name}") for name in names}


def _no_socket(path: str, find: Callable[[str], str | None]) -> str:
    if not find("libvirtd") and not find("virtqemud"):
        return (
            f"libvirt is not installed on this host (no libvirtd, no virtqemud, no socket {path}). "
            "Install it: apt-get install libvirt-daemon-system"
        )
    return f"libvirt is not running: there is no socket {path}. {_how_to_start(path, find)}"


def _how_to_start(path: str, find: Callable[[str], str | None]) -> str:
    if find("virtqemud") and ("virtqemud" in path or not find("libvirtd")):
        return "Start it: systemctl start virtqemud.socket virtqemud-ro.socket"
    return "Start it: systemctl start libvirtd"


def _no_permission(path: str) -> str:
    sentence = f"user {_user_name()} may not connect to {path} ({_owner_and_mode(path)}). "
    if path.endswith("-ro"):
        return (
            sentence + 'Set unix_sock_ro_perms = "0777" in libvirtd.conf, or the mode in the daemon\'s -ro.socket unit'
        )
    return sentence + f"Use the read-only socket {path}-ro, or add the user to the group that owns the socket"


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _owner_and_mode(path: str) -> str:
    try:
        found = Path(path).stat()
    except OSError as error:
        return f"a folder above it is closed: {error.strerror}"
    try:
        group = grp.getgrgid(found.st_gid).gr_name
    except KeyError:
        group = str(found.st_gid)
    return f"group {group}, mode {stat.filemode(found.st_mode)}"
