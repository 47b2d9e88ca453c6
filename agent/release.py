"""Which release this is."""

from __future__ import annotations

from importlib import metadata

DISTRIBUTION = "compute-agent"


def version() -> str:
    """Of the installed distribution; "unknown" in a checkout that was never installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"
