"""The only user of libvirt. This part only reads: the connection is opened read-only, so libvirt refuses any change."""

from __future__ import annotations

from agent.adapters.libvirt.connection import LibvirtConnection, Patience
from agent.adapters.libvirt.domains import DomainText
from agent.adapters.libvirt.host import NodeDevices
from agent.adapters.libvirt.reader import LibvirtHost

__all__ = ["DomainText", "LibvirtConnection", "LibvirtHost", "NodeDevices", "Patience"]
