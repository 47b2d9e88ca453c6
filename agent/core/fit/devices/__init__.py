"""Which devices of the host serve what a guest asks for: all of its requests together, near its cells."""
