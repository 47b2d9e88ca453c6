"""Which entry of device_spec counts for a device."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.core.host_config import DeviceSpec, HostConfig
from agent.core.pci import PciAddress, PciDevice

ADDRESSES = st.builds(PciAddress, st.just(0), st.just(0x3B), st.integers(0, 2), st.integers(0, 1))
SPECS = st.lists(
    st.builds(
        DeviceSpec,
        address=st.none() | ADDRESSES.map(str) | st.sampled_from(("*:3b:*.*", "0000:*:01.*", "*:3b:00.0")),
        vendor_id=st.none() | st.sampled_from(("8086", "10de")),
        tags=st.sampled_from(({}, {"remote_managed": "true"})),
    ),
    max_size=5,
)
DEVICES = st.builds(
    PciDevice,
    address=ADDRESSES,
    vendor_id=st.sampled_from(("8086", "10de")),
    product_id=st.just("1572"),
    class_code=st.just("0200"),
    parent=st.none() | ADDRESSES,
    serial=st.none() | st.just("s1"),
)


@given(specs=SPECS, device=DEVICES)
def test_the_first_entry_that_can_mean_the_device_counts_however_it_names_it(
    specs: list[DeviceSpec], device: PciDevice
) -> None:
    first = next((one for one in specs if one.matches(device) and one.flaw(device) is None), None)
    assert HostConfig(device_spec=tuple(specs)).offering().spec_of(device) is first


def test_an_entry_that_names_one_address_stands_for_its_virtual_functions_too() -> None:
    named = DeviceSpec(address="0000:3b:00.0")
    function = PciDevice(
        address=PciAddress.parse("3b:02.1"),
        vendor_id="8086",
        product_id="154c",
        class_code="0200",
        type="type-VF",
        parent=PciAddress.parse("3b:00.0"),
    )
    assert HostConfig(device_spec=(named,)).offering().spec_of(function) is named
