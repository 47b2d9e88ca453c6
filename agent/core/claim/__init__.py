"""Claims: what was promised to whom, from the yes until the guest has left (docs/ledger.md)."""
