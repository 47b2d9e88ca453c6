"""python -m tests.bench [NAME...]: measure what is named, or all; print a table; 1 for a missed budget."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from tests.bench import claims, daemon, discovery, fit, machine, passes, promises, reports, usage
from tests.bench.rows import Row, table

MEASURES: dict[str, Callable[[], Iterator[Row]]] = {
    "usage": usage.measure,
    "promises": promises.measure,
    "fit": fit.measure,
    "discovery": discovery.measure,
    "passes": passes.measure,
    "reports": reports.measure,
    "claims": claims.measure,
    "daemon": daemon.measure,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is named, all of it without a name."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MEASURES))
    names = parser.parse_args(argv).names or list(MEASURES)
    if unknown := set(names) - MEASURES.keys():
        parser.error(f"no such measurement: {', '.join(sorted(unknown))}")
    if "daemon" in names and os.geteuid() != 0:
        parser.error("the daemon is measured beside a private libvirtd, which needs root; name the others without")
    logging.disable(logging.WARNING)  # what the agent says of a thousand conflicts is not the table
    sys.stdout.write(f"{machine.described()}\n")
    rows: list[Row] = []
    for name in names:
        sys.stderr.write(f"measuring {name}\n")
        rows += MEASURES[name]()
    sys.stdout.write(f"{table(rows)}\n{machine.described()}\n")
    return int(any(row.is_missed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
