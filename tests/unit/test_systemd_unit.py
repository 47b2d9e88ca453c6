"""The systemd unit, judged by systemd's own tools."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parents[2] / "systemd" / "compute-agent.service"
SYSUSERS = UNIT.with_suffix(".sysusers")

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed: apt-get install systemd"
)


class Sections(configparser.RawConfigParser):
    """A unit file: case matters; of a setting that comes twice the last is kept."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def service() -> dict[str, str]:
    parser = Sections(strict=False)
    parser.read(UNIT)
    return dict(parser["Service"])


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit as it is after installation: systemd checks that ExecStart exists."""
    command = tmp_path / "compute-agent"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/local/bin/compute-agent", str(command)))
    return unit


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *arguments], check=False, capture_output=True, text=True, timeout=60
    )


def test_systemd_finds_nothing_wrong_with_the_unit(installed: Path) -> None:
    done = analyze("verify", str(installed))
    # other units of the test machine may have faults of their own
    assert [line for line in done.stderr.splitlines() if "compute-agent" in line] == []
    assert done.returncode == 0, done.stderr


def test_systemd_rates_the_exposure_of_the_unit_2_0_or_better(installed: Path) -> None:
    done = analyze("security", "--offline=true", str(installed))
    rated = re.search(r"Overall exposure level for compute-agent\.service: ([0-9.]+)", done.stdout)
    assert rated, done.stdout + done.stderr
    assert float(rated[1]) <= 2.0


def test_the_unit_leaves_visible_and_reachable_what_the_daemon_must_see() -> None:
    settings = service()
    assert settings["ProtectProc"] == "default", "absence of a guest is proven by the absence of its QEMU process"
    assert settings["PrivateNetwork"] == "no", "udev speaks netlink"
    assert settings["PrivateUsers"] == "no", "the local API asks the kernel who calls"
    assert set(settings["RestrictAddressFamilies"].split()) == {"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK"}
    filters = re.findall(r"^SystemCallFilter=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert filters == ["@system-service", "~@privileged", "@chown"], "with @resources and the chown of a socket"
    assert "CPUAffinity" not in settings, "which CPUs are free for the daemon is known only at run time"


def test_the_unit_runs_the_daemon_as_its_own_user_without_any_privilege() -> None:
    settings = service()
    assert (settings["User"], settings["Group"]) == ("compute-agent", "compute-agent")
    assert settings["CapabilityBoundingSet"] == ""
    assert "SupplementaryGroups" not in settings, "group libvirt is root in effect"
    assert 'u compute-agent - "Compute-node agent" /var/lib/compute-agent /usr/sbin/nologin' in SYSUSERS.read_text()


def test_the_unit_speaks_the_notify_protocol_and_reloads_by_signal() -> None:
    settings = service()
    assert (settings["Type"], settings["NotifyAccess"]) == ("notify", "main")
    assert settings["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert settings["WatchdogSec"] == "60s"
    assert (settings["StateDirectory"], settings["RuntimeDirectory"]) == ("compute-agent", "compute-agent")
