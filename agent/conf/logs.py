"""Sets up logging as oslo.log's options say."""

from __future__ import annotations

import logging
from typing import Any

from oslo_log import formatters, log, rate_limit

from agent.conf.reading import Source
from agent.core.words import plain, plain_lines
from agent.errors import ConfigError
from agent.release import DISTRIBUTION, version


def setup_logging(own: Source) -> None:
    """Log to where [DEFAULT] log_file, use_journal, ... say, else to standard error; after a reload again.

    own: our options as `read` found them. Raises ConfigError when the log cannot be opened; it then goes where it went.
    """
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    rate_limit.uninstall_filter()  # a second one is an error to oslo.log
    try:
        log.setup(own.conf, DISTRIBUTION, version(), fix_eventlet=False)
    except Exception as error:  # log_config_append holds expressions, which may raise anything
        root.handlers[:] = before
        root.setLevel(level)
        raise ConfigError(
            f"[DEFAULT] the log cannot be set up: {error}. See log_file, log_dir, log_config_append."
        ) from error
    for handler in root.handlers:
        if isinstance(handler.formatter, formatters.ContextFormatter):
            handler.setFormatter(_Formatter(config=own.conf, datefmt=handler.formatter.datefmt))
    for handler in before:
        if isinstance(handler, logging.FileHandler):
            handler.close()  # oslo.log drops its old handlers and leaves their files open


class _Formatter(formatters.ContextFormatter):
    """Safe to show, whatever guests are called; without oslo.log's summary of the error being handled: our lines
    say themselves what went wrong."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        """Only its first line looks like the first of a record."""
        record.message = plain_lines(record.message).replace("\n", "\n  ")
        record.error_summary = plain(getattr(record, "error_summary", ""))
        return str(super().formatMessage(record))

    def formatException(self, ei: Any, *, record: logging.LogRecord | None = None) -> str:  # noqa: N802
        """oslo.log puts time and level before each line of a traceback."""
        return plain_lines(super().formatException(ei, record=record))

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        summary = getattr(record, "error_summary", "")
        return text.removesuffix(f": {summary}") if summary and not record.exc_info else text
