"""The entry point of agentctl. Its exit codes: `exits.TABLE`."""

import sys

sys.modules["eventlet"] = None  # type: ignore[assignment]  # libraries import it when it is there: 8 MiB and 100 ms

from collections.abc import Sequence

from agent.cli import exits
from agent.cli.summary import SUMMARY


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command (None: the process's own arguments) and return its exit code; never raises."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments:
        print(SUMMARY, end="")
        return exits.OK
    try:
        from agent.cli.app import run  # cliff costs 60 ms, which the summary need not wait for

        return run(arguments)
    except KeyboardInterrupt:
        return exits.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
