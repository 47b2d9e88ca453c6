"""Faults that people met on real hosts, as cases."""
