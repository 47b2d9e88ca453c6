"""Against other software of the field, in environments of their own; not part of the default run."""
