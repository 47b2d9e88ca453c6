"""The compute-node agent: what a libvirt host has, who sits where, what conflicts."""
