"""Options, checked together, become one frozen `Settings`."""

from agent.conf.logs import setup_logging
from agent.conf.options import list_opts
from agent.conf.settings import Configured, Settings, describe, load, read, reload

__all__ = ["Configured", "Settings", "describe", "list_opts", "load", "read", "reload", "setup_logging"]
