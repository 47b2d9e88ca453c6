"""Whether a guest fits a host, and where each of its cells, CPUs, pages and devices goes."""
