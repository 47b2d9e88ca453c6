"""The entry point of agentctl.

Exit codes, the same for all commands:

    0    done; nothing that contradicts was found
    1    conflicts were found (conflicts, check), the guest does not fit (fit), or the host is degraded
       (status --exit-code)
    2    bad arguments: unknown command, option or guest, a name that fits several, a request with faults
    3    could not look: no libvirt, no permission, no agent, a wrong configuration, or a fault of agentctl
    130  interrupted; 141: nobody reads the output any more

`check --one-line` has Nagios's codes instead: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
"""

import sys

sys.modules["eventlet"] = None  # type: ignore[assignment]  # libraries import it when it is there: 8 MiB and 100 ms

from collections.abc import Sequence

from agent.cli.summary import SUMMARY

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command (None: the process's own arguments) and return its exit code; never raises."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments:
        print(SUMMARY, end="")
        return 0
    try:
        from agent.cli.app import run  # cliff costs 60 ms, which the summary need not wait for

        return run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
