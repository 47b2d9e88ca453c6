"""Settings for all tests."""

import sys

# futurist and oslo.service import eventlet where it is installed, and pip always installs it with oslo.messaging; the
# daemon never uses it. This stands before every other import, as in the entry points.
sys.modules["eventlet"] = None  # type: ignore[assignment]
