"""Outside text to values and back; pure."""
