"""Sets up logging as oslo.log's options say."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from oslo_log import log

from agent.conf import options
from agent.conf.settings import own_source


def setup_logging(argv: Sequence[str] | None, default_config_files: Sequence[str] | None = None) -> None:
    """Log to where [DEFAULT] log_file, use_journal, ... say, else to standard error; after a reload again.

    Raises ConfigError when the files cannot be read or parsed.
    """
    own = own_source(options.command_line().parse_args(argv), default_config_files)
    before = list(logging.getLogger().handlers)
    log.setup(own.conf, "compute-agent", options.version(), fix_eventlet=False)
    for handler in before:
        if isinstance(handler, logging.FileHandler):
            handler.close()  # oslo.log drops its old handlers and leaves their files open
