"""PciAddress reads and writes addresses as lspci, libvirt and nova do, domains beyond 16 bits included."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.pci import PciAddress

PARTS = st.tuples(st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F), st.integers(0, 7))


@settings(deadline=None)
@given(PARTS)
def test_its_text_reads_back_as_the_same_address(parts: tuple[int, int, int, int]) -> None:
    address = PciAddress(*parts)
    assert PciAddress.parse(str(address)) == address
    assert (address.domain, address.bus, address.slot, address.function) == parts
    assert pickle.loads(pickle.dumps(address)) == address


@settings(deadline=None)
@given(PARTS, PARTS)
def test_addresses_are_ordered_by_domain_bus_slot_and_function(
    left: tuple[int, int, int, int], right: tuple[int, int, int, int]
) -> None:
    assert (PciAddress(*left) < PciAddress(*right)) == (left < right)
    assert (PciAddress(*left) == PciAddress(*right)) == (left == right)
    assert (hash(PciAddress(*left)) == hash(PciAddress(*right))) or left != right


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("0000:3b:00.1", "0000:3b:00.1"),
        ("3b:00.1", "0000:3b:00.1"),
        ("10000:E1:00.0", "10000:e1:00.0"),
        ("5d0505:01:00.0", "5d0505:01:00.0"),
        (" 0:0:1f.7 ", "0000:00:1f.7"),
    ],
)
def test_short_and_long_forms_are_one_address(text: str, written: str) -> None:
    assert str(PciAddress.parse(text)) == written


@pytest.mark.parametrize(
    "text",
    ["", "0000:3b:00", "0000:3b:20.0", "0000:3b:00.8", "0000:100:00.0", "123456789:00:00.0", "g:00:00.0", "*:e1:00.0"],
)
def test_text_that_is_no_address_is_quoted_in_the_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a PCI address") as caught:
        PciAddress.parse(text)
    assert repr(text) in str(caught.value)


def test_two_domains_that_share_their_last_four_digits_are_two_addresses() -> None:
    assert PciAddress.parse("10000:e1:00.0") != PciAddress.parse("0000:e1:00.0")


def test_it_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        PciAddress.parse("3b:00.0")._key = (0, 0, 0, 0)
