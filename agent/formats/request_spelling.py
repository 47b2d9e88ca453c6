"""How people and programs write a request, into how it is checked. docs/fit.md lists what they may write."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agent.core.nova_text import yes_or_no
from agent.formats.spelling import number, refuse, renamed, tidied, twice, unknown
from agent.formats.validate import entry_path, field_path

FLAVOR_NAMES: Mapping[str, str] = MappingProxyType({"swap": "swap_mb", "ram": "memory_mb", "disk": "root_gb"})
PORT_NAMES: Mapping[str, str] = MappingProxyType(
    {"binding:vnic_type": "vnic_type", "binding:profile": "profile", "binding_profile": "profile"}
)
"""neutron's names, and a port's binding profile."""

_PROFILE = ("capabilities", "trusted", "physical_network")
_OFFLOAD = ("switchdev", "hardware_offload")
_RULES = ("max_server_per_host",)
_IGNORED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "image": frozenset({"id", "name"}),
        "group": frozenset({"name"}),
        "port": frozenset({"network_id"}),
    }
)
"""What decides nothing."""

_WORDS = frozenset({"extra_specs", "properties"})


def spelled(data: object) -> object:
    """The request under its own names. Raises FaultyInput for what is said twice."""
    if not isinstance(data, dict):
        return data
    faults: list[str] = []
    top: dict[str, Any] = {name: tidied(value, _WORDS) for name, value in data.items() if value is not None}
    for name, spell in (("instance", _instance), ("flavor", _flavor), ("image", _image), ("group", _group)):
        if isinstance(part := top.get(name), dict):
            top[name] = spell(part, faults)
    if isinstance(ports := top.get("ports"), list):
        top["ports"] = [_port(one, f"ports[{n}]", faults) for n, one in enumerate(ports)]
    refuse(faults)
    return top


def _instance(part: dict[str, Any], _: list[str]) -> dict[str, Any]:
    return {**part, "uuid": _lower(part["uuid"])} if "uuid" in part else part


def _flavor(part: dict[str, Any], faults: list[str]) -> dict[str, Any]:
    flavor = renamed(part, FLAVOR_NAMES, "flavor", faults)
    # nova says so of a flavor without swap
    return _with_words({name: value for name, value in flavor.items() if name != "swap_mb" or value != ""})


def _image(part: dict[str, Any], _: list[str]) -> dict[str, Any]:
    return _with_words(_without(part, "image"))


def _with_words(part: dict[str, Any]) -> dict[str, Any]:
    """True and false as the texts that nova takes for them, in extra_specs and properties."""
    found = dict(part)
    for name in _WORDS & found.keys():
        if isinstance(words := found[name], dict):
            found[name] = {key: _bool_text(value) for key, value in words.items()}
    return found


def _bool_text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _group(part: dict[str, Any], faults: list[str]) -> dict[str, Any]:
    group = _without(part, "group")
    if "generation" in group:
        group["generation"] = number(group["generation"])
    if isinstance(members := group.get("members"), list):
        group["members"] = [_lower(member) for member in members]
    if isinstance(rules := group.get("rules"), dict):
        del group["rules"]
        for name, value in rules.items():
            if name not in _RULES:
                faults.append(unknown("group.rules", name, _RULES))
            else:
                _tell(group, name, number(value), f"group.rules.{name}", faults)
    return group


def _port(given: Any, path: str, faults: list[str]) -> Any:
    if not isinstance(given, dict):
        return given
    port = renamed(_without(given, "port"), PORT_NAMES, path, faults)
    if isinstance(tags := port.get("tags"), list | dict):
        del port["tags"]
        _offload(port, tags, field_path(path, "tags"), faults)
    if isinstance(profile := port.get("profile"), dict):
        del port["profile"]
        _profile(port, profile, path, faults)
    if "trusted" in port:
        port["trusted"] = _switch(port["trusted"])
    return port


def _profile(port: dict[str, Any], profile: Mapping[str, Any], path: str, faults: list[str]) -> None:
    for name, value in profile.items():
        where = field_path(path, f"binding:profile.{name}")
        if name not in _PROFILE:
            faults.append(unknown(field_path(path, "binding:profile"), name, _PROFILE))
        elif name == "capabilities" and isinstance(value, list):
            _offload(port, value, where, faults)
        elif name == "physical_network" and port.get(name) == value:
            continue  # nova itself writes the network there beside the port's
        else:
            _tell(port, name, value, where, faults)


def _offload(port: dict[str, Any], words: list[Any] | dict[str, Any], where: str, faults: list[str]) -> None:
    """A port that wants a switchdev function; told as a list of words, or by word with true or false."""
    for word, is_so in words.items() if isinstance(words, dict) else ((word, True) for word in words):
        if str(word).replace("-", "_").replace(" ", "_") not in _OFFLOAD:
            faults.append(unknown(where, str(word), _OFFLOAD))
        elif port.get("hardware_offload", is_so) is not is_so:
            faults.append(twice(entry_path(where, str(word)), "hardware_offload"))
        else:
            port["hardware_offload"] = is_so


def _tell(part: dict[str, Any], name: str, value: Any, where: str, faults: list[str]) -> None:
    if name in part:
        faults.append(twice(where, name))
    part[name] = value


def _without(part: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in _IGNORED[kind]}


def _switch(value: Any) -> Any:
    meaning = yes_or_no(value) if isinstance(value, str) else None
    return value if meaning is None else meaning


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value
