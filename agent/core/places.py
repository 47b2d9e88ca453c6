"""Where the daemon, its users and libvirt meet unless somebody says otherwise."""

from __future__ import annotations

SOCKET_DIR = "/run/compute-agent"
FULL_SOCKET = "agent.sock"
READ_ONLY_SOCKET = "agent-ro.sock"
SOCKET_VARIABLE = "COMPUTE_AGENT_SOCKET"
"""Of the environment: the path of the socket that agentctl asks."""

LIBVIRT_VARIABLE = "LIBVIRT_DEFAULT_URI"
"""The URI that virsh takes when it is told none."""

SYSTEM_LIBVIRT = "qemu:///system"
"""libvirt's client itself takes virtqemud's socket where there is one, and libvirtd's else."""
