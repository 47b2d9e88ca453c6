"""agentctl why GUEST|CPU|DEVICE."""

from __future__ import annotations

import argparse

from agent.cli.command import ReportCommand
from agent.cli.find import find_thing
from agent.cli.output import Answer
from agent.cli.source import started
from agent.core.pci import PciAddress
from agent.core.report import GuestReport, Report
from agent.formats import wire
from agent.render import holders


class Why(ReportCommand):
    """Tell who holds a CPU or a device, or what a guest holds, and since when."""

    epilog_text = "'cpu:3', 'guest:3' and 'device:ens1f0' say which is meant where a name could be several."

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Adds the thing."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "thing",
            metavar="GUEST|CPU|DEVICE",
            help="a guest, a CPU number, a PCI address, an interface or an mdev's uuid",
        )
        return parser

    def answer(self, report: Report, options: argparse.Namespace) -> Answer:
        """One row per holder."""
        answer = _why(report, find_thing(report, options.thing))
        data = {
            "thing": answer.thing,
            "facts": list(answer.facts),
            "holders": [holder._asdict() for holder in answer.holders],
            "conflicts": wire.to_builtins(answer.conflicts),
        }
        return Answer(data, holders.Holder._fields, answer.holders, lambda: holders.why_text(answer, width=self.width))


def _why(report: Report, thing: int | PciAddress | str | GuestReport) -> holders.Answer:
    if isinstance(thing, int):
        return holders.why_cpu(report, thing, started)
    if isinstance(thing, PciAddress):
        return holders.why_device(report, thing, started)
    if isinstance(thing, str):
        return holders.why_mdev(report, thing, started)
    return holders.why_guest(report, thing, started)
