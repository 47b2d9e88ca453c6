"""Domain XML that is wrong: what is refused, what costs its own field, and that nothing else is ever raised."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.core.cpuset import CpuSet
from agent.core.guest import GuestCell, MemoryDevice, Pin
from agent.errors import FormatError
from agent.formats.domain_xml import ReadDomain, read_domain
from agent.formats.xml_text import LONGEST_TEXT, MOST_ELEMENTS
from tests.unit.domain_texts import DOMAINS, captured, guest, observed

CAPTURED = sorted(path.stem for path in DOMAINS.glob("*.xml"))

BILLION_LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE domain [<!ENTITY a "haha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">'
    '<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>' + guest("<title>&c;</title>")
)


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        (
            "<domain><name>web-1</name><uuid>1</uuid><vcpu>",
            "the XML of domain 'web-1' is not well-formed XML: no element found: line 1, column 46",
        ),
        ("", "the domain XML that begins '' is not well-formed XML: no element found: line 1, column 0"),
        (
            "<domain><uuid>6695eb01-f6a4-8304-79aa-97f2502e193f</uuid></domain>",
            "the XML of domain '6695eb01-f6a4-8304-79aa-97f2502e193f' names no name",
        ),
        ("<domain><name>web-1</name><uuid> </uuid></domain>", "the XML of domain 'web-1' names no uuid"),
        ("<network><name>pool</name></network>", "the XML of 'pool' is a <network>, not a <domain>"),
        (
            BILLION_LAUGHS,
            "the XML of domain 'g' carries a document type ('domain'), which libvirt never writes; not read",
        ),
        (
            guest("<title>\ud800</title>"),
            "the XML of domain 'g' is no text: it holds half a character (UnicodeEncodeError)",
        ),
    ],
    ids=["cut off", "empty", "no name", "no uuid", "no domain", "document type", "no text"],
)
def test_a_text_that_is_no_domain_is_refused_by_one_sentence_that_names_it(xml: str, message: str) -> None:
    with pytest.raises(FormatError) as refused:
        read_domain(xml)
    assert str(refused.value) == message


def test_a_name_of_blanks_is_a_name_as_it_is_to_libvirt() -> None:
    named = guest("").replace("<name>g</name>", "<name>  </name>")
    assert read_domain(named) == ReadDomain(domain=observed(name="  "))


def test_a_text_longer_than_libvirt_can_send_is_refused_unparsed() -> None:
    with pytest.raises(FormatError, match="has 4194410 characters, more than libvirt can send; it is not read"):
        read_domain(guest("<title>" + "x" * LONGEST_TEXT + "</title>"))


def test_elements_nested_without_end_are_refused_unparsed() -> None:
    with pytest.raises(FormatError, match=f"has more than {MOST_ELEMENTS} elements; it is not read"):
        read_domain(guest("<metadata>" + "<a>" * MOST_ELEMENTS + "</a>" * MOST_ELEMENTS + "</metadata>"))


def test_deep_nesting_below_the_limit_is_harmless() -> None:
    depth = MOST_ELEMENTS - 100
    assert read_domain(guest("<x>" * depth + "</x>" * depth)) == ReadDomain(domain=observed())


def test_the_letters_of_a_document_type_in_a_comment_or_in_cdata_are_harmless() -> None:
    body = "<!-- <!DOCTYPE domain> --><metadata><x:y xmlns:x='urn:x'><![CDATA[<!DOCTYPE domain []>]]></x:y></metadata>"
    assert read_domain(guest(body)).domain == observed(facts={"metadata": "urn:x"})


def test_an_encoding_that_the_text_claims_of_itself_is_not_believed() -> None:
    named = '<?xml version="1.0" encoding="utf-16"?>' + guest("<title>Zürich</title>")
    assert read_domain(named).domain == observed(facts={"title": "Zürich"})


PIN = "<vcpu>2</vcpu><cputune><vcpupin vcpu='0' cpuset='4'/>{}</cputune>"
BAD_MODULES = (
    "<memory>x</memory><devices><memory model='dimm'><target><size>64</size><node>!</node></target></memory>"
    "<memory model='dimm'><target><size/></target></memory></devices>"
)
BAD_DEVICES = (
    "<devices><hostdev type='pci'><source><address domain='0' bus='0x1ff' slot='0' function='0'/></source>"
    "</hostdev><hostdev type='pci'/><hostdev type='mdev'><source/></hostdev><interface type='vdpa'/></devices>"
)
PINNED = {"vcpus": 2, "vcpus_online": CpuSet((0, 1)), "vcpu_pins": (Pin(thread=0, cpus=CpuSet((4,))),)}


@pytest.mark.parametrize(
    ("body", "fields", "problems"),
    [
        (
            PIN.format("<vcpupin vcpu='1' cpuset='99999999999'/>"),
            PINNED,
            ("vcpupin of vcpu 1: cpuset is '99999999999', not a list of numbers",),
        ),
        (
            PIN.format("<vcpupin vcpu='1' cpuset=''/>"),
            PINNED,
            ("vcpupin of vcpu 1: cpuset is '', not a list of numbers",),
        ),
        (
            PIN.format("<vcpupin vcpu='1'/>"),
            PINNED,
            ("vcpupin of vcpu 1: cpuset is '', not a list of numbers",),
        ),
        (
            PIN.format("<vcpupin cpuset='3'/>"),
            PINNED,
            ("vcpupin vcpu is '', not a number up to 65536",),
        ),
        (
            PIN.format("<vcpupin vcpu='0' cpuset='5'/>"),
            PINNED,
            ("vcpupin of vcpu 0 is there twice; the first is taken",),
        ),
        (
            PIN.format("<vcpupin vcpu='2' cpuset='5'/><vcpupin vcpu='7' cpuset='6'/>"),
            PINNED,
            ("vcpupin of vcpu 2,7: the guest has 2 vCPUs",),
        ),
        (
            PIN.format("<emulatorpin cpuset='a-b'/><iothreadpin iothread='-1' cpuset='2'/>"),
            PINNED,
            (
                "emulatorpin cpuset is 'a-b', not a list of numbers",
                "iothreadpin iothread is '-1', not a number up to 65536",
            ),
        ),
        (
            "<vcpu cpuset='3-1'>1_0</vcpu><cputune><vcpupin vcpu='5' cpuset='1'/></cputune>",
            {"vcpus": 6, "vcpus_online": CpuSet(range(6)), "vcpu_pins": (Pin(thread=5, cpus=CpuSet((1,))),)},
            ("vcpu is '1_0', not a number up to 65536", "vcpu cpuset is '3-1', not a list of numbers"),
        ),
        ("<vcpu>0</vcpu>", {}, ("vcpu is '0', not a number of vCPUs",)),
        ("<vcpu>1000000000</vcpu>", {}, ("vcpu is '1000000000', not a number up to 65536",)),
        (
            "<vcpu current='x'>2</vcpu>",
            {"vcpus": 2, "vcpus_online": CpuSet((0, 1))},
            ("vcpu current is 'x', not a number up to 65536",),
        ),
        (
            "<vcpu>2</vcpu><vcpus><vcpu id='0' enabled='yes'/><vcpu id='?' enabled='yes'/></vcpus>",
            {"vcpus": 2, "vcpus_online": CpuSet((0,))},
            ("vcpus vcpu id is '?', not a number up to 65536",),
        ),
        (
            "<memory unit='furlong'>7</memory><currentMemory>1024</currentMemory>",
            {"memory_kib": 1024, "current_memory_kib": 1024},
            ("memory is '7' furlong, not a size",),
        ),
        (
            "<memory/><cpu><numa><cell id='0' cpus='0' memory='512'/><cell id='1' cpus='z' memory='-1'/></numa></cpu>",
            {
                "memory_kib": 512,
                "cells": (
                    GuestCell(id=0, vcpus=CpuSet((0,)), memory_kib=512),
                    GuestCell(id=1, vcpus=CpuSet(), memory_kib=0),
                ),
            },
            (
                "numa cell 1: cpus is 'z', not a list of numbers",
                "numa cell 1: memory is '-1' KiB, not a size",
                "memory is empty, not a size",
            ),
        ),
        (
            BAD_MODULES,
            {"memory_kib": 64, "memory_devices": (MemoryDevice(model="dimm", size_kib=64),)},
            (
                "memory dimm: node is '!', not a number",
                "memory dimm: size is empty, not a size",
                "memory is 'x' KiB, not a size",
            ),
        ),
        (
            "<numatune><memory mode='strict' nodeset='all'/><memnode cellid='x' nodeset='0'/></numatune>",
            {"mode": "strict"},
            ("numatune memory nodeset is 'all', not a list of numbers",),
        ),
        (
            "<memoryBacking><hugepages><page size='2' unit='parsec'/><page size='0'/></hugepages></memoryBacking>",
            {},
            ("hugepages page size is '2' parsec, not a size", "hugepages page size is '0', not a size"),
        ),
        (
            BAD_DEVICES,
            {},
            (
                "hostdev: address is 'domain=0 bus=0x1ff slot=0 function=0', not a PCI address",
                "hostdev: address is missing",
                "hostdev of type mdev names no uuid",
                "interface of type vdpa names no device",
            ),
        ),
    ],
)
def test_a_fault_costs_its_own_field_and_is_named(
    body: str, fields: dict[str, object], problems: tuple[str, ...]
) -> None:
    assert read_domain(guest(body)) == ReadDomain(domain=observed(**fields), problems=problems)


def test_a_long_text_is_cut_in_the_sentence_that_quotes_it() -> None:
    (problem,) = read_domain(guest(f"<vcpu cpuset='{'x' * 5000}'>1</vcpu>")).problems
    assert problem == f"vcpu cpuset is '{'x' * 80}...', not a list of numbers"


def test_a_uuid_that_is_none_is_kept_and_named() -> None:
    read = read_domain("<domain><name>g</name><uuid>Seven</uuid></domain>")
    assert read == ReadDomain(domain=observed(uuid="seven"), problems=("uuid is 'seven', not a UUID",))


@given(st.text())
@example("<domain>")
@example("\0")
@example("<domain><name>a</name><uuid>b</uuid><vcpu>\u0663</vcpu></domain>")
def test_random_text_is_read_or_refused(text: str) -> None:
    read_or_refuse(text)


@given(st.sampled_from(CAPTURED), st.integers(min_value=0))
def test_a_text_cut_anywhere_is_refused(name: str, cut: int) -> None:
    whole = captured(name).rstrip()
    with pytest.raises(FormatError):
        read_domain(whole[: cut % len(whole)])


EDIT = st.tuples(st.integers(min_value=0), st.integers(min_value=0, max_value=40), st.text(max_size=20))
NUMBERS = st.sampled_from(
    ["", "-1", "0x1f", "1e9", "9" * 30, "0-1048575", "^", "^0", ",", "1,,2", "nan", "\u00b2", "5-3"]
)


@given(st.sampled_from(CAPTURED), st.lists(EDIT, min_size=1, max_size=4))
def test_a_captured_text_with_any_edit_is_read_or_refused(name: str, edits: list[tuple[int, int, str]]) -> None:
    text = captured(name)
    for start, length, replacement in edits:
        position = start % len(text)
        text = text[:position] + replacement + text[position + length :]
    read_or_refuse(text)


@given(st.sampled_from(CAPTURED), st.data())
def test_a_captured_text_with_any_value_replaced_is_still_read(name: str, data: st.DataObject) -> None:
    pieces = captured(name).split("'")
    values = range(1, len(pieces), 2)
    for position in data.draw(st.lists(st.sampled_from(values), max_size=6)):
        pieces[position] = data.draw(NUMBERS)
    assert read_domain("'".join(pieces)).domain.uuid == read_domain(captured(name)).domain.uuid


def read_or_refuse(text: str) -> None:
    try:
        read = read_domain(text)
    except FormatError:
        return
    assert read.domain.name.strip()
