"""The daemon in an emulated machine with several cells, real udevd and real hot-plug; `tox -e lab`, minutes, root."""
