"""Pure values and rules: no I/O, no clock, no log, no lock, no configuration."""
