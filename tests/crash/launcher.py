"""Starts daemons: a process that has imported the agent once and forks for each, since hundreds are started.

Orders come as lines of JSON on standard input, answers as lines on standard output: an order to start gives the process
id, one to reap the exit code of a daemon that has ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from agent import service
from tests.crash.points import Points

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Until standard input ends."""
    for line in sys.stdin:
        order = json.loads(line)
        if "reap" in order:
            answer = os.waitstatus_to_exitcode(os.waitpid(order["reap"], 0)[1])
        elif (answer := os.fork()) == 0:
            _be_daemon(order)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


def _be_daemon(order: dict[str, Any]) -> NoReturn:
    code = 70
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ |= order["environ"]
        if order["points"]:
            Points(Path(order["points"]), order["kill_at"], order["replies"]).watch()
        code = service.main(order["arguments"])
    finally:
        if sys.exc_info()[1] is not None:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
