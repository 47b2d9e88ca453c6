"""Pictures of values for people."""
