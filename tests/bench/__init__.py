"""Measurements against the budgets; `make bench` runs them, docs/benchmarks.md says how to read them."""
