"""What would make a guest fit that does not: the smallest changes, each tried with the whole fit."""
