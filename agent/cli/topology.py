"""agentctl topology."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from agent.cli.command import ReportCommand
from agent.cli.output import Answer
from agent.core.pci import PciDevice
from agent.core.report import Report
from agent.core.topology import Cache, Cpu, HostCell
from agent.core.values import Problem, Value
from agent.formats import wire
from agent.render.cpu_states import cpu_states
from agent.render.topology_text import topology_text

CPUS = "cpus"
PARTS: dict[str, type[Value]] = {CPUS: Cpu, "cells": HostCell, "caches": Cache, "pci": PciDevice, "problems": Problem}
STATE = "state"
"""Of a CPU: what the map shows as a letter."""


class Topology(ReportCommand):
    """Show what this host has: cells, cores, pages, caches, devices, and a map of its CPUs."""

    epilog_text = "json and yaml hold everything; table, value and csv hold one part (--rows)."

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds what to show."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--rows", choices=PARTS, default=CPUS, help="what table, value and csv list (default: cpus)"
        )
        parser.add_argument("--all-devices", action="store_true", help="in text: bridges and each virtual function too")
        return parser

    def fetch(self, options: argparse.Namespace) -> Report:
        """As the other commands; raises HostReadError, too, when the host is not known."""
        return self.with_host(super().fetch(options))

    def answer(self, report: Report, options: argparse.Namespace) -> Answer:
        """The topology as it is known; the map also needs the usage."""
        data = wire.to_builtins(report.topology)
        rows = _with_states(data[CPUS], report) if options.rows == CPUS else data[options.rows]
        columns = [field.encode_name for field in msgspec.structs.fields(PARTS[options.rows])]
        columns += [STATE] if options.rows == CPUS else []
        return Answer(
            data,
            columns,
            [[row[name] for name in columns] for row in rows],
            lambda: topology_text(
                report.topology,
                report.usage,
                report.conflicts,
                width=self.width,
                paint=self.paint,
                everything=options.all_devices,
            ),
        )


def _with_states(rows: list[dict[str, Any]], report: Report) -> list[dict[str, Any]]:
    states = cpu_states(report.topology, report.usage, report.conflicts)
    return [{**row, STATE: states[row["id"]].name.lower()} for row in rows]
