"""The daemon and the commands on a real libvirtd with real QEMU guests."""
