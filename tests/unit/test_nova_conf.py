"""An existing nova.conf is read by nova's rules, and nothing of it that this host does not share with nova."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import conf
from agent.core.cpuset import CpuSet
from agent.core.host_config import HostConfig
from agent.core.pci import PciAddress, PciDevice
from agent.errors import ConfigError
from tests.compat.nova_cases import CASES, DEVICES, ONLINE, REFUSED, Answer


def settings(folder: Path, nova: str, own: str = "", more_nova: str | None = None) -> conf.Settings:
    """Of an own file that names nova's."""
    files = {"nova.conf": nova} | ({"nova-compute.conf": more_nova} if more_nova is not None else {})
    for name, text in files.items():
        (folder / name).write_text(text)
    named = "".join(f"nova_conf = {folder / name}\n" for name in files)
    (folder / "own.conf").write_text(f"{own}\n[agent]\n{named}")
    return conf.load(["--config-file", str(folder / "own.conf")])


def faults(folder: Path, nova: str, own: str = "") -> tuple[str, ...]:
    """What `settings` complains of."""
    with pytest.raises(ConfigError) as caught:
        settings(folder, nova, own)
    return caught.value.faults


def in_force(config: HostConfig) -> Answer:
    """On the host of the recorded cases."""
    devices = [
        PciDevice(
            address=PciAddress.parse(device["address"]),
            vendor_id=device["vendor_id"],
            product_id=device["product_id"],
            class_code="0200",
            parent=PciAddress.parse(device["parent_addr"]) if "parent_addr" in device else None,
        )
        for device in DEVICES
    ]
    return Answer(
        dedicated=ONLINE if config.is_legacy else str(config.dedicated or ""),
        shared=ONLINE if config.is_legacy else str(config.shared or ""),
        memory_mb=config.reserved_memory_mb,
        pages=tuple(sorted((page.cell, page.size_kib, page.count) for page in config.reserved_pages)),
        cpu_ratio=config.cpu_allocation_ratio,
        ram_ratio=config.ram_allocation_ratio,
        devices=tuple(n for n, one in enumerate(devices) if any(spec.matches(one) for spec in config.device_spec)),
    )


@pytest.mark.parametrize("name", [name for name, (_, expected) in CASES.items() if expected is not REFUSED])
def test_what_nova_accepts_means_the_same_here(name: str, tmp_path: Path) -> None:
    text, expected = CASES[name]
    assert in_force(settings(tmp_path, text).host_config) == expected


@pytest.mark.parametrize("name", [name for name, (_, expected) in CASES.items() if expected is REFUSED])
def test_what_nova_refuses_is_one_fault_that_names_its_file(name: str, tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, CASES[name][0])
    assert str(tmp_path / "nova.conf") in fault


def test_options_of_nova_that_are_not_shared_never_matter(tmp_path: Path) -> None:
    text = "[DEFAULT]\ninterval=abc\nmy_ip=$nothing\n[tracker]\ninterval=0\n[libvirt]\nvirt_type=none\n[new]\nx=y"
    read = settings(tmp_path, text)
    assert (read.interval_s, read.host_config, read.warnings) == (10, HostConfig(host=read.host), ())


def test_a_later_file_of_nova_wins(tmp_path: Path) -> None:
    read = settings(
        tmp_path, "[compute]\ncpu_shared_set=0\ncpu_dedicated_set=4-7", more_nova="[compute]\ncpu_shared_set=1"
    )
    assert (read.host_config.shared, read.host_config.dedicated) == (CpuSet([1]), CpuSet(range(4, 8)))


def test_an_own_option_wins_over_nova_and_says_so_in_one_line(tmp_path: Path) -> None:
    read = settings(tmp_path, "[DEFAULT]\nreserved_host_memory_mb=2048", own="[DEFAULT]\nreserved_host_memory_mb=1024")
    assert read.host_config.reserved_memory_mb == 1024
    assert read.notes == (
        f"[DEFAULT] reserved_host_memory_mb=1024 in {tmp_path}/own.conf is used, not 2048 in {tmp_path}/nova.conf",
    )


def test_an_own_option_that_says_the_same_as_nova_is_not_worth_a_line(tmp_path: Path) -> None:
    text = "[DEFAULT]\nreserved_host_memory_mb=1024"
    assert settings(tmp_path, text, own=text).notes == ()


def test_one_own_cpu_set_puts_aside_all_of_nova(tmp_path: Path) -> None:
    nova = "[DEFAULT]\nvcpu_pin_set=0-15\nreserved_host_cpus=2\n[compute]\ncpu_shared_set=0-3"
    read = settings(tmp_path, nova, own="[compute]\ncpu_dedicated_set=2-7")
    assert (read.host_config.dedicated, read.host_config.shared) == (CpuSet(range(2, 8)), None)
    (note,) = read.notes
    assert note == (
        f"[compute] cpu_dedicated_set=2-7 is used, not [compute] cpu_shared_set=0-3 in {tmp_path}/nova.conf nor "
        f"[DEFAULT] vcpu_pin_set=0-15 in {tmp_path}/nova.conf: CPU sets count together"
    )


def test_own_devices_win_over_every_name_that_nova_has_for_them(tmp_path: Path) -> None:
    nova = (
        '[pci]\npassthrough_whitelist={"vendor_id":"15b3"}\n[DEFAULT]\npci_passthrough_whitelist={"vendor_id":"10de"}'
    )
    read = settings(tmp_path, nova, own='[pci]\ndevice_spec={"vendor_id":"8086"}')
    assert [spec.vendor_id for spec in read.host_config.device_spec] == ["8086"]
    assert len(read.notes) == 2


def test_a_tag_that_looks_like_a_slip_is_a_note_on_nova_and_no_fault(tmp_path: Path) -> None:
    text = 'device_spec={"vendor_id":"8086","color":"red","physnet":"a"}'
    read = settings(tmp_path, f"[pci]\n{text}")
    what = "physnet is a tag that nothing asks for, where physical_network may be meant"
    assert read.notes == (f"[pci] {text} in {tmp_path}/nova.conf: {what}",)
    (spec,) = read.host_config.device_spec
    assert spec.tags == {"color": "red", "physnet": "a"}


def test_the_libvirt_of_nova_is_watched_unless_ours_is_set(tmp_path: Path) -> None:
    nova = "[libvirt]\nconnection_uri=qemu+unix:///system"
    assert settings(tmp_path, nova).connection_uri == "qemu+unix:///system"
    assert settings(tmp_path, nova, own="[libvirt]\nconnection_uri=qemu:///x").connection_uri == "qemu:///x"
    assert settings(tmp_path, "[libvirt]\nconnection_uri=").connection_uri == "qemu:///system"


def test_a_nova_conf_that_is_gone_is_a_fault_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "own.conf").write_text(f"[agent]\nnova_conf = {tmp_path}/moved.conf")
    with pytest.raises(ConfigError) as caught:
        conf.load(["--config-file", str(tmp_path / "own.conf")])
    assert str(caught.value) == (
        f"[agent] nova_conf: {tmp_path}/moved.conf cannot be read: No such file or directory. "
        "Name a file that is there."
    )


def test_a_nova_conf_that_is_no_configuration_file_is_a_fault_that_names_the_line(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, "[compute]\nthis is nothing\n")
    assert fault.startswith(f"[agent] nova_conf: {tmp_path}/nova.conf is no configuration file: ")
    assert ":2," in fault
    assert "this is nothing" in fault


def test_every_fault_of_both_files_is_told_at_once(tmp_path: Path) -> None:
    told = faults(
        tmp_path,
        "[DEFAULT]\nreserved_host_memory_mb=lots\n[compute]\ncpu_shared_set=x",
        own="[tracker]\ninterval=0\n[conflicts]\naccept=nothing",
    )
    assert [fault.partition("=")[0] for fault in told] == [
        "[conflicts] accept",
        "[tracker] interval",
        "[compute] cpu_shared_set",
        "[DEFAULT] reserved_host_memory_mb",
    ]
