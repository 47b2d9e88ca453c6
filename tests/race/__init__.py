"""Many callers at once, and whatever may happen to a host in any order; the long versions run with `tox -e race`."""
