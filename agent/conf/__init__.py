"""Options, checked together, become one frozen `Settings`."""

from agent.conf.logs import setup_logging
from agent.conf.options import list_opts
from agent.conf.settings import Settings, describe, load, reload

__all__ = ["Settings", "describe", "list_opts", "load", "reload", "setup_logging"]
