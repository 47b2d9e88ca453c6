"""Who made the domain, and what they wrote about it in its metadata."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

from agent.core.guest import Maker
from agent.core.values import ReadOnlyMap
from agent.formats.xml_text import Element, text_of

_NOVA = "{http://openstack.org/xmlns/libvirt/nova/"
_OVIRT = "{http://ovirt.org/vm/"
_LIBOSINFO = "{http://libosinfo.org/xmlns/libvirt/domain/"
_OURS = "{urn:compute-agent:placement:1}"
"""What `render/domain_parts` writes: it makes nobody the domain's manager."""


def read_maker(root: Element) -> tuple[Maker, ReadOnlyMap[str, str]]:
    """The manager whose metadata is there ("libvirt" when none is), and the facts it wrote.

    nova: name, package, created, flavor, flavor_id, flavor_<what>, extra:NAME, image, image:NAME, user, user_id,
    project, project_id, root, port:UUID (its addresses). oVirt: each plain element. Any: title, os (libosinfo),
    extra:hw:cpu_thread_policy (of a placement of ours), and metadata (namespaces of managers that are not known here).
    """
    facts: dict[str, str] = {}
    maker: Maker = "libvirt"
    if (title := text_of(root, "title")) is not None:
        facts["title"] = title
    strangers = []
    for element in root.iterfind("metadata/*"):
        tag = element.tag
        if tag.startswith(_NOVA):
            maker = "nova"
            facts.update(_nova_facts(element))
        elif tag.startswith(_OVIRT):
            maker = "ovirt"
            facts.update(_ovirt_facts(element))
        elif tag.startswith(_LIBOSINFO):
            facts.update(("os", identity) for child in element if (identity := child.get("id")))
        elif tag.startswith(_OURS):
            facts.update(_fact("extra:hw:cpu_thread_policy", element.get("cpu_thread_policy")))
        else:
            strangers.append(tag.partition("}")[0].lstrip("{"))
    if strangers:
        facts["metadata"] = " ".join(sorted(set(strangers)))
    return maker, MappingProxyType(facts)


def _nova_facts(instance: Element) -> Iterator[tuple[str, str]]:
    space = instance.tag.partition("}")[0] + "}"  # 1.0 and 1.1 write the same elements
    for element in instance:
        tag = element.tag.removeprefix(space)
        if tag == "name":
            yield from _fact("name", element.text)
        elif tag == "package":
            yield from _fact("package", element.get("version"))
        elif tag == "creationTime":
            yield from _fact("created", element.text)
        elif tag == "flavor":
            yield from _flavor_facts(element, space)
        elif tag == "image":
            yield from _image_facts(element, space)
        elif tag == "owner":
            for who in element:
                yield from _fact(who.tag.removeprefix(space), who.text)
                yield from _fact(f"{who.tag.removeprefix(space)}_id", who.get("uuid"))
        elif tag == "root":
            yield from _fact("root", " ".join(filter(None, (element.get("type"), element.get("uuid")))))
        elif tag == "ports":
            for port in element:
                addresses = " ".join(filter(None, (ip.get("address") for ip in port)))
                yield from _fact(f"port:{port.get('uuid')}", addresses)


def _flavor_facts(flavor: Element, space: str) -> Iterator[tuple[str, str]]:
    yield from _fact("flavor", flavor.get("name"))
    yield from _fact("flavor_id", flavor.get("id"))
    for element in flavor:
        tag = element.tag.removeprefix(space)
        if tag == "extraSpecs":
            yield from _named("extra", element)
        else:
            yield from _fact(f"flavor_{tag}", element.text)


def _image_facts(image: Element, space: str) -> Iterator[tuple[str, str]]:
    yield from _fact("image", image.get("uuid"))
    for element in image:
        if element.tag.removeprefix(space) == "properties":
            yield from _named("image", element)


def _named(prefix: str, parent: Element) -> Iterator[tuple[str, str]]:
    for element in parent:
        if (name := element.get("name")) is not None:
            yield f"{prefix}:{name}", (element.text or "").strip()


def _ovirt_facts(vm: Element) -> Iterator[tuple[str, str]]:
    for element in vm:
        if not len(element):
            yield from _fact(element.tag.rpartition("}")[2], element.text)


def _fact(name: str, text: str | None) -> Iterator[tuple[str, str]]:
    stripped = (text or "").strip()
    if stripped:
        yield name, stripped
