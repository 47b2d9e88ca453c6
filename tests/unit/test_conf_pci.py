"""[pci] device_spec and alias, and what [compute] says of host cells, in our own words and in nova's."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest

from agent import conf
from agent.core.host_config import DeviceSpec, HostConfig
from agent.core.pci_request import Alias, PciSpec
from agent.errors import ConfigError
from agent.formats import pci_alias


def configured(folder: Path, text: str, nova: str | None = None) -> conf.Settings:
    """Of one own file, and one of nova's."""
    own = folder / "own.conf"
    own.write_text(text)
    if nova is not None:
        (folder / "nova.conf").write_text(nova)
        own.write_text(f"{text}\n[agent]\nnova_conf = {folder / 'nova.conf'}\n")
    return conf.load(["--config-file", str(own)])


def fault(folder: Path, text: str) -> str:
    """The one that `text` has, without the option and the remedy."""
    with pytest.raises(ConfigError) as caught:
        configured(folder, text)
    (told,) = caught.value.faults
    return told.partition(" in ")[2].partition(": ")[2]


def spec(folder: Path, text: str) -> DeviceSpec:
    """Of one entry."""
    (read,) = configured(folder, f"[pci]\ndevice_spec = {text}").host_config.device_spec
    return read


def test_every_tag_of_nova_is_kept(tmp_path: Path) -> None:
    text = (
        '{"vendor_id": "8086", "physical_network": "net1", "trusted": "true", "remote_managed": "Yes", '
        '"managed": "no", "live_migratable": "on", "one_time_use": "1", "resource_class": "gpu vf", '
        '"traits": "HW_GPU_API_VULKAN,blue big", "rack": "7"}'
    )
    assert spec(tmp_path, text) == DeviceSpec(
        vendor_id="8086",
        tags=MappingProxyType({"physical_network": "net1", "rack": "7", "remote_managed": "true", "trusted": "true"}),
        managed=False,
        live_migratable=True,
        one_time_use=True,
        resource_class="CUSTOM_GPU_VF",
        traits=("CUSTOM_BLUE_BIG", "HW_GPU_API_VULKAN"),
    )


def test_null_is_kept_and_is_not_no_tag(tmp_path: Path) -> None:
    assert spec(tmp_path, '{"physical_network": null}').tags == {"physical_network": None}
    assert spec(tmp_path, "{}").tags == {}


@pytest.mark.parametrize(("value", "kept"), [("true", "true"), ('"TRUE"', "TRUE"), ("7", "7"), ("1.5", "1.5")])
def test_a_tag_that_is_no_text_is_compared_as_one(value: str, kept: str, tmp_path: Path) -> None:
    assert spec(tmp_path, f'{{"trusted": {value}}}').tags == {"trusted": kept}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"managed": "maybe"}', "managed 'maybe' is neither yes nor no (true, false, 1, 0, on, off). Correct it."),
        (
            '{"live_migratable": ""}',
            "live_migratable '' is neither yes nor no (true, false, 1, 0, on, off). Correct it.",
        ),
        ('{"one_time_use": "2"}', "one_time_use '2' is neither yes nor no (true, false, 1, 0, on, off). Correct it."),
        (
            '{"remote_managed": "x"}',
            "remote_managed 'x' is neither yes nor no (true, false, 1, 0, on, off). Correct it.",
        ),
        ('{"rack": ["a"]}', "tag rack is list, and only a text or null can be asked for. Correct it."),
        (
            '{"address": "0000:01:00.0", "devname": "ens1"}',
            "address and devname name the same thing; give one of them.",
        ),
        ('{"product": "154c"}', "product is a tag that nothing asks for, where product_id may be meant. Correct it."),
        (
            '{"physnet": "a"}',
            "physnet is a tag that nothing asks for, where physical_network may be meant. Correct it.",
        ),
    ],
)
def test_what_is_wrong_with_a_device_spec_is_told_by_name(text: str, told: str, tmp_path: Path) -> None:
    assert fault(tmp_path, f"[pci]\ndevice_spec = {text}").startswith(told)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("VGPU", "VGPU"),
        ("pgpu", "PGPU"),
        ("CUSTOM_x", "CUSTOM_X"),
        ("a16-16a", "CUSTOM_A16_16A"),
        ("PCI_DEVICE2", "CUSTOM_PCI_DEVICE2"),
    ],
)
def test_a_resource_class_is_named_as_placement_does(text: str, name: str, tmp_path: Path) -> None:
    assert spec(tmp_path, f'{{"resource_class": "{text}"}}').resource_class == name


QAT = '{"name": " qat ", "vendor_id": "8086", "product_id": "04AB", "device_type": "type-PCI", "numa_policy": "socket"}'


def test_an_alias_is_a_name_for_a_kind_of_device(tmp_path: Path) -> None:
    text = (
        f"[pci]\nalias = {QAT}\nalias = "
        '{"name": "gpu", "resource_class": "VGPU", "traits": "big, HW_X", "live_migratable": "no", '
        '"capability_type": "pci"}'
    )
    assert configured(tmp_path, text).host_config.alias == (
        Alias(
            name="qat",
            specs=(PciSpec(vendor_id="8086", product_id="04ab", device_type="type-PCI"),),
            numa_policy="socket",
        ),
        Alias(
            name="gpu",
            specs=(PciSpec(resource_class="VGPU", traits=("CUSTOM_BIG", "HW_X")),),
            live_migratable=False,
        ),
    )


def entry(product: str, **more: str) -> str:
    """Of the alias "a", as an option line."""
    words = "".join(f', "{name}": "{value}"' for name, value in more.items())
    return f'alias = {{"name": "a", "vendor_id": "8086", "product_id": "{product}"{words}}}\n'


def test_the_same_name_again_is_an_alternative(tmp_path: Path) -> None:
    (alias,) = configured(tmp_path, "[pci]\n" + entry("0001") + entry("0002", numa_policy="legacy")).host_config.alias
    assert [one.product_id for one in alias.specs] == ["0001", "0002"]
    assert alias.numa_policy == "legacy"


def test_alternatives_that_differ_in_live_migration_keep_it_each_for_itself(tmp_path: Path) -> None:
    text = "[pci]\n" + entry("0001", live_migratable="yes") + entry("0002") + entry("0003", live_migratable="no")
    (alias,) = configured(tmp_path, text).host_config.alias
    assert alias.live_migratable is None
    assert [dict(one.tags) for one in alias.specs] == [{"live_migratable": "true"}, {}, {"live_migratable": "false"}]


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (
            {},
            {"device_type": "type-VF"},
            "they have device_type none and type-VF",
        ),
        (
            {"numa_policy": "required"},
            {},
            "they have numa_policy legacy and required",
        ),
    ],
)
def test_alternatives_agree_in_policy_and_type(
    first: dict[str, str], second: dict[str, str], told: str, tmp_path: Path
) -> None:
    assert fault(tmp_path, "[pci]\n" + entry("0001", **first) + entry("0002", **second)) == (
        f"the entries of a do not agree: {told}. Let them agree, or give one another name."
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"vendor_id": "8086", "product_id": "0001"}', "Object missing required field `name`. Correct it."),
        ('{"name": " "}', "name has 0 characters; it takes 1 to 256. Correct it."),
        ('{"name": "a"}', "it names no device: it takes vendor_id and product_id, or resource_class. Correct it."),
        (
            '{"name": "a", "vendor_id": "8086", "traits": "x"}',
            "it names no device: it takes vendor_id and product_id, or resource_class. Correct it.",
        ),
        (
            '{"name": "a", "vendor_id": "0x8086", "product_id": "0001"}',
            "vendor_id '0x8086' is not of four hexadecimal digits. Correct it.",
        ),
        (
            '{"name": "a", "vendor_id": "8086", "product_id": "0001", "device_type": "vdpa"}',
            "device_type 'vdpa' is none of type-PCI, type-PF, type-VF. Correct it.",
        ),
        (
            '{"name": "a", "vendor_id": "8086", "product_id": "0001", "numa_policy": "near"}',
            "numa_policy 'near' is none of required, socket, preferred, legacy. Correct it.",
        ),
        (
            '{"name": "a", "vendor_id": "8086", "product_id": "0001", "live_migratable": "maybe"}',
            "live_migratable 'maybe' is neither yes nor no (true, false, 1, 0, on, off). Correct it.",
        ),
        (
            '{"name": "a", "vendor_id": "8086", "product_id": "0001", "policy": "x"}',
            f"unknown: policy; known are {', '.join(pci_alias.KEYS)}. Correct it.",
        ),
        ("qat", "JSON is malformed: invalid character (byte 0). Correct it."),
    ],
)
def test_what_is_wrong_with_an_alias_is_told_by_name(text: str, told: str, tmp_path: Path) -> None:
    assert fault(tmp_path, f"[pci]\nalias = {text}") == told


def test_aliases_of_nova_are_read_under_both_of_their_names(tmp_path: Path) -> None:
    nova = f"[pci]\n{entry('0001')}[DEFAULT]\npci_{entry('0002')}"
    (alias,) = configured(tmp_path, "", nova).host_config.alias
    assert [one.product_id for one in alias.specs] == ["0001", "0002"]


def test_own_aliases_put_aside_those_of_nova(tmp_path: Path) -> None:
    read = configured(tmp_path, f"[pci]\n{entry('0003')}", f"[pci]\n{entry('0001')}")
    (alias,) = read.host_config.alias
    assert [one.product_id for one in alias.specs] == ["0003"]
    (note,) = read.notes
    assert note.startswith("[pci] alias=")


def test_host_cells_are_packed_when_nova_or_we_say_so(tmp_path: Path) -> None:
    option = "[compute]\npacking_host_numa_cells_allocation_strategy = {}"
    assert not HostConfig().pack_cells
    assert configured(tmp_path, option.format("true")).host_config.pack_cells
    assert configured(tmp_path, "", option.format("True")).host_config.pack_cells
    read = configured(tmp_path, option.format("false"), option.format("true"))
    assert not read.host_config.pack_cells
    assert len(read.notes) == 1


def test_host_cells_are_shared_only_by_an_option_of_our_own(tmp_path: Path) -> None:
    assert not configured(tmp_path, "").host_config.share_cells
    assert configured(tmp_path, "[compute]\nshare_host_cells = yes").host_config.share_cells


def test_what_is_in_force_names_the_aliases_and_the_order_of_host_cells(tmp_path: Path) -> None:
    text = (
        f"[pci]\n{entry('0001', device_type='type-VF')}{entry('0002', device_type='type-VF')}"
        "[compute]\npacking_host_numa_cells_allocation_strategy=true\nshare_host_cells=true\n"
    )
    told = conf.describe(configured(tmp_path, text))
    assert {
        "alias a: type-VF 8086:0001 or type-VF 8086:0002",
        "host cells for guests: first those with the least that is free",
        "several cells of a guest may go to one host cell",
    } <= set(told)
