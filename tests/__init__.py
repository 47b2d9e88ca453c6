"""All tests; each folder says against what."""
