"""Whether guests fit, against an oracle that tries everything."""
