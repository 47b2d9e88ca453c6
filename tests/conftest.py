"""Settings for all tests."""

import signal
import sys

# futurist and oslo.service import eventlet where it is installed, and pip always installs it with oslo.messaging; the
# daemon never uses it. This stands before every other import, as in the entry points.
sys.modules["eventlet"] = None  # type: ignore[assignment]

from hypothesis import HealthCheck, settings  # noqa: E402

# A loaded machine is no failure: no example has a deadline, and slow ones are no reason to stop.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

# A shell starts its background jobs with Ctrl-C ignored, and every command that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
