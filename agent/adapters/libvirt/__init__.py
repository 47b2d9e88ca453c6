"""The only user of libvirt."""
