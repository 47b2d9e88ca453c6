"""Whatever is wrong with a configuration is told as a fault that names the option or the file; nothing hangs."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from agent import conf
from agent.conf.host import HIGHEST_RATIO
from agent.errors import ConfigError

DEEP = "[" * 5000


def faults(folder: Path, text: str) -> tuple[str, ...]:
    """Of one own file, its folder written DIR."""
    own = folder / "own.conf"
    own.write_text(text.replace("DIR", str(folder)))
    with pytest.raises(ConfigError) as caught:
        conf.load(["--config-file", str(own)])
    return tuple(told.replace(str(folder), "DIR") for told in caught.value.faults)


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("[agent]\nhost = $host", "[agent] host=$host in DIR/own.conf: it refers to itself"),
        (
            "[agent]\nstate_path = $state_path/x",
            "[agent] state_path=$state_path/x in DIR/own.conf: it refers to itself",
        ),
        ("[agent]\nhost = $state_path\nstate_path = /$host", "it refers to itself"),
        ("[agent]\nhost = $tracker", "[agent] host=$tracker in DIR/own.conf: "),
        ("[agent]\nstate_path = /x\0y", "it holds a NUL"),
        ("[agent]\nsocket_dir = /x\0y", "it holds a NUL"),
        ("[agent]\nsysfs_root = /x\0y", "[agent] sysfs_root="),
        (f"[agent]\nsysfs_root = /{'x' * 5000}", "there is no folder sys in it"),
        ("[agent]\nnova_conf = /x\0y", "[agent] nova_conf: "),
        (f"[agent]\nnova_conf = /{'x' * 300}", "File name too long"),
        (f"[pci]\ndevice_spec = {DEEP}", "it is nested too deeply"),
        (f'[pci]\ndevice_spec = {{"x": {"[" * 2000}{"]" * 2000}}}', "[pci] device_spec="),
        (f'[pci]\ndevice_spec = {{"address": {{"bus": "{"(" * 5000}"}}}}', "[pci] device_spec="),
        ('[pci]\ndevice_spec = {"address": {"bus": "a{99999999999}"}}', "[pci] device_spec="),
        ("[DEFAULT]\nreserved_host_memory_mb = 99999999999999999999", "[DEFAULT] reserved_host_memory_mb="),
        ("[DEFAULT]\nreserved_huge_pages = node:0,size:4,count:99999999999999999999", "more than any host has"),
        ("[DEFAULT]\nreserved_huge_pages = node:99999999999,size:4,count:1", "more than any host has"),
        ("[DEFAULT]\nreserved_huge_pages = node:0,size:1e999GB,count:1", "[DEFAULT] reserved_huge_pages="),
    ],
)
def test_a_fault_of_any_kind_names_its_option(option: str, named: str, tmp_path: Path) -> None:
    told = faults(tmp_path, option)
    assert any(named in fault for fault in told), told
    assert max(map(len, told)) < 1000, "a long value is cut"


@pytest.mark.parametrize("name", ["cpu_allocation_ratio", "ram_allocation_ratio"])
@pytest.mark.parametrize("text", ["nan", "inf", "1e308", "-nan"])
def test_a_ratio_that_is_no_number_or_absurd_is_a_fault(name: str, text: str, tmp_path: Path) -> None:
    (told,) = faults(tmp_path, f"[DEFAULT]\n{name} = {text}")
    assert told.startswith(f"[DEFAULT] {name}={text} in DIR/own.conf: ")
    assert told.endswith(". Correct it.")


def test_a_ratio_of_nova_is_held_to_the_same(tmp_path: Path) -> None:
    (tmp_path / "nova.conf").write_text("[DEFAULT]\ninitial_cpu_allocation_ratio = nan\n")
    (told,) = faults(tmp_path, "[agent]\nnova_conf = DIR/nova.conf")
    assert told == (
        "[DEFAULT] initial_cpu_allocation_ratio=nan in DIR/nova.conf: "
        f"it is no number from 0 to {HIGHEST_RATIO}. Correct it."
    )


@pytest.mark.parametrize(("name", "kind"), [("fifo", "a FIFO"), ("zero", "a device"), ("folder", "a folder")])
@pytest.mark.parametrize("option", ["nova_conf", "config_file", "log_config_append"])
def test_what_is_no_regular_file_is_refused_before_it_is_opened(
    name: str, kind: str, option: str, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    path = tmp_path / name
    text = {"nova_conf": f"[agent]\nnova_conf={path}", "log_config_append": f"[DEFAULT]\nlog_config_append={path}"}
    (tmp_path / "own.conf").write_text(text.get(option, ""))
    own = path if option == "config_file" else tmp_path / "own.conf"
    with pytest.raises(ConfigError) as caught:
        conf.load(["--config-file", str(own)])
    (told,) = caught.value.faults
    assert f"{path} is {kind}, not a regular file" in told


def test_a_file_that_would_fill_the_memory_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    with (tmp_path / "nova.conf").open("wb") as file:
        file.truncate(2**40)
    (told,) = faults(tmp_path, "[agent]\nnova_conf = DIR/nova.conf")
    assert told == (
        "[agent] nova_conf: DIR/nova.conf has 1099511627776 bytes, more than a configuration needs. "
        "Name a configuration file."
    )


LOGGERS = "[loggers]\nkeys=root\n[handlers]\nkeys={}\n[formatters]\nkeys=\n[logger_root]\nhandlers=\n"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("use_syslog = true\nsyslog_log_facility = nope", "[DEFAULT] syslog_log_facility=nope in DIR/own.conf: "),
        ("use_journal = true\nsyslog_log_facility = nope", "[DEFAULT] syslog_log_facility=nope in DIR/own.conf: "),
        ("log_file = DIR/no/such/x.log", "[DEFAULT] log_file=DIR/no/such/x.log in DIR/own.conf: "),
        ("log_file = DIR", "[DEFAULT] log_file=DIR in DIR/own.conf: "),
        ("log_file = DIR/fifo", "is a FIFO"),
        ("log_dir = DIR/none", "[DEFAULT] log_dir=DIR/none in DIR/own.conf: "),
        ("log_dir = DIR/none\nlog_file=x.log", "there is no folder DIR/none"),
        ("log_config_append = DIR/none", "[DEFAULT] log_config_append=DIR/none in DIR/own.conf: "),
        ("log_config_append = DIR/own.conf", "[DEFAULT] log_config_append=DIR/own.conf in DIR/own.conf: "),
        ("log_config_append = DIR/lost.ini", "there is no section handler_lost"),
        ("logging_default_format_string = %(nothing)s", "[DEFAULT] logging_default_format_string=%(nothing)s in "),
        ("logging_default_format_string = %(message)d", "[DEFAULT] logging_default_format_string=%(message)d in "),
        ("logging_default_format_string = 100%", "[DEFAULT] logging_default_format_string=100% in "),
        ("logging_exception_prefix = %(nothing)s", "[DEFAULT] logging_exception_prefix=%(nothing)s in "),
        ("debug = true\nlogging_debug_format_suffix = %(no)s", "[DEFAULT] logging_debug_format_suffix=%(no)s in "),
        ("default_log_levels = a=NOPE", "[DEFAULT] default_log_levels=a=NOPE in DIR/own.conf: "),
        (
            "log_file=DIR/x.log\nlog_rotation_type=interval\nlog_rotate_interval_type=weekday\nlog_rotate_interval = 9",
            "[DEFAULT] log_rotate_interval=9 in DIR/own.conf: ",
        ),
        (
            "rate_limit_burst = 1\nrate_limit_interval = 1\nrate_limit_except_level = NOPE",
            "rate_limit_except_level=NOPE",
        ),
    ],
)
def test_options_of_the_log_are_checked_with_all_others_and_make_no_file(
    options: str, named: str, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "lost.ini").write_text(LOGGERS.format("lost"))
    told = faults(tmp_path, f"[DEFAULT]\n{options}\n")
    assert len(told) == 1
    assert named in told[0]
    assert not (tmp_path / "x.log").exists()


def test_options_of_the_log_that_are_right_make_no_file_either(tmp_path: Path) -> None:
    (tmp_path / "log.ini").write_text(LOGGERS.format(""))
    own = tmp_path / "own.conf"
    for options in ("log_config_append = log.ini", "log_dir = .", "log_file = x.log", "use_json = true"):
        own.write_text(f"[DEFAULT]\n{options}\n".replace("= log.ini", f"= {tmp_path}/log.ini"))
        conf.load(["--config-file", str(own)])
    own.write_text(f"[DEFAULT]\nlog_dir={tmp_path}\nlog_file=x.log\nsyslog_log_facility=local0\nuse_syslog=true\n")
    conf.load(["--config-file", str(own)])
    assert {path.name for path in tmp_path.iterdir()} == {"own.conf", "log.ini"}


def test_a_log_to_the_journal_is_refused_where_its_package_is_not_installed(tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    own.write_text("[DEFAULT]\nuse_journal = true\n")
    told: tuple[str, ...] = ()
    try:
        conf.load(["--config-file", str(own)])
    except ConfigError as error:
        told = error.faults
    is_installed = find_spec("systemd") is not None
    assert [fault.partition(": the ")[0] for fault in told] == (
        [] if is_installed else [f"[DEFAULT] use_journal=true in {own}"]
    )
