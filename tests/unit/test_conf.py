"""Options are checked together; each fault says what, where, found, and what to do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from agent import conf
from agent.conf.settings import FIXED
from agent.core.cpuset import CpuSet
from agent.core.host_config import AcceptRule, AddressPattern, DeviceSpec, HostConfig, ReservedPages
from agent.core.pci import NetInterface, PciAddress, PciDevice
from agent.errors import ConfigError

SAMPLE = Path(__file__).parents[2] / "etc" / "compute-agent.conf.sample"
CHECKOUT = Path(__file__).parents[2]


def load(folder: Path, text: str, *argv: str) -> conf.Settings:
    """Of one own file."""
    (folder / "own.conf").write_text(text)
    return conf.load(["--config-file", str(folder / "own.conf"), *argv])


def fault(folder: Path, text: str, *argv: str) -> str:
    """The only fault of one own file, its path written FILE."""
    with pytest.raises(ConfigError) as caught:
        load(folder, text, *argv)
    (told,) = caught.value.faults
    return told.replace(str(folder / "own.conf"), "FILE")


def test_without_any_file_every_option_has_its_default() -> None:
    read = conf.load([], default_config_files=[])
    assert read == conf.Settings(
        host=read.host,
        state_path="/var/lib/compute-agent",
        socket_dir="/run/compute-agent",
        socket_group="compute-agent",
        sysfs_root="/",
        nova_conf=(),
        connection_uri="qemu:///system",
        call_timeout_s=10,
        libvirt_workers=8,
        keepalive_interval_s=5,
        keepalive_count=3,
        interval_s=10,
        deep_interval_s=300,
        debug=False,
        check_config=False,
        host_config=HostConfig(host=read.host),
    )
    assert read.host


def test_the_sample_without_its_comment_signs_is_a_configuration_without_faults(tmp_path: Path) -> None:
    usable = re.sub(r"^#(?=\w+ = (?!<None>))(?!nova_conf)", "", SAMPLE.read_text(), flags=re.MULTILINE)
    read = load(tmp_path, usable)
    assert read.warnings == ()
    assert read.host_config.dedicated == CpuSet.parse("2-7,10-15")
    assert read.host_config.accept == (AcceptRule(kind="cpu-pinned-twice", guest="db-standby"),)
    assert read.host_config.reserved_pages == (ReservedPages(cell=0, size_kib=2048, count=64),)
    assert read.host_config.device_spec == (DeviceSpec(vendor_id="8086", product_id="154c", address="*:3b:*.*"),)


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    text = "[agent]\nstate_path=/a\nsocket_dir=/b\nsysfs_root=/none\n[libvirt]\nconnection_uri=qemu:///x\n"
    (tmp_path / "root" / "sys").mkdir(parents=True)
    arguments = ["--state-path", "/s", "--socket-dir", "/r", "--sysfs-root", str(tmp_path / "root"), "--debug"]
    read = load(tmp_path, text, *arguments, "--connection-uri", "test:///default", "--check-config")
    assert (read.state_path, read.socket_dir, read.sysfs_root) == ("/s", "/r", str(tmp_path / "root"))
    assert (read.connection_uri, read.debug, read.check_config) == ("test:///default", True, True)


def test_a_path_on_the_command_line_starts_in_the_current_folder() -> None:
    assert conf.load(["--state-path", "state/../x"], []).state_path == str(Path.cwd() / "x")


def test_a_later_file_and_the_files_of_a_folder_win(tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (folder / "10.conf").write_text("[tracker]\ninterval=3\ndeep_interval=30\n")
    (folder / "20.conf").write_text("[tracker]\ninterval=4\n")
    (folder / "20.conf.old").write_text("[tracker]\ninterval=nothing\n")
    read = load(tmp_path, "[tracker]\ninterval=2\n[agent]\nhost=a", "--config-dir", str(folder))
    assert (read.interval_s, read.deep_interval_s, read.host) == (4, 30, "a")
    assert read.config_files == tuple(map(str, (tmp_path / "own.conf", folder / "10.conf", folder / "20.conf")))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[tracker]\ninterval=soon",
            "[tracker] interval=soon in FILE: invalid literal for int() with base 10: 'soon'. Correct it.",
        ),
        (
            "[tracker]\ninterval=0",
            "[tracker] interval=0 in FILE: should be greater than or equal to 1. Correct it.",
        ),
        (
            "[tracker]\ninterval=60\ndeep_interval=30",
            "[tracker] deep_interval=30 in FILE: it is shorter than [tracker] interval=60 seconds. Correct it.",
        ),
        (
            "[agent]\nread_only=perhaps",
            "[agent] read_only=perhaps in FILE: unexpected boolean value 'perhaps'. Correct it.",
        ),
        (
            "[agent]\nread_only=false",
            "[agent] read_only=false in FILE: there is nothing yet that writes to libvirt. Remove the option.",
        ),
        (
            "[libvirt]\ncall_timeout=61",
            "[libvirt] call_timeout=61 in FILE: should be less than or equal to 60. Correct it.",
        ),
        (
            "[agent]\nstate_path=state",
            "[agent] state_path=state in FILE: the path does not begin with /. Correct it.",
        ),
        (
            "[agent]\nhost=",
            "[agent] host= in FILE: a host needs a name. Correct it.",
        ),
        (
            "[agent]\nsysfs_root=/nowhere",
            "[agent] sysfs_root=/nowhere in FILE: there is no folder sys in it. Name the folder that holds sys/.",
        ),
        (
            "[agent]\nstate_path=$nothing/x",
            "[agent] state_path=$nothing/x in FILE: it refers to $nothing, which is not read. Write the value itself.",
        ),
        (
            "[compute]\ncpu_dedicated_set=2-7\ncpu_shared_set=0-3",
            (
                "[compute] cpu_dedicated_set=2-7 in FILE: CPUs 2-3 are in [compute] cpu_shared_set=0-3 too. "
                "Give each CPU to one of the two sets."
            ),
        ),
        (
            "[compute]\ncpu_shared_set=4,^4",
            "[compute] cpu_shared_set=4,^4 in FILE: no CPU is left. Correct it.",
        ),
        (
            "[compute]\ncpu_shared_set=0-9999999",
            (
                "[compute] cpu_shared_set=0-9999999 in FILE: '0-9999999' in '0-9999999' runs backwards or beyond "
                "16383. Correct it."
            ),
        ),
        (
            "[DEFAULT]\nreserved_huge_pages=node:0,size:2048,count:1\nreserved_huge_pages=node:1,size:2048",
            (
                "[DEFAULT] reserved_huge_pages=node:1,size:2048 in FILE: it must name exactly node, size and count, as "
                "in node:0,size:2048,count:64. Correct it."
            ),
        ),
        (
            "[DEFAULT]\nlog_rotation_type=sometimes",
            (
                "[DEFAULT] log_rotation_type=sometimes in FILE: valid values are [interval, size, none], but found "
                "'sometimes'. Correct it."
            ),
        ),
        (
            '[pci]\ndevice_spec={"vendor_id":"8086"}\ndevice_spec={"vendor":"8086"}',
            (
                '[pci] device_spec={"vendor":"8086"} in FILE: vendor is a tag that nothing asks for, where vendor_id '
                "may be meant. Correct it."
            ),
        ),
        (
            '[pci]\ndevice_spec={"vendor_id":8086}',
            '[pci] device_spec={"vendor_id":8086} in FILE: Expected `str`, got `int` - at `$.vendor_id`. Correct it.',
        ),
    ],
)
def test_a_wrong_option_is_one_fault_with_a_remedy(text: str, told: str, tmp_path: Path) -> None:
    assert fault(tmp_path, text) == told


def test_a_kind_of_conflict_that_is_none_is_told_with_those_there_are(tmp_path: Path) -> None:
    told = fault(tmp_path, "[conflicts]\naccept=cpu-pined-twice:a")
    assert told.startswith("[conflicts] accept=cpu-pined-twice:a in FILE: 'cpu-pined-twice' is no kind of conflict; ")
    assert "cpu-pinned-twice" in told


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (
            "cpu-pinned-twice:cpu:1",
            (
                '"cpu:1" names what is contended, not a guest. Write KIND:GUEST, one such line for each guest that may '
                "share, as in accept = cpu-pinned-twice:GUEST. Correct it."
            ),
        ),
        (
            "device-twice:pci:0000:3b:02.1",
            (
                '"pci:0000:3b:02.1" names what is contended, not a guest. Write KIND:GUEST, one such line for each '
                "guest that may share, as in accept = device-twice:GUEST. Correct it."
            ),
        ),
        (
            "cpu-pinned-twice:a, device-twice:b",
            (
                "one line takes one rule, and a guest whose name has a comma is given by its uuid. Write a line "
                "accept = KIND:GUEST for each guest. Correct it."
            ),
        ),
        (
            "cpu-pinned-twice:a,b",
            (
                "one line takes one rule, and a guest whose name has a comma is given by its uuid. Write a line "
                "accept = KIND:GUEST for each guest. Correct it."
            ),
        ),
        (
            "cpu-pinned-twice:a\n  device-twice:b",
            (
                "one line takes one rule, and a guest whose name has a comma is given by its uuid. Write a line "
                "accept = KIND:GUEST for each guest. Correct it."
            ),
        ),
        (
            "pinned-to-offline:guest:6f0a0a52-3a1c-4c1b-9a9e-0f7a5f0c2d11",
            (
                "the guest stands right behind the kind. Write accept = "
                "pinned-to-offline:6f0a0a52-3a1c-4c1b-9a9e-0f7a5f0c2d11. Correct it."
            ),
        ),
        (
            "cpu-pinned-twice:a:b",
            '"a:b" has a colon. Give a guest with such a name by its uuid. Correct it.',
        ),
    ],
)
def test_an_accept_rule_that_would_name_no_guest_is_told_with_what_to_write(
    rule: str, told: str, tmp_path: Path
) -> None:
    assert fault(tmp_path, f"[conflicts]\naccept = {rule}").partition(" in FILE: ")[2] == told


def test_an_accept_rule_takes_a_name_with_blanks_a_uuid_and_a_star(tmp_path: Path) -> None:
    guests = ("build runner", "6f0a0a52-3a1c-4c1b-9a9e-0f7a5f0c2d11", "*")
    lines = "".join(f"accept = device-twice: {one}\n" for one in guests)
    rules = load(tmp_path, f"[conflicts]\n{lines}").host_config.accept
    assert rules == tuple(AcceptRule(kind="device-twice", guest=one) for one in guests)


def test_a_socket_path_that_the_kernel_would_cut_is_a_fault(tmp_path: Path) -> None:
    told = fault(tmp_path, "", "--socket-dir", f"/{'x' * 95}")
    assert told.endswith("has 110 bytes and the kernel takes 107. Use a shorter path.")
    assert load(tmp_path, "", "--socket-dir", f"/{'x' * 92}").socket_dir == f"/{'x' * 92}"


def test_a_file_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.conf cannot be read: No such file or directory"):
        conf.load(["--config-file", str(tmp_path / "none.conf")])
    with pytest.raises(ConfigError, match=r"--config-dir .* is no folder"):
        conf.load(["--config-dir", str(tmp_path / "none.d")])


def test_a_file_of_bytes_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "own.conf").write_bytes(bytes(range(256)))
    with pytest.raises(ConfigError, match=r"own\.conf is no configuration file"):
        conf.load(["--config-file", str(tmp_path / "own.conf")])


def test_cpus_that_this_host_lacks_are_no_fault(tmp_path: Path) -> None:
    assert load(tmp_path, "[compute]\ncpu_dedicated_set=1000-1001").host_config.dedicated == CpuSet([1000, 1001])


def test_an_option_that_is_none_is_a_warning_that_guesses_what_was_meant(tmp_path: Path) -> None:
    read = load(tmp_path, "[compute]\ncpu_dedicatd_set=1\n[Tracker]\ninterval=2\n[else]\nx=1\n[DEFAULT]\nlogfile=/x\n")
    where = f"in {tmp_path}/own.conf is no option of compute-agent and has no effect"
    assert read.warnings == (
        f"[compute] cpu_dedicatd_set {where}; is [compute] cpu_dedicated_set meant?",
        f"[else] x {where}",
    )
    assert read.interval_s == 2


def test_the_environment_sets_no_option(tmp_path: Path) -> None:
    code = "from agent import conf; print(conf.load([], []).interval_s)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"OS_TRACKER__INTERVAL": "77", "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "10\n"


@pytest.mark.parametrize(("argv", "status"), [(["--version"], 0), (["--help"], 0), (["--no-such"], 2)])
def test_help_ends_well_and_an_unknown_argument_does_not(
    argv: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        conf.load(argv)
    assert ended.value.code == status
    assert "compute-agent" in "".join(capsys.readouterr())


def test_a_reload_takes_what_can_change_and_warns_of_what_cannot(tmp_path: Path) -> None:
    before = load(tmp_path, "[agent]\nstate_path=/a\n")
    (tmp_path / "own.conf").write_text("[agent]\nstate_path=/b\n[tracker]\ninterval=5\n[compute]\ncpu_shared_set=1\n")
    after = conf.reload(before, ["--config-file", str(tmp_path / "own.conf")]).settings
    assert (after.state_path, after.interval_s, after.host_config.shared) == ("/a", 5, CpuSet([1]))
    assert after.warnings == ("state_path stays /a until compute-agent is restarted; configured is /b",)


OTHERWISE: dict[str, tuple[str, object]] = {
    "host": ("[agent]\nhost=renamed", "renamed"),
    "state_path": ("[agent]\nstate_path=/b", "/b"),
    "socket_dir": ("[agent]\nsocket_dir=/b", "/b"),
    "socket_group": ("[http]\ngroup=wheel", "wheel"),
    "sysfs_root": ("[agent]\nsysfs_root={}", "{}"),
    "connection_uri": ("[libvirt]\nconnection_uri=test:///default", "test:///default"),
    "call_timeout_s": ("[libvirt]\ncall_timeout=7", 7),
    "libvirt_workers": ("[libvirt]\nworkers=3", 3),
    "keepalive_interval_s": ("[libvirt]\nkeepalive_interval=7", 7),
    "keepalive_count": ("[libvirt]\nkeepalive_count=7", 7),
}
"""Each field that a running daemon keeps: a file that changes it, and what is then configured."""


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_reload_keeps_what_the_running_daemon_is_built_from_and_says_so(name: str, tmp_path: Path) -> None:
    text, value = OTHERWISE[name]
    (tmp_path / "sys").mkdir()
    configured = value.format(tmp_path) if isinstance(value, str) else value
    before = load(tmp_path, "")
    assert getattr(load(tmp_path, text.format(tmp_path)), name) == configured != getattr(before, name)
    after = conf.reload(before, ["--config-file", str(tmp_path / "own.conf")]).settings
    assert (getattr(after, name), after.host_config.host) == (getattr(before, name), before.host)
    stays = f"{name} stays {getattr(before, name)} until compute-agent is restarted; configured is {configured}"
    assert after.warnings == (stays,)


def test_every_field_that_a_running_daemon_keeps_is_tried() -> None:
    assert set(OTHERWISE) == set(FIXED)


def test_a_reload_of_an_unchanged_file_changes_nothing(tmp_path: Path) -> None:
    before = load(tmp_path, "[agent]\nstate_path=/a\n[compute]\ncpu_shared_set=1\n")
    assert conf.reload(before, ["--config-file", str(tmp_path / "own.conf")]).settings == before


@pytest.mark.parametrize(("interval", "stall_s"), [(1, 30.0), (15, 30.0), (60, 120.0)])
def test_passes_that_are_as_far_apart_as_they_shall_be_are_no_stall(
    tmp_path: Path, interval: int, stall_s: float
) -> None:
    assert load(tmp_path, f"[tracker]\ninterval={interval}\n").claim_rules.stall_s == stall_s


def test_a_reload_of_a_wrong_file_is_refused(tmp_path: Path) -> None:
    before = load(tmp_path, "")
    (tmp_path / "own.conf").write_text("[tracker]\ninterval=soon\n")
    with pytest.raises(ConfigError):
        conf.reload(before, ["--config-file", str(tmp_path / "own.conf")])


def test_what_is_in_force_is_told_with_the_file_it_comes_from(tmp_path: Path) -> None:
    text = "[agent]\nhost=h1\n[compute]\ncpu_dedicated_set=2-7\n[conflicts]\naccept=device-twice:*\n"
    told = conf.describe(load(tmp_path, text))
    assert told == (
        f"files read: {tmp_path}/own.conf",
        "host: h1",
        "libvirt: qemu:///system, read-only",
        "sysfs: below /",
        "state: /var/lib/compute-agent",
        "sockets: /run/compute-agent, agent.sock for group compute-agent",
        "a pass every 10 s, every guest's XML read again within 300 s",
        (
            "claims wait: 900 s for a guest that is built, 900 s for a guest that is resized, 120 s for a guest that "
            "is moved live, unless renewed; 60 s more when overdue"
        ),
        "dedicated CPUs: 2-7",
        "shared CPUs: none",
        "reserved memory: 512 MiB",
        "ratios: 4.0 vCPUs per CPU, 1.0 of memory",
        "devices that guests may have: none, no device_spec is set",
        "host cells for guests: first those with the most that is free",
        "intended: device-twice with *",
        f"set: [compute] cpu_dedicated_set=2-7 in {tmp_path}/own.conf",
    )


def test_debug_lines_are_logged_when_asked_for_and_the_log_goes_to_standard_error(tmp_path: Path) -> None:
    code = (
        "import logging, sys; from agent import conf; conf.setup_logging(conf.read(sys.argv[1:]).own); "
        "log = logging.getLogger('agent.x'); log.debug('quiet'); log.info('loud')"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    plain = subprocess.run(command, capture_output=True, text=True, check=True, cwd=CHECKOUT)
    debug = subprocess.run([*command, "--debug"], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert plain.stdout == ""
    assert [line.split(maxsplit=2)[2] for line in plain.stderr.splitlines()] == ["INFO agent.x loud"]
    assert "DEBUG agent.x quiet" in debug.stderr


def test_a_log_file_is_not_left_open_by_a_reload(tmp_path: Path) -> None:
    (tmp_path / "own.conf").write_text(f"[DEFAULT]\nlog_file={tmp_path}/x.log\n")
    code = (
        "import os, sys; from agent import conf\n"
        "for _ in range(5): conf.setup_logging(conf.read(sys.argv[1:]).own)\n"
        f"print(sum(os.readlink(f'/proc/self/fd/{{n}}') == '{tmp_path}/x.log' for n in os.listdir('/proc/self/fd')"
        " if os.path.exists(f'/proc/self/fd/{n}')))"
    )
    command = [sys.executable, "-W", "error", "-c", code, "--config-file", str(tmp_path / "own.conf")]
    assert subprocess.run(command, capture_output=True, text=True, check=True, cwd=CHECKOUT).stdout == "1\n"


def test_settings_are_frozen() -> None:
    read = conf.load([], [])
    with pytest.raises(AttributeError):
        read.interval_s = 3  # type: ignore[misc]
    assert msgspec.structs.replace(read, interval_s=3).interval_s == 3


VF = PciDevice(
    address=PciAddress.parse("0000:3b:10.0"),
    vendor_id="8086",
    product_id="10ed",
    class_code="0200",
    parent=PciAddress.parse("0000:3b:00.0"),
    parent_ifname="ens1f0",
    netdevs=(NetInterface(name="ens1f0v0"),),
)


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        (DeviceSpec(), True),
        (DeviceSpec(vendor_id="8086", product_id="10ed"), True),
        (DeviceSpec(vendor_id="8087"), False),
        (DeviceSpec(address="0000:3b:00.0"), True),
        (DeviceSpec(address="*:3b:00.*"), False),
        (DeviceSpec(address="*:3b:10.*"), True),
        (DeviceSpec(devname="ens1f0"), True),
        (DeviceSpec(devname="ens1f0v0"), True),
        (DeviceSpec(devname="ens1f1"), False),
        (DeviceSpec(pattern=AddressPattern(slot="1[0-3]")), True),
        (DeviceSpec(pattern=AddressPattern(slot="0")), False),
        (DeviceSpec(pattern=AddressPattern(domain="0000", bus="3b", slot="00", function="0")), True),
        (DeviceSpec(devname="ens1f0", vendor_id="15b3"), False),
    ],
)
def test_a_device_is_one_of_a_specification_by_all_that_is_set(spec: DeviceSpec, fits: bool) -> None:
    assert spec.matches(VF) is fits
