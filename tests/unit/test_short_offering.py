"""Devices of a host in the short form are offered as what they and device_spec say, each for itself."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.host_config import DeviceSpec, SpecIndex
from agent.core.pci import DeviceType, PciAddress, PciDevice
from agent.formats.device_spec import device_specs
from agent.formats.short_offering import ASSUMED_SERIAL, Offering, own_tags, with_serial

PF, OTHER = "0000:3b:00.0", "0000:af:00.0"
Tags = dict[str, Any]


def device(
    address: str, product_id: str = "154c", parent: str | None = None, kind: DeviceType | None = None
) -> PciDevice:
    return PciDevice(
        address=PciAddress.parse(address),
        vendor_id="8086",
        product_id=product_id,
        class_code="0200",
        type=kind or ("type-PCI" if parent is None else "type-VF"),
        parent=None if parent is None else PciAddress.parse(parent),
    )


def vf(number: int, product_id: str = "154c", parent: str = PF) -> PciDevice:
    return device(f"{parent[:8]}02.{number}", product_id, parent)


def pf(address: str = PF, product_id: str = "1572") -> PciDevice:
    return device(address, product_id, kind="type-PF")


def offering(devices: list[PciDevice], own: dict[str, Tags], specs: list[Tags] | None) -> Offering:
    read = None if specs is None else device_specs(json.dumps(specs))[0]
    return Offering(devices, {PciAddress.parse(name): own_tags(tags) for name, tags in own.items()}, read)


def offered(devices: list[PciDevice], own: dict[str, Tags], specs: list[Tags] | None) -> dict[str, Tags | None]:
    """The tags by address, by what the entries say; None: not offered."""
    index = SpecIndex(offering(devices, own, specs).entries())
    parents = {one.address: one for one in devices}
    found = {str(one.address): index.spec_of(one, parents.get(one.parent or one.address)) for one in devices}
    return {address: None if spec is None else dict(spec.tags) for address, spec in found.items()}


def test_own_tags_are_laid_over_those_of_the_entry_that_names_the_device() -> None:
    specs = [{"vendor_id": "8086", "product_id": "154c", "physical_network": "a", "x": "1"}]
    own = {"0000:3b:02.0": {"physical_network": None, "y": "2"}}
    assert offered([vf(0), vf(1), pf()], own, specs) == {
        "0000:3b:02.0": {"physical_network": None, "x": "1", "y": "2"},
        "0000:3b:02.1": {"physical_network": "a", "x": "1"},
        PF: None,
    }


def test_a_device_that_no_entry_names_is_offered_with_its_own_tags_alone() -> None:
    assert offered([pf(), pf(OTHER)], {OTHER: {"x": "1"}}, [{"address": PF}]) == {PF: {}, OTHER: {"x": "1"}}


def test_without_device_spec_every_device_is_offered_with_its_own_tags_or_none() -> None:
    assert offered([pf(), vf(0)], {PF: {"x": "1"}}, None) == {PF: {"x": "1"}, "0000:3b:02.0": {}}
    assert offered([pf(), vf(0)], {}, None) == {PF: {}, "0000:3b:02.0": {}}
    assert offering([], {}, None).entries() == ()


@pytest.mark.parametrize("product_id", ["154c", "1572"])
def test_tags_of_a_physical_function_are_not_those_of_its_virtual_ones(product_id: str) -> None:
    devices = [pf(), pf(OTHER), vf(0, product_id), vf(0, product_id, OTHER)]
    own = {PF: {"x": "a"}, OTHER: {"x": "b"}}
    first, second = (str(one.address) for one in devices[2:])
    assert offered(devices, own, None) == {PF: {"x": "a"}, OTHER: {"x": "b"}, first: {}, second: {}}
    assert offered(devices, own, []) == {PF: {"x": "a"}, OTHER: {"x": "b"}, first: None, second: None}
    assert offered(devices, own, [{"address": PF}]) == {PF: {"x": "a"}, OTHER: {"x": "b"}, first: {}, second: None}


def test_what_nova_reads_beside_tags_is_laid_over_too() -> None:
    specs = [{"vendor_id": "8086", "live_migratable": "yes", "traits": "A", "resource_class": "NIC", "managed": "no"}]
    own = {PF: {"live_migratable": "no", "one_time_use": "yes", "traits": "B"}}
    (spec,) = [one for one in offering([pf()], own, specs).entries() if one.vendor_id and one.product_id]
    assert spec == DeviceSpec(
        vendor_id="8086", product_id="1572", live_migratable=False, one_time_use=True, managed=False,
        resource_class="CUSTOM_NIC", traits=("CUSTOM_B",),
    )  # fmt: skip


def test_many_devices_that_are_all_alike_are_one_entry() -> None:
    devices = [vf(number) for number in range(8)]
    tags = {"physical_network": "a"}
    assert offering(devices, {str(one.address): tags for one in devices}, None).entries() == (
        DeviceSpec(vendor_id="8086", product_id="154c", tags=MappingProxyType(tags)),
    )


def test_a_tag_cannot_say_which_device_is_meant() -> None:
    with pytest.raises(ValueError, match="vendor_id says which device is meant, and is no tag"):
        own_tags({"vendor_id": "8086"})


def test_what_a_device_cannot_be_is_told() -> None:
    odd = offering([pf(), vf(0), vf(1)], {PF: {"remote_managed": "true"}, "0000:3b:02.0": {"one_time_use": "1"}}, None)
    flaws = [odd.flaw_of(PciAddress.parse(address)) for address in (PF, "0000:3b:02.0", "0000:3b:02.1")]
    assert flaws == [
        "device_spec says remote_managed, which a physical function cannot be",
        "device_spec says one_time_use, which is for type-PCI and type-PF; this is type-VF",
        None,
    ]


def test_a_device_that_is_managed_from_afar_is_taken_for_one_of_a_card_with_a_serial_number() -> None:
    remote, _ = device_specs('[{"product_id": "154c", "remote_managed": "yes"}]')
    told = msgspec.structs.replace(vf(0), serial="MT1")
    assert with_serial(vf(0), None, remote).serial == ASSUMED_SERIAL
    assert with_serial(vf(0), own_tags({"remote_managed": "true"}), ()).serial == ASSUMED_SERIAL
    assert with_serial(vf(0), own_tags({"remote_managed": "false"}), remote).serial is None
    assert with_serial(vf(0), None, ()).serial is None
    assert with_serial(pf(), None, remote).serial is None
    assert with_serial(told, None, remote) is told


TAGS = st.dictionaries(st.sampled_from(["x", "y", "physical_network"]), st.sampled_from(["a", "b", None]), min_size=1)
DEVICES = [pf(), pf(OTHER, "154c"), *(vf(n) for n in range(3)), *(vf(n, "1572", OTHER) for n in range(2))]
SPECS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={"address": st.sampled_from([PF, OTHER, "*:02.*"]), "product_id": st.just("154c"), "z": st.just("1")},
    ),
    max_size=3,
)


@settings(max_examples=300)
@given(
    own=st.dictionaries(st.sampled_from([str(one.address) for one in DEVICES]), TAGS),
    specs=st.none() | SPECS,
)
def test_every_device_is_offered_as_its_entry_says_with_its_own_tags_over_it(
    own: dict[str, Tags], specs: list[Tags] | None
) -> None:
    plain = offered(DEVICES, {}, specs)
    meant = {
        address: {**(tags or {}), **own.get(address, {})} if tags is not None or address in own else None
        for address, tags in plain.items()
    }
    assert offered(DEVICES, own, specs) == meant
