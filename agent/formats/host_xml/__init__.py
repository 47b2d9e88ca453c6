"""What libvirt says of the host: capabilities and node devices, and where it and sysfs contradict one another."""

from __future__ import annotations

from agent.formats.host_xml.capabilities import Capabilities, CapabilityCell, CapabilityCpu, read_capabilities
from agent.formats.host_xml.device_differences import complete_devices, device_disagreements
from agent.formats.host_xml.differences import disagreements
from agent.formats.host_xml.node_device import NodeDevice, read_node_device

__all__ = [
    "Capabilities",
    "CapabilityCell",
    "CapabilityCpu",
    "NodeDevice",
    "complete_devices",
    "device_disagreements",
    "disagreements",
    "read_capabilities",
    "read_node_device",
]
