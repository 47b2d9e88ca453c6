"""The real daemon, killed at every step that it takes, and on disks that fail: what was promised must still stand."""
