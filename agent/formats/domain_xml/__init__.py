"""libvirt's domain XML, live or inactive, as an `ObservedDomain`. Only a text that is no domain at all is refused."""

from __future__ import annotations

import re

from agent.core.guest import ObservedDomain
from agent.core.values import Value
from agent.errors import FormatError
from agent.formats.domain_xml.cpus import read_cpus
from agent.formats.domain_xml.devices import read_devices
from agent.formats.domain_xml.maker import read_maker
from agent.formats.domain_xml.memory import read_memory
from agent.formats.xml_text import Element, Reader, parse_xml, quote

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_RAW_NAME = re.compile(r"<(?:name|uuid)>([^<]{1,80})</")


class ReadDomain(Value, frozen=True, kw_only=True):
    """A domain and what could not be read of it: one sentence for each field that was left out."""

    domain: ObservedDomain
    problems: tuple[str, ...] = ()


def read_domain(xml: str) -> ReadDomain:
    """What virDomainGetXMLDesc said. Raises FormatError, naming the domain as far as it can, when the text is not
    well-formed, carries a document type, is larger than libvirt can send, or names no domain with uuid and name."""
    root = parse_xml(xml, _which(xml))
    name, uuid = _identity(root)
    reader = Reader()
    if not _UUID.fullmatch(uuid):
        reader.problems.append(f"uuid is {quote(uuid)}, not a UUID")
    maker, facts = read_maker(root)
    cpus = read_cpus(root, reader)
    memory = read_memory(root, reader)
    domain = ObservedDomain(
        uuid=uuid,
        name=name,
        maker=maker,
        facts=facts,
        devices=read_devices(root, reader),
        **cpus._asdict(),
        **memory._asdict(),
    )
    return ReadDomain(domain=domain, problems=tuple(reader.problems))


def _identity(root: Element) -> tuple[str, str]:
    name, uuid = root.findtext("name"), root.findtext("uuid")
    if root.tag != "domain":
        raise FormatError(f"the XML of {quote(name)} is a <{root.tag[:80]}>, not a <domain>")
    if not name:  # blanks alone are a name: libvirt takes them
        raise FormatError(f"the XML of domain {quote(uuid)} names no name")
    if not uuid or not uuid.strip():
        raise FormatError(f"the XML of domain {quote(name)} names no uuid")
    return name, uuid.strip().lower()


def _which(xml: str) -> str:
    # Also of a text that does not parse: the operator must find the guest.
    named = _RAW_NAME.search(xml[:65536])
    return f"the XML of domain {quote(named[1])}" if named else f"the domain XML that begins {quote(xml[:40])}"
